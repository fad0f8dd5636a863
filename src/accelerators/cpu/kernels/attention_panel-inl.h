// The products of attention over prompts with AVX2: three rows by a panel of four vectors. Twelve sums, three vectors
// and a broadcast number take all 16 registers, and the fourth vector is a memory operand. That is 18 instructions for
// twelve multiply-adds, where six rows by two vectors take 20 and the compiler's loop takes 24. A core whose other
// thread runs another virtual machine seems to be bound by the number of instructions (docs/performance_prompts.md). Included
// after base/simd/highway.h, once per instruction set; empty for others than AVX2.
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_PANEL_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_PANEL_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_PANEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int kPanelRows = 3, kPanelVectors = 4;
// Floats of a row of a panel. Rows have no gaps: rows that are a power of two of bytes apart would share few sets of
// the first-level cache.
constexpr int64_t kPanelFloats = kPanelVectors * kLanes;

// One step: multiplies row number `step` of the panel with element `step` of each of the three rows of a.
// clang-format off
#define AA_PANEL_ROW(row, step, s0, s1, s2, s3)                     \
  "vbroadcastss " #step "*4(%[a]" row "), %%ymm15\n\t"              \
  "vfmadd231ps %%ymm15, %%ymm12, %[" #s0 "]\n\t"                    \
  "vfmadd231ps %%ymm15, %%ymm13, %[" #s1 "]\n\t"                    \
  "vfmadd231ps %%ymm15, %%ymm14, %[" #s2 "]\n\t"                    \
  "vfmadd231ps " #step "*128+96(%[b]), %%ymm15, %[" #s3 "]\n\t"
#define AA_PANEL_STEP(step)                                         \
  "vmovups " #step "*128(%[b]), %%ymm12\n\t"                        \
  "vmovups " #step "*128+32(%[b]), %%ymm13\n\t"                     \
  "vmovups " #step "*128+64(%[b]), %%ymm14\n\t"                     \
  AA_PANEL_ROW("", step, s0, s1, s2, s3)                            \
  AA_PANEL_ROW(",%[row]", step, s4, s5, s6, s7)                     \
  AA_PANEL_ROW(",%[row],2", step, s8, s9, s10, s11)
// clang-format on

#define AA_PANEL_ASM(steps)                                                                                      \
  asm(steps                                                                                                      \
      : [s0] "+x"(sum[0][0].raw), [s1] "+x"(sum[0][1].raw), [s2] "+x"(sum[0][2].raw), [s3] "+x"(sum[0][3].raw),  \
        [s4] "+x"(sum[1][0].raw), [s5] "+x"(sum[1][1].raw), [s6] "+x"(sum[1][2].raw), [s7] "+x"(sum[1][3].raw),  \
        [s8] "+x"(sum[2][0].raw), [s9] "+x"(sum[2][1].raw), [s10] "+x"(sum[2][2].raw), [s11] "+x"(sum[2][3].raw) \
      : [a] "r"(a), [b] "r"(b), [row] "r"(a_row * static_cast<int64_t>(sizeof(float)))                           \
      : "xmm12", "xmm13", "xmm14", "xmm15", "memory")

// sum[m][n] += a[m * a_row + k] * vector n of row k of the panel b, over `steps` values of k.
HWY_INLINE void add_panel(const float* a, int64_t a_row, const float* b, int64_t steps,
                          FloatVec (&sum)[kPanelRows][kPanelVectors]) {
  for (; steps >= 4; steps -= 4, a += 4, b += 4 * kPanelFloats) {
    AA_PANEL_ASM(AA_PANEL_STEP(0) AA_PANEL_STEP(1) AA_PANEL_STEP(2) AA_PANEL_STEP(3));  // NOLINT(hicpp-no-assembler)
  }
  for (; steps > 0; --steps, ++a, b += kPanelFloats) {
    AA_PANEL_ASM(AA_PANEL_STEP(0));  // NOLINT(hicpp-no-assembler)
  }
}

#undef AA_PANEL_ASM
#undef AA_PANEL_STEP
#undef AA_PANEL_ROW

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
