// The products of attention of one token in fp32. Keys and values of any type are widened once for several query heads,
// and nothing is packed. For scores, vectors run along the head, and the horizontal sums of kLanes pairs of a query
// head and a slot are taken at once; sums are weights times rows of values. Included after base/simd/highway.h, once
// per instruction set; empty for others than AVX2 and AVX-512.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_token_state-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_WIDE_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_WIDE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_WIDE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// The horizontal sum of each of kLanes vectors, in the order of the vectors.
HWY_INLINE FloatVec sums_of_lanes(const FloatVec (&v)[kLanes]) {
#if HWY_TARGET == HWY_AVX3
  __m512 fours[4];  // in each 128 bits, the sums of those 128 bits of four vectors
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    const auto add_two = [](FloatVec a, FloatVec b) HWY_ATTR {
      return _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a.raw, b.raw), _mm512_unpackhi_ps(a.raw, b.raw)));
    };
    const __m512d low = add_two(v[4 * i], v[4 * i + 1]), high = add_two(v[4 * i + 2], v[4 * i + 3]);
    fours[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  }
  const auto halves = [](__m512 a, __m512 b) HWY_ATTR {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  const __m512 a = halves(fours[0], fours[1]), b = halves(fours[2], fours[3]);
  return FloatVec{_mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))};
#else
  const auto four = [&](int i) HWY_ATTR {
    return _mm256_hadd_ps(_mm256_hadd_ps(v[i].raw, v[i + 1].raw), _mm256_hadd_ps(v[i + 2].raw, v[i + 3].raw));
  };
  const __m256 low = four(0), high = four(4);
  return FloatVec{_mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31))};
#endif
}

// Multiplies keys of a type, widened to fp32, with queries in the same order.
template <class T>
struct WideKeys {
  using Type = T;
  struct Part {
    FloatVec a, b;
  };
  static HWY_INLINE Part key(const char* row, int64_t d) {
    Part part;
    load_values(Type(), row, d, part.a, part.b);
    return part;
  }
  static HWY_INLINE Part query(const float* q, int64_t d) {
    return {hn::LoadU(kFloats, q + d), hn::LoadU(kFloats, q + d + kLanes)};
  }
  static HWY_INLINE FloatVec add(const Part& k, const Part& q, FloatVec sum) {
    return hn::MulAdd(k.b, q.b, hn::MulAdd(k.a, q.a, sum));
  }
};

// scores[m][j] = factor * sum of q[m] * key j. Rows of q are `size` floats apart, those of scores kScoreStride.
template <class Keys, int kRows>
HWY_NOINLINE void score_rows(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t size, float factor,
                             float* HWY_RESTRICT scores) {
  constexpr int kAtOnce = kLanes / kRows;  // slots
  for (int64_t j = 0; j < keys.slots; j += kAtOnce) {
    const char* slot[kAtOnce];
    AA_UNROLL for (int s = 0; s < kAtOnce; ++s) { slot[s] = keys.row(std::min(j + s, keys.slots - 1)); }
    FloatVec sums[kLanes];
    AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
    for (int64_t d = 0; d < size; d += kPair) {
      if constexpr (kRows < kAtOnce) {
        typename Keys::Part query[kRows];
        AA_UNROLL for (int m = 0; m < kRows; ++m) query[m] = Keys::query(q + m * size, d);
        AA_UNROLL for (int s = 0; s < kAtOnce; ++s) {
          const auto key = Keys::key(slot[s], d);
          prefetch_values<typename Keys::Type>(keys, j, slot[s], d);
          AA_UNROLL for (int m = 0; m < kRows; ++m) {
            sums[m * kAtOnce + s] = Keys::add(key, query[m], sums[m * kAtOnce + s]);
          }
        }
      } else {
        typename Keys::Part key[kAtOnce];
        AA_UNROLL for (int s = 0; s < kAtOnce; ++s) {
          key[s] = Keys::key(slot[s], d);
          prefetch_values<typename Keys::Type>(keys, j, slot[s], d);
        }
        AA_UNROLL for (int m = 0; m < kRows; ++m) {
          const auto query = Keys::query(q + m * size, d);
          AA_UNROLL for (int s = 0; s < kAtOnce; ++s) {
            sums[m * kAtOnce + s] = Keys::add(key[s], query, sums[m * kAtOnce + s]);
          }
        }
      }
    }
    float products[kLanes];
    hn::StoreU(hn::Mul(sums_of_lanes(sums), hn::Set(kFloats, factor)), kFloats, products);
    AA_UNROLL for (int m = 0; m < kRows; ++m) {
      std::memcpy(scores + m * kScoreStride + j, products + m * kAtOnce, kAtOnce * sizeof(float));
    }
  }
}

// sums[m] = sums[m] * correction[m] + sum over slots of weights[m][j] * value j, for kPairs * kPair elements from d on.
template <class Type, int kRows, int kPairs, class Walk>
HWY_INLINE void sum_columns(Walk& walk, int64_t d, const float* HWY_RESTRICT weights,
                            const float* HWY_RESTRICT correction, float* HWY_RESTRICT sums, int64_t size) {
  FloatVec sum[kRows][2 * kPairs];
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) {
      sum[m][n] = hn::Mul(hn::LoadU(kFloats, sums + m * size + d + n * kLanes), hn::Set(kFloats, correction[m]));
    }
  }
  walk.for_each_row([&](int64_t j, const char* row) HWY_ATTR {
    FloatVec value[2 * kPairs];
    AA_UNROLL for (int p = 0; p < kPairs; ++p) {
      load_values(Type(), row, d + p * kPair, value[2 * p], value[2 * p + 1]);
      walk.template prefetch<Type>(j, row, d + p * kPair);
    }
    AA_UNROLL for (int m = 0; m < kRows; ++m) {
      const auto weight = hn::Set(kFloats, weights[m * kScoreStride + j]);
      AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) sum[m][n] = hn::MulAdd(weight, value[n], sum[m][n]);
    }
  });
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) { hn::StoreU(sum[m][n], kFloats, sums + m * size + d + n * kLanes); }
  }
}

template <class Type, int kRows>
HWY_NOINLINE void sum_rows(const BlockRows& values, const float* weights, const float* correction, float* sums,
                           int64_t size) {
  constexpr int kPairs = kMostRows / kRows < 4 ? kMostRows / kRows : 4;
  SlotWalk walk(values, row_offset(Type(), size), (size / kPair + kPairs - 1) / kPairs);
  int64_t d = 0;
  for (; d + kPairs * kPair <= size; d += kPairs * kPair) {
    sum_columns<Type, kRows, kPairs>(walk, d, weights, correction, sums, size);
  }
  for (; d < size; d += kPair) sum_columns<Type, kRows, 1>(walk, d, weights, correction, sums, size);
}

// Calls function(std::integral_constant) with the largest number of rows, a power of two, that is at most `rows`.
template <class Function>
HWY_INLINE int with_rows(int64_t rows, Function function) {
  if constexpr (kMostRows >= 8) {
    if (rows >= 8) return function(std::integral_constant<int, 8>());
  }
  if (rows >= 4) return function(std::integral_constant<int, 4>());
  if (rows >= 2) return function(std::integral_constant<int, 2>());
  return function(std::integral_constant<int, 1>());
}

// Puts queries into the order in which keys are loaded.
HWY_INLINE void order_queries(const TokenState& s) {
  with_type(static_cast<DType>(s.call.k->dtype), [&](auto type) HWY_ATTR { order_like(type, s.q, s.rows * s.size); });
}

// Calls score(type, rows, m, factor) for groups of rows, `rows` of them from row m on: std::integral_constant.
template <class Score>
HWY_INLINE void score_groups(const TokenState& s, Score score) {
  with_type(static_cast<DType>(s.call.k->dtype), [&](auto type) HWY_ATTR {
    const float factor = score_factor(s.call.scale, s.call.softcap) * kUnit<decltype(type)>;
    for (int64_t m = 0; m < s.rows;) {
      m += with_rows(s.rows - m, [&](auto rows) HWY_ATTR {
        score(type, rows, m, factor);
        return rows();
      });
    }
  });
}

// Adds up values for rows from `first` on.
HWY_INLINE void sum_groups(const TokenState& s, BlockRows values, int64_t first = 0) {
  with_type(static_cast<DType>(s.call.v->dtype), [&](auto type) HWY_ATTR {
    for (int64_t m = first; m < s.rows;) {
      m += with_rows(s.rows - m, [&](auto rows) HWY_ATTR {
        sum_rows<decltype(type), rows()>(values, s.scores + m * kScoreStride, s.correction + m, s.sums + m * s.size,
                                         s.size);
        return rows();
      });
    }
  });
}

// Writes what sum_groups() has added up.
HWY_INLINE void finish_sums(TokenState& s) {
  const auto dtype = static_cast<DType>(s.call.v->dtype);
  s.finish(dtype == DType::BF16 ? SumOrder::EvenThenOdd : SumOrder::Elements,
           dtype == DType::F8E4M3 ? kUnit<E4m3Type> : 1.0f);
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
