// "rope" and "cache_write" of anyaccel/abi/ops.h for a few tokens, which overlap with the kernels before and after them: in a
// decode step their own work takes less time than a launch that waits for its predecessor.
#include "dialect.h"
#include "warp.h"

#include "formats.h"
#include "row_arguments.h"

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
