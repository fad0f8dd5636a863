// Rounds a group of 32 values of x to integers with AVX2, for quantized_row.cpp and quantized_tiles.cpp. Included after
// base/simd/highway.h, once per instruction set.
#include <cstdint>
#include <limits>

#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_QUANTIZED_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_QUANTIZED_ROUND_INL_H_
#undef ANYACCEL_CPU_KERNELS_QUANTIZED_ROUND_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_QUANTIZED_ROUND_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

struct RoundedValues {
  __m256i q[4];     // 32 words: value = scale * word
  float scale;      // NaN if a value is a NaN or an infinity; the words are zero then
  int32_t sums[2];  // of the words of each half of the group

  // The words of a half as 16 bits, in their order.
  HWY_INLINE __m256i half_as_16_bits(int half) const {
    // Packing works within halves of a vector: the order is put right afterwards.
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2 * half], q[2 * half + 1]), 0b11011000);
  }
};

// The words are from -steps to steps. Groups so small that their scale would be subnormal become zeros.
HWY_INLINE RoundedValues round_values(const float* x, float steps) {
  __m256 v[4], largest = _mm256_setzero_ps(), probe = _mm256_setzero_ps();
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest = _mm256_max_ps(largest, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v[i]));
    probe = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), probe);
  }
  const float most = hn::GetLane(hn::MaxOfLanes(kFloats, FloatVec{largest}));
  const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(probe, probe, _CMP_UNORD_Q)) == 0;
  RoundedValues r;
  r.scale = finite ? most / steps : std::numeric_limits<float>::quiet_NaN();
  const __m256 inverse = _mm256_set1_ps(finite && r.scale >= std::numeric_limits<float>::min() ? 1 / r.scale : 0.0F);
  AA_UNROLL for (int i = 0; i < 4; ++i) {
    r.q[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)) : _mm256_setzero_si256();
  }
  const hn::RebindToSigned<FloatTag> words;
  AA_UNROLL for (int half = 0; half < 2; ++half) {
    const hn::VFromD<decltype(words)> both{_mm256_add_epi32(r.q[2 * half], r.q[2 * half + 1])};
    r.sums[half] = hn::GetLane(hn::SumOfLanes(words, both));
  }
  return r;
}

#endif

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
