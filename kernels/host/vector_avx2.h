// 8 floats, with AVX2: the type and the functions that vector.h describes. Included by vector_lanes.h.
#pragma once

#include "vector_base.h"

namespace anyaccel::op {

struct Vec {
  static constexpr int width = 8;
  __m256 v;
  AA_INLINE Vec() : v(_mm256_setzero_ps()) {}
  AA_INLINE Vec(__m256 x) : v(x) {}
  AA_INLINE explicit Vec(float x) : v(_mm256_set1_ps(x)) {}
};
struct Mask {
  __m256 v;
};

AA_INLINE Vec operator+(Vec a, Vec b) { return _mm256_add_ps(a.v, b.v); }
AA_INLINE Vec operator-(Vec a, Vec b) { return _mm256_sub_ps(a.v, b.v); }
AA_INLINE Vec operator*(Vec a, Vec b) { return _mm256_mul_ps(a.v, b.v); }
AA_INLINE Vec operator/(Vec a, Vec b) { return _mm256_div_ps(a.v, b.v); }
AA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }
AA_INLINE Vec multiply_sub_from(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a.v, b.v, c.v); }
AA_INLINE Vec sqrt(Vec a) { return _mm256_sqrt_ps(a.v); }
AA_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a.v, b.v); }
AA_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a.v, b.v); }
AA_INLINE Vec round(Vec a) { return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
AA_INLINE Vec floor(Vec a) { return _mm256_round_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
AA_INLINE Vec bit_and(Vec a, Vec b) { return _mm256_and_ps(a.v, b.v); }
AA_INLINE Vec bit_or(Vec a, Vec b) { return _mm256_or_ps(a.v, b.v); }
AA_INLINE Vec bit_xor(Vec a, Vec b) { return _mm256_xor_ps(a.v, b.v); }
AA_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
AA_INLINE Mask less_equal(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
AA_INLINE Mask equal(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
AA_INLINE Mask is_nan(Vec a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
AA_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no.v, yes.v, m.v); }
AA_INLINE bool any(Mask m) { return _mm256_movemask_ps(m.v) != 0; }

AA_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
AA_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
AA_INLINE void stream(float* p, Vec a) { _mm256_stream_ps(p, a.v); }

// The low halves of eight 32-bit lanes, whose values must be below 2^16 (packusdw saturates others).
AA_INLINE __m128i low_halves(__m256i x) {
  return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
// Rounds to nearest even, by adding half an ulp of bf16, less one bit if the mantissa that remains is even; NaN becomes quiet.
AA_INLINE __m128i narrow_bf16(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i result = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan(a).v));
  return low_halves(_mm256_srli_epi32(result, 16));
}
AA_INLINE Vec load(const bf16* p) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
AA_INLINE void store(bf16* p, Vec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(a)); }
AA_INLINE void stream(bf16* p, Vec a) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(a)); }
AA_INLINE Vec load(const fp16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
AA_INLINE __m128i narrow_fp16(Vec a) { return _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
AA_INLINE void store(fp16* p, Vec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_fp16(a)); }
AA_INLINE void stream(fp16* p, Vec a) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow_fp16(a)); }
AA_INLINE Vec load(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
AA_INLINE Vec load(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
AA_INLINE void store_integers(int8_t* p, Vec a) {
  const __m256i x = _mm256_cvtps_epi32(a.v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
// 32 signed words to bytes, with signed saturation, in their order.
AA_INLINE __m256i saturated_bytes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i both = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(both, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
AA_INLINE __m256i integers(Vec a, Vec b, Vec c, Vec d) {
  return saturated_bytes(_mm256_cvtps_epi32(a.v), _mm256_cvtps_epi32(b.v), _mm256_cvtps_epi32(c.v),
                         _mm256_cvtps_epi32(d.v));
}
AA_INLINE void store_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), integers(a, b, c, d));
}
AA_INLINE void stream_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), integers(a, b, c, d));
}

}  // namespace anyaccel::op
