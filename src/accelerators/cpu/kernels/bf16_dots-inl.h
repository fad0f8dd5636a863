// The instructions of AVX512_BF16, written out because functions of this instruction set are compiled without it, which not every
// such processor has. Included after base/simd/highway.h, once per instruction set; empty for others than AVX-512.
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_BF16_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_BF16_DOTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_BF16_DOTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_BF16_DOTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// sum + the dot product of the pair of bf16 in each lane.
HWY_INLINE FloatVec dot_pairs(__m512i a, __m512i b, FloatVec sum) {
  asm("vdpbf16ps %[b], %[a], %[sum]"  // NOLINT(hicpp-no-assembler)
      : [sum] "+v"(sum.raw)
      : [a] "v"(a), [b] "v"(b));
  return sum;
}
// Two vectors rounded to bf16, to nearest even.
HWY_INLINE __m512i round_to_bf16(FloatVec low, FloatVec high) {
  __m512i rounded;
  asm("vcvtne2ps2bf16 %[low], %[high], %[rounded]"  // NOLINT(hicpp-no-assembler)
      : [rounded] "=v"(rounded)
      : [low] "v"(low.raw), [high] "v"(high.raw));
  return rounded;
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
