// What the processor that an op runs on is good at, beyond the instruction set that the op is compiled for. These decisions
// are made when the library is loaded; those of fp_codes_avx512.h are made there. ANYACCEL_CPU_ISA does not change them.
#pragma once

#include "vector_base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace anyaccel::op {

// Whether the processor has instructions that round to bf16 (AVX512-BF16) and that permute bytes across a vector (AVX512-VBMI).
// Intel's Cooper Lake has the first only, and takes the loops without either.
#if AA_VECTOR_AVX512
inline const bool rounds_to_bf16 =
    __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
#else
inline constexpr bool rounds_to_bf16 = false;
#endif

// Whether loops should leave the prefetching of sequential reads to the hardware, as they should on AMD's family 19h (Zen 3
// and 4): on Zen 4, prefetch instructions make Adam a sixth slower and quantizers a tenth. Intel's cores and Zen 5 gain from
// them. Older compilers do not know the family's name.
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 11)
inline const bool fetches_best_alone = __builtin_cpu_is("amdfam19h") != 0;
inline const bool is_intel = __builtin_cpu_is("intel") != 0;
// Zen 4 is the only one of that family with AVX-512.
inline const bool is_zen4 = AA_VECTOR_AVX512 && fetches_best_alone && rounds_to_bf16;
// Intel's Granite Rapids, or one of its successors: they are the first to report AVX10. Compilers before GCC 13 do not know its
// name. Where it differs from an Emerald Rapids, loops for it were measured on it only.
inline bool reports_avx10() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (d & 1u << 19) != 0;
}
inline const bool is_granite_rapids = AA_VECTOR_AVX512 && is_intel && reports_avx10();
#else
inline constexpr bool fetches_best_alone = false;
inline constexpr bool is_intel = false;
inline constexpr bool is_zen4 = false;
inline constexpr bool is_granite_rapids = false;
#endif

}  // namespace anyaccel::op
