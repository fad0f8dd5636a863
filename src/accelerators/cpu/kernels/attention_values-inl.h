// Rows of keys and values of every type that a cache may have, for attention of one token: their addresses, and how
// their elements become floats. Included after base/simd/highway.h, once per instruction set; empty for others than
// AVX2 and AVX-512.
#include <cstdint>
#include <type_traits>

#include "accelerators/cpu/kernels/attention_tile.h"
#include "accelerators/cpu/kernels/cache_blocks-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_VALUES_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_VALUES_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_VALUES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr int64_t kPair = 2 * kLanes;
// Most query heads that share a widened key or value: more would not leave registers for it.
constexpr int kMostRows = kLanes / 2;

// The address of the key or value of a slot.
HWY_INLINE const char* row_of_slot(const aa_tensor& t, const AttentionTile& tile, int64_t slot) {
  const int64_t offset = tile.sequence * t.strides[0] + tile.kv_head * t.strides[1] + slot * t.strides[2];
  return static_cast<const char*>(t.data) + offset * static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)));
}

// The type of rows of a quantized cache: blocks of int8 with scales.
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

// Converts e4m3 through fp16, whose exponent bias is larger by 8 (see load() of cache_blocks-inl.h). The elements are
// too small by a factor of kUnit, by which scores and sums are multiplied at the end.
HWY_INLINE void load_values(E4m3Type, const char* row, int64_t d, FloatVec& a, FloatVec& b) {
  constexpr hn::Repartition<int16_t, FloatTag> words;
  constexpr hn::Repartition<hwy::float16_t, FloatTag> halves;
  constexpr hn::Half<decltype(halves)> half_of_them;
  constexpr hn::Rebind<int8_t, decltype(words)> bytes;
  const auto x = hn::PromoteTo(words, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(row) + d));
  const auto moved = hn::And(hn::ShiftLeft<7>(x), hn::Set(words, static_cast<int16_t>(0xbfff)));
  // The exponent and mantissa of a NaN are all ones: adding one to the mantissa carries into the bit that makes the
  // fp16 number a NaN too.
  const auto next = hn::Add(moved, hn::Set(words, int16_t{0x80}));
  const auto bits = hn::BitCast(halves, hn::OrAnd(moved, next, hn::Set(words, int16_t{0x4000})));
  a = hn::PromoteTo(kFloats, hn::LowerHalf(half_of_them, bits));
  b = hn::PromoteTo(kFloats, hn::UpperHalf(half_of_them, bits));
}
template <class Type>
constexpr float kUnit = std::is_same_v<Type, E4m3Type> ? 256.0f : 1.0f;

// Calls function(type) with the type of rows of a dtype.
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

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
