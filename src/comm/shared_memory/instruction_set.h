// The instruction sets that the kernels of this folder are compiled for: those of the CPU accelerator, chosen the same
// way. Include it before any header of Highway.
#pragma once

#if defined(HIGHWAY_HWY_DETECT_TARGETS_H_)
#error "include comm/shared_memory/instruction_set.h before the headers of Highway"
#endif
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

namespace anyaccel::comm {

// Lets ANYACCEL_CPU_ISA (baseline, avx2, avx512) limit what Highway chooses, unless the CPU accelerator, which also
// reports a wrong value, has chosen already. Highway's choice holds for the whole process.
void choose_instruction_set() noexcept;
inline void apply_instruction_set() noexcept {
  static const bool chosen = (choose_instruction_set(), true);
  static_cast<void>(chosen);
}

}  // namespace anyaccel::comm
