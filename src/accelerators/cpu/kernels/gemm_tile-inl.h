// The register tile of gemm.cpp with AVX2: four rows of weights by three vectors of rows of x. Twelve sums, three
// vectors and a broadcast weight take all 16 registers. Included after base/simd/highway.h, once per instruction set;
// empty for others than AVX2.
#include <cstdint>

#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMM_TILE_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMM_TILE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMM_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int kGemmTileRows = 4, kGemmTileVectors = 3;
// Words along k of a step of multiply_twelve().
constexpr int kGemmTileStep = 8;

// clang-format off
// Adds the products of word number `word` of a row of weights and the three vectors of x.
#define AA_TILE_ROW(row, word, s0, s1, s2)                                              \
  "vbroadcastss " #word "*%c[word_bytes]+" row "*%c[row_bytes](%[w]), %%ymm15\n\t"       \
  "vfmadd231ps %%ymm15, %%ymm12, %%ymm" #s0 "\n\t"                                      \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" #s1 "\n\t"                                      \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #s2 "\n\t"
#define AA_TILE_WORD(word)                                                              \
  "vmovups " #word "*96(%[x]), %%ymm12\n\t"                                             \
  "vmovups " #word "*96+32(%[x]), %%ymm13\n\t"                                          \
  "vmovups " #word "*96+64(%[x]), %%ymm14\n\t"                                          \
  AA_TILE_ROW("0", word, 0, 1, 2) AA_TILE_ROW("1", word, 3, 4, 5)                       \
  AA_TILE_ROW("2", word, 6, 7, 8) AA_TILE_ROW("3", word, 9, 10, 11)
#define AA_TILE_LOAD(n) "vmovups " #n "*32(%[before]), %%ymm" #n "\n\t"
#define AA_TILE_STORE(n) "vmovups %%ymm" #n ", " #n "*32(%[sums])\n\t"
#define AA_TILE_SUMS(move) move(0) move(1) move(2) move(3) move(4) move(5) move(6) move(7) move(8) move(9) move(10) move(11)
// clang-format on

// sums[r][lane] = before[r][lane] + sum over k of w[r * row_floats + k] * x[k][lane], for kGemmTileRows rows and
// kGemmTileVectors * kLanes lanes without gaps. `sums` may be `before`. Before each kGemmTileStep words, prefetches the
// line at the next address of `ahead` into the first-level cache.
//
// The whole loop is in assembly, because the compiler spills sums, copies them, or reads the vectors of x again for
// each row: its loops reach 0.7 of the rate of multiply-adds, this one 0.95.
template <int64_t row_floats, int64_t word_floats>
HWY_INLINE void multiply_twelve(const float* w, const float* x, int64_t depth, const float* before, float* sums,
                                const char* const* ahead) {
  int64_t steps = depth / kGemmTileStep, words = depth % kGemmTileStep;
  const char* next;
  asm volatile(  // NOLINT(hicpp-no-assembler)
      AA_TILE_SUMS(AA_TILE_LOAD)
      "test %[steps], %[steps]\n\t"
      "jz 2f\n\t"
      ".p2align 5\n"
      "1:\n\t"
      "mov (%[ahead]), %[next]\n\t"
      "prefetcht0 (%[next])\n\t"
      "add $8, %[ahead]\n\t"
      AA_TILE_WORD(0) AA_TILE_WORD(1) AA_TILE_WORD(2) AA_TILE_WORD(3)
      AA_TILE_WORD(4) AA_TILE_WORD(5) AA_TILE_WORD(6) AA_TILE_WORD(7)
      "add $8*%c[word_bytes], %[w]\n\t"
      "add $8*96, %[x]\n\t"
      "dec %[steps]\n\t"
      "jnz 1b\n"
      "2:\n\t"
      "test %[words], %[words]\n\t"
      "jz 4f\n"
      "3:\n\t"
      AA_TILE_WORD(0)
      "add $%c[word_bytes], %[w]\n\t"
      "add $96, %[x]\n\t"
      "dec %[words]\n\t"
      "jnz 3b\n"
      "4:\n\t"
      AA_TILE_SUMS(AA_TILE_STORE)
      : [w] "+&r"(w), [x] "+&r"(x), [steps] "+&r"(steps), [words] "+&r"(words), [ahead] "+&r"(ahead), [next] "=&r"(next)
      : [before] "r"(before), [sums] "r"(sums), [row_bytes] "i"(row_floats * static_cast<int64_t>(sizeof(float))),
        [word_bytes] "i"(word_floats * static_cast<int64_t>(sizeof(float)))
      : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
}

#undef AA_TILE_SUMS
#undef AA_TILE_STORE
#undef AA_TILE_LOAD
#undef AA_TILE_WORD
#undef AA_TILE_ROW

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
