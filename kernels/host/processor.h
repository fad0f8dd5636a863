// What the processor that an op runs on is good at, beyond the instruction set that the op is compiled for. Decisions
// that are made when the library is loaded are here, except those for the codes of small floats (fp_codes_avx512.h).
// ANYACCEL_CPU_ISA does not force them.
#pragma once

#include "vector_base.h"

namespace anyaccel::op {

// Whether the processor has an instruction that rounds to bf16, and one that moves bytes anywhere. (Those that have the first
// alone, Intel's Cooper Lake, round in the slower way.)
#if AA_VECTOR_AVX512
inline const bool rounds_to_bf16 =
    __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
#else
inline constexpr bool rounds_to_bf16 = false;
#endif

// Whether loops should leave the prefetching of sequential reads to the hardware. They should on AMD's family 19h (Zen
// 3 and 4): on Zen 4, prefetch instructions make Adam a sixth slower and quantizers a tenth. Intel's cores and Zen 5
// gain from them. Compilers of this age know the name.
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 11)
inline const bool fetches_best_alone = __builtin_cpu_is("amdfam19h") != 0;
inline const bool is_intel = __builtin_cpu_is("intel") != 0;
// Of that family Zen 4 alone has AVX-512 and rounds to bf16.
inline const bool is_zen4 = AA_VECTOR_AVX512 && fetches_best_alone && rounds_to_bf16;
#else
inline constexpr bool fetches_best_alone = false;
inline constexpr bool is_intel = false;
inline constexpr bool is_zen4 = false;
#endif

}  // namespace anyaccel::op
