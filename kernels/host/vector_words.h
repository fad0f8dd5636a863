// Vectors of 32-bit words, as wide as Vec: the bits of floats, and the codes that quantizers make of them.
#pragma once

#include "vector_lanes.h"

namespace anyaccel::op {

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
// Converts integers below 2^31 to floats.
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
// load_words() loads Vec::width unsigned integers of 8 or 16 bits, store_low() stores words as such. Words must fit the type:
// some instruction sets truncate others, and some saturate them.
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
// Stores four vectors of words below 256 as bytes.
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

}  // namespace anyaccel::op
