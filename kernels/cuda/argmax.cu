// "argmax" of anyaccel/abi/ops.h for rows of logits that many blocks share, element type AA_X: each block finds the best of
// its part, the last one to finish takes the best of those. Also the first step of "sample" (sampling.cu), and all of it at a
// temperature of 0.
#include "dialect.h"
#include "warp.h"

#include "logits.h"

typedef struct best_logit {
  aa_u32 key;
  aa_u32 place;
} best_logit;

AA_FN best_logit better_of(best_logit a, best_logit b) {
  return b.key > a.key || (b.key == a.key && b.place < a.place) ? b : a;
}
AA_FN best_logit warp_best(best_logit v) {
  for (aa_i32 d = 16; d > 0; d /= 2) {
    best_logit other;
    other.key = aa_shuffle_xor_u32(v.key, d);
    other.place = aa_shuffle_xor_u32(v.place, d);
    v = better_of(v, other);
  }
  return v;
}
// The maximum over the whole block; every thread gets it. scratch holds 64.
AA_FN best_logit block_best(best_logit v, aa_u32* scratch, aa_i32 warp, aa_i32 lane) {
  v = warp_best(v);
  if (lane == 0) {
    scratch[2 * warp] = v.key;
    scratch[2 * warp + 1] = v.place;
  }
  AA_BARRIER();
  v.key = lane < AA_SAMPLE_THREADS / 32 ? scratch[2 * lane] : 0;
  v.place = lane < AA_SAMPLE_THREADS / 32 ? scratch[2 * lane + 1] : 0xffffffffu;
  v = warp_best(v);
  AA_BARRIER();
  return v;
}

// Grid: blocks of a row, rows. `out` may be null: then the key and place of the largest logit go to results, AA_SAMPLE_RESULTS
// of each row.
AA_TUNED_KERNEL(AA_NAME_X(argmax_rows), AA_SAMPLE_THREADS, 2)
(AA_OUT(void) out, AA_IN(void) x, AA_OUT(aa_u8) seen, AA_OUT(aa_u32) results, AA_OUT(aa_u32) counters, aa_sample_rows a) {
  AA_LOCAL_ARRAY(aa_u32, scratch, 64);
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 row = AA_GROUP_ID(1), blocks = AA_GROUP_COUNT(0);
  const aa_i32 id = AA_LOCAL_ID;
  best_logit best = {0, 0xffffffffu};
  AA_FOR_LOGITS(AA_FLIGHT, x, row * a.row, a.size, AA_GROUP_ID(0) * AA_SAMPLE_THREADS + id, blocks * AA_SAMPLE_THREADS, {
    const best_logit found = {logit_key(logit), i};
    best = better_of(best, found);
  })
  best = block_best(best, scratch, AA_WARP, AA_LANE);
  const aa_i64 base = row * AA_SAMPLE_RESULTS;
  if (blocks > 1) {
    if (id == 0) {
      results[base + 2 + 2 * AA_GROUP_ID(0)] = best.key;
      results[base + 3 + 2 * AA_GROUP_ID(0)] = best.place;
    }
    if (!last_of_row(counters, row, scratch)) return;
    best.key = 0;
    best.place = 0xffffffffu;
    if (id < blocks) {
      best.key = results[base + 2 + 2 * id];
      best.place = results[base + 3 + 2 * id];
    }
    best = block_best(best, scratch, AA_WARP, AA_LANE);
  }
  if (id != 0) return;
  if (out) {
    const bool has_token = !a.finite_only || key_is_finite(best.key);
    aa_store_index(out, a.out_dtype, row * a.out_step, has_token ? (aa_i64)best.place : -1);
    if (a.has_seen && has_token) seen[row * a.seen_row + best.place * a.seen_inner] = 1;
  } else {
    results[base] = best.key;
    results[base + 1] = best.place;
  }
}
AA_REGISTER_TUNED(AA_NAME_X(argmax_rows), AA_SAMPLE_THREADS)
