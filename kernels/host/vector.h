// Vectors of floats for the host ops, as wide as the instruction set the file is compiled for: 16 with AVX-512, 8 with
// AVX2, 4 on plain x86-64, 1 elsewhere.
//
//   using namespace anyaccel::op;
//   int64_t i = 0;
//   for (; i + Vec::width <= n; i += Vec::width) store(y + i, load(x + i) * Vec(a));
//   if (i < n) store_n(y + i, load_n(x + i, n - i) * Vec(a), n - i);
//
// Addresses need no alignment (except for stream()). Including this header forbids the compiler to contract a * b + c, so
// that an op that uses operators only, and not multiply_add(), gives the same bits with every instruction set; sqrt and
// division are rounded correctly everywhere. Rounding is to nearest even throughout. Flushing denormals is the caller's
// choice (FlushDenormals), the conversions below are right under either.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define AA_VECTOR_AVX512 0
#define AA_VECTOR_AVX2 0
#define AA_VECTOR_SSE2 0
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#undef AA_VECTOR_AVX512
#define AA_VECTOR_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#undef AA_VECTOR_AVX2
#define AA_VECTOR_AVX2 1
#elif defined(__SSE2__)
#undef AA_VECTOR_SSE2
#define AA_VECTOR_SSE2 1
#endif

#define AA_INLINE inline __attribute__((always_inline))

namespace anyaccel::op {

// Element types as they lie in memory.
struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};

// -- single values; the same results as the vectors give --
AA_INLINE uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
AA_INLINE float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }

AA_INLINE float to_float(float x) { return x; }
AA_INLINE float to_float(bf16 x) { return bits_float(uint32_t{x.bits} << 16); }
AA_INLINE float to_float(fp16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  return bits_float(sign | float_bits(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f));
}

template <class T>
T from_float(float x);
template <>
AA_INLINE float from_float<float>(float x) {
  return x;
}
// A NaN stays a (quiet) NaN.
template <>
AA_INLINE bf16 from_float<bf16>(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
// Too large gives infinity, a NaN stays a (quiet) NaN.
template <>
AA_INLINE fp16 from_float<fp16>(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // The unit of 0.5 is the smallest fp16: the addition rounds.
    half = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}

// -- vectors --
#if AA_VECTOR_AVX512

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
AA_INLINE __m512i integers(Vec a, Vec b, Vec c, Vec d) {
  const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
  const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c.v), _mm512_cvtps_epi32(d.v));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
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

#elif AA_VECTOR_AVX2

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

// The low halves of eight 32-bit lanes, which must fit in 16 bits unsigned.
AA_INLINE __m128i low_halves(__m256i x) {
  return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
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
AA_INLINE __m256i integers(Vec a, Vec b, Vec c, Vec d) {
  const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a.v), _mm256_cvtps_epi32(b.v));
  const __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(c.v), _mm256_cvtps_epi32(d.v));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}
AA_INLINE void store_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), integers(a, b, c, d));
}
AA_INLINE void stream_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), integers(a, b, c, d));
}

#elif AA_VECTOR_SSE2

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
  // From 2^23 on every float is an integer; the sign is kept for results of zero.
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
// The low halves of four 32-bit lanes, in the low 64 bits.
AA_INLINE __m128i low_halves(__m128i x) {
  x = _mm_srai_epi32(_mm_slli_epi32(x, 16), 16);
  return _mm_packs_epi32(x, x);
}
AA_INLINE __m128i widen_halves(const void* p) {
  return _mm_unpacklo_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)), _mm_setzero_si128());
}
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

#else

struct Vec {
  static constexpr int width = 1;
  float v;
  AA_INLINE Vec() : v(0) {}
  AA_INLINE explicit Vec(float x) : v(x) {}
};
using Mask = bool;

AA_INLINE Vec operator+(Vec a, Vec b) { return Vec(a.v + b.v); }
AA_INLINE Vec operator-(Vec a, Vec b) { return Vec(a.v - b.v); }
AA_INLINE Vec operator*(Vec a, Vec b) { return Vec(a.v * b.v); }
AA_INLINE Vec operator/(Vec a, Vec b) { return Vec(a.v / b.v); }
AA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }
AA_INLINE Vec multiply_sub_from(Vec a, Vec b, Vec c) { return c - a * b; }
AA_INLINE Vec sqrt(Vec a) { return Vec(__builtin_sqrtf(a.v)); }
AA_INLINE Vec min(Vec a, Vec b) { return a.v < b.v ? a : b; }
AA_INLINE Vec max(Vec a, Vec b) { return a.v > b.v ? a : b; }
AA_INLINE Vec round(Vec a) { return Vec(__builtin_rintf(a.v)); }
AA_INLINE Vec floor(Vec a) { return Vec(__builtin_floorf(a.v)); }
AA_INLINE Vec bit_and(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) & float_bits(b.v))); }
AA_INLINE Vec bit_or(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) | float_bits(b.v))); }
AA_INLINE Vec bit_xor(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) ^ float_bits(b.v))); }
AA_INLINE Mask less(Vec a, Vec b) { return a.v < b.v; }
AA_INLINE Mask less_equal(Vec a, Vec b) { return a.v <= b.v; }
AA_INLINE Mask equal(Vec a, Vec b) { return a.v == b.v; }
AA_INLINE Mask is_nan(Vec a) { return a.v != a.v; }
AA_INLINE Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
AA_INLINE bool any(Mask m) { return m; }

template <class T>
AA_INLINE Vec load(const T* p) {
  return Vec(to_float(*p));
}
AA_INLINE Vec load(const int8_t* p) { return Vec(static_cast<float>(*p)); }
AA_INLINE Vec load(const uint8_t* p) { return Vec(static_cast<float>(*p)); }
template <class T>
AA_INLINE void store(T* p, Vec a) {
  *p = from_float<T>(a.v);
}
template <class T>
AA_INLINE void stream(T* p, Vec a) {
  store(p, a);
}
AA_INLINE void store_integers(int8_t* p, Vec a) {
  const float x = __builtin_rintf(a.v);
  *p = static_cast<int8_t>(x < -128.0f ? -128 : x > 127.0f ? 127 : static_cast<int>(x));
}

#endif

// -- the rest, the same for every width --
#if !AA_VECTOR_AVX512 && !AA_VECTOR_AVX2
AA_INLINE void store_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  store_integers(p, a);
  store_integers(p + Vec::width, b);
  store_integers(p + 2 * Vec::width, c);
  store_integers(p + 3 * Vec::width, d);
}
#endif
//
// min(a, b) and max(a, b) give b when one of them is a NaN. round() is to nearest even. multiply_add(a, b, c) is
// a * b + c, rounded once where the processor can, else twice: its results differ between instruction sets. So is
// multiply_sub_from(a, b, c), c - a * b.
// stream() goes past the caches: the address must be a multiple of the bytes written (Vec::width elements), and
// stream_fence() must come before another thread reads. store_integers() rounds and clamps to [-128, 127] the elements of
// one vector, or of four; they must be below 2^31 in magnitude.

AA_INLINE Vec operator-(Vec a) { return bit_xor(a, Vec(-0.0f)); }
AA_INLINE Vec& operator+=(Vec& a, Vec b) { return a = a + b; }
AA_INLINE Vec abs(Vec a) { return bit_and(a, Vec(bits_float(0x7fffffffu))); }
// |magnitude| with the sign of `sign`.
AA_INLINE Vec copy_sign(Vec magnitude, Vec sign) { return bit_or(abs(magnitude), bit_and(sign, Vec(-0.0f))); }

// -- the bits of a vector of floats, and codes in place of them --
typedef uint32_t Words __attribute__((vector_size(4 * Vec::width)));
AA_INLINE Words bits_of(Vec a) { return __builtin_bit_cast(Words, a.v); }
AA_INLINE Vec of_bits(Words a) { return Vec(__builtin_bit_cast(decltype(Vec::v), a)); }
// The bits of `yes` where the mask has ones, else those of `no`.
AA_INLINE Words select_bits(Words mask, Words yes, Words no) {
#if AA_VECTOR_AVX512
  return (Words)_mm512_ternarylogic_epi32((__m512i)yes, (__m512i)no, (__m512i)mask, 0xe4);
#else
  return (mask & yes) | (~mask & no);
#endif
}
// Words below 2^31 as floats.
AA_INLINE Vec to_floats(Words a) {
#if AA_VECTOR_AVX512
  return _mm512_cvtepi32_ps((__m512i)a);
#elif AA_VECTOR_AVX2
  return _mm256_cvtepi32_ps((__m256i)a);
#elif AA_VECTOR_SSE2
  return _mm_cvtepi32_ps((__m128i)a);
#else
  return Vec(static_cast<float>(static_cast<int32_t>(a[0])));
#endif
}
// Integers of 8 or 16 bits, as many as a vector has elements, to words and back; what is stored must fit.
template <class T>
AA_INLINE Words load_words(const T* p) {
#if AA_VECTOR_AVX512
  if constexpr (sizeof(T) == 1)
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  if constexpr (sizeof(T) == 2)
    return (Words)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif AA_VECTOR_AVX2
  if constexpr (sizeof(T) == 1)
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  if constexpr (sizeof(T) == 2)
    return (Words)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  uint32_t words[Vec::width];
  for (int i = 0; i < Vec::width; ++i) words[i] = p[i];
  return __builtin_bit_cast(Words, words);
#endif
}
template <class T>
AA_INLINE void store_low(T* p, Words a) {
#if AA_VECTOR_AVX512
  if constexpr (sizeof(T) == 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)a));
  if constexpr (sizeof(T) == 2) _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)a));
#elif AA_VECTOR_AVX2
  const __m128i words = low_halves((__m256i)a);
  if constexpr (sizeof(T) == 1) _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
  if constexpr (sizeof(T) == 2) _mm_storeu_si128(reinterpret_cast<__m128i*>(p), words);
#else
  for (int i = 0; i < Vec::width; ++i) p[i] = static_cast<T>(a[i]);
#endif
}
// The low bytes of four vectors.
AA_INLINE void store_bytes(uint8_t* p, Words a, Words b, Words c, Words d) {
#if AA_VECTOR_AVX512
  const __m512i low = _mm512_packs_epi32((__m512i)a, (__m512i)b), high = _mm512_packs_epi32((__m512i)c, (__m512i)d);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
#else
  store_low(p, a);
  store_low(p + Vec::width, b);
  store_low(p + 2 * Vec::width, c);
  store_low(p + 3 * Vec::width, d);
#endif
}

// -- 2 * Vec::width elements of bf16: a word holds one at an even place in its lower half and one at an odd place in its upper
// half, so that neither way needs a permutation. What is stored must not be denormal, as in narrow_normal(), and see round_pairs(). --
struct EvenOdd {
  Vec even, odd;
};
AA_INLINE EvenOdd widen_pairs(Words words) { return {of_bits(words << 16), of_bits(words & 0xffff0000u)}; }
AA_INLINE Words load_words_of_pairs(const bf16* p) {
  Words words;
  __builtin_memcpy(&words, p, sizeof(words));
  return words;
}
AA_INLINE EvenOdd load_pairs(const bf16* p) { return widen_pairs(load_words_of_pairs(p)); }
#if AA_VECTOR_AVX2
// The bits of from_float<bf16>(), but a NaN must be quiet and have nothing in its lower half, as those have that arithmetic makes or
// passes on from a bf16. 16 elements take 8 instructions; rounding them as words of 32 bits takes 10, and a selection for NaN 6 more.
AA_INLINE Words round_pairs(EvenOdd x) {
  const __m256i even = (__m256i)bits_of(x.even), odd = (__m256i)bits_of(x.odd);
  const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  const __m256i lower = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
  // A half, 0x8000, rounds up to an even number, less never, more always.
  const __m256i is_even = _mm256_andnot_si256(upper, _mm256_set1_epi16(1));
  const __m256i carry = _mm256_srli_epi16(_mm256_subs_epu16(lower, is_even), 15);
  return (Words)_mm256_add_epi16(upper, carry);
}
#else
// The bits of from_float<bf16>(), in the upper halves; the lower ones do not count.
AA_INLINE Words round_to_bf16(Vec a) {
  const Words bits = bits_of(a);
  const Words rounded = bits + (bits >> 16 & 1u) + 0x7fffu;
  return bits_of(select(is_nan(a), of_bits(bits | 0x400000u), of_bits(rounded)));
}
AA_INLINE Words round_pairs(EvenOdd x) {
  return select_bits(Words{} + 0xffff0000u, round_to_bf16(x.odd), round_to_bf16(x.even) >> 16);
}
#endif
#if AA_VECTOR_AVX512
// Assembly, so that callers need no flag of the compiler.
AA_INLINE __m512i narrow_in_one_step(Vec low, Vec high) {
  __m512i narrow;
  __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(narrow) : "v"(high.v), "v"(low.v));
  return narrow;
}
// Halves of words, in turns one of the lower half of the vector and one of the upper half. Moving bytes takes half as long as
// moving halves of words on Intel's processors.
struct InTurns {
  alignas(64) uint8_t from[64];
  constexpr InTurns() : from() {
    for (int i = 0; i < 64; ++i) from[i] = static_cast<uint8_t>(i % 4 / 2 * 32 + i / 4 * 2 + i % 2);
  }
};
inline constexpr InTurns kInTurns;
AA_INLINE __m512i in_turns(__m512i x) {
  __asm__("vpermb %0, %1, %0" : "+v"(x) : "v"(_mm512_load_si512(kInTurns.from)));
  return x;
}
#endif
// kInOneStep: by an instruction; see rounds_to_bf16.
template <bool kInOneStep>
AA_INLINE void store_pairs(bf16* p, EvenOdd x) {
#if AA_VECTOR_AVX512
  if constexpr (kInOneStep) {
    _mm512_storeu_si512(p, in_turns(narrow_in_one_step(x.even, x.odd)));
    return;
  }
#endif
  const Words words = round_pairs(x);
  __builtin_memcpy(p, &words, sizeof(words));
}
// The same for elements in their order, `x.even` being the first half of them.
template <bool kInOneStep>
AA_INLINE void store_in_order(bf16* p, EvenOdd x) {
#if AA_VECTOR_AVX512
  if constexpr (kInOneStep) {
    _mm512_storeu_si512(p, narrow_in_one_step(x.even, x.odd));
    return;
  }
#endif
  store(p, x.even);
  store(p + Vec::width, x.odd);
}
// Whether the processor has an instruction that rounds to bf16, and one that moves bytes anywhere. (Those that have the first alone,
// Intel's Cooper Lake, round in the slower way.)
#if AA_VECTOR_AVX512
inline const bool rounds_to_bf16 =
    __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
#else
inline constexpr bool rounds_to_bf16 = false;
#endif

// Stores n floats, a multiple of Vec::width, as store() does, but none may be denormal: those count as zero where the
// processor rounds to bf16 by itself.
inline void narrow_normal(const float* from, int64_t n, bf16* to) {
  int64_t i = 0;
#if AA_VECTOR_AVX512
  if (rounds_to_bf16) {
    for (; i + 32 <= n; i += 32) store_in_order<true>(to + i, {load(from + i), load(from + i + 16)});
    if (i < n) {
      const __m512i last = narrow_in_one_step(load(from + i), Vec());
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_castsi512_si256(last));
    }
    return;
  }
#endif
  for (; i < n; i += Vec::width) store(to + i, load(from + i));
}

AA_INLINE void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
AA_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
// Whether the processor is best left alone with the fetching of what is read in order. AMD's family 19h is (Zen 3 and 4): on
// Zen 4 prefetches make Adam a sixth slower, and quantizers a tenth. Intel's cores and Zen 5 gain from them. Compilers of
// this age know the name.
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

#if !AA_VECTOR_AVX512
// The first n (0 < n < width) elements, the others zero; nothing else is read.
template <class T>
AA_INLINE Vec load_n(const T* p, int64_t n) {
  T lanes[Vec::width] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
// Only the first n (0 < n < width) elements are written.
template <class T>
AA_INLINE void store_n(T* p, Vec a, int64_t n) {
  T lanes[Vec::width];
  store(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}
#endif

// Over the lanes of one vector, in an order that depends on the width.
AA_INLINE float sum(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  for (int half = Vec::width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
AA_INLINE float largest(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  float result = lanes[0];
  for (int i = 1; i < Vec::width; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}
AA_INLINE float smallest(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  float result = lanes[0];
  for (int i = 1; i < Vec::width; ++i) result = lanes[i] < result ? lanes[i] : result;
  return result;
}

}  // namespace anyaccel::op
