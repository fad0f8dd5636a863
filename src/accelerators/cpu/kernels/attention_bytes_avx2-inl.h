// Attention of one token over caches of bytes with AVX2, for four query heads at once: what differs from rows of floats, whose loops
// are those of attention_twelve-inl.h and attention_wide-inl.h. Nothing is rounded but sums, weights, and weights times scales
// of values, in binary32.
// Included after base/simd/highway.h, once per instruction set; empty for others than AVX2.
//
// int8: a scale for each 32 values of a slot would be a multiplication for each vector of keys that lies along a head. So a block of
// keys is transposed, as bytes, to vectors of one element of eight slots, whose scales are one vector: it is multiplied by the sums of
// 32 products, and no lanes are left to be summed. The scales of values are multiplied by the weights, once for 32 values.
//
// fp8: bytes are moved to the place of halves, whose conversion reads subnormal numbers where the processor takes them for zero, and is
// half as expensive from memory as from a register. NaN would need instructions of its own: where one is found, rows are widened again.
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

// The value of a block that transpose_block() puts at place t: each 128 bits of rows are interleaved for themselves.
constexpr int64_t value_of_place(int64_t t) { return t / 4 * 2 + t % 2 + (t % 4 < 2 ? 0 : kBlockValues / 2); }

// Puts queries of kTwelveRows rows, `size` floats apart, into the order of score_block(): for each place those of each row.
HWY_INLINE void pack_block_queries(const float* HWY_RESTRICT q, int64_t size, float* HWY_RESTRICT to) {
  for (int64_t d = 0; d < size; d += kBlockValues) {
    for (int64_t t = 0; t < kBlockValues; ++t) {
      for (int m = 0; m < kTwelveRows; ++m) *to++ = q[m * size + d + value_of_place(t)];
    }
  }
}

// The scales of a block in each of kLanes rows, `stride` bytes apart.
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

// Puts the values of a block of kLanes rows, `stride` bytes apart, at to[place][row].
HWY_INLINE void transpose_block(const char* block, int64_t stride, int8_t* to) {
  __m256i row[kLanes], two[kLanes], four[kLanes];
  AA_UNROLL for (int s = 0; s < kLanes; ++s) {
    row[s] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + s * stride + sizeof(uint16_t)));
  }
  AA_UNROLL for (int s = 0; s < kLanes; s += 2) {
    two[s] = _mm256_unpacklo_epi8(row[s], row[s + 1]);
    two[s + 1] = _mm256_unpackhi_epi8(row[s], row[s + 1]);
  }
  // Rows 0 to 3, then 4 to 7; of each first values 0 to 3 of the 128 bits, then 4 to 7, and so on.
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

// As add_twelve(), but query m is one number for all slots of the kSlotVectors vectors of keys.
HWY_INLINE void add_twelve_slots(const FloatVec (&key)[kSlotVectors], const float* query, FloatVec (&sums)[12]) {
  AA_ADD_TWELVE("vbroadcastss", 4, key, query, sums);  // NOLINT(hicpp-no-assembler)
}

// Keys of a block, transposed, with their scales.
struct TransposedKeys {
  alignas(32) int8_t values[kSlotVectors][kBlockValues * kLanes];
  alignas(32) float scales[kSlotsAtOnce];
};

// What is fetched while the products of a block are computed: kSlotVectors addresses, `between` bytes apart, with every four values, and
// the same `step` bytes further with the next four.
struct KeysAhead {
  const char* at;
  int64_t between, step;
};

// scores[m][s] = scale of slot s * sum of the block's products, and what is there unless kFirst, for kTwelveRows rows.
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

// scores[m][j] = factor * query m * key j for rows of int8, a multiple of kTwelveRows of them, and kSlotsAtOnce slots or more. `q` is
// of pack_block_queries(), those of each kTwelveRows rows.
HWY_NOINLINE void score_int8(const BlockRows& keys, const float* HWY_RESTRICT q, int64_t rows, int64_t size,
                             float factor, float* HWY_RESTRICT scores) {
  static_assert(kBlockValues / 4 == kLanes);  // score_block() fetches as often as there are slots in a vector
  // Rows without gaps are fetched in the order of their addresses, others a block of each at a time.
  const bool dense = keys.stride == row_offset(BlockType(), size);
  const int64_t between = dense ? kBlockBytes : kLanes * keys.stride;
  const int64_t step = dense ? kSlotVectors * kBlockBytes : keys.stride;
  for (int64_t first = 0; first < keys.slots; first += kSlotsAtOnce) {
    const int64_t j = std::min(first, keys.slots - kSlotsAtOnce);  // the last ones may be computed twice
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

// Bytes of a block without their scale.
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

// kWidened elements as halves, which are smaller by kUnit<E4m3Type>: 0 to 7, 16 to 23, 8 to 15 and 24 to 31. Unless kHasNan, none may
// be a NaN.
template <bool kHasNan>
HWY_INLINE void store_halves(__m256i bytes, uint16_t* to) {
  const auto store = [&](__m256i high, uint16_t* at) HWY_ATTR {
    const __m256i moved = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    __m256i bits = moved;
    // The exponent and mantissa of a NaN are all ones: they carry into the bit that makes it one of the halves too.
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

// Finds NaN in bytes.
class NanFinder {
 public:
  HWY_INLINE NanFinder() : positive_(_mm256_setzero_si256()), negative_(_mm256_setzero_si256()) {}
  HWY_INLINE void look_at(__m256i bytes) {
    positive_ = _mm256_max_epi8(positive_, bytes);
    negative_ = _mm256_max_epu8(negative_, bytes);
  }
  HWY_INLINE bool found() const {
    // 0x7f is the largest of signed bytes, 0xff that of others.
    const __m256i nans = _mm256_or_si256(_mm256_cmpeq_epi8(positive_, _mm256_set1_epi8(0x7f)),
                                         _mm256_cmpeq_epi8(negative_, _mm256_set1_epi8(-1)));
    return !_mm256_testz_si256(nans, nans);
  }

 private:
  __m256i positive_, negative_;
};

// Writes `bytes` elements of each of `rows` rows as halves, kWidened after kWidened.
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

// kLanes of kWidened halves, from d on, from memory: the compiler would take them from the register that was stored.
HWY_INLINE FloatVec load_halves(const uint16_t* from, int64_t d) {
  __m256 floats;
  asm("vcvtph2ps %[from], %[floats]"  // NOLINT(hicpp-no-assembler)
      : [floats] "=x"(floats)
      : [from] "m"(*reinterpret_cast<const uint16_t(*)[kLanes]>(from + (d % kPair * 2 + d / kPair * kLanes))));
  return FloatVec{floats};
}

// Halves of store_halves() in place of rows.
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
  HWY_INLINE void prefetch(const char* /*row*/, int64_t /*d*/) const {}
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
