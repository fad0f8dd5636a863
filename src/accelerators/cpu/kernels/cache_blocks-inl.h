// Rows of a quantized cache of keys and values: blocks of AA_BLOCK_Q8_0, 32 values each, which are written, decoded,
// and packed for the scores of attention; and floats of 8 bits (e4m3), which are loaded and written. Included after
// base/simd/highway.h, once per instruction set.
#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/attention_transpose-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_CACHE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_CACHE_BLOCKS_INL_H_
#undef ANYACCEL_CPU_KERNELS_CACHE_BLOCKS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_CACHE_BLOCKS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

constexpr int64_t kBlockValues = 32;
constexpr int64_t kBlockBytes = 34;  // the scale as a half, and a signed byte for each value
constexpr hn::Rebind<int8_t, FloatTag> kBytes;

// The address of the byte of value d of a row.
HWY_INLINE const uint8_t* value_at(const uint8_t* row, int64_t d) {
  return row + d / kBlockValues * kBlockBytes + 2 + d % kBlockValues;
}

HWY_INLINE uint16_t scale_bits(const uint8_t* block) {
  uint16_t bits = 0;
  std::memcpy(&bits, block, sizeof bits);
  return bits;
}

HWY_INLINE float block_scale(const uint8_t* block) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(scale_bits(block))));
#else
  return fp16_to_float(scale_bits(block));
#endif
}

// Quantizes 32 values as "quantized_cache_write" of abi/ops.h says.
inline void encode_cache_block(const float* values, uint8_t* block) {
  constexpr int32_t infinity = 0x7f800000;
  auto magnitude = hn::Zero(kInts);  // the bits of positive floats are ordered like the floats, NaN last
  for (int64_t i = 0; i < kBlockValues; i += kLanes) {
    magnitude = hn::Max(magnitude, hn::BitCast(kInts, hn::Abs(hn::LoadU(kFloats, values + i))));
  }
  const int32_t largest = hn::GetLane(hn::MaxOfLanes(kInts, magnitude));
  uint16_t half = largest < infinity ? float_to_fp16(std::bit_cast<float>(largest) / 127.0f) : uint16_t{0x7e00};
  if (half >= 0x7c00) half = 0x7e00;
  std::memcpy(block, &half, sizeof half);
  if (half == 0 || half == 0x7e00) {
    std::memset(block + 2, 0, kBlockValues);
    return;
  }
  const auto scale = hn::Set(kFloats, fp16_to_float(half));
  for (int64_t i = 0; i < kBlockValues; i += kLanes) {
    auto q = hn::NearestInt(hn::Div(hn::LoadU(kFloats, values + i), scale));
    q = hn::Min(hn::Max(q, hn::Set(kInts, -127)), hn::Set(kInts, 127));
    hn::StoreU(hn::DemoteTo(kBytes, q), kBytes, reinterpret_cast<int8_t*>(block + 2 + i));
  }
}

// Decodes the first `length` values of a row, whole blocks.
inline void decode_cache_row(const uint8_t* row, int64_t length, float* to) {
  for (int64_t d = 0; d < length; d += kBlockValues, row += kBlockBytes) {
    const auto scale = hn::Set(kFloats, block_scale(row));
    for (int64_t i = 0; i < kBlockValues; i += kLanes) {
      const auto q = hn::PromoteTo(kInts, hn::LoadU(kBytes, reinterpret_cast<const int8_t*>(row + 2 + i)));
      hn::StoreU(hn::Mul(hn::ConvertTo(kFloats, q), scale), kFloats, to + d + i);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Loads the bytes of 4 * kLanes values of a row from value d on; bytes past `length` values are 0.
HWY_INLINE FloatVec load_cache_bytes(const uint8_t* row, int64_t d, [[maybe_unused]] int64_t length) {
#if HWY_TARGET == HWY_AVX3
  // Two blocks, or the last one alone.
  const auto load = [&](int64_t i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(value_at(row, i))); };
  const __m512i low = _mm512_zextsi256_si512(load(d));
  if (d + kBlockValues >= length) return FloatVec{_mm512_castsi512_ps(low)};
  return FloatVec{_mm512_castsi512_ps(_mm512_inserti64x4(low, load(d + kBlockValues), 1))};
#else
  return hn::LoadU(kFloats, reinterpret_cast<const float*>(value_at(row, d)));
#endif
}
#endif

// Packs the keys of `slots` slots, kLanes at most, as keys[d][slot], with `stride` floats from row to row; lanes past
// the last slot repeat it. `slot_stride` is in bytes.
inline void pack_cache_keys(const uint8_t* first, int64_t slot_stride, int64_t slots, int64_t length, float* keys,
                            int64_t stride) {
  const uint8_t* slot[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) slot[j] = first + std::min(j, slots - 1) * slot_stride;
#if HWY_TARGET == HWY_SCALAR
  for (int64_t d = 0; d < length; ++d) {
    keys[d * stride] = block_scale(slot[0] + d / kBlockValues * kBlockBytes) *
                       static_cast<float>(static_cast<int8_t>(*value_at(slot[0], d)));
  }
#else
  for (int64_t d = 0; d < length; d += 4 * kLanes) {
    // Four consecutive values are moved as one 32-bit lane and separated after the transposition.
    FloatVec v[kLanes];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kLanes; ++j) v[j] = load_cache_bytes(slot[j], d, length);
    transpose(v);
    for (int64_t begin = 0; begin < std::min(4 * kLanes, length - d); begin += kBlockValues) {
      uint16_t halves[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) {
        halves[j] = scale_bits(slot[j] + (d + begin) / kBlockValues * kBlockBytes);
      }
      const auto scale = load(F16Type(), halves);
      const int64_t end = std::min(begin + kBlockValues, 4 * kLanes);
#pragma GCC unroll 8
      for (int64_t i = begin / 4; i < end / 4; ++i) {
        const auto four = hn::BitCast(kInts, v[i]);
        float* to = keys + (d + 4 * i) * stride;
        const auto put = [&](int64_t n, auto q) {
          hn::StoreU(hn::Mul(hn::ConvertTo(kFloats, hn::ShiftRight<24>(q)), scale), kFloats, to + n * stride);
        };
        put(0, hn::ShiftLeft<24>(four));
        put(1, hn::ShiftLeft<16>(four));
        put(2, hn::ShiftLeft<8>(four));
        put(3, four);
      }
    }
  }
#endif
}

// ---- floats of 8 bits: a sign, 4 bits of exponent with bias 7, and 3 of mantissa; 0x7f and 0xff are NaN --------------------

struct E4m3Type {
  using Raw = uint8_t;
};

HWY_INLINE FloatVec load(E4m3Type, const uint8_t* p) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(kFloats, fp8_to_float(*p, kE4M3));
#else
  // Exponent and mantissa are moved to those of an fp16 number, whose bias is larger by 8. Subnormal numbers then need
  // no special treatment, even where the processor flushes denormal floats to zero.
  constexpr hn::Rebind<int16_t, FloatTag> halves;
  constexpr hn::Rebind<hwy::float16_t, FloatTag> of_floats;
  constexpr hn::Rebind<uint8_t, FloatTag> bytes;
  const auto high = hn::ShiftLeft<8>(
      hn::BitCast(halves, hn::PromoteTo(hn::RebindToUnsigned<decltype(halves)>(), hn::LoadU(bytes, p))));
  const auto moved = hn::And(hn::ShiftRight<1>(high), hn::Set(halves, static_cast<int16_t>(0xbfff)));
  const auto is_nan = hn::Eq(hn::And(moved, hn::Set(halves, int16_t{0x3f80})), hn::Set(halves, int16_t{0x3f80}));
  const auto bits = hn::Or(moved, hn::And(hn::VecFromMask(halves, is_nan), hn::Set(halves, int16_t{0x7e00})));
  return hn::Mul(hn::PromoteTo(kFloats, hn::BitCast(of_floats, bits)), hn::Set(kFloats, 256.0f));
#endif
}

// Rounds kLanes values as "quantized_cache_write" of abi/ops.h says.
HWY_INLINE void store_e4m3(FloatVec v, uint8_t* to) {
  constexpr hn::Rebind<uint8_t, FloatTag> bytes;
  const auto magnitude = hn::Min(hn::Abs(v), hn::Set(kFloats, 448.0f));
  // Normal numbers: the mantissa is rounded to 3 bits, ties to even, and the bias of the exponent changed from 127 to 7.
  const auto bits = hn::BitCast(kInts, magnitude);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(kInts, 1));
  const auto rounded = hn::ShiftRight<20>(hn::Add(bits, hn::Add(odd, hn::Set(kInts, 0x7ffff))));
  const auto normal = hn::Sub(rounded, hn::Set(kInts, 120 << 3));
  // Smaller ones are multiples of 2^-9.
  const auto steps = hn::NearestInt(hn::Mul(magnitude, hn::Set(kFloats, 512.0f)));
  const auto is_small = hn::RebindMask(kInts, hn::Lt(magnitude, hn::Set(kFloats, 0x1p-6f)));
  const auto is_finite = hn::RebindMask(kInts, hn::IsFinite(v));
  const auto code = hn::IfThenElse(is_finite, hn::IfThenElse(is_small, steps, normal), hn::Set(kInts, 0x7f));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(kInts, v)), hn::Set(kInts, 0x80));
  hn::StoreU(hn::DemoteTo(bytes, hn::Or(code, sign)), bytes, to);
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
