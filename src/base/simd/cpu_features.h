// Detects this machine's instruction sets, and selects the one that all CPU kernels use.
#pragma once

#include <string_view>

namespace anyaccel::cpu {

// The instruction sets kernels are compiled for, from the least to the most. Each includes those before it.
enum class Isa {
  Baseline,  // what every x86-64 has: SSE2
  Avx2,      // AVX2, FMA, F16C, BMI1/2, AES, CLMUL (Intel since Haswell, AMD since Excavator)
  Avx512,    // AVX-512 F, BW, DQ, VL (Intel since Skylake-SP, AMD since Zen 4)
  Amx,       // AVX-512, and matrix tiles of bf16 and int8, which this process may use (Intel since Sapphire Rapids)
};

// "baseline", "avx2", "avx512", "amx".
std::string_view isa_name(Isa isa) noexcept;

// The features that both the processor and the operating system (which must save the registers) support.
struct CpuFeatures {
  bool avx2 = false;         // all of Isa::Avx2
  bool avx512 = false;       // all of Isa::Avx512
  bool avx512_bf16 = false;  // dot products of bf16 pairs, conversion to bf16
  bool avx512_vbmi = false;  // permutations of bytes
  bool avx512_vnni = false;  // dot products of int8
  bool amx_bf16 = false;     // matrix tiles of bf16
  bool amx_int8 = false;     // matrix tiles of int8
  bool fast_bf16_dot =
      false;               // the dot product of bf16 pairs is faster than fp32 multiply-adds: on AMD (Intel's runs at
                           // half of their rate)
  bool fast_bf16 = false;  // products of bf16 run faster than those of fp32: AMX, or the above
  // Intel's Granite Rapids or one of its successors, the first to report AVX10.
  bool granite_rapids = false;
  // AMD's family 1Ah: Zen 5 and newer, of which Zen 5 was measured. It reads more slowly with prefetches into its
  // second-level cache than without.
  bool zen5 = false;
};
const CpuFeatures& cpu_features() noexcept;

// The instruction set in use. First use chooses the best available one, or the one that the environment variable
// ANYACCEL_CPU_ISA names (baseline, avx2, avx512 or amx). Throws InvalidArgument if that is unknown or not available here.
Isa isa();

// Makes all kernels use this instruction set from now on; for tests and benchmarks. Not to be called while a kernel
// runs. Throws InvalidArgument if the machine does not have it.
void set_isa(Isa isa);

// Asks the operating system for the use of tiles when it is first asked about Isa::Amx.
bool is_isa_available(Isa isa) noexcept;

// Whether every op accepts a format. The instruction set in use widens it to F32 in vector registers (bf16 by a shift,
// everywhere; fp16 by F16C), and arithmetic is F32.
bool is_bf16_supported();
bool is_fp16_supported();

}  // namespace anyaccel::cpu
