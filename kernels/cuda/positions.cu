// "rope", "cache_write" and "quantized_cache_write" of anyaccel/abi/ops.h, and the end of "norm_qkv_rope", which overlap with the
// kernels before and after them. For a few tokens their own work takes less time than a launch that waits for its predecessor; for
// many, memory is what counts.
#include "dialect.h"
#include "warp.h"

#include "formats.h"
#include "row_arguments.h"
#include "vectors.h"

// Turns q [T,Hq,D] and k [T,Hk,D] (or null). Blocks: AA_POSITION_THREADS pairs of a token's heads, those of k after those of q;
// tokens. `size`: pairs of a head.
AA_TUNED_KERNEL(rope_tuned, AA_POSITION_THREADS, 4)
(AA_OUT(void) q, aa_head_slots q_at, AA_OUT(void) k, aa_head_slots k_at, AA_IN(float) cosines, aa_i64 cos_row, aa_i64 cos_inner,
 AA_IN(float) sines, aa_i64 sin_row, aa_i64 sin_inner, aa_i32 q_heads, aa_i32 all_heads, aa_i32 size, aa_i32 interleaved) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 t = AA_GROUP_ID(1);
  const aa_i64 i = AA_GROUP_ID(0) * AA_POSITION_THREADS + AA_LOCAL_ID;
  const aa_i32 head = (aa_i32)(i / size), r = (aa_i32)(i - (aa_i64)head * size);
  if (head < all_heads) {
    const bool is_q = head < q_heads;
    AA_OUT(void) x = is_q ? q : k;
    const aa_head_slots at = is_q ? q_at : k_at;
    const aa_i64 base = t * at.outer + (is_q ? head : head - q_heads) * at.head;
    const aa_i64 first = base + r * (interleaved ? 2 * at.inner : at.inner);
    const aa_i64 second = first + (interleaved ? at.inner : size * at.inner);
    const float c = cosines[t * cos_row + r * cos_inner], s = sines[t * sin_row + r * sin_inner];
    const float a = aa_load(x, at.dtype, first), b = aa_load(x, at.dtype, second);
    aa_store(x, at.dtype, first, aa_fma(a, c, -(b * s)));
    aa_store(x, at.dtype, second, aa_fma(b, c, a * s));
  }
}
AA_REGISTER_TUNED(rope_tuned, AA_POSITION_THREADS)

// Writes k and v [T,Hk,D] into caches [B,Hk,S,D]. Blocks: AA_POSITION_THREADS elements of a token, tokens. Of tokens that name the
// same slot the last one is written; a slot outside of the cache is skipped.
AA_TUNED_KERNEL(cache_write_tuned, AA_POSITION_THREADS, 4)
(AA_OUT(void) k_cache, aa_head_slots k_slots, AA_OUT(void) v_cache, aa_head_slots v_slots, AA_IN(void) k,
 aa_head_slots k_tokens, AA_IN(void) v, aa_head_slots v_tokens, AA_IN(aa_i32) sequence, aa_i64 sequence_step,
 AA_IN(aa_i32) positions, aa_i64 position_step, aa_i32 tokens, aa_i32 heads, aa_i32 head_size, aa_i64 sequences,
 aa_i64 slots) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 t = AA_GROUP_ID(1);
  const aa_i64 i = AA_GROUP_ID(0) * AA_POSITION_THREADS + AA_LOCAL_ID;
  const aa_i64 head = i / head_size, d = i - head * head_size;
  const aa_i32 b = sequence[t * sequence_step], slot = positions[t * position_step];
  bool written = head < heads && b >= 0 && b < sequences && slot >= 0 && slot < slots;
  AA_PRAGMA_NO_UNROLL for (aa_i64 later = t + 1; later < tokens; ++later) {
    if (sequence[later * sequence_step] == b && positions[later * position_step] == slot) written = false;
  }
  if (written) {
    aa_store(k_cache, k_slots.dtype, b * k_slots.outer + slot * k_slots.slot + head * k_slots.head + d * k_slots.inner,
             aa_load(k, k_tokens.dtype, t * k_tokens.outer + head * k_tokens.head + d * k_tokens.inner));
    aa_store(v_cache, v_slots.dtype, b * v_slots.outer + slot * v_slots.slot + head * v_slots.head + d * v_slots.inner,
             aa_load(v, v_tokens.dtype, t * v_tokens.outer + head * v_tokens.head + d * v_tokens.inner));
  }
}
AA_REGISTER_TUNED(cache_write_tuned, AA_POSITION_THREADS)

// The same for prompts, by 16 bytes at a time: elements of a head are neighbours, and everything begins at multiples of 16 bytes.

// Turns q and k (or null) as rope_tuned does; the two elements of a pair lie `size` apart, a multiple of 8. A thread turns 8
// neighbouring pairs; `threads`: tokens * all_heads * size / 8.
AA_TUNED_KERNEL(rope_rows, AA_ROPE_THREADS, 4)
(AA_OUT(void) q, aa_head_slots q_at, AA_OUT(void) k, aa_head_slots k_at, AA_IN(float) cosines, aa_i64 cos_row,
 AA_IN(float) sines, aa_i64 sin_row, aa_i32 q_heads, aa_i32 all_heads, aa_i32 size, aa_i32 threads) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i32 i = (aa_i32)AA_GROUP_ID(0) * AA_ROPE_THREADS + AA_LOCAL_ID;
  if (i >= threads) return;
  const aa_i32 chunks = size / AA_VECTOR, t = i / (all_heads * chunks), rest = i - t * (all_heads * chunks);
  const aa_i32 head = rest / chunks, r = (rest - head * chunks) * AA_VECTOR;
  const bool is_q = head < q_heads;
  AA_OUT(void) x = is_q ? q : k;
  const aa_i32 dtype = is_q ? q_at.dtype : k_at.dtype;
  const aa_i64 first = (is_q ? t * q_at.outer + head * q_at.head : t * k_at.outer + (head - q_heads) * k_at.head) + r;
  float a[AA_VECTOR], b[AA_VECTOR], c[AA_VECTOR], s[AA_VECTOR], turned[AA_VECTOR];
  aa_load8(a, x, dtype, first);
  aa_load8(b, x, dtype, first + size);
  aa_load8(c, cosines, AA_F32, t * cos_row + r);
  aa_load8(s, sines, AA_F32, t * sin_row + r);
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) turned[j] = aa_fma(a[j], c[j], -(b[j] * s[j]));
  aa_store8(x, dtype, first, turned);
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) turned[j] = aa_fma(b[j], c[j], a[j] * s[j]);
  aa_store8(x, dtype, first + size, turned);
}
AA_REGISTER_TUNED(rope_rows, AA_ROPE_THREADS)

// Writes k and v into caches as cache_write_tuned does; head_size is a multiple of 8. A block writes AA_WRITE_TOKENS tokens, which
// it compares with all later ones together.
AA_TUNED_KERNEL(cache_write_rows, AA_WRITE_THREADS, 2)
(AA_OUT(void) k_cache, aa_head_slots k_slots, AA_OUT(void) v_cache, aa_head_slots v_slots, AA_IN(void) k,
 aa_head_slots k_tokens, AA_IN(void) v, aa_head_slots v_tokens, AA_IN(aa_i32) sequence, aa_i64 sequence_step,
 AA_IN(aa_i32) positions, aa_i64 position_step, aa_i32 tokens, aa_i32 heads, aa_i32 head_size, aa_i64 sequences,
 aa_i64 slots) {
  AA_LOCAL_ARRAY(aa_i32, again, AA_WRITE_TOKENS);  // whether a later token has the same slot
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i32 t0 = (aa_i32)AA_GROUP_ID(0) * AA_WRITE_TOKENS, id = AA_LOCAL_ID;
  aa_i32 b[AA_WRITE_TOKENS], slot[AA_WRITE_TOKENS];
  AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
    b[n] = t0 + n < tokens ? sequence[(t0 + n) * sequence_step] : -1;
    slot[n] = t0 + n < tokens ? positions[(t0 + n) * position_step] : -1;
  }
  if (id < AA_WRITE_TOKENS) again[id] = 0;
  AA_BARRIER();
  aa_u32 hits = 0;  // in a register, so that the loads of several rounds are on their way at once
  for (aa_i32 later = t0 + 1 + id; later < tokens; later += AA_WRITE_THREADS) {
    const aa_i32 later_b = sequence[later * sequence_step], later_slot = positions[later * position_step];
    AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
      hits |= (aa_u32)((later > t0 + n) & (later_b == b[n]) & (later_slot == slot[n])) << n;
    }
  }
  AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
    if (hits & (1u << n)) again[n] = 1;
  }
  AA_BARRIER();
  bool written[AA_WRITE_TOKENS];
  AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
    written[n] = again[n] == 0 && b[n] >= 0 && b[n] < sequences && slot[n] >= 0 && slot[n] < slots;
  }
  const aa_i32 chunks = head_size / AA_VECTOR, vectors = heads * chunks;
  AA_PRAGMA_NO_UNROLL for (aa_i32 i = id; i < 2 * vectors; i += AA_WRITE_THREADS) {
    const bool is_k = i < vectors;
    const aa_i32 rest = is_k ? i : i - vectors, head = rest / chunks, d = (rest - head * chunks) * AA_VECTOR;
    AA_IN(void) from = is_k ? k : v;
    AA_OUT(void) to = is_k ? k_cache : v_cache;
    const aa_head_slots from_at = is_k ? k_tokens : v_tokens, to_at = is_k ? k_slots : v_slots;
    float x[AA_WRITE_TOKENS][AA_VECTOR];
    AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
      if (written[n]) aa_load8(x[n], from, from_at.dtype, (t0 + n) * from_at.outer + head * from_at.head + d);
    }
    AA_PRAGMA_UNROLL for (aa_i32 n = 0; n < AA_WRITE_TOKENS; ++n) {
      if (written[n])
        aa_store8(to, to_at.dtype, b[n] * to_at.outer + slot[n] * to_at.slot + head * to_at.head + d, x[n]);
    }
  }
}
AA_REGISTER_TUNED(cache_write_rows, AA_WRITE_THREADS)

AA_FN void aa_turn_pairs(float* first, float* second, aa_u32x4 a, aa_u32x4 b, const float* c, const float* s) {
  float u[AA_VECTOR], v[AA_VECTOR];
  aa_split_bf16(u, a);
  aa_split_bf16(v, b);
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_VECTOR; ++j) {
    first[j] = aa_fma(u[j], c[j], -(v[j] * s[j]));
    second[j] = aa_fma(v[j], c[j], u[j] * s[j]);
  }
}

// Turns the products q, k and v [T,H*D] of a prompt, in bf16, and writes them to q [T,Hq,D] and caches in bf16: rope_rows and
// cache_write_rows at once. A block has AA_WRITE_TOKENS tokens: their keys and values, and in a second half of the grid their
// queries. A thread has 8 pairs of a token, and of each head or of every n-th one.
AA_TUNED_KERNEL(rope_cache_rows, AA_WRITE_THREADS, 4)
(AA_OUT(void) q, aa_head_slots q_at, AA_OUT(void) k_cache, aa_head_slots k_slots, AA_OUT(void) v_cache,
 aa_head_slots v_slots, AA_IN(void) q_rows, AA_IN(void) k_rows, AA_IN(void) v_rows, AA_IN(float) cosines,
 AA_IN(float) sines, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions, aa_qkv_rows a) {
  AA_LOCAL_ARRAY(aa_i32, again, AA_WRITE_TOKENS);  // whether a later token has the same slot
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i32 half = (a.tokens + AA_WRITE_TOKENS - 1) / AA_WRITE_TOKENS, group = (aa_i32)AA_GROUP_ID(0);
  const bool of_q = group >= half;
  const aa_i32 t0 = (of_q ? group - half : group) * AA_WRITE_TOKENS, id = AA_LOCAL_ID;
  const aa_i32 width = AA_WRITE_THREADS / AA_WRITE_TOKENS, n = id / width, t = t0 + n;
  const aa_i32 chunks = a.size / AA_VECTOR, step = width / chunks;  // heads that a token's threads have at once
  const aa_i32 r = (id % width) % chunks * AA_VECTOR, head0 = (id % width) / chunks;
  const bool works = t < a.tokens && head0 < step;
  bool written = works;
  if (!of_q) {
    if (id < AA_WRITE_TOKENS) again[id] = 0;
    aa_i32 b[AA_WRITE_TOKENS], slot[AA_WRITE_TOKENS];
    AA_PRAGMA_UNROLL for (aa_i32 m = 0; m < AA_WRITE_TOKENS; ++m) {
      b[m] = t0 + m < a.tokens ? sequence[(t0 + m) * a.sequence_step] : -1;
      slot[m] = t0 + m < a.tokens ? positions[(t0 + m) * a.position_step] : -1;
    }
    AA_BARRIER();
    aa_u32 hits = 0;  // in a register, so that the loads of several rounds are on their way at once
    for (aa_i32 later = t0 + 1 + id; later < a.tokens; later += AA_WRITE_THREADS) {
      const aa_i32 later_b = sequence[later * a.sequence_step], later_slot = positions[later * a.position_step];
      AA_PRAGMA_UNROLL for (aa_i32 m = 0; m < AA_WRITE_TOKENS; ++m) {
        hits |= (aa_u32)((later > t0 + m) & (later_b == b[m]) & (later_slot == slot[m])) << m;
      }
    }
    AA_PRAGMA_UNROLL for (aa_i32 m = 0; m < AA_WRITE_TOKENS; ++m) {
      if (hits & (1u << m)) again[m] = 1;
    }
    AA_BARRIER();
    written = works && again[n] == 0;
  }
  if (!written) return;
  float c[AA_VECTOR], s[AA_VECTOR], first[AA_VECTOR], second[AA_VECTOR];
  aa_load8(c, cosines, AA_F32, t * a.cos_row + r);
  aa_load8(s, sines, AA_F32, t * a.sin_row + r);
  if (of_q) {
    // Two heads at once, so that more loads are on their way.
    AA_PRAGMA_NO_UNROLL for (aa_i32 head = head0; head < a.q_heads; head += 2 * step) {
      const bool two = head + step < a.q_heads;
      const aa_i64 from = t * a.q_row + head * (2 * a.size) + r, to = t * q_at.outer + head * q_at.head + r;
      const aa_i64 from_next = two ? from + step * (2 * a.size) : from, to_next = to + step * q_at.head;
      const aa_u32x4 u = aa_load16(q_rows, 2 * from), v = aa_load16(q_rows, 2 * (from + a.size));
      const aa_u32x4 u_next = aa_load16(q_rows, 2 * from_next), v_next = aa_load16(q_rows, 2 * (from_next + a.size));
      aa_turn_pairs(first, second, u, v, c, s);
      aa_store8(q, q_at.dtype, to, first);
      aa_store8(q, q_at.dtype, to + a.size, second);
      if (!two) break;
      aa_turn_pairs(first, second, u_next, v_next, c, s);
      aa_store8(q, q_at.dtype, to_next, first);
      aa_store8(q, q_at.dtype, to_next + a.size, second);
    }
    return;
  }
  const aa_i32 place = sequence[t * a.sequence_step], slot = positions[t * a.position_step];
  if (place < 0 || place >= a.sequences || slot < 0 || slot >= a.slots) return;
  const aa_i64 k_to = place * k_slots.outer + slot * k_slots.slot + r, v_to = place * v_slots.outer + slot * v_slots.slot + r;
  AA_PRAGMA_NO_UNROLL for (aa_i32 head = head0; head < a.kv_heads; head += step) {
    const aa_i64 from = head * (2 * a.size) + r;
    const aa_u32x4 u = aa_load16(k_rows, 2 * (t * a.k_row + from)), v = aa_load16(k_rows, 2 * (t * a.k_row + from + a.size));
    const aa_u32x4 low = aa_load16(v_rows, 2 * (t * a.v_row + from));
    const aa_u32x4 high = aa_load16(v_rows, 2 * (t * a.v_row + from + a.size));
    aa_turn_pairs(first, second, u, v, c, s);
    aa_store8(k_cache, AA_BF16, k_to + head * k_slots.head, first);
    aa_store8(k_cache, AA_BF16, k_to + head * k_slots.head + a.size, second);
    aa_store16(v_cache, 2 * (v_to + head * v_slots.head), low);
    aa_store16(v_cache, 2 * (v_to + head * v_slots.head + a.size), high);
  }
}
AA_REGISTER_TUNED(rope_cache_rows, AA_WRITE_THREADS)

// Writes k and v into caches [B,Hk,S,C] of AA_CACHE_Q8_0 (`blocks`: 34 bytes for 32 values) or AA_CACHE_F8_E4M3, as
// cache_write_tuned does. A warp has a block of 32 values; blocks of keys, then those of values. k_slots and v_slots count bytes.
AA_TUNED_KERNEL(quantized_cache_write_tuned, AA_POSITION_THREADS, 4)
(AA_OUT(void) k_cache, aa_head_slots k_slots, AA_OUT(void) v_cache, aa_head_slots v_slots, AA_IN(void) k,
 aa_head_slots k_tokens, AA_IN(void) v, aa_head_slots v_tokens, AA_IN(aa_i32) sequence, aa_i64 sequence_step,
 AA_IN(aa_i32) positions, aa_i64 position_step, aa_i32 tokens, aa_i32 heads, aa_i32 head_size, aa_i64 sequences,
 aa_i64 slots, aa_i32 blocks) {
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 t = AA_GROUP_ID(1);
  const aa_i32 of_head = head_size / 32, lane = AA_LANE;
  const aa_i32 i = (aa_i32)AA_GROUP_ID(0) * (AA_POSITION_THREADS / 32) + AA_WARP;
  if (i >= 2 * heads * of_head) return;
  const bool is_key = i < heads * of_head;
  const aa_i32 mine = is_key ? i : i - heads * of_head, head = mine / of_head, block = mine % of_head;
  const aa_i32 b = sequence[t * sequence_step], slot = positions[t * position_step];
  float again = 0.0f;
  AA_PRAGMA_NO_UNROLL for (aa_i64 later = t + 1 + lane; later < tokens; later += 32) {
    if (sequence[later * sequence_step] == b && positions[later * position_step] == slot) again = 1.0f;
  }
  if (aa_warp_max(again) > 0.0f || b < 0 || b >= sequences || slot < 0 || slot >= slots) return;
  const aa_head_slots from = is_key ? k_tokens : v_tokens, to = is_key ? k_slots : v_slots;
  const float x = aa_load(is_key ? k : v, from.dtype, t * from.outer + head * from.head + (32 * block + lane) * from.inner);
  AA_OUT(void) cache = is_key ? k_cache : v_cache;
  const aa_i64 row = b * to.outer + slot * to.slot + head * to.head;
  if (!blocks) {
    const bool finite = (aa_bits(x) & AA_INFINITY_BITS) != AA_INFINITY_BITS;
    AA_AS_OUT(aa_u8, cache)[row + 32 * block + lane] =
        finite ? aa_to_f8(aa_fmax(-448.0f, aa_fmin(448.0f, x)), AA_F8_E4M3) : (aa_u8)0x7f;
    return;
  }
  aa_u32 largest = aa_bits(x) & 0x7fffffffu;
  AA_PRAGMA_UNROLL for (aa_i32 d = 16; d > 0; d /= 2) {
    const aa_u32 other = aa_shuffle_xor_u32(largest, d);
    largest = other > largest ? other : largest;
  }
  const aa_i64 at = row + 34 * block;
  // The largest scale that is rounded to a finite half.
  const bool finite = largest < AA_INFINITY_BITS && aa_float(largest) < 127.0f * 65520.0f;
  const aa_u16 half = finite ? (aa_u16)aa_pack_f16(aa_float(largest) / 127.0f, 0.0f) : (aa_u16)0x7e00;
  const float scale = finite ? aa_unpack_f16(half) : 0.0f;
  const float number = scale > 0.0f ? aa_rint(x / scale) : 0.0f;
  AA_AS_OUT(aa_i8, cache)[at + 2 + lane] = (aa_i8)aa_fmax(-127.0f, aa_fmin(127.0f, number));
  if (lane == 0) AA_AS_OUT(aa_u16, cache)[at / 2] = half;
}
AA_REGISTER_TUNED(quantized_cache_write_tuned, AA_POSITION_THREADS)
