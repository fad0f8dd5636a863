// Shared by the kernels of attention for many tokens: values that are not finite, the rounding of queries, and the cap of
// scores. AA_W is the element type of the caches.
#ifndef ANYACCEL_KERNELS_PREFILL_VALUES_H_
#define ANYACCEL_KERNELS_PREFILL_VALUES_H_

#define AA_16_BITS_f32 0
#define AA_16_BITS_bf16 1
#define AA_16_BITS_f16 1
#define AA_NO_SEQUENCE 0x7fffffff

#if AA_CAT(AA_16_BITS_, AA_W)

// All exponent bits of each half: infinite or not a number.
#define AA_EXPONENT_bf16 0x7f807f80u
#define AA_CARRY_bf16 0x00800080u
#define AA_EXPONENT_f16 0x7c007c00u
#define AA_CARRY_f16 0x04000400u
#define AA_NOT_FINITE(word) ((((word) & AA_CAT(AA_EXPONENT_, AA_W)) + AA_CAT(AA_CARRY_, AA_W)) & 0x80008000u)
#define AA_PACK_W(low, high) AA_PACK(AA_W)(low, high)

AA_FN float aa_value_if_not_finite(aa_u32 half) {
  if (!(AA_NOT_FINITE(half) & 0x8000u)) return 0.0f;
#define AA_VALUE_bf16(bits) aa_from_bf16((aa_u16)(bits))
#define AA_VALUE_f16(bits) aa_unpack_f16((aa_u16)(bits))
  return AA_CAT(AA_VALUE_, AA_W)(half);
}
// The two values of a word, zero instead of those that are not finite.
AA_FN aa_u32 aa_only_finite(aa_u32 word) {
  const aa_u32 bad = AA_NOT_FINITE(word);
  return word & (((bad & 0x8000u) ? 0u : 0xffffu) | ((bad & 0x80000000u) ? 0u : 0xffff0000u));
}

// Eight fp32 elements, rounded.
AA_FN aa_u32x4 aa_rounded_chunk(aa_u32x4 low, aa_u32x4 high) {
  aa_u32x4 eight;
  eight.x = AA_PACK_W(aa_float(low.x), aa_float(low.y));
  eight.y = AA_PACK_W(aa_float(low.z), aa_float(low.w));
  eight.z = AA_PACK_W(aa_float(high.x), aa_float(high.y));
  eight.w = AA_PACK_W(aa_float(high.z), aa_float(high.w));
  return eight;
}
// Eight elements of a query, from element `at` on, rounded.
AA_FN aa_u32x4 aa_query_chunk(AA_IN(void) q, aa_i64 at, aa_i32 dtype) {
  if (dtype != AA_F32) return aa_load16(q, at * 2);
  return aa_rounded_chunk(aa_load16(q, at * 4), aa_load16(q, at * 4 + 16));
}

#endif

AA_FN aa_i32 aa_smaller(aa_i32 a, aa_i32 b) { return a < b ? a : b; }
AA_FN aa_i32 aa_larger(aa_i32 a, aa_i32 b) { return a > b ? a : b; }
AA_FN aa_i32 aa_warp_smallest(aa_i32 v) {
  for (aa_i32 d = 16; d > 0; d /= 2) v = aa_smaller(v, (aa_i32)aa_shuffle_xor_u32((aa_u32)v, d));
  return v;
}

// softcap * tanh(score * scale / softcap), within a millionth of softcap; factor: 2 * scale * log2(e) / softcap.
AA_FN float aa_capped(float score, float factor, float softcap) {
  return softcap - 2.0f * softcap * aa_reciprocal(1.0f + aa_exp2(score * factor));
}

// A weight is 2^(score * factor - base), by one multiply-add, whose product is exact. The base, largest score * factor, is
// rounded, which makes all weights of a row too large or too small in the same proportion. Beyond this base that could
// leave the range of 16-bit floats, and, with scores of some billions, that of fp32: the largest score is then subtracted
// first.
#define AA_LARGE_BASE 1024.0f

#endif  // ANYACCEL_KERNELS_PREFILL_VALUES_H_
