// See attention_token.h.
//
// Such a tile is bound by how fast keys and values come from memory, so each is widened once for several query heads, and
// nothing is packed: scores are vector products along the head whose lanes are summed for kLanes pairs of a query head and a
// slot at once, sums are weights times rows of values. A tile is cut into parts that are walked side by side, so that as many
// sequential streams are in flight, and lines are prefetched at two distances; but not with AVX2 (BlockRows).
//
// With AVX512_BF16, bf16 is multiplied as it is (attention_pairs-inl.h): keys with queries that are whole bf16 numbers, which is
// exact; and where the result is bf16 too, rounded queries with keys and rounded weights with values, as the op allows. The last is
// done on the matrix unit (attention_unit-inl.h) where there is one and fits_unit() holds: few heads, many slots, dense rows.
#include "accelerators/cpu/kernels/attention_token.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>

#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#ifndef AA_KERNEL_BATCH
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_token.cpp"
#include "hwy/foreach_target.h"
#endif
#include "base/simd/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_pairs-inl.h"
#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/attention_twelve-inl.h"
#include "accelerators/cpu/kernels/attention_unit-inl.h"
#include "accelerators/cpu/kernels/cache_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Replaces kLanes vectors by the sums of their lanes, in their order.
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

// Rows of a quantized cache.
struct BlockType {
  using Raw = uint8_t;
};

// Bytes from the beginning of a row to its element d, a multiple of kPair.
template <class Type>
HWY_INLINE int64_t row_offset(Type, int64_t d) {
  return d * static_cast<int64_t>(sizeof(typename Type::Raw));
}
HWY_INLINE int64_t row_offset(BlockType, int64_t d) { return d / kBlockValues * kBlockBytes; }

// Elements d to d + kPair of a row, in the order of load_pair.
template <class Type>
HWY_INLINE void load_values(Type type, const char* row, int64_t d, FloatVec& a, FloatVec& b) {
  load_pair(type, reinterpret_cast<const typename Type::Raw*>(row) + d, a, b);
}
HWY_INLINE void load_values(BlockType, const char* row, int64_t d, FloatVec& a, FloatVec& b) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const auto scale = hn::Set(kFloats, block_scale(bytes + d / kBlockValues * kBlockBytes));
  const auto* values = reinterpret_cast<const int8_t*>(value_at(bytes, d));
  const auto widen = [&](const int8_t* p) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(kBytes, p))), scale);
  };
  a = widen(values);
  b = widen(values + kLanes);
}

// Floats of 8 bits as halves, whose bias is larger by 8 (see load() of cache_blocks-inl.h): in units of kUnit, by which scores and
// sums are multiplied at the end.
HWY_INLINE void load_values(E4m3Type, const char* row, int64_t d, FloatVec& a, FloatVec& b) {
  constexpr hn::Repartition<int16_t, FloatTag> words;
  constexpr hn::Repartition<hwy::float16_t, FloatTag> halves;
  constexpr hn::Half<decltype(halves)> half_of_them;
  constexpr hn::Rebind<int8_t, decltype(words)> bytes;
  const auto x = hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(row) + d));
  const auto moved = hn::And(hn::ShiftLeft<7>(x), hn::Set(words, static_cast<int16_t>(0xbfff)));
  // A NaN, whose exponent and mantissa are all ones, carries into the bit that makes it one of the halves too.
  const auto next = hn::Add(moved, hn::Set(words, int16_t{0x80}));
  const auto bits = hn::BitCast(halves, hn::OrAnd(moved, next, hn::Set(words, int16_t{0x4000})));
  a = hn::PromoteTo(kFloats, hn::LowerHalf(half_of_them, bits));
  b = hn::PromoteTo(kFloats, hn::UpperHalf(half_of_them, bits));
}
template <class Type>
constexpr float kUnit = std::is_same_v<Type, E4m3Type> ? 256.0f : 1.0f;

// Keys of a type, widened to fp32, times queries in the same order.
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

// Prefetches, for elements d to d + kPair of a row, those of later rows of its stream.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, const char* row, int64_t d) {
  const char* at = row + row_offset(Type(), d);
  rows.prefetch(at);
  if constexpr (std::is_same_v<Type, F32Type> && kLanes == 16) rows.prefetch(at + 64);
}

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
          prefetch_values<typename Keys::Type>(keys, slot[s], d);
          AA_UNROLL for (int m = 0; m < kRows; ++m) {
            sums[m * kAtOnce + s] = Keys::add(key, query[m], sums[m * kAtOnce + s]);
          }
        }
      } else {
        typename Keys::Part key[kAtOnce];
        AA_UNROLL for (int s = 0; s < kAtOnce; ++s) {
          key[s] = Keys::key(slot[s], d);
          prefetch_values<typename Keys::Type>(keys, slot[s], d);
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

#if HWY_TARGET == HWY_AVX2
// The types whose vectors are widened one by one, as add_twelve() takes them: halves of a pair of E4m3Type share too much.
template <class Type>
constexpr bool kByTwelve = !std::is_same_v<Type, E4m3Type>;

// Elements d to d + kLanes of the order of load_pair.
template <class Type>
HWY_INLINE FloatVec load_vector(Type type, const char* row, int64_t d) {
  const auto* pair = reinterpret_cast<const typename Type::Raw*>(row) + d / kPair * kPair;
  return d % kPair == 0 ? load_first(type, pair) : load_second(type, pair);
}
HWY_INLINE FloatVec load_vector(BlockType, const char* row, int64_t d) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const auto values = hn::LoadU(kBytes, reinterpret_cast<const int8_t*>(value_at(bytes, d)));
  const auto scale = hn::Set(kFloats, block_scale(bytes + d / kBlockValues * kBlockBytes));
  return hn::Mul(hn::ConvertTo(kFloats, hn::PromoteTo(kInts, values)), scale);
}

// As score_rows() for kTwelveRows rows of queries from pack_queries(). May write kTwelveSlots floats behind the scores of a row.
template <class Type>
HWY_NOINLINE void score_by_twelve(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t size, float factor,
                                  float* HWY_RESTRICT scores) {
  static_assert(kSlots % kTwelveSlots == 0 && kSlots + kTwelveSlots <= kScoreStride);
  constexpr int64_t kStep = 2 * kPair;  // a line of bf16
  // Rows without gaps are fetched in the order of their addresses, which the processor's own prefetchers follow.
  const int64_t step_bytes = row_offset(Type(), kStep);
  const bool dense = keys.stride == row_offset(Type(), size);
  const int64_t between = dense ? step_bytes : keys.stride;
  for (int64_t j = 0; j < keys.slots; j += kTwelveSlots) {
    const char* slot[kTwelveSlots];
    AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) slot[s] = keys.row(std::min(j + s, keys.slots - 1));
    FloatVec sums[12];
    AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
    const float* query = q;
    const char* next = keys.row(j);
    for (int64_t step = 0; step < size; step += kStep) {
      AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
        keys.prefetch(next + s * between);
        if constexpr (std::is_same_v<Type, F32Type>) keys.prefetch(next + s * between + 64);
      }
      next += dense ? kTwelveSlots * step_bytes : step_bytes;
      AA_UNROLL for (int64_t d = 0; d < kStep; d += kLanes, query += kTwelveRows * kLanes) {
        FloatVec key[kTwelveSlots];
        AA_UNROLL for (int s = 0; s < kTwelveSlots; ++s) {
          key[s] = load_vector(Type(), slot[s] + row_offset(Type(), step), d);
        }
        add_twelve(key, query, sums);
      }
    }
    store_twelve(sums, factor, scores + j, kScoreStride);
  }
}

// The rows that are read after a block, one after the other.
class NextRows {
 public:
  NextRows(const BlockRows& rows, int64_t row_bytes)
      : at_(rows.next), stride_(rows.stride), left_(rows.next_slots), bytes_(row_bytes) {}

  HWY_INLINE void fetch() {
    if (left_ == 0) return;
    for (int64_t i = 0; i < bytes_; i += 64) __builtin_prefetch(at_ + i, 0, 2);
    at_ += stride_;
    --left_;
  }

 private:
  const char* at_;
  int64_t stride_, left_, bytes_;
};

// sums[m] = sums[m] * correction[m] + sum over slots of weights[m][j] * value j, for kPairs * kPair elements from d on. Fetches one of
// the next rows before each `slots_a_row` slots.
template <class Type, int kRows, int kPairs>
HWY_INLINE void sum_columns(const BlockRows& values, int64_t d, const float* HWY_RESTRICT weights,
                            const float* HWY_RESTRICT correction, float* HWY_RESTRICT sums, int64_t size,
                            NextRows& next, int64_t slots_a_row) {
  FloatVec sum[kRows][2 * kPairs];
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) {
      sum[m][n] = hn::Mul(hn::LoadU(kFloats, sums + m * size + d + n * kLanes), hn::Set(kFloats, correction[m]));
    }
  }
  const char* row = values.first;
  for (int64_t j = 0; j < values.slots;) {
    next.fetch();
    for (const int64_t end = std::min(j + slots_a_row, values.slots); j < end; ++j, row += values.stride) {
      FloatVec value[2 * kPairs];
      AA_UNROLL for (int p = 0; p < kPairs; ++p) {
        load_values(Type(), row, d + p * kPair, value[2 * p], value[2 * p + 1]);
      }
      AA_UNROLL for (int m = 0; m < kRows; ++m) {
        const auto weight = hn::Set(kFloats, weights[m * kScoreStride + j]);
        AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) sum[m][n] = hn::MulAdd(weight, value[n], sum[m][n]);
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) { hn::StoreU(sum[m][n], kFloats, sums + m * size + d + n * kLanes); }
  }
}

template <class Type, int kRows>
HWY_NOINLINE void sum_rows(const BlockRows& values, const float* weights, const float* correction, float* sums,
                           int64_t size) {
  constexpr int kPairs = kMostRows / kRows < 4 ? kMostRows / kRows : 4;
  NextRows next(values, row_offset(Type(), size));
  // The values are walked so many times.
  const int64_t walks = (size / kPair + kPairs - 1) / kPairs;
  int64_t d = 0;
  for (; d + kPairs * kPair <= size; d += kPairs * kPair) {
    sum_columns<Type, kRows, kPairs>(values, d, weights, correction, sums, size, next, walks);
  }
  for (; d < size; d += kPair) sum_columns<Type, kRows, 1>(values, d, weights, correction, sums, size, next, walks);
}
#else
// sums[m] = sums[m] * correction[m] + sum over slots of weights[m][j] * value j, for kPairs * kPair elements from d on.
template <class Type, int kRows, int kPairs>
HWY_INLINE void sum_columns(const BlockRows& values, int64_t d, const float* HWY_RESTRICT weights,
                            const float* HWY_RESTRICT correction, float* HWY_RESTRICT sums, int64_t size) {
  FloatVec sum[kRows][2 * kPairs];
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) {
      sum[m][n] = hn::Mul(hn::LoadU(kFloats, sums + m * size + d + n * kLanes), hn::Set(kFloats, correction[m]));
    }
  }
  const char* row = values.first;
  for (int64_t j = 0; j < values.slots; row += values.stride) {
    const int64_t end = std::min(j + kStreams, values.slots);
    for (const char* at = row; j < end; ++j, at += values.stream_stride) {
      FloatVec value[2 * kPairs];
      AA_UNROLL for (int p = 0; p < kPairs; ++p) {
        load_values(Type(), at, d + p * kPair, value[2 * p], value[2 * p + 1]);
        prefetch_values<Type>(values, at, d + p * kPair);
      }
      AA_UNROLL for (int m = 0; m < kRows; ++m) {
        const auto weight = hn::Set(kFloats, weights[m * kScoreStride + j]);
        AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) sum[m][n] = hn::MulAdd(weight, value[n], sum[m][n]);
      }
    }
  }
  AA_UNROLL for (int m = 0; m < kRows; ++m) {
    AA_UNROLL for (int n = 0; n < 2 * kPairs; ++n) { hn::StoreU(sum[m][n], kFloats, sums + m * size + d + n * kLanes); }
  }
}

template <class Type, int kRows>
HWY_NOINLINE void sum_rows(const BlockRows& values, const float* weights, const float* correction, float* sums,
                           int64_t size) {
  constexpr int kPairs = kMostRows / kRows < 4 ? kMostRows / kRows : 4;
  int64_t d = 0;
  for (; d + kPairs * kPair <= size; d += kPairs * kPair) {
    sum_columns<Type, kRows, kPairs>(values, d, weights, correction, sums, size);
  }
  for (; d < size; d += kPair) sum_columns<Type, kRows, 1>(values, d, weights, correction, sums, size);
}
#endif

// The 128 bits of a and b in turns.
HWY_INLINE void interleave_blocks(FloatVec& a, FloatVec& b) {
#if HWY_TARGET == HWY_AVX3
  const __m512 low = _mm512_shuffle_f32x4(a.raw, b.raw, 0x44), high = _mm512_shuffle_f32x4(a.raw, b.raw, 0xee);
  a = FloatVec{_mm512_shuffle_f32x4(low, low, 0xd8)};
  b = FloatVec{_mm512_shuffle_f32x4(high, high, 0xd8)};
#else
  const auto low = hn::ConcatLowerLower(kFloats, b, a);
  b = hn::ConcatUpperUpper(kFloats, b, a);
  a = low;
#endif
}

// The order in which sums of values lie in each kPair of them.
enum class SumOrder {
  Elements,
  EvenThenOdd,  // as load_pair delivers bf16
  InFours,      // see sum_pairs
};

// to[d] = factor * the sum of element d, for n elements, a multiple of kPair. `to` may be `sums`.
HWY_INLINE void scale_sums(const float* sums, SumOrder order, float factor, int64_t n, float* to) {
  for (int64_t d = 0; d < n; d += kPair) {
    auto a = hn::LoadU(kFloats, sums + d), b = hn::LoadU(kFloats, sums + d + kLanes);
    if (order == SumOrder::EvenThenOdd) {
      const auto low = hn::InterleaveLower(kFloats, a, b);
      b = hn::InterleaveUpper(kFloats, a, b);
      a = low;
    }
    if (order != SumOrder::Elements) interleave_blocks(a, b);
    hn::StoreU(hn::Mul(a, hn::Set(kFloats, factor)), kFloats, to + d);
    hn::StoreU(hn::Mul(b, hn::Set(kFloats, factor)), kFloats, to + d + kLanes);
  }
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

#if HWY_TARGET == HWY_AVX3
// The same with the smallest number that is at least `rows`, or 8: what it is more than `rows` are rows of zeros.
template <class Function>
HWY_INLINE int with_padded_rows(int64_t rows, Function function) {
  if (rows > 4) return function(std::integral_constant<int, 8>());
  if (rows > 2) return function(std::integral_constant<int, 4>());
  if (rows > 1) return function(std::integral_constant<int, 2>());
  return function(std::integral_constant<int, 1>());
}
#endif

template <class Function>
HWY_INLINE void with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::F32: return function(F32Type());
    case DType::BF16: return function(Bf16Type());
    case DType::F16: return function(F16Type());
    case DType::F8E4M3: return function(E4m3Type());
    default: return function(BlockType());
  }
}

class TokenRunner {
 public:
  TokenRunner(const AttentionCall& call, const AttentionTile& tile)
      : call_(call),
        tile_(tile),
        rows_(call.group),
        padded_rows_((rows_ + kMostRows - 1) / kMostRows * kMostRows),
        size_(call.head_size) {
    float* p =
        scratch<float>(Scratch::Tile, static_cast<size_t>(padded_rows_ * (5 * size_ + 2 * kScoreStride + kLanes + 2)) +
                                          2 * kBehindRows);
    const auto take = [&](int64_t floats) {
      float* part = p;
      p += floats;
      return part;
    };
    q_ = take(padded_rows_ * size_);
    spread_ = take(padded_rows_ * 2 * size_);
    sums_ = take(padded_rows_ * size_);
    scores_ = take(padded_rows_ * kScoreStride);
    unit_sums_ = take(padded_rows_ * size_);
    unit_weights_ = take(padded_rows_ * kScoreStride);
    total_ = take(padded_rows_ * kLanes);
    maximum_ = take(padded_rows_ + kBehindRows);
    correction_ = take(padded_rows_ + kBehindRows);
  }

  void run() {
#if HWY_TARGET == HWY_AVX2
    prepare();
    for (int64_t block = tile_.begin; block < tile_.end; block += kSlots) {
      run_block(block, std::min(kSlots, tile_.end - block), 1, 1);
    }
#else
    // Streams of equally many rows, then what is left, slot by slot. An odd number, since rows are a power of two of bytes long, and
    // the streams' lines would share few sets of the first level cache otherwise. Slopes count slots by their places in a
    // block, so with them all is done slot by slot.
    const bool in_streams = call_.slopes->dtype == AA_DTYPE_NONE && tile_.end - tile_.begin >= kSlots;
    const int64_t rows = in_streams ? ((tile_.end - tile_.begin) / kStreams - 1) / 2 * 2 + 1 : 0;
    if (in_streams) prefetch_first(*call_.k, rows);
    prepare();
    if (in_streams) prefetch_first(*call_.v, rows);
    constexpr int64_t kBlockRows = kSlots / kStreams;
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      run_block(tile_.begin + row, std::min(kBlockRows, rows - row) * kStreams, rows, 1);
    }
    for (int64_t block = tile_.begin + rows * kStreams; block < tile_.end; block += kSlots) {
      run_block(block, std::min(kSlots, tile_.end - block), 1, kStreams);
    }
#endif
    const auto dtype = static_cast<DType>(call_.v->dtype);
    finish(paired_values_ ? SumOrder::InFours : dtype == DType::BF16 ? SumOrder::EvenThenOdd : SumOrder::Elements);
  }

#if HWY_TARGET == HWY_AVX3
  // The same on the matrix unit, if it takes the tile; returns whether it did.
  template <class Unit>
  bool run_by_unit() {
    if (fits_unit() && run_on_unit<Unit>()) return true;
    run();
    return false;
  }
#endif

 private:
  void run_block(int64_t first, int64_t slots, int64_t stream_step, int64_t step) {
    score(rows_of(*call_.k, first, slots, stream_step, step));
    const int64_t vectors = (slots + kLanes - 1) / kLanes;
#if HWY_TARGET == HWY_AVX2
    const int64_t own = call_.seen_by(tile_.token).end - 1 - first;
    weigh_rows(rows_, scores_, kScoreStride, call_.softcap, maximum_, total_, correction_, [&](int64_t m) HWY_ATTR {
      return RowScores{vectors, 0, slots, {call_.slope(tile_.kv_head * call_.group + m), own}};
    });
#else
    for (int64_t m = 0; m < rows_; ++m) {
      const RowSlope slope = {call_.slope(tile_.kv_head * call_.group + m), call_.seen_by(tile_.token).end - 1 - first};
      float *scores = scores_ + m * kScoreStride, *total = total_ + m * kLanes;
#if HWY_TARGET == HWY_AVX3
      if (paired_values_) {
        correction_[m] = weigh_pairs(scores, slots, call_.softcap, slope, maximum_[m], total);
        continue;
      }
#endif
      correction_[m] = weigh(scores, vectors, 0, slots, call_.softcap, slope, maximum_[m], total);
    }
#endif
    sum(rows_of(*call_.v, first, slots, stream_step, step));
  }

  Row head_row(const aa_tensor& t, int64_t m) const {
    return call_.head_row(t, tile_.token, tile_.kv_head * call_.group + m);
  }

#if HWY_TARGET == HWY_AVX2
  // Keys are followed by the values of their slots, those by the next keys of the tile. There is one stream.
  BlockRows rows_of(const aa_tensor& t, int64_t first, int64_t slots, int64_t /*stream_step*/, int64_t /*step*/) const {
    const auto row_at = [&](const aa_tensor& of, int64_t slot) {
      const int64_t offset = tile_.sequence * of.strides[0] + tile_.kv_head * of.strides[1] + slot * of.strides[2];
      return static_cast<const char*>(of.data) +
             offset * static_cast<int64_t>(dtype_size(static_cast<DType>(of.dtype)));
    };
    const bool keys = &t == call_.k;
    const int64_t next = keys ? first : first + slots;
    return {row_at(t, first), row_at(t, first + 1) - row_at(t, first), slots, row_at(keys ? *call_.v : *call_.k, next),
            std::min(kSlots, tile_.end - next)};
  }
#else
  BlockRows rows_of(const aa_tensor& t, int64_t first, int64_t slots, int64_t stream_step, int64_t step) const {
    const DType dtype = static_cast<DType>(t.dtype);
    const int64_t item = static_cast<int64_t>(dtype_size(dtype)), stride = t.strides[2] * item;
    const int64_t offset = tile_.sequence * t.strides[0] + tile_.kv_head * t.strides[1];
    const int64_t row_bytes = t.shape[3] * item;
    return {static_cast<const char*>(t.data) + offset * item + first * stride,
            step * stride,
            stream_step * stride,
            slots,
            (kNearPrefetch + row_bytes - 1) / row_bytes * stride,
            (kFarPrefetch + row_bytes - 1) / row_bytes * stride};
  }

  // Prefetches the rows with which the streams begin, those that no loads of earlier rows prefetch.
  void prefetch_first(const aa_tensor& t, int64_t rows) const {
    const BlockRows all = rows_of(t, tile_.begin, rows * kStreams, rows, 1);
    const int64_t bytes = t.shape[3] * static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)));
    for (int64_t j = 0; j < std::min(all.near / all.stride * kStreams, all.slots); ++j) {
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(all.row(j) + at, 0, 3);
    }
  }
#endif

  // What the tile adds up, and the queries as floats.
  void begin() {
    std::fill(sums_, sums_ + padded_rows_ * size_, 0.0f);
    std::fill(total_, total_ + rows_ * kLanes, 0.0f);
    std::fill(maximum_, maximum_ + rows_, kMinusInfinity);
    std::fill(correction_, correction_ + padded_rows_, 0.0f);
    for (int64_t m = 0; m < rows_; ++m) read_row(head_row(*call_.q, m), 0, size_, q_ + m * size_);
    std::fill(q_ + rows_ * size_, q_ + padded_rows_ * size_, 0.0f);
  }

  void prepare() {
    begin();
    const auto key_dtype = static_cast<DType>(call_.k->dtype);
#if HWY_TARGET == HWY_AVX3
    if (key_dtype == DType::BF16 && cpu_features().avx512_bf16) {
      paired_values_ = call_.v->dtype == AA_DTYPE_BF16 && call_.out->dtype == AA_DTYPE_BF16;
      paired_keys_ = paired_values_ || queries_are_bf16();
    }
    if (paired_keys_) {
      for (int64_t m = 0; m < padded_rows_; ++m) round_to_bf16(q_ + m * size_, size_);
      for (int64_t m = 0; m < rows_;) {
        m += with_padded_rows(rows_ - m, [&](auto rows) HWY_ATTR {
          spread_pairs<rows()>(q_ + m * size_, size_, spread_ + m * 2 * size_);
          return rows();
        });
      }
      return;
    }
#endif
    with_type(key_dtype, [&](auto type) HWY_ATTR { order_like(type, q_, rows_ * size_); });
#if HWY_TARGET == HWY_AVX2
    for (int64_t m = 0; m + kTwelveRows <= rows_; m += kTwelveRows)
      pack_queries(q_ + m * size_, size_, spread_ + m * size_);
#endif
  }

#if HWY_TARGET == HWY_AVX3
  bool queries_are_bf16() const {
    auto low = hn::Zero(kUints);
    for (int64_t i = 0; i < rows_ * size_; i += kLanes) {
      low = hn::Or(low, hn::BitCast(kUints, hn::LoadU(kFloats, q_ + i)));
    }
    return hn::AllTrue(kUints, hn::Eq(hn::And(low, hn::Set(kUints, 0xffffu)), hn::Zero(kUints)));
  }

  // Returns whether run_on_unit() computes what the pairs would. It needs kMostUnitSlots slots at least.
  bool fits_unit() const {
    const auto is_dense = [&](const aa_tensor& t) { return t.dtype == AA_DTYPE_BF16 && t.strides[2] == size_; };
    return is_dense(*call_.k) && is_dense(*call_.v) && call_.out->dtype == AA_DTYPE_BF16 && rows_ <= kMostUnitHeads &&
           tile_.end - tile_.begin >= kMostUnitSlots && call_.softcap == 0 && call_.slopes->dtype == AA_DTYPE_NONE;
  }

  // Returns false, and leaves the result to the pairs, if something is not finite.
  template <class Unit>
  bool run_on_unit() {
    const int64_t slots = tile_.end - tile_.begin;
    const BlockRows keys = rows_of(*call_.k, tile_.begin, slots, 1, 1);
    const BlockRows values = rows_of(*call_.v, tile_.begin, slots, 1, 1);
    for (int64_t at = 0; at < kMostUnitSlots * 2 * size_ / 2; at += 64) {
      __builtin_prefetch(keys.first + at, 0, 3);
      __builtin_prefetch(values.first + at, 0, 3);
    }
    begin();
    // Of a negative factor, the sign goes to the queries: the largest score has the largest weight then.
    const float factor = score_factor(call_.scale, 0);
    if (factor < 0) std::transform(q_, q_ + rows_ * size_, q_, std::negate<>());
    for (int64_t m = 0; m < padded_rows_; ++m) round_to_bf16(q_ + m * size_, size_);
    const UnitMemory memory{reinterpret_cast<uint16_t*>(spread_), scores_, reinterpret_cast<uint32_t*>(unit_weights_),
                            unit_sums_};
    UnitAttention<Unit> attention(memory, reinterpret_cast<const char*>(q_), 4 * size_, rows_, size_);
    attention.run(keys.first, values.first, slots, std::fabs(factor));
    for (int64_t m = 0; m < rows_; ++m) {
      if (!attention.take(m, maximum_[m], total_[m * kLanes], sums_ + m * size_)) return false;
    }
    finish(SumOrder::EvenThenOdd);
    return true;
  }

  HWY_INLINE void score_paired(BlockRows keys) {
    const float factor = score_factor(call_.scale, call_.softcap);
    for (int64_t m = 0; m < rows_;) {
      const float* q = spread_ + m * 2 * size_;
      float* scores = scores_ + m * kScoreStride;
      m += with_padded_rows(rows_ - m, [&](auto rows) HWY_ATTR {
        score_pairs<rows()>(keys, q, size_, factor, scores);
        return rows();
      });
    }
  }

  HWY_INLINE void sum_paired(BlockRows values) {
    for (int64_t m = 0; m < rows_;) {
      m += with_padded_rows(rows_ - m, [&](auto rows) HWY_ATTR {
        sum_pairs<rows()>(values, scores_ + m * kScoreStride, correction_ + m, sums_ + m * size_, size_);
        return rows();
      });
    }
  }
#endif

  template <class Keys>
  HWY_INLINE void score_as(BlockRows keys) {
    const float factor = score_factor(call_.scale, call_.softcap) * kUnit<typename Keys::Type>;
    for (int64_t m = 0; m < rows_;) {
      m += with_rows(rows_ - m, [&](auto rows) HWY_ATTR {
#if HWY_TARGET == HWY_AVX2
        if constexpr (rows() == kTwelveRows && kByTwelve<typename Keys::Type>) {
          score_by_twelve<typename Keys::Type>(keys, spread_ + m * size_, size_, factor, scores_ + m * kScoreStride);
          return rows();
        }
#endif
        score_rows<Keys, rows()>(keys, q_ + m * size_, size_, factor, scores_ + m * kScoreStride);
        return rows();
      });
    }
  }

  void score(const BlockRows& keys) {
#if HWY_TARGET == HWY_AVX3
    if (paired_keys_) return score_paired(keys);
#endif
    with_type(static_cast<DType>(call_.k->dtype),
              [&](auto type) HWY_ATTR { score_as<WideKeys<decltype(type)>>(keys); });
  }

  void sum(BlockRows values) {
#if HWY_TARGET == HWY_AVX3
    if (paired_values_) return sum_paired(values);
#endif
    with_type(static_cast<DType>(call_.v->dtype), [&](auto type) HWY_ATTR {
      for (int64_t m = 0; m < rows_;) {
        m += with_rows(rows_ - m, [&](auto rows) HWY_ATTR {
          sum_rows<decltype(type), rows()>(values, scores_ + m * kScoreStride, correction_ + m, sums_ + m * size_,
                                           size_);
          return rows();
        });
      }
    });
  }

  void finish(SumOrder order) {
    float* sums = scratch<float>(Scratch::Row0, static_cast<size_t>(size_));
    const float unit = call_.v->dtype == AA_DTYPE_F8_E4M3 ? kUnit<E4m3Type> : 1.0f;
    for (int64_t m = 0; m < rows_; ++m) {
      const float* from = sums_ + m * size_;
      float* to = tile_.partial ? tile_.partial + m * partial_row_floats(size_) : sums;
      const float total = sum_lanes(hn::LoadU(kFloats, total_ + m * kLanes));
      const float sink = call_.sink_weight(tile_.kv_head * call_.group + m, maximum_[m]);
      const float factor = unit * (tile_.partial ? 1.0f : 1.0f / (total + sink));
      scale_sums(from, order, factor, size_, to);
      if (tile_.partial) {
        to[size_] = maximum_[m];
        to[size_ + 1] = total;
      } else {
        write_row(head_row(*call_.out, m), 0, size_, to);
      }
    }
  }

  const AttentionCall& call_;
  const AttentionTile& tile_;
  int64_t rows_, padded_rows_, size_;
  float* q_;             // [rows][size], in the order of the keys
  float* spread_;        // those of each group of rows, see spread_pairs and pack_queries
  float* sums_;          // [rows][size], in a SumOrder
  float* scores_;        // [rows][kSlots], and the weights that they become; paired: bf16, at the beginning of each row
  float* unit_sums_;     // see UnitMemory
  float* unit_weights_;  // the same
  float* total_;         // [rows][kLanes]: partial sums of the weights
  float* maximum_;       // [rows]
  float* correction_;    // [rows]
  bool paired_keys_ = false, paired_values_ = false;
};

void run_token(const AttentionCall& call, const AttentionTile& tile) {
#if HWY_TARGET == HWY_AVX3
  if (isa() == Isa::Amx) {
    TokenRunner(call, tile).run_by_unit<amx::Unit>();
    return;
  }
#endif
  TokenRunner(call, tile).run();
}
bool run_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
#if HWY_TARGET == HWY_AVX3
  if (cpu_features().avx512_bf16) return TokenRunner(call, tile).run_by_unit<amx::EmulatedUnit>();
#endif
  TokenRunner(call, tile).run();
  return false;
}

#else
void run_token(const AttentionCall& call, const AttentionTile& tile) { run_attention_tile(call, tile); }
bool run_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
  run_attention_tile(call, tile);
  return false;
}
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_token);
AA_CPU_EXPORT(run_token_emulated);

bool takes_attention_token(const AttentionCall& call) {
  const bool dense = call.k->strides[3] == 1 && call.v->strides[3] == 1;
  return isa() != Isa::Baseline && call.head_size % 32 == 0 && dense;
}

void run_attention_token(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_token)(call, tile);
}
bool run_attention_token_emulated(const AttentionCall& call, const AttentionTile& tile) {
  return AA_CPU_DISPATCH(run_token_emulated)(call, tile);
}

}  // namespace anyaccel::cpu
#endif
