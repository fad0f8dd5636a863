// Attention of one token over caches of bytes with AVX2, for four query heads at once. The loops are those of
// attention_twelve-inl.h and attention_wide-inl.h; what differs for bytes is here. Only sums, weights, and products of
// weights with scales are rounded, all in binary32. Included after base/simd/highway.h, once per instruction set; empty
// for others than AVX2.
//
// int8: with vectors along the head, each vector of keys would need a multiplication by its block's scale. So a block
// of keys is transposed, as bytes, into vectors of one element of eight slots. The scales of these slots are one
// vector, which multiplies the sums of 32 products, and no horizontal sums are left. For values, the weights are
// multiplied by the scales, once for 32 values.
//
// fp8: a byte is moved to the upper bits of an fp16 number. Its conversion keeps subnormal numbers even when the
// processor flushes denormals, and it is half as expensive from memory as from a register. A NaN would need further
// instructions, so rows are widened without them, and once more with them if a NaN was found.
#include <algorithm>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_rows-inl.h"
#include "accelerators/cpu/kernels/attention_twelve-inl.h"
#include "accelerators/cpu/kernels/attention_values-inl.h"
#include "accelerators/cpu/kernels/attention_wide-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_BYTES_AVX2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_BYTES_AVX2_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_BYTES_AVX2_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_BYTES_AVX2_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

// ---- int8: keys ---------------------------------------------------------------------------------------------------

// The value of a block that transpose_block() puts at place t: unpacking interleaves within halves of 128 bits.
constexpr int64_t value_of_place(int64_t t) { return t / 4 * 2 + t % 2 + (t % 4 < 2 ? 0 : kBlockValues / 2); }

// Puts kTwelveRows rows of queries, `size` floats apart, into the order of score_block(): to[place][row].
HWY_INLINE void pack_block_queries(const float* HWY_RESTRICT q, int64_t size, float* HWY_RESTRICT to) {
  for (int64_t d = 0; d < size; d += kBlockValues) {
    for (int64_t t = 0; t < kBlockValues; ++t) {
      for (int m = 0; m < kTwelveRows; ++m) *to++ = q[m * size + d + value_of_place(t)];
    }
  }
}

// The scales of one block in each of kLanes rows, `stride` bytes apart.
HWY_INLINE FloatVec load_scales(const char* block, int64_t stride) {
  __m128i halves = _mm_setzero_si128();
  const auto at = [&](int64_t s) { return scale_bits(reinterpret_cast<const uint8_t*>(block + s * stride)); };
  halves = _mm_insert_epi16(halves, at(0), 0);
  halves = _mm_insert_epi16(halves, at(1), 1);
  halves = _mm_insert_epi16(halves, at(2), 2);
  halves = _mm_insert_epi16(halves, at(3), 3);
  halves = _mm_insert_epi16(halves, at(4), 4);
  halves = _mm_insert_epi16(halves, at(5), 5);
  halves = _mm_insert_epi16(halves, at(6), 6);
  halves = _mm_insert_epi16(halves, at(7), 7);
  return FloatVec{_mm256_cvtph_ps(halves)};
}

// to[place][row] = the values of one block in each of kLanes rows, `stride` bytes apart.
HWY_INLINE void transpose_block(const char* block, int64_t stride, int8_t* to) {
  __m256i row[kLanes], two[kLanes], four[kLanes];
  AA_UNROLL for (int s = 0; s < kLanes; ++s) {
    row[s] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + s * stride + sizeof(uint16_t)));
  }
  AA_UNROLL for (int s = 0; s < kLanes; s += 2) {
    two[s] = _mm256_unpacklo_epi8(row[s], row[s + 1]);
    two[s + 1] = _mm256_unpackhi_epi8(row[s], row[s + 1]);
  }
  // four[0] to four[3] are of rows 0 to 3: values 0 to 3 of each half, then 4 to 7 and so on. The others are of rows 4
  // to 7.
  AA_UNROLL for (int s = 0; s < kLanes; s += 4) {
    AA_UNROLL for (int i = 0; i < 2; ++i) {
      four[s + 2 * i] = _mm256_unpacklo_epi16(two[s + i], two[s + i + 2]);
      four[s + 2 * i + 1] = _mm256_unpackhi_epi16(two[s + i], two[s + i + 2]);
    }
  }
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    auto* at = reinterpret_cast<__m256i*>(to + 2 * i * static_cast<int64_t>(sizeof(__m256i)));
    _mm256_store_si256(at, _mm256_unpacklo_epi32(four[i], four[i + 4]));
    _mm256_store_si256(at + 1, _mm256_unpackhi_epi32(four[i], four[i + 4]));
  }
}

// As add_twelve(), but lanes are slots: `key` has kSlotVectors vectors of them, and query m is one number for all.
HWY_INLINE void add_twelve_slots(const FloatVec (&key)[kSlotVectors], const float* query, FloatVec (&sums)[12]) {
  AA_ADD_TWELVE("vbroadcastss", 4, key, query, sums);  // NOLINT(hicpp-no-assembler)
}

// One block of kSlotsAtOnce keys, transposed, and its scales.
struct TransposedKeys {
  alignas(32) int8_t values[kSlotVectors][kBlockValues * kLanes];
  alignas(32) float scales[kSlotsAtOnce];
};

// What is prefetched while the products of a block are computed: with every four values, kSlotVectors lines that are
// `between` bytes apart. The next four values fetch lines that are `step` bytes further.
struct KeysAhead {
  const char* at;
  int64_t between, step;
};

// scores[m][s] = scale of slot s * sum of the block's products, plus what is there unless kFirst, for kTwelveRows rows.
template <bool kFirst>
HWY_INLINE void score_block(const TransposedKeys& keys, const float* HWY_RESTRICT q, KeysAhead ahead,
                            float* HWY_RESTRICT scores) {
  FloatVec sums[12];
  AA_UNROLL for (FloatVec& sum : sums) sum = hn::Zero(kFloats);
  for (int64_t t = 0; t < kBlockValues; t += 4, ahead.at += ahead.step) {
    AA_UNROLL for (int64_t v = 0; v < kSlotVectors; ++v) __builtin_prefetch(ahead.at + v * ahead.between, 0, 3);
    AA_UNROLL for (int64_t i = 0; i < 4; ++i, q += kTwelveRows) {
      FloatVec key[kSlotVectors];
      AA_UNROLL for (int64_t v = 0; v < kSlotVectors; ++v) {
        key[v] = hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(kBytes, keys.values[v] + (t + i) * kLanes)));
      }
      add_twelve_slots(key, q, sums);
    }
  }
  AA_UNROLL for (int64_t v = 0; v < kSlotVectors; ++v) {
    const auto scale = hn::LoadU(kFloats, keys.scales + v * kLanes);
    AA_UNROLL for (int64_t m = 0; m < kTwelveRows; ++m) {
      float* to = scores + m * kScoreStride + v * kLanes;
      const auto sum = sums[m * kSlotVectors + v];
      hn::StoreU(kFirst ? hn::Mul(sum, scale) : hn::MulAdd(sum, scale, hn::LoadU(kFloats, to)), kFloats, to);
    }
  }
}

// scores[m][j] = factor * query m * key j over rows of int8, for a multiple of kTwelveRows query heads and at least
// kSlotsAtOnce slots. `q` has each kTwelveRows of them in the order of pack_block_queries().
HWY_NOINLINE void score_int8(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t rows, int64_t size,
                             float factor, float* HWY_RESTRICT scores) {
  static_assert(kBlockValues / 4 == kLanes);  // score_block() prefetches once for each slot of a vector
  // Dense rows are prefetched in the order of their addresses, others a block of each at a time.
  const bool dense = keys.stride == row_offset(BlockType(), size);
  const int64_t between = dense ? kBlockBytes : kLanes * keys.stride;
  const int64_t step = dense ? kSlotVectors * kBlockBytes : keys.stride;
  for (int64_t first = 0; first < keys.slots; first += kSlotsAtOnce) {
    const int64_t j = std::min(first, keys.slots - kSlotsAtOnce);  // the last slots may be computed twice
    const char* row = keys.row(j);
    for (int64_t d = 0; d < size; d += kBlockValues, row += kBlockBytes) {
      TransposedKeys block;
      AA_UNROLL for (int64_t v = 0; v < kSlotVectors; ++v) {
        const char* part = row + v * kLanes * keys.stride;
        transpose_block(part, keys.stride, block.values[v]);
        hn::StoreU(hn::Mul(load_scales(part, keys.stride), hn::Set(kFloats, factor)), kFloats,
                   block.scales + v * kLanes);
      }
      const int64_t ahead = dense ? j * keys.stride + d / kBlockValues * kSlotsAtOnce * kBlockBytes : row - keys.first;
      for (int64_t m = 0; m < rows; m += kTwelveRows) {
        float* to = scores + m * kScoreStride + j;
        const float* query = q + m * size + d * kTwelveRows;
        if (d == 0) {
          score_block<true>(block, query, {keys.next + ahead, between, step}, to);
        } else {
          score_block<false>(block, query, {keys.next + ahead, between, step}, to);
        }
      }
    }
  }
}

// ---- int8: values ---------------------------------------------------------------------------------------------------

// The values of a block without its scale, which the weights have instead.
struct ScaledType : BlockType {};
HWY_INLINE void load_values(ScaledType, const char* row, int64_t d, FloatVec& a, FloatVec& b) {
  const auto* values = reinterpret_cast<const int8_t*>(value_at(reinterpret_cast<const uint8_t*>(row), d));
  a = hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(kBytes, values)));
  b = hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(kBytes, values + kLanes)));
}

// As sum_rows() for kTwelveRows rows.
HWY_NOINLINE void sum_int8(const BlockRows& values, const float* weights, const float* correction, float* sums,
                           int64_t size) {
  SlotWalk walk(values, row_offset(BlockType(), size), size / kPair, SlotWalk::kNear);
  for (int64_t d = 0; d < size; d += kBlockValues) {
    alignas(32) float scaled[kTwelveRows * kScoreStride];
    const char* block = values.first + row_offset(BlockType(), d);
    for (int64_t j = 0; j < values.slots; j += kLanes, block += kLanes * values.stride) {
      FloatVec scale;
      if (j + kLanes <= values.slots) {
        scale = load_scales(block, values.stride);
      } else {
        uint16_t halves[kLanes] = {};
        for (int64_t s = 0; s < values.slots - j; ++s) {
          halves[s] = scale_bits(reinterpret_cast<const uint8_t*>(block + s * values.stride));
        }
        scale = load(F16Type(), halves);
      }
      AA_UNROLL for (int64_t i = 0; i < kTwelveRows * kScoreStride; i += kScoreStride) {
        hn::StoreU(hn::Mul(hn::LoadU(kFloats, weights + i + j), scale), kFloats, scaled + i + j);
      }
    }
    sum_columns<ScaledType, kTwelveRows, 1>(walk, d, scaled, correction, sums, size);
    sum_columns<ScaledType, kTwelveRows, 1>(walk, d + kPair, scaled, correction, sums, size);
  }
}

// ---- fp8 ------------------------------------------------------------------------------------------------------------

// Elements that are widened together.
constexpr int64_t kWidened = sizeof(__m256i);

// Stores kWidened elements as fp16 numbers that are smaller by a factor of kUnit<E4m3Type>, in the order 0 to 7, 16 to
// 23, 8 to 15, 24 to 31. Unless kHasNan, none may be a NaN.
template <bool kHasNan>
HWY_INLINE void store_halves(__m256i bytes, uint16_t* to) {
  const auto store = [&](__m256i high, uint16_t* at) HWY_ATTR {
    const __m256i moved = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    __m256i bits = moved;
    // The exponent and mantissa of a NaN are all ones: adding one to the mantissa carries into the bit that makes the
    // fp16 number a NaN too.
    if constexpr (kHasNan) {
      const __m256i carried = _mm256_add_epi16(moved, _mm256_set1_epi16(0x80));
      bits = _mm256_or_si256(moved, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000)));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), bits);
  };
  store(_mm256_unpacklo_epi8(_mm256_setzero_si256(), bytes), to);
  store(_mm256_unpackhi_epi8(_mm256_setzero_si256(), bytes), to + kWidened / 2);
}
HWY_INLINE __m256i load_bytes(const char* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// Finds NaN (0x7f and 0xff) in all bytes that it looks at.
class NanFinder {
 public:
  HWY_INLINE NanFinder() : positive_(_mm256_setzero_si256()), negative_(_mm256_setzero_si256()) {}
  HWY_INLINE void look_at(__m256i bytes) {
    positive_ = _mm256_max_epi8(positive_, bytes);
    negative_ = _mm256_max_epu8(negative_, bytes);
  }
  HWY_INLINE bool found() const {
    // 0x7f is the largest signed byte, 0xff the largest unsigned one.
    const __m256i nans = _mm256_or_si256(_mm256_cmpeq_epi8(positive_, _mm256_set1_epi8(0x7f)),
                                         _mm256_cmpeq_epi8(negative_, _mm256_set1_epi8(-1)));
    return !_mm256_testz_si256(nans, nans);
  }

 private:
  __m256i positive_, negative_;
};

// Writes the first `bytes` elements of each of `rows` rows as fp16 numbers, each kWidened of them in the order of
// store_halves().
HWY_INLINE void widen_rows(const char* first, int64_t stride, int64_t rows, int64_t bytes, uint16_t* halves) {
  NanFinder nan;
  const auto widen = [&](auto has_nan) HWY_ATTR {
    uint16_t* to = halves;
    const char* row = first;
    for (int64_t j = 0; j < rows; ++j, row += stride) {
      for (int64_t d = 0; d < bytes; d += kWidened, to += kWidened) {
        const __m256i x = load_bytes(row + d);
        if constexpr (!has_nan()) nan.look_at(x);
        store_halves<has_nan()>(x, to);
      }
    }
  };
  widen(std::false_type());
  if (HWY_UNLIKELY(nan.found())) widen(std::true_type());
}

// Elements d to d + kLanes of kWidened fp16 numbers. In assembly, because the compiler would forward the stored
// register, and the conversion is cheaper from memory.
HWY_INLINE FloatVec load_halves(const uint16_t* from, int64_t d) {
  __m256 floats;
  asm("vcvtph2ps %[from], %[floats]"  // NOLINT(hicpp-no-assembler)
      : [floats] "=x"(floats)
      : [from] "m"(*reinterpret_cast<const uint16_t(*)[kLanes]>(from + (d % kPair * 2 + d / kPair * kLanes))));
  return FloatVec{floats};
}

// What sum_columns() needs to read the fp16 numbers of store_halves() instead of rows of the cache.
struct HalvesType {
  using Raw = uint16_t;
};
HWY_INLINE void load_values(HalvesType, const char* row, int64_t /*d*/, FloatVec& a, FloatVec& b) {
  const auto* halves = reinterpret_cast<const uint16_t*>(row);
  a = load_halves(halves, 0);
  b = load_halves(halves, kLanes);
}
struct HalvesWalk {
  SlotWalk& walk;
  const uint16_t* halves;

  template <class Function>
  HWY_INLINE void for_each_row(Function function) {
    walk.for_each_row(reinterpret_cast<const char*>(halves), kWidened * sizeof(uint16_t), function);
  }
  template <class Type>
  HWY_INLINE void prefetch(int64_t /*j*/, const char* /*row*/, int64_t /*d*/) const {}
};

// As sum_rows() for kTwelveRows rows.
HWY_NOINLINE void sum_fp8(const BlockRows& values, const float* weights, const float* correction, float* sums,
                          int64_t size) {
  SlotWalk walk(values, size, size / kPair, SlotWalk::kNear);
  for (int64_t d = 0; d < size; d += kWidened) {
    alignas(32) uint16_t halves[kSlots * kWidened];
    widen_rows(values.first + d, values.stride, values.slots, kWidened, halves);
    HalvesWalk first{walk, halves}, second{walk, halves + kLanes};
    sum_columns<HalvesType, kTwelveRows, 1>(first, d, weights, correction, sums, size);
    sum_columns<HalvesType, kTwelveRows, 1>(second, d + kPair, weights, correction, sums, size);
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
