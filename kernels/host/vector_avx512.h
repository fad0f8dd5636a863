// 16 floats, with AVX-512: the type and the functions that vector.h describes. Included by vector_lanes.h.
#pragma once

#include "vector_base.h"

namespace anyaccel::op {

struct Vec {
  static constexpr int width = 16;
  __m512 v;
  AA_INLINE Vec() : v(_mm512_setzero_ps()) {}
  AA_INLINE Vec(__m512 x) : v(x) {}
  AA_INLINE explicit Vec(float x) : v(_mm512_set1_ps(x)) {}
};
using Mask = __mmask16;

AA_INLINE Vec operator+(Vec a, Vec b) { return _mm512_add_ps(a.v, b.v); }
AA_INLINE Vec operator-(Vec a, Vec b) { return _mm512_sub_ps(a.v, b.v); }
AA_INLINE Vec operator*(Vec a, Vec b) { return _mm512_mul_ps(a.v, b.v); }
AA_INLINE Vec operator/(Vec a, Vec b) { return _mm512_div_ps(a.v, b.v); }
AA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
AA_INLINE Vec multiply_sub_from(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a.v, b.v, c.v); }
AA_INLINE Vec sqrt(Vec a) { return _mm512_sqrt_ps(a.v); }
AA_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a.v, b.v); }
AA_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a.v, b.v); }
AA_INLINE Vec round(Vec a) { return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
AA_INLINE Vec floor(Vec a) { return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
AA_INLINE Vec bit_and(Vec a, Vec b) { return _mm512_and_ps(a.v, b.v); }
AA_INLINE Vec bit_or(Vec a, Vec b) { return _mm512_or_ps(a.v, b.v); }
AA_INLINE Vec bit_xor(Vec a, Vec b) { return _mm512_xor_ps(a.v, b.v); }
AA_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
AA_INLINE Mask less_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ); }
AA_INLINE Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
AA_INLINE Mask is_nan(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
AA_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no.v, yes.v); }
AA_INLINE bool any(Mask m) { return m != 0; }

AA_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
AA_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
AA_INLINE void stream(float* p, Vec a) { _mm512_stream_ps(p, a.v); }

AA_INLINE Vec widen_bf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Rounds to nearest even, by adding half an ulp of bf16, less one bit if the mantissa that remains is even; NaN becomes quiet.
AA_INLINE __m256i narrow_bf16(Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  rounded = _mm512_mask_or_epi32(rounded, is_nan(a), bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
AA_INLINE Vec load(const bf16* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
AA_INLINE void store(bf16* p, Vec a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a)); }
AA_INLINE void stream(bf16* p, Vec a) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a)); }
AA_INLINE Vec load(const fp16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
AA_INLINE __m256i narrow_fp16(Vec a) { return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
AA_INLINE void store(fp16* p, Vec a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_fp16(a)); }
AA_INLINE void stream(fp16* p, Vec a) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow_fp16(a)); }
AA_INLINE Vec load(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
AA_INLINE Vec load(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
AA_INLINE void store_integers(int8_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
// Four vectors of integers as bytes, in their order, with saturation: packs works within lanes of 128 bits, so a permutation
// must sort the words.
AA_INLINE __m512i saturated_bytes(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i low = _mm512_packs_epi32(a, b), high = _mm512_packs_epi32(c, d);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}
AA_INLINE __m512i integers(Vec a, Vec b, Vec c, Vec d) {
  return saturated_bytes(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v), _mm512_cvtps_epi32(c.v),
                         _mm512_cvtps_epi32(d.v));
}
AA_INLINE void store_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) { _mm512_storeu_si512(p, integers(a, b, c, d)); }
AA_INLINE void stream_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), integers(a, b, c, d));
}

AA_INLINE uint32_t first_lanes(int64_t n) { return (1u << n) - 1u; }
AA_INLINE Vec load_n(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(first_lanes(n)), p);
}
AA_INLINE void store_n(float* p, Vec a, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(first_lanes(n)), a.v);
}
AA_INLINE Vec load_n(const bf16* p, int64_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(first_lanes(n)), p));
}
AA_INLINE void store_n(bf16* p, Vec a, int64_t n) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(first_lanes(n)), narrow_bf16(a));
}
AA_INLINE Vec load_n(const fp16* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(first_lanes(n)), p));
}
AA_INLINE void store_n(fp16* p, Vec a, int64_t n) {
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(first_lanes(n)), narrow_fp16(a));
}

}  // namespace anyaccel::op
