// Ops of positions: rope_table, rope, cache_write and quantized_cache_write.
#include "dialect.h"

#include "formats.h"
#include "position_arguments.h"

// Cosine and sine of an angle of at most 2^17 quarter turns, each within one unit in the last place, without 64-bit floats.
// The angle less a multiple of pi/2 is found as a sum of two floats, high + low, to some 55 bits after the point, since an
// angle may lie very near to such a multiple.
AA_FN void aa_cos_sin(float angle, AA_PRIVATE float* cosine, AA_PRIVATE float* sine) {
  // pi/2 as a sum of floats
  const float part0 = 1.57079637050628662109375f;
  const float part1 = -4.37113900018624283e-8f;
  const float part2 = -1.71512449e-15f;
  const float quarters = aa_rint(angle * 0.636619772367581343f);
  const float first = aa_fma(-quarters, part0, angle);  // exact
  const float product = aa_mul_rn(quarters, part1);
  const float product_error = aa_fma(quarters, part1, -product);
  const float sum = aa_add_rn(first, -product);
  const float back = aa_add_rn(sum, -first);
  const float sum_error = aa_add_rn(aa_add_rn(first, -aa_add_rn(sum, -back)), -aa_add_rn(product, back));
  const float rest = aa_fma(-quarters, part2, sum_error - product_error);
  const float high = aa_add_rn(sum, rest);
  const float low = aa_add_rn(rest, -aa_add_rn(high, -sum));

  // On [-pi/4, pi/4]; coefficients of the Taylor series, whose first term left out is below 2^-27 of the result.
  const float z = aa_mul_rn(high, high);
  float p = aa_fma(z, 2.75573192e-6f, -1.98412698e-4f);
  p = aa_fma(p, z, 8.33333333e-3f);
  p = aa_fma(p, z, -1.66666667e-1f);
  const float s = high + aa_fma(high * z, p, aa_fma(low * z, -0.5f, low));
  float q = aa_fma(z, -2.75573192e-7f, 2.48015873e-5f);
  q = aa_fma(q, z, -1.38888889e-3f);
  q = aa_fma(q, z, 4.16666667e-2f);
  const float half_z = 0.5f * z;
  const float whole = aa_add_rn(1.0f, -half_z);
  const float whole_error = aa_add_rn(aa_add_rn(1.0f, -whole), -half_z);
  const float z_error = aa_fma(high, high, -z);
  const float c = whole + (whole_error + aa_fma(z * z, q, aa_fma(-0.5f, z_error, -high * low)));

  const aa_i32 quadrant = (aa_i32)quarters & 3;
  const float a = (quadrant & 1) ? s : c;
  const float b = (quadrant & 1) ? c : s;
  *cosine = quadrant == 1 || quadrant == 2 ? -a : a;
  *sine = quadrant >= 2 ? -b : b;
}

// cos and sin [T,R]; an item per element of them.
AA_KERNEL(rope_table, AA_ITEMS)
(AA_OUT(float) cosines, AA_VALUE(aa_i64) cos_row, AA_VALUE(aa_i64) cos_inner, AA_OUT(float) sines,
 AA_VALUE(aa_i64) sin_row, AA_VALUE(aa_i64) sin_inner, AA_IN(float) inv_freq, AA_VALUE(aa_i64) freq_inner,
 AA_IN(aa_i32) positions, AA_VALUE(aa_i64) position_inner, AA_VALUE(aa_i64) tokens, AA_VALUE(aa_i64) size,
 AA_VALUE(float) scale) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < tokens * size) {
    const aa_i64 t = i / size;
    const aa_i64 r = i - t * size;
    float c, s;
    aa_cos_sin(aa_mul_rn((float)positions[t * position_inner], inv_freq[r * freq_inner]), &c, &s);
    cosines[t * cos_row + r * cos_inner] = c * scale;
    sines[t * sin_row + r * sin_inner] = s * scale;
  }
}
AA_REGISTER(rope_table, AA_ITEMS)

// q [T,Hq,D] and k [T,Hk,D] (or null): a group per token and AA_GROUP_SIZE / min(size, AA_GROUP_SIZE) heads, those of k after
// those of q. `size` is R.
AA_KERNEL(rope, AA_GROUP_SIZE)
(AA_OUT(void) q, AA_VALUE(aa_i64) q_token, AA_VALUE(aa_i64) q_head, AA_VALUE(aa_i64) q_inner, AA_OUT(void) k,
 AA_VALUE(aa_i64) k_token, AA_VALUE(aa_i64) k_head, AA_VALUE(aa_i64) k_inner, AA_IN(float) cosines,
 AA_VALUE(aa_i64) cos_row, AA_VALUE(aa_i64) cos_inner, AA_IN(float) sines, AA_VALUE(aa_i64) sin_row,
 AA_VALUE(aa_i64) sin_inner, AA_VALUE(aa_i64) q_heads, AA_VALUE(aa_i64) all_heads, AA_VALUE(aa_i64) size,
 AA_VALUE(aa_i32) q_dtype, AA_VALUE(aa_i32) k_dtype, AA_VALUE(aa_i32) interleaved) {
  const aa_i64 t = AA_GROUP_ID(0);
  const aa_i32 width = size < AA_GROUP_SIZE ? (aa_i32)size : AA_GROUP_SIZE;  // items of a head
  const aa_i32 heads = AA_GROUP_SIZE / width;
  const aa_i32 mine = AA_LOCAL_ID / width;
  const aa_i64 head = AA_GROUP_ID(1) * heads + mine;
  if (mine >= heads || head >= all_heads) return;
  const aa_i32 is_q = head < q_heads;
  AA_OUT(void) x = is_q ? q : k;
  const aa_i32 dtype = is_q ? q_dtype : k_dtype;
  const aa_i64 inner = is_q ? q_inner : k_inner;
  const aa_i64 base = is_q ? t * q_token + head * q_head : t * k_token + (head - q_heads) * k_head;
  const aa_i64 step = interleaved ? 2 * inner : inner;
  const aa_i64 to_second = interleaved ? inner : size * inner;
  for (aa_i64 r = AA_LOCAL_ID - mine * width; r < size; r += width) {
    const float c = cosines[t * cos_row + r * cos_inner];
    const float s = sines[t * sin_row + r * sin_inner];
    const aa_i64 first = base + r * step;
    const aa_i64 second = first + to_second;
    const float a = aa_load(x, dtype, first);
    const float b = aa_load(x, dtype, second);
    aa_store(x, dtype, first, aa_fma(a, c, -(b * s)));
    aa_store(x, dtype, second, aa_fma(b, c, a * s));
  }
}
AA_REGISTER(rope, AA_GROUP_SIZE)

// Of the kernels that write k and v [T,Hk,D] into k_cache and v_cache: a group has a token, so that tokens are compared once. Of
// tokens that name the same slot only the last is written, so that their order needs no order of groups. A slot outside of the
// cache is skipped.
#define AA_CACHE_PARAMETERS                                                                                              \
  AA_OUT(void) k_cache, AA_VALUE(aa_slots) k_slots, AA_OUT(void) v_cache, AA_VALUE(aa_slots) v_slots, AA_IN(void) k,     \
      AA_VALUE(aa_slots) k_tokens, AA_IN(void) v, AA_VALUE(aa_slots) v_tokens, AA_IN(aa_i32) sequence,                   \
      AA_VALUE(aa_i64) sequence_step, AA_IN(aa_i32) positions, AA_VALUE(aa_i64) position_step, AA_VALUE(aa_i64) tokens,  \
      AA_VALUE(aa_i64) sequences, AA_VALUE(aa_i64) slots, AA_VALUE(aa_i32) heads, AA_VALUE(aa_i32) head_size
#define AA_CACHE_SLOT                                                                                                \
  const aa_i64 t = AA_GROUP_ID(0);                                                                                   \
  const aa_i32 id = AA_LOCAL_ID;                                                                                     \
  AA_SCRATCH(scratch);                                                                                               \
  const aa_i32 b = sequence[t * sequence_step];                                                                      \
  const aa_i32 slot = positions[t * position_step];                                                                  \
  aa_i32 again = 0;                                                                                                  \
  for (aa_i64 later = t + 1 + id; later < tokens; later += AA_GROUP_SIZE) {                                          \
    again |= (sequence[later * sequence_step] == b) & (positions[later * position_step] == slot);                    \
  }                                                                                                                  \
  const aa_i32 overwritten = aa_group_max(again ? 1.0f : 0.0f, scratch, id) > 0.0f;                                  \
  if (overwritten || b < 0 || b >= sequences || slot < 0 || slot >= slots) return;                                   \
  const aa_i64 k_to = b * k_slots.outer + slot * k_slots.slot, v_to = b * v_slots.outer + slot * v_slots.slot;       \
  const aa_i64 k_from = t * k_tokens.outer, v_from = t * v_tokens.outer;

// Caches [B,Hk,S,D] of floats.
AA_KERNEL(cache_write, AA_GROUP_SIZE)(AA_CACHE_PARAMETERS) {
  AA_CACHE_SLOT
  for (aa_i32 i = id; i < heads * head_size; i += AA_GROUP_SIZE) {
    const aa_i64 head = i / head_size;
    const aa_i64 d = i - head * head_size;
    aa_store(k_cache, k_slots.dtype, k_to + head * k_slots.head + d * k_slots.inner,
             aa_load(k, k_tokens.dtype, k_from + head * k_tokens.head + d * k_tokens.inner));
    aa_store(v_cache, v_slots.dtype, v_to + head * v_slots.head + d * v_slots.inner,
             aa_load(v, v_tokens.dtype, v_from + head * v_tokens.head + d * v_tokens.inner));
  }
}
AA_REGISTER(cache_write, AA_GROUP_SIZE)

// A number from 0 on rounded to a half, which may then be larger than the largest half.
AA_FN float aa_rounded_to_half(float v) {
  aa_i32 exponent = (aa_i32)(aa_bits(v) >> 23) - 127;
  if (exponent < -14) exponent = -14;
  const float quantum = aa_float((aa_u32)(exponent - 10 + 127) << 23);
  return aa_rint(v * aa_float((aa_u32)(10 - exponent + 127) << 23)) * quantum;
}

// 32 values of x, `inner` elements apart from `from` on, as a block at byte `at` of a cache.
AA_FN void aa_store_block(AA_OUT(void) cache, aa_i64 at, AA_IN(void) x, aa_i32 dtype, aa_i64 from, aa_i64 inner) {
  aa_u32 largest = 0;
  for (aa_i32 i = 0; i < 32; ++i) {
    const aa_u32 magnitude = aa_bits(aa_load(x, dtype, from + i * inner)) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const aa_i32 finite = largest < 0x7f800000u && aa_float(largest) < 127.0f * 65520.0f;
  const float scale = finite ? aa_rounded_to_half(aa_float(largest) / 127.0f) : 0.0f;
  if (finite) {
    aa_store_f16(AA_AS_OUT(aa_u16, cache), at / 2, scale);
  } else {
    AA_AS_OUT(aa_u16, cache)[at / 2] = (aa_u16)0x7e00;
  }
  for (aa_i32 i = 0; i < 32; ++i) {
    const float q = scale > 0.0f ? aa_rint(aa_load(x, dtype, from + i * inner) / scale) : 0.0f;
    AA_AS_OUT(aa_i8, cache)[at + 2 + i] = (aa_i8)aa_fmax(-127.0f, aa_fmin(127.0f, q));
  }
}

// Caches [B,Hk,S,C] whose rows are blocks of AA_BLOCK_Q8_0; see quantized_attention.cl. Each item has a block at a time.
AA_KERNEL(quantized_cache_write, AA_GROUP_SIZE)(AA_CACHE_PARAMETERS) {
  AA_CACHE_SLOT
  const aa_i32 blocks = head_size / 32;
  for (aa_i32 i = id; i < heads * blocks; i += AA_GROUP_SIZE) {
    const aa_i64 head = i / blocks;
    const aa_i64 block = i - head * blocks;
    aa_store_block(k_cache, k_to + head * k_slots.head + block * 34, k, k_tokens.dtype,
                   k_from + head * k_tokens.head + block * 32 * k_tokens.inner, k_tokens.inner);
    aa_store_block(v_cache, v_to + head * v_slots.head + block * 34, v, v_tokens.dtype,
                   v_from + head * v_tokens.head + block * 32 * v_tokens.inner, v_tokens.inner);
  }
}
AA_REGISTER(quantized_cache_write, AA_GROUP_SIZE)

AA_FN void aa_store_e4m3(AA_OUT(void) cache, aa_i64 at, float v) {
  const aa_i32 finite = (aa_bits(v) & AA_INFINITY_BITS) != AA_INFINITY_BITS;
  AA_AS_OUT(aa_u8, cache)[at] = finite ? aa_to_f8(aa_fmax(-448.0f, aa_fmin(448.0f, v)), AA_F8_E4M3) : (aa_u8)0x7f;
}

// Caches [B,Hk,S,D] whose rows have a byte for each value; see e4m3_attention.cl.
AA_KERNEL(e4m3_cache_write, AA_GROUP_SIZE)(AA_CACHE_PARAMETERS) {
  AA_CACHE_SLOT
  for (aa_i32 i = id; i < heads * head_size; i += AA_GROUP_SIZE) {
    const aa_i64 head = i / head_size;
    const aa_i64 d = i - head * head_size;
    aa_store_e4m3(k_cache, k_to + head * k_slots.head + d,
                  aa_load(k, k_tokens.dtype, k_from + head * k_tokens.head + d * k_tokens.inner));
    aa_store_e4m3(v_cache, v_to + head * v_slots.head + d,
                  aa_load(v, v_tokens.dtype, v_from + head * v_tokens.head + d * v_tokens.inner));
  }
}
AA_REGISTER(e4m3_cache_write, AA_GROUP_SIZE)
