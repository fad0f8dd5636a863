// Loads and stores elements of the float dtypes as vectors of binary32, in the instruction set being compiled. Included
// after hwy/highway.h, once per instruction set.
#include "base/scalar_convert.h"

#if defined(ANYACCEL_BASE_SIMD_FLOAT_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_BASE_SIMD_FLOAT_TYPES_INL_H_
#undef ANYACCEL_BASE_SIMD_FLOAT_TYPES_INL_H_
#else
#define ANYACCEL_BASE_SIMD_FLOAT_TYPES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
constexpr FloatTag kFloats;
constexpr hn::RebindToSigned<FloatTag> kInts;
constexpr hn::RebindToUnsigned<FloatTag> kUints;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

// ---- elements in their memory format ----------------------------------------------------------------------------

struct F32Type {
  using Raw = float;
};
struct Bf16Type {
  using Raw = uint16_t;
};
struct F16Type {
  using Raw = uint16_t;
};

HWY_INLINE FloatVec load(F32Type, const float* p) { return hn::LoadU(kFloats, p); }
HWY_INLINE void store(F32Type, FloatVec v, float* p) { hn::StoreU(v, kFloats, p); }

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE FloatVec load(Bf16Type, const uint16_t* p) { return hn::Set(kFloats, bf16_to_float(*p)); }
HWY_INLINE FloatVec load(F16Type, const uint16_t* p) { return hn::Set(kFloats, fp16_to_float(*p)); }
HWY_INLINE void store(Bf16Type, FloatVec v, uint16_t* p) { *p = float_to_bf16(hn::GetLane(v)); }
HWY_INLINE void store(F16Type, FloatVec v, uint16_t* p) { *p = float_to_fp16(hn::GetLane(v)); }
#else
HWY_INLINE FloatVec load(Bf16Type, const uint16_t* p) {
  const hn::Rebind<uint16_t, FloatTag> halves;
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(kUints, hn::LoadU(halves, p))));
}
HWY_INLINE FloatVec load(F16Type, const uint16_t* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  return hn::PromoteTo(kFloats, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void store(Bf16Type, FloatVec v, uint16_t* p) {
  // Rounds to nearest even; a NaN keeps its upper bits and becomes quiet.
  const auto bits = hn::BitCast(kInts, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kInts, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(kInts, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(kInts, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(kInts, hn::IsNaN(v)), quiet, rounded);
  const hn::Rebind<uint16_t, FloatTag> halves;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(kInts, hn::ShiftRight<16>(hn::BitCast(kUints, chosen)))), halves, p);
}
HWY_INLINE void store(F16Type, FloatVec v, uint16_t* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  hn::StoreU(hn::DemoteTo(halves, v), halves, reinterpret_cast<hwy::float16_t*>(p));
}
#endif

}  // namespace anyaccel::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
