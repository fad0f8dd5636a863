// Transposes kLanes x kLanes floats in registers, for the kernels of attention. Included after base/simd/highway.h,
// once per instruction set.
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_TRANSPOSE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Transposes kLanes vectors of kLanes lanes.
HWY_INLINE void transpose(FloatVec (&v)[kLanes]) {
  const hn::RepartitionToWide<FloatTag> doubles;
  FloatVec u[kLanes];
  // Within 128-bit blocks: u[4 g + i] holds, in its block b, lane 4 b + i of the vectors 4 g to 4 g + 3.
#pragma GCC unroll 4
  for (int64_t g = 0; g < kLanes; g += 4) {
    const auto t0 = hn::BitCast(doubles, hn::InterleaveLower(kFloats, v[g], v[g + 1]));
    const auto t1 = hn::BitCast(doubles, hn::InterleaveUpper(kFloats, v[g], v[g + 1]));
    const auto t2 = hn::BitCast(doubles, hn::InterleaveLower(kFloats, v[g + 2], v[g + 3]));
    const auto t3 = hn::BitCast(doubles, hn::InterleaveUpper(kFloats, v[g + 2], v[g + 3]));
    u[g] = hn::BitCast(kFloats, hn::InterleaveLower(doubles, t0, t2));
    u[g + 1] = hn::BitCast(kFloats, hn::InterleaveUpper(doubles, t0, t2));
    u[g + 2] = hn::BitCast(kFloats, hn::InterleaveLower(doubles, t1, t3));
    u[g + 3] = hn::BitCast(kFloats, hn::InterleaveUpper(doubles, t1, t3));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#if HWY_TARGET == HWY_AVX3
    const __m512 a = _mm512_shuffle_f32x4(u[i].raw, u[4 + i].raw, 0x88);
    const __m512 b = _mm512_shuffle_f32x4(u[i].raw, u[4 + i].raw, 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(u[8 + i].raw, u[12 + i].raw, 0x88);
    const __m512 d = _mm512_shuffle_f32x4(u[8 + i].raw, u[12 + i].raw, 0xdd);
    v[i] = FloatVec{_mm512_shuffle_f32x4(a, c, 0x88)};
    v[4 + i] = FloatVec{_mm512_shuffle_f32x4(b, d, 0x88)};
    v[8 + i] = FloatVec{_mm512_shuffle_f32x4(a, c, 0xdd)};
    v[12 + i] = FloatVec{_mm512_shuffle_f32x4(b, d, 0xdd)};
#elif HWY_TARGET == HWY_AVX2
    v[i] = hn::ConcatLowerLower(kFloats, u[4 + i], u[i]);
    v[4 + i] = hn::ConcatUpperUpper(kFloats, u[4 + i], u[i]);
#else
    v[i] = u[i];
#endif
  }
}
#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
