// 4 floats, with SSE2 only: the type and the functions that vector.h describes. Included by vector_lanes.h.
#pragma once

#include "vector_base.h"

namespace anyaccel::op {

struct Vec {
  static constexpr int width = 4;
  __m128 v;
  AA_INLINE Vec() : v(_mm_setzero_ps()) {}
  AA_INLINE Vec(__m128 x) : v(x) {}
  AA_INLINE explicit Vec(float x) : v(_mm_set1_ps(x)) {}
};
struct Mask {
  __m128 v;
};

AA_INLINE Vec operator+(Vec a, Vec b) { return _mm_add_ps(a.v, b.v); }
AA_INLINE Vec operator-(Vec a, Vec b) { return _mm_sub_ps(a.v, b.v); }
AA_INLINE Vec operator*(Vec a, Vec b) { return _mm_mul_ps(a.v, b.v); }
AA_INLINE Vec operator/(Vec a, Vec b) { return _mm_div_ps(a.v, b.v); }
AA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }
AA_INLINE Vec multiply_sub_from(Vec a, Vec b, Vec c) { return c - a * b; }
AA_INLINE Vec sqrt(Vec a) { return _mm_sqrt_ps(a.v); }
AA_INLINE Vec min(Vec a, Vec b) { return _mm_min_ps(a.v, b.v); }
AA_INLINE Vec max(Vec a, Vec b) { return _mm_max_ps(a.v, b.v); }
AA_INLINE Vec bit_and(Vec a, Vec b) { return _mm_and_ps(a.v, b.v); }
AA_INLINE Vec bit_or(Vec a, Vec b) { return _mm_or_ps(a.v, b.v); }
AA_INLINE Vec bit_xor(Vec a, Vec b) { return _mm_xor_ps(a.v, b.v); }
AA_INLINE Mask less(Vec a, Vec b) { return {_mm_cmplt_ps(a.v, b.v)}; }
AA_INLINE Mask less_equal(Vec a, Vec b) { return {_mm_cmple_ps(a.v, b.v)}; }
AA_INLINE Mask equal(Vec a, Vec b) { return {_mm_cmpeq_ps(a.v, b.v)}; }
AA_INLINE Mask is_nan(Vec a) { return {_mm_cmpunord_ps(a.v, a.v)}; }
AA_INLINE Vec select(Mask m, Vec yes, Vec no) { return _mm_or_ps(_mm_and_ps(m.v, yes.v), _mm_andnot_ps(m.v, no.v)); }
AA_INLINE bool any(Mask m) { return _mm_movemask_ps(m.v) != 0; }
AA_INLINE Vec round(Vec a) {
  // Floats from 2^23 on are integers already. The sign is restored because integers have no -0.
  const Vec sign(_mm_and_ps(a.v, _mm_set1_ps(-0.0f)));
  const Vec magnitude(_mm_andnot_ps(_mm_set1_ps(-0.0f), a.v));
  const Vec rounded(_mm_or_ps(_mm_cvtepi32_ps(_mm_cvtps_epi32(a.v)), sign.v));
  return select(less(magnitude, Vec(0x1p23f)), rounded, a);
}
AA_INLINE Vec floor(Vec a) {
  const Vec nearest = round(a);
  return select(less(a, nearest), nearest - Vec(1.0f), nearest);
}

AA_INLINE Vec load(const float* p) { return _mm_loadu_ps(p); }
AA_INLINE void store(float* p, Vec a) { _mm_storeu_ps(p, a.v); }
AA_INLINE void stream(float* p, Vec a) { _mm_stream_ps(p, a.v); }

AA_INLINE __m128i blend_bits(__m128i mask, __m128i yes, __m128i no) {
  return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}
// The low halves of four 32-bit lanes, in the low 64 bits. SSE2 can pack words with signed saturation only, so they are
// sign-extended first.
AA_INLINE __m128i low_halves(__m128i x) {
  x = _mm_srai_epi32(_mm_slli_epi32(x, 16), 16);
  return _mm_packs_epi32(x, x);
}
AA_INLINE __m128i widen_halves(const void* p) {
  return _mm_unpacklo_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)), _mm_setzero_si128());
}
// Rounds to nearest even, by adding half an ulp of bf16, less one bit if the mantissa that remains is even; NaN becomes quiet.
AA_INLINE __m128i narrow_bf16(Vec a) {
  const __m128i bits = _mm_castps_si128(a.v);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i rounded = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
  const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
  return low_halves(_mm_srli_epi32(blend_bits(_mm_castps_si128(is_nan(a).v), quiet, rounded), 16));
}
// As from_float<fp16>.
AA_INLINE __m128i narrow_fp16(Vec a) {
  const __m128i bits = _mm_castps_si128(a.v);
  const __m128i sign = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(0x8000));
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(magnitude, 13), _mm_set1_epi32(1));
  __m128i half = _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(magnitude, odd), _mm_set1_epi32(0xfff - 0x38000000)), 13);
  const __m128 small = _mm_add_ps(_mm_castsi128_ps(magnitude), _mm_set1_ps(0.5f));
  const __m128i subnormal = _mm_sub_epi32(_mm_castps_si128(small), _mm_set1_epi32(0x3f000000));
  half = blend_bits(_mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x38800000)), subnormal, half);
  half = blend_bits(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x477fffff)), _mm_set1_epi32(0x7c00), half);
  const __m128i nan =
      _mm_or_si128(_mm_set1_epi32(0x7e00), _mm_and_si128(_mm_srli_epi32(magnitude, 13), _mm_set1_epi32(0x3ff)));
  half = blend_bits(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f800000)), nan, half);
  return low_halves(_mm_or_si128(half, sign));
}
AA_INLINE void store_halves(void* p, __m128i x) { _mm_storel_epi64(static_cast<__m128i*>(p), x); }
AA_INLINE void stream_halves(void* p, __m128i x) {
#if defined(__x86_64__)
  _mm_stream_si64(static_cast<long long*>(p), _mm_cvtsi128_si64(x));
#else
  store_halves(p, x);
#endif
}
AA_INLINE Vec load(const bf16* p) { return _mm_castsi128_ps(_mm_slli_epi32(widen_halves(p), 16)); }
AA_INLINE void store(bf16* p, Vec a) { store_halves(p, narrow_bf16(a)); }
AA_INLINE void stream(bf16* p, Vec a) { stream_halves(p, narrow_bf16(a)); }
// As to_float(fp16).
AA_INLINE Vec load(const fp16* p) {
  const __m128i x = widen_halves(p);
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(x, _mm_set1_epi32(0x8000)), 16);
  const __m128i magnitude = _mm_and_si128(x, _mm_set1_epi32(0x7fff));
  const __m128i normal = _mm_add_epi32(_mm_slli_epi32(magnitude, 13), _mm_set1_epi32(112 << 23));
  const __m128i subnormal = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(magnitude), _mm_set1_ps(0x1p-24f)));
  __m128i result = blend_bits(_mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x400)), subnormal, normal);
  const __m128i special = _mm_add_epi32(normal, _mm_set1_epi32(112 << 23));
  result = blend_bits(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7bff)), special, result);
  const __m128i nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7c00));
  result = _mm_or_si128(result, _mm_and_si128(nan, _mm_set1_epi32(0x400000)));
  return _mm_castsi128_ps(_mm_or_si128(result, sign));
}
AA_INLINE void store(fp16* p, Vec a) { store_halves(p, narrow_fp16(a)); }
AA_INLINE void stream(fp16* p, Vec a) { stream_halves(p, narrow_fp16(a)); }
AA_INLINE Vec load(const int8_t* p) { return _mm_cvtepi32_ps(_mm_setr_epi32(p[0], p[1], p[2], p[3])); }
AA_INLINE Vec load(const uint8_t* p) { return _mm_cvtepi32_ps(_mm_setr_epi32(p[0], p[1], p[2], p[3])); }
AA_INLINE void store_integers(int8_t* p, Vec a) {
  const __m128i x = _mm_cvtps_epi32(a.v);
  const __m128i words = _mm_packs_epi32(x, x);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(words, words));
  __builtin_memcpy(p, &bytes, 4);
}

}  // namespace anyaccel::op
