// Scores of four query heads and three slots at once with AVX2, for attention of one token: twelve sums, three keys and
// a query take all 16 registers, and twelve chains of multiply-adds keep both units busy. Included after
// base/simd/highway.h, once per instruction set; empty for others than AVX2.
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_ATTENTION_TWELVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_ATTENTION_TWELVE_INL_H_
#undef ANYACCEL_CPU_KERNELS_ATTENTION_TWELVE_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_ATTENTION_TWELVE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

constexpr int kTwelveRows = 4, kTwelveSlots = 3;
// Slots that are taken together where keys are transposed and lanes are slots: three vectors.
constexpr int64_t kSlotVectors = 3, kSlotsAtOnce = kSlotVectors * kLanes;

// Puts kTwelveRows rows of queries, `size` floats apart, into the order of add_twelve(): kLanes elements of each row,
// then the next kLanes.
HWY_INLINE void pack_queries(const float* HWY_RESTRICT q, int64_t size, float* HWY_RESTRICT to) {
  for (int64_t d = 0; d < size; d += kLanes) {
    for (int m = 0; m < kTwelveRows; ++m, to += kLanes) hn::StoreU(hn::LoadU(kFloats, q + m * size + d), kFloats, to);
  }
}

// sums[3 * m + s] += key[s] * query m, for three vectors of keys and kTwelveRows queries, which the instruction `load`
// reads `step` bytes apart. The compiler would let multiply-adds overwrite keys and queries instead of sums, and then
// spill sums. Sums are written before keys are read for the last time, so no register may serve for both.
// clang-format off
#define AA_TWELVE_ROW(load, m, step, s0, s1, s2)                \
  load " " #m "*" #step "(%[q]), %[row]\n\t"                     \
  "vfmadd231ps %[k0], %[row], %[" #s0 "]\n\t"                   \
  "vfmadd231ps %[k1], %[row], %[" #s1 "]\n\t"                   \
  "vfmadd231ps %[k2], %[row], %[" #s2 "]\n\t"
#define AA_ADD_TWELVE(load, step, key, query, sums)                                                                         \
  __m256 row;                                                                                                               \
  asm(AA_TWELVE_ROW(load, 0, step, s0, s1, s2) AA_TWELVE_ROW(load, 1, step, s3, s4, s5)                                    \
      AA_TWELVE_ROW(load, 2, step, s6, s7, s8) AA_TWELVE_ROW(load, 3, step, s9, s10, s11)                                   \
      : [row] "=&x"(row), [s0] "+&x"((sums)[0].raw), [s1] "+&x"((sums)[1].raw), [s2] "+&x"((sums)[2].raw),                  \
        [s3] "+&x"((sums)[3].raw), [s4] "+&x"((sums)[4].raw), [s5] "+&x"((sums)[5].raw), [s6] "+&x"((sums)[6].raw),         \
        [s7] "+&x"((sums)[7].raw), [s8] "+&x"((sums)[8].raw), [s9] "+&x"((sums)[9].raw), [s10] "+&x"((sums)[10].raw),       \
        [s11] "+&x"((sums)[11].raw)                                                                                         \
      : [q] "r"(query), [k0] "x"((key)[0].raw), [k1] "x"((key)[1].raw), [k2] "x"((key)[2].raw),                             \
        "m"(*reinterpret_cast<const char(*)[kTwelveRows * (step)]>(query)))
// clang-format on

// Queries are vectors from pack_queries(), so that the lanes of the sums remain to be added up.
HWY_INLINE void add_twelve(const FloatVec (&key)[kTwelveSlots], const float* query, FloatVec (&sums)[12]) {
  AA_ADD_TWELVE("vmovups", 32, key, query, sums);  // NOLINT(hicpp-no-assembler)
}

// Stores factor * the horizontal sums of what add_twelve() has summed at scores + m * stride. Also overwrites the float
// behind the kTwelveSlots scores of each row.
HWY_INLINE void store_twelve(const FloatVec (&sums)[12], float factor, float* scores, int64_t stride) {
  // Adds the halves of a (lower half of the result) and those of b (upper half).
  const auto halves = [](FloatVec a, FloatVec b) HWY_ATTR {
    return _mm256_add_ps(_mm256_blend_ps(a.raw, b.raw, 0xf0), _mm256_permute2f128_ps(a.raw, b.raw, 0x21));
  };
  const auto pairs = [](__m256 a, __m256 b) HWY_ATTR {
    return _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
  };
  AA_UNROLL for (int m = 0; m < kTwelveRows; m += 2) {
    const FloatVec *a = sums + m * kTwelveSlots, *b = a + kTwelveSlots;
    const __m256 third = halves(a[2], b[2]);
    const __m256d low = pairs(halves(a[0], b[0]), halves(a[1], b[1])), high = pairs(third, third);
    const __m256 both = _mm256_mul_ps(
        _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(low, high)), _mm256_castpd_ps(_mm256_unpackhi_pd(low, high))),
        _mm256_set1_ps(factor));
    _mm_storeu_ps(scores + m * stride, _mm256_castps256_ps128(both));
    _mm_storeu_ps(scores + (m + 1) * stride, _mm256_extractf128_ps(both, 1));
  }
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
