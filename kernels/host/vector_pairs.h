// bf16 in pairs, for loops that read and write bf16 arrays only: two vectors of floats have the elements at even and at odd
// places.
#pragma once

#include "processor.h"
#include "vector_words.h"

namespace anyaccel::op {

// -- 2 * Vec::width elements of bf16. In memory, a word has an element at an even place in its lower half and one at an odd place
// in its upper half, so shifts and masks load and store pairs without a permutation (only vcvtne2ps2bf16 needs one). What is
// stored must not be denormal, as for narrow_normal(), and a NaN must be as round_pairs() wants it. --
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
// Rounds to the bits of from_float<bf16>(). A NaN must be quiet and have zeros in its lower half, as a NaN has that arithmetic
// makes or passes on from bf16. 16 elements take 8 instructions. Rounding them in 32-bit lanes takes 10, and handling any
// NaN 6 more.
AA_INLINE Words round_pairs(EvenOdd x) {
  const __m256i even = (__m256i)bits_of(x.even), odd = (__m256i)bits_of(x.odd);
  const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
  const __m256i lower = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
  // The lower half rounds up if it is above 0x8000, or if it is 0x8000 and the upper half is odd. The saturating subtraction
  // leaves its highest bit set in just these cases.
  const __m256i is_even = _mm256_andnot_si256(upper, _mm256_set1_epi16(1));
  const __m256i carry = _mm256_srli_epi16(_mm256_subs_epu16(lower, is_even), 15);
  return (Words)_mm256_add_epi16(upper, carry);
}
#else
// Rounds to the bits of from_float<bf16>() in the upper halves of the words; the lower halves are garbage.
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
// Rounds two vectors to bf16: `low` to the lower half of the result, `high` to the upper half. It is inline assembly because the
// intrinsic would need a compiler flag that its callers are compiled without.
AA_INLINE __m512i narrow_in_one_step(Vec low, Vec high) {
  __m512i narrow;
  __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(narrow) : "v"(high.v), "v"(low.v));
  return narrow;
}
// The permutation that interleaves the 16-bit elements of the lower half of a vector with those of the upper half. On
// Intel's processors, permuting bytes takes half as long as permuting 16-bit elements.
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
// Stores two vectors as pairs of bf16. kInOneStep: rounds with vcvtne2ps2bf16, which needs rounds_to_bf16.
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
// As store_pairs(), but for consecutive elements: `x.even` has the first half of them. Without kInOneStep this is store(), which
// takes any value.
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

// Stores n floats, a multiple of Vec::width, as store() does. None may be denormal, because vcvtne2ps2bf16 flushes denormals to
// zero and store() does not.
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

}  // namespace anyaccel::op
