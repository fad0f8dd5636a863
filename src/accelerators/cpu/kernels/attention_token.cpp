// See attention_token.h.
//
// Such a tile is bound by how fast keys and values come from memory, so each is widened once for several query heads, and
// nothing is packed: scores are vector products along the head whose lanes are summed for kLanes pairs of a query head and a
// slot at once, sums are weights times rows of values. A tile is cut into parts that are walked side by side, so that as many
// sequential streams are in flight, and lines are prefetched at two distances.
//
// With AVX512_BF16, keys in bf16 are multiplied with queries that are whole bf16 numbers as pairs, exactly, which halves the
// instructions.
#include "accelerators/cpu/kernels/attention_token.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "accelerators/cpu/kernels/rows.h"
#include "accelerators/cpu/kernels/scratch.h"
#include "base/scalar_convert.h"
#include "base/simd/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "accelerators/cpu/kernels/attention_token.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h
#include "accelerators/cpu/kernels/attention_softmax-inl.h"
#include "accelerators/cpu/kernels/cache_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr int64_t kSlots = 128;
// Parts of a tile that are walked side by side, for the processor's own prefetchers: on two cores of a Zen 4, 8 read 5 to
// 10% more than 4, and 16 less.
constexpr int64_t kStreams = 8;
// Bytes ahead of the loads, for the first and the second level cache, as in gemv.cpp.
constexpr int64_t kNearPrefetch = 1024, kFarPrefetch = 3072;
constexpr int64_t kPair = 2 * kLanes;
// Query heads that share a widened key or value, as many as leave registers for both.
constexpr int kMostRows = kLanes / 2;

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

#if HWY_TARGET == HWY_AVX3
// Keys in bf16 times queries in bf16, which lie where fp32 ones would begin.
struct PairedKeys {
  using Type = Bf16Type;
  struct Part {
    __m512i pairs;
  };
  static HWY_INLINE Part key(const char* row, int64_t d) { return {_mm512_loadu_si512(row + 2 * d)}; }
  static HWY_INLINE Part query(const float* q, int64_t d) { return key(reinterpret_cast<const char*>(q), d); }
  static HWY_INLINE FloatVec add(const Part& k, const Part& q, FloatVec sum) {
    // Written out because functions of this instruction set are compiled without AVX512_BF16.
    asm("vdpbf16ps %[k], %[q], %[sum]"  // NOLINT(hicpp-no-assembler)
        : [sum] "+v"(sum.raw)
        : [k] "v"(k.pairs), [q] "v"(q.pairs));
    return sum;
  }
};
#endif

// Rows of keys or values of a block. Slot j of the block is row j / kStreams of stream j % kStreams. Strides, and the
// distances at which the first and the second level cache are filled, are in bytes.
struct BlockRows {
  const char* first;
  int64_t stride, stream_stride;
  int64_t slots;
  int64_t near, far;

  HWY_INLINE const char* row(int64_t j) const { return first + j % kStreams * stream_stride + j / kStreams * stride; }
};

// Prefetches, for elements d to d + kPair of a row, those of later rows of its stream.
template <class Type>
HWY_INLINE void prefetch_values(const BlockRows& rows, const char* row, int64_t d) {
  const char* at = row + row_offset(Type(), d);
  __builtin_prefetch(at + rows.near, 0, 3);
  __builtin_prefetch(at + rows.far, 0, 2);
  if constexpr (std::is_same_v<Type, F32Type> && kLanes == 16) {
    __builtin_prefetch(at + rows.near + 64, 0, 3);
    __builtin_prefetch(at + rows.far + 64, 0, 2);
  }
}

// scores[m][j] = factor * sum of q[m] * key j. Rows of q are `size` floats apart, those of scores kSlots.
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
      std::memcpy(scores + m * kSlots + j, products + m * kAtOnce, kAtOnce * sizeof(float));
    }
  }
}

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
        const auto weight = hn::Set(kFloats, weights[m * kSlots + j]);
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
      : call_(call), tile_(tile), rows_(call.group), size_(call.head_size) {
    const int64_t padded_rows = (rows_ + 15) / 16 * 16;
    float* p =
        scratch<float>(Scratch::Tile, static_cast<size_t>(rows_ * (2 * size_ + kSlots + kLanes) + 2 * padded_rows));
    const auto take = [&](int64_t floats) {
      float* part = p;
      p += floats;
      return part;
    };
    q_ = take(rows_ * size_);
    sums_ = take(rows_ * size_);
    scores_ = take(rows_ * kSlots);
    total_ = take(rows_ * kLanes);
    maximum_ = take(padded_rows);
    correction_ = take(padded_rows);
  }

  void run() {
    prepare();
    // Parts of a whole number of rows of blocks each, then what is left, slot by slot. Slopes count slots by their places in
    // a block, so with them all is done slot by slot.
    const bool in_parts = call_.slopes->dtype == AA_DTYPE_NONE;
    const int64_t steps = in_parts ? (tile_.end - tile_.begin) / kSlots : 0;
    for (int64_t step = 0; step < steps; ++step) {
      run_block(tile_.begin + step * (kSlots / kStreams), kSlots, steps * (kSlots / kStreams), 1);
    }
    for (int64_t block = tile_.begin + steps * kSlots; block < tile_.end; block += kSlots) {
      run_block(block, std::min(kSlots, tile_.end - block), 1, kStreams);
    }
    finish();
  }

 private:
  void run_block(int64_t first, int64_t slots, int64_t stream_step, int64_t step) {
    score(rows_of(*call_.k, first, slots, stream_step, step));
    const int64_t vectors = (slots + kLanes - 1) / kLanes;
    for (int64_t m = 0; m < rows_; ++m) {
      const RowSlope slope = {call_.slope(tile_.kv_head * call_.group + m), call_.seen_by(tile_.token).end - 1 - first};
      correction_[m] =
          weigh(scores_ + m * kSlots, vectors, 0, slots, call_.softcap, slope, maximum_[m], total_ + m * kLanes);
    }
    sum(rows_of(*call_.v, first, slots, stream_step, step));
  }

  Row head_row(const aa_tensor& t, int64_t m) const {
    const DType dtype = static_cast<DType>(t.dtype);
    const int64_t offset = tile_.token * t.strides[0] + (tile_.kv_head * call_.group + m) * t.strides[1];
    return {static_cast<char*>(t.data) + offset * static_cast<int64_t>(dtype_size(dtype)), dtype, t.strides[2], size_};
  }

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

  void prepare() {
    std::fill(sums_, sums_ + rows_ * size_, 0.0f);
    std::fill(total_, total_ + rows_ * kLanes, 0.0f);
    std::fill(maximum_, maximum_ + rows_, kMinusInfinity);
    for (int64_t m = 0; m < rows_; ++m) read_row(head_row(*call_.q, m), 0, size_, q_ + m * size_);
    const auto key_dtype = static_cast<DType>(call_.k->dtype);
    paired_ = HWY_TARGET == HWY_AVX3 && key_dtype == DType::BF16 && cpu_features().avx512_bf16 && queries_are_bf16();
    for (int64_t m = 0; m < rows_; ++m) {
      float* q = q_ + m * size_;
      if (paired_) {
        auto* halves = reinterpret_cast<uint16_t*>(q);
        for (int64_t d = 0; d < size_; ++d) {
          const uint16_t half = float_to_bf16(q[d]);
          std::memcpy(halves + d, &half, sizeof half);
        }
      } else {
        with_type(key_dtype, [&](auto type) HWY_ATTR { order_like(type, q, size_); });
      }
    }
  }

  bool queries_are_bf16() const {
    auto low = hn::Zero(kUints);
    for (int64_t i = 0; i < rows_ * size_; i += kLanes) {
      low = hn::Or(low, hn::BitCast(kUints, hn::LoadU(kFloats, q_ + i)));
    }
    return hn::AllTrue(kUints, hn::Eq(hn::And(low, hn::Set(kUints, 0xffffu)), hn::Zero(kUints)));
  }

  template <class Keys>
  HWY_INLINE void score_as(BlockRows keys) {
    const float factor = score_factor(call_.scale, call_.softcap) * kUnit<typename Keys::Type>;
    for (int64_t m = 0; m < rows_;) {
      m += with_rows(rows_ - m, [&](auto rows) HWY_ATTR {
        score_rows<Keys, rows()>(keys, q_ + m * size_, size_, factor, scores_ + m * kSlots);
        return rows();
      });
    }
  }

  void score(const BlockRows& keys) {
#if HWY_TARGET == HWY_AVX3
    if (paired_) return score_as<PairedKeys>(keys);
#endif
    with_type(static_cast<DType>(call_.k->dtype),
              [&](auto type) HWY_ATTR { score_as<WideKeys<decltype(type)>>(keys); });
  }

  void sum(BlockRows values) {
    with_type(static_cast<DType>(call_.v->dtype), [&](auto type) HWY_ATTR {
      for (int64_t m = 0; m < rows_;) {
        m += with_rows(rows_ - m, [&](auto rows) HWY_ATTR {
          sum_rows<decltype(type), rows()>(values, scores_ + m * kSlots, correction_ + m, sums_ + m * size_, size_);
          return rows();
        });
      }
    });
  }

  void finish() {
    float* sums = scratch<float>(Scratch::Row0, static_cast<size_t>(size_));
    const auto dtype = static_cast<DType>(call_.v->dtype);
    const bool interleaved = dtype == DType::BF16;
    const float unit = dtype == DType::F8E4M3 ? kUnit<E4m3Type> : 1.0f;
    for (int64_t m = 0; m < rows_; ++m) {
      const float* from = sums_ + m * size_;
      float* to = tile_.partial ? tile_.partial + m * partial_row_floats(size_) : sums;
      const float total = sum_lanes(hn::LoadU(kFloats, total_ + m * kLanes));
      const float sink = call_.sink_weight(tile_.kv_head * call_.group + m, maximum_[m]);
      const float factor = unit * (tile_.partial ? 1.0f : 1.0f / (total + sink));
      for (int64_t d = 0; d < size_; ++d) {
        const int64_t in_pair = d % kPair;
        const int64_t at = interleaved ? d - in_pair + in_pair / 2 + in_pair % 2 * kLanes : d;
        to[d] = from[at] * factor;
      }
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
  int64_t rows_, size_;
  float* q_;           // [rows][size], in the order of the keys; paired: bf16, at the beginning of each row
  float* sums_;        // [rows][size], in the order of the values
  float* scores_;      // [rows][kSlots], and the weights that they become
  float* total_;       // [rows][kLanes]: partial sums of the weights
  float* maximum_;     // [rows]
  float* correction_;  // [rows]
  bool paired_ = false;
};

void run_token(const AttentionCall& call, const AttentionTile& tile) { TokenRunner(call, tile).run(); }

#else
void run_token(const AttentionCall& call, const AttentionTile& tile) { run_attention_tile(call, tile); }
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace anyaccel::cpu {

AA_CPU_EXPORT(run_token);

bool takes_attention_token(const AttentionCall& call) {
  const bool dense = call.k->strides[3] == 1 && call.v->strides[3] == 1;
  return isa() != Isa::Baseline && call.head_size % 32 == 0 && dense;
}

void run_attention_token(const AttentionCall& call, const AttentionTile& tile) {
  AA_CPU_DISPATCH(run_token)(call, tile);
}

}  // namespace anyaccel::cpu
#endif
