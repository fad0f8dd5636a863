// "attention" of anyaccel/abi/ops.h for many tokens on Hopper, compiled for sm_90a, in the manner of FlashAttention-3: what
// prefill_attention.cu does, for the head sizes 64 and 128, on the matrix units of four warps at once.
//
// A block stays on its multiprocessor and makes one piece of work after the other: AA_HOPPER_ROWS tokens of one query head. Of
// its twelve warps two bring keys and two bring values, AA_HOPPER_SLOTS slots at a time, to a ring of AA_HOPPER_STAGES tiles in
// shared memory; the other eight are two warpgroups, which multiply 64 rows each. While the matrix units make the scores of one
// tile, a warpgroup takes the exponentials of the tile before, and while one warpgroup does that, the units are the other's.
//
// The last slots that tokens see come first, because there causality hides some of them from some rows; only such tiles are
// compared with what the rows see. Tokens may have any sequences and positions: a piece goes through the slots of each sequence
// in it. Values that are not finite, in tiles of which some rows see a part, are zeros for the matrix units, and are added, as
// they are, to the sums of the rows that see them.
#include "dialect.h"
#include "warp.h"
#include "warpgroup.h"
#include "tuned_attention.h"
#include "prefill_values.h"

#if AA_CAT(AA_16_BITS_, AA_W)

#define AA_WG_ROWS_W AA_CAT(aa_wg_rows_, AA_W)
#define AA_WG_COLUMNS_W AA_CAT(aa_wg_columns_, AA_W)

template <int kSize>
struct aa_hopper_shape {
  static constexpr int kRows = AA_HOPPER_ROWS, kSlots = AA_HOPPER_SLOTS, kStages = AA_HOPPER_STAGES;
  static constexpr int kPanels = kSize / 64, kChunks = kSize / 8, kSteps = kSize / 16, kSlotSteps = kSlots / 16;
  static constexpr int kQueryPanel = kRows * 128, kPanel = kSlots * 128;  // bytes
  static constexpr int kTileBytes = kPanels * kPanel;
  static constexpr int kScores = kSlots / 2, kSums = kSize / 2;  // of each thread
};
// Threads that bring keys, and as many bring values; threads of a warpgroup; warps that multiply.
#define AA_BRING_THREADS 64
#define AA_GROUP_THREADS 128
#define AA_MULTIPLY_WARPS 8
// Barriers of some warps: whose turn on the matrix units it is, and that of one warpgroup's own rows.
#define AA_TURN(group) (1 + (group))
#define AA_OWN(group) (3 + (group))

// The parts of the block's shared memory.
struct aa_hopper_local {
  aa_u8* queries;  // aligned to 1024 bytes, as the next two
  aa_u8* keys;     // kStages tiles
  aa_u8* values;
  aa_i32* tile;       // [kStages][4]: first slot, sequence, whether some rows do not see all of it, whether it is the last
  aa_i32* bad;        // [kStages]: the number of the tile of values, from 1, that last had one that is not finite
  aa_u64* key_full;   // [kStages]
  aa_u64* key_empty;
  aa_u64* value_full;
  aa_u64* value_empty;
};

// The next piece of work: blocks take them forwards and backwards in turns, since the pieces become shorter.
AA_FN aa_i64 aa_work(aa_i64 round) {
  const aa_i64 blocks = AA_GROUP_COUNT(0), block = AA_GROUP_ID(0);
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}
// The last tokens of a prompt see most: they come first.
AA_FN aa_i64 aa_work_count(const aa_tuned_attention& a) {
  return a.kv_heads * a.heads_per_kv * ((a.tokens + AA_HOPPER_ROWS - 1) / AA_HOPPER_ROWS);
}
AA_FN aa_i64 aa_work_head(aa_i64 work, const aa_tuned_attention& a) { return work % (a.kv_heads * a.heads_per_kv); }
AA_FN aa_i64 aa_work_token(aa_i64 work, const aa_tuned_attention& a) {
  return ((a.tokens + AA_HOPPER_ROWS - 1) / AA_HOPPER_ROWS - 1 - work / (a.kv_heads * a.heads_per_kv)) * AA_HOPPER_ROWS;
}

// The slots that a token sees, and of which sequence; none: AA_NO_SEQUENCE.
struct aa_row {
  aa_i32 first, end, sequence;
};
AA_FN aa_row aa_row_at(aa_i64 b, aa_i64 position, const aa_tuned_attention& a) {
  aa_row row = {0, 0, AA_NO_SEQUENCE};
  const aa_i64 first = aa_first_slot(position, a.window), end = aa_end_slot(position, a.slots);
  if (b < 0 || b >= a.sequences || first >= end) return row;
  row.first = (aa_i32)first;
  row.end = (aa_i32)end;
  row.sequence = (aa_i32)b;
  return row;
}

// The sequence after `now` among a piece's rows: the slots that any of them sees, and those that all see. Every lane of a warp
// calls it. If no row sees anything, one without slots.
struct aa_pass {
  aa_i32 sequence, first, end, all_first, all_end;
  bool last;
};
AA_FN aa_pass aa_next_pass(aa_i32 now, aa_i64 token, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,
                           const aa_tuned_attention& a) {
  constexpr int kOwn = AA_HOPPER_ROWS / 32;  // rows of a lane, of which all loads are on their way before the first is used
  aa_i32 place[kOwn], position[kOwn];
  AA_PRAGMA_UNROLL for (int n = 0; n < kOwn; ++n) {
    const aa_i64 own = token + AA_LANE + 32 * n;
    place[n] = own < a.tokens ? sequence[own * a.sequence_stride] : -1;
    position[n] = own < a.tokens ? positions[own * a.position_stride] : 0;
  }
  aa_pass pass;
  aa_i32 next = AA_NO_SEQUENCE, biggest = -1;
  AA_PRAGMA_UNROLL for (int n = 0; n < kOwn; ++n) {
    const aa_i32 own = aa_row_at(place[n], position[n], a).sequence;
    if (own == AA_NO_SEQUENCE) continue;
    if (own > now) next = aa_smaller(next, own);
    biggest = aa_larger(biggest, own);
  }
  pass.sequence = aa_warp_smallest(next);
  pass.last = pass.sequence >= -aa_warp_smallest(-biggest);
  aa_i32 first = AA_NO_SEQUENCE, end = 0, all_first = 0, all_end = AA_NO_SEQUENCE;
  AA_PRAGMA_UNROLL for (int n = 0; n < kOwn; ++n) {
    if (token + AA_LANE + 32 * n >= a.tokens) continue;  // not stored: what it sees does not matter
    const aa_row row = aa_row_at(place[n], position[n], a);
    const bool in_pass = row.sequence == pass.sequence && row.sequence != AA_NO_SEQUENCE;
    all_end = aa_smaller(all_end, in_pass ? row.end : 0);
    if (!in_pass) continue;
    first = aa_smaller(first, row.first);
    end = aa_larger(end, row.end);
    all_first = aa_larger(all_first, row.first);
  }
  pass.end = -aa_warp_smallest(-end);
  pass.first = aa_smaller(aa_warp_smallest(first), pass.end);
  pass.all_first = -aa_warp_smallest(-all_first);
  pass.all_end = aa_warp_smallest(all_end);
  return pass;
}

// ---- warps that bring keys or values -----------------------------------------------------------------------------------

template <int kSize, bool kValues>
AA_FN void aa_bring(AA_IN(void) from, const aa_i64 (&stride)[3], AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,
                    const aa_tuned_attention& a, const aa_hopper_local& local) {
  using Shape = aa_hopper_shape<kSize>;
  constexpr int kAtOnce = AA_BRING_THREADS / Shape::kChunks;  // rows
  const aa_i32 id = AA_LOCAL_ID % AA_BRING_THREADS, row0 = id / Shape::kChunks, chunk = id % Shape::kChunks;
  aa_u8* const tiles = kValues ? local.values : local.keys;
  aa_u64* const full = kValues ? local.value_full : local.key_full;
  aa_u64* const empty = kValues ? local.value_empty : local.key_empty;
  // A thread's rows lie a multiple of 4 apart, so its chunk is in one of two places of them.
  aa_u8* const even = tiles + aa_panel_chunk(row0, chunk, Shape::kPanel);
  aa_u8* const odd = tiles + aa_panel_chunk(row0 + kAtOnce, chunk, Shape::kPanel);
  const aa_i64 step = stride[2] * (2 * kAtOnce);
  aa_i32 item = 0;
  for (aa_i64 round = 0;; ++round) {
    const aa_i64 work = aa_work(round);
    if (round * AA_GROUP_COUNT(0) >= aa_work_count(a)) break;
    if (work >= aa_work_count(a)) continue;
    const aa_i64 token = aa_work_token(work, a), kv_head = aa_work_head(work, a) / a.heads_per_kv;
    aa_i32 now = -1;
    bool last_pass = false;
    while (!last_pass) {
      const aa_pass pass = aa_next_pass(now, token, sequence, positions, a);
      now = pass.sequence;
      last_pass = pass.last;
      const aa_i64 base = (pass.end > 0 ? now * stride[0] : 0) + kv_head * stride[1] + 8 * chunk;
      for (aa_i32 slot0 = aa_larger(pass.end - 1, 0) / Shape::kSlots * Shape::kSlots;; slot0 -= Shape::kSlots, ++item) {
        const aa_i32 stage = item % Shape::kStages;
        const bool partial = slot0 < pass.all_first || slot0 + Shape::kSlots > pass.all_end;
        const bool last_tile = slot0 <= pass.first;
        aa_phase_wait(empty + stage, (aa_u32)(item / Shape::kStages + 1) & 1u);
        aa_i64 bytes = (base + (slot0 + row0) * stride[2]) * 2;
        const aa_i32 offset = stage * Shape::kTileBytes;
        if (slot0 >= pass.first && slot0 + Shape::kSlots <= pass.end) {
          AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / kAtOnce; n += 2) {
            aa_async_copy16(even + offset + n * kAtOnce * 128, from, bytes, true);
            aa_async_copy16(odd + offset + n * kAtOnce * 128, from, bytes + step, true);
            bytes += 2 * step;
          }
        } else {
          // Zeros for slots that no row sees.
          AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / kAtOnce; n += 2) {
            const aa_i32 slot = slot0 + row0 + n * kAtOnce;
            aa_async_copy16(even + offset + n * kAtOnce * 128, from, bytes, slot >= pass.first && slot < pass.end);
            aa_async_copy16(odd + offset + n * kAtOnce * 128, from, bytes + step,
                            slot + kAtOnce >= pass.first && slot + kAtOnce < pass.end);
            bytes += 2 * step;
          }
        }
        aa_async_commit();
        if (!kValues && id == 0) {
          local.tile[4 * stage] = slot0;
          local.tile[4 * stage + 1] = now;
          local.tile[4 * stage + 2] = partial;
          local.tile[4 * stage + 3] = last_tile && last_pass;
        }
        aa_async_wait(0);
        if (kValues && partial) {
          AA_PRAGMA_NO_UNROLL for (aa_i32 n = 0; n < Shape::kSlots / kAtOnce; ++n) {
            aa_u32x4* const at = (aa_u32x4*)((n % 2 ? odd - kAtOnce * 128 : even) + offset + n * kAtOnce * 128);
            const aa_u32x4 v = *at;
            if (AA_NOT_FINITE(v.x) | AA_NOT_FINITE(v.y) | AA_NOT_FINITE(v.z) | AA_NOT_FINITE(v.w)) {
              *at = {aa_only_finite(v.x), aa_only_finite(v.y), aa_only_finite(v.z), aa_only_finite(v.w)};
              local.bad[stage] = item + 1;
            }
          }
        }
        aa_matrix_fence();
        aa_phase_arrive(full + stage);
        if (last_tile) {
          ++item;
          break;
        }
      }
    }
  }
}

// ---- warpgroups that multiply ------------------------------------------------------------------------------------------

// A tile, as one of the warps that bring keys described it.
struct aa_tile {
  aa_i32 slot0, sequence;
  bool partial, last;
};
AA_FN aa_tile aa_tile_of(const aa_i32* tile) { return {tile[0], tile[1], tile[2] != 0, tile[3] != 0}; }

// scores = rows of queries times transpose(keys), in the background.
template <int kSize>
AA_FN void aa_begin_scores(float (&scores)[aa_hopper_shape<kSize>::kScores], aa_u64 queries, aa_u64 keys) {
  using Shape = aa_hopper_shape<kSize>;
  aa_wg_landed(scores);
  aa_wg_fence();
  AA_PRAGMA_UNROLL for (int step = 0; step < Shape::kSteps; ++step) {
    AA_WG_ROWS_W(scores, aa_descriptor_at(queries, step / 4 * Shape::kQueryPanel + step % 4 * 32),
                 aa_descriptor_at(keys, step / 4 * Shape::kPanel + step % 4 * 32), step > 0);
  }
  aa_wg_commit();
}

// sums += weights times values, in the background.
template <int kSize>
AA_FN void aa_begin_sums(float (&sums)[aa_hopper_shape<kSize>::kSums],
                         aa_u32 (&weights)[aa_hopper_shape<kSize>::kSlotSteps][4], aa_u64 values) {
  using Shape = aa_hopper_shape<kSize>;
  aa_wg_landed(sums);
  aa_wg_landed(weights);
  aa_wg_fence();
  AA_PRAGMA_UNROLL for (int step = 0; step < Shape::kSlotSteps; ++step) {
    AA_WG_COLUMNS_W(sums, weights[step], aa_descriptor_at(values, step * 2048));
  }
  aa_wg_commit();
}

// A thread keeps this of its two rows.
struct aa_state {
  aa_row row[2];
  float largest[2], total[2], rescale[2];
};

// Scores to weights, not rounded yet; rescale: by what sums made so far must be multiplied.
template <int kSize>
AA_FN void aa_weigh(float (&scores)[aa_hopper_shape<kSize>::kScores], const aa_tile& tile, aa_state& state,
                    const aa_tuned_attention& a, float factor, float cap_factor) {
  using Shape = aa_hopper_shape<kSize>;
  if (a.softcap > 0.0f) {
    AA_PRAGMA_UNROLL for (int i = 0; i < Shape::kScores; ++i) scores[i] = aa_capped(scores[i], cap_factor, a.softcap);
  }
  if (tile.partial) {
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      const aa_row& row = state.row[half];
      const aa_i32 from = row.first - tile.slot0 - AA_LANE % 4 * 2;
      const aa_i32 to = (row.sequence == tile.sequence ? row.end : 0) - tile.slot0 - AA_LANE % 4 * 2;
      AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / 8; ++n) {
        AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * n + 2 * half + e];
          score = (8 * n + e < from) | (8 * n + e >= to) ? AA_MINUS_INFINITY : score;
        }
      }
    }
  }
  AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
    float next = state.largest[half];
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / 8; ++n) {
      next = aa_fmax(next, aa_fmax(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
    }
    next = aa_fmax(next, aa_shuffle_xor(next, 1));
    next = aa_fmax(next, aa_shuffle_xor(next, 2));
    const float anchor = next == AA_MINUS_INFINITY ? 0.0f : next;
    float base = anchor * factor;
    state.rescale[half] = aa_exp2((state.largest[half] - anchor) * factor);
    state.largest[half] = next;
    if (aa_fabs(base) > AA_LARGE_BASE) {
      AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / 8; ++n) {
        scores[4 * n + 2 * half] -= anchor;
        scores[4 * n + 2 * half + 1] -= anchor;
      }
      base = 0.0f;
    }
    float sum = 0.0f;
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / 8; ++n) {
      AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * n + 2 * half + e];
        score = aa_exp2(aa_fma(score, factor, -base));
        sum += score;
      }
    }
    state.total[half] = state.total[half] * state.rescale[half] + sum;
  }
}

template <int kSize>
AA_FN void aa_round_weights(aa_u32 (&weights)[aa_hopper_shape<kSize>::kSlotSteps][4],
                            const float (&scores)[aa_hopper_shape<kSize>::kScores]) {
  AA_PRAGMA_UNROLL for (int n = 0; n < aa_hopper_shape<kSize>::kSlots / 8; ++n) {
    weights[n / 2][n % 2 * 2] = AA_PACK_W(scores[4 * n], scores[4 * n + 1]);
    weights[n / 2][n % 2 * 2 + 1] = AA_PACK_W(scores[4 * n + 2], scores[4 * n + 3]);
  }
}

template <int kSize>
AA_FN void aa_rescale(float (&sums)[aa_hopper_shape<kSize>::kSums], const aa_state& state) {
  AA_PRAGMA_UNROLL for (int n = 0; n < kSize / 8; ++n) {
    AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sums[4 * n + e] *= state.rescale[e / 2];
  }
}

// Adds the values of a tile that are not finite to the sums of the rows that see them: from global memory, since the tile has
// zeros instead.
template <int kSize>
AA_FN void aa_add_not_finite(float (&sums)[aa_hopper_shape<kSize>::kSums], AA_IN(void) v, aa_i64 kv_head,
                             const aa_tile& tile, const aa_state& state, const aa_tuned_attention& a) {
  aa_i32 first[2], end[2];
  for (int half = 0; half < 2; ++half) {
    const aa_row& row = state.row[half];
    first[half] = row.first;
    end[half] = row.sequence == tile.sequence ? row.end : 0;
  }
  AA_PRAGMA_NO_UNROLL for (aa_i32 j = tile.slot0; j < tile.slot0 + AA_HOPPER_SLOTS; ++j) {
    const bool seen[2] = {j >= first[0] && j < end[0], j >= first[1] && j < end[1]};
    if (!seen[0] && !seen[1]) continue;
    const aa_i64 at = tile.sequence * a.v_stride[0] + kv_head * a.v_stride[1] + j * a.v_stride[2];
    AA_PRAGMA_UNROLL for (int n = 0; n < kSize / 8; ++n) {
      const aa_u32x4 eight = aa_load16(v, (at + 8 * n) * 2);
      const aa_i32 word = AA_LANE % 4;
      const aa_u32 two = word == 0 ? eight.x : word == 1 ? eight.y : word == 2 ? eight.z : eight.w;
      AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
        if (!seen[half] || !AA_NOT_FINITE(two)) continue;
        sums[4 * n + 2 * half] += aa_value_if_not_finite(two & 0xffffu);
        sums[4 * n + 2 * half + 1] += aa_value_if_not_finite(two >> 16);
      }
    }
  }
}

// 64 rows of queries from `token` on to a warpgroup's part of a panel, rounded; zeros for rows beyond the tokens. All loads are on
// their way before the first is used: one after the other they would take as long as several tiles, with nothing to multiply.
template <int kSize>
AA_FN void aa_bring_queries(aa_u8* own_queries, AA_IN(void) q, aa_i64 token, aa_i64 head, const aa_tuned_attention& a) {
  using Shape = aa_hopper_shape<kSize>;
  constexpr int kApart = AA_GROUP_THREADS / Shape::kChunks, kLoads = 64 / kApart;  // a thread's rows
  const aa_i32 id = AA_LOCAL_ID % AA_GROUP_THREADS, row0 = id / Shape::kChunks, chunk = id % Shape::kChunks;
  const aa_i64 rows = a.tokens - token;  // may be none
  const aa_i64 column = head * a.q_stride[1] + 8 * chunk;
  aa_i64 at[kLoads];
  AA_PRAGMA_UNROLL for (int n = 0; n < kLoads; ++n) {
    const aa_i64 row = token + row0 + n * kApart;
    at[n] = (row < a.tokens ? row : a.tokens - 1) * a.q_stride[0] + column;
  }
  aa_u32x4 eight[kLoads];
  if (a.q_dtype == AA_F32) {
    aa_u32x4 low[kLoads], high[kLoads];
    AA_PRAGMA_UNROLL for (int n = 0; n < kLoads; ++n) {
      low[n] = aa_load16(q, at[n] * 4);
      high[n] = aa_load16(q, at[n] * 4 + 16);
    }
    AA_PRAGMA_UNROLL for (int n = 0; n < kLoads; ++n) eight[n] = aa_rounded_chunk(low[n], high[n]);
  } else {
    AA_PRAGMA_UNROLL for (int n = 0; n < kLoads; ++n) eight[n] = aa_load16(q, at[n] * 2);
  }
  AA_PRAGMA_UNROLL for (int n = 0; n < kLoads; ++n) {
    const aa_i32 row = row0 + n * kApart;
    if (row >= rows) eight[n] = {0, 0, 0, 0};
    *(aa_u32x4*)(own_queries + aa_panel_chunk(row, chunk, Shape::kQueryPanel)) = eight[n];
  }
}

template <int kSize>
AA_FN void aa_multiply(AA_OUT(void) out, AA_IN(void) q, AA_IN(void) v, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,
                       const aa_tuned_attention& a, const aa_hopper_local& local) {
  using Shape = aa_hopper_shape<kSize>;
  const aa_i32 warp = (aa_i32)aa_shuffle_u32((aa_u32)AA_WARP, 0) - 4, group = warp / 4, lane = AA_LANE;
  const float cap_factor = a.softcap > 0.0f ? 2.0f * AA_LOG2_E * a.scale / a.softcap : 0.0f;
  const float factor = a.softcap > 0.0f ? AA_LOG2_E : AA_LOG2_E * a.scale;
  aa_u8* const own_queries = local.queries + group * 64 * 128;  // the warpgroup's rows of the first panel
  const aa_u64 query_rows = aa_rows_descriptor(aa_shared_address(own_queries));
  const aa_u64 key_rows = aa_rows_descriptor(aa_shared_address(local.keys));
  const aa_u64 value_columns = aa_columns_descriptor(aa_shared_address(local.values), Shape::kPanel);
  aa_i32 item = 0;
  // The matrix units are the first warpgroup's to begin with.
  if (group == 0) aa_some_arrive(AA_TURN(0), 2 * AA_GROUP_THREADS);

  for (aa_i64 round = 0;; ++round) {
    const aa_i64 work = aa_work(round);
    if (round * AA_GROUP_COUNT(0) >= aa_work_count(a)) break;
    if (work >= aa_work_count(a)) continue;
    const aa_i64 head = aa_work_head(work, a), kv_head = head / a.heads_per_kv;
    const aa_i64 token = aa_work_token(work, a) + group * 64;  // of the warpgroup's first row

    const aa_i32 row0 = warp % 4 * 16 + lane / 4;
    aa_i32 row_sequence[2], row_position[2];
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      const aa_i64 own = token + row0 + 8 * half;
      row_sequence[half] = own < a.tokens ? sequence[own * a.sequence_stride] : -1;
      row_position[half] = own < a.tokens ? positions[own * a.position_stride] : 0;
    }
    aa_bring_queries<kSize>(own_queries, q, token, head, a);
    aa_matrix_fence();
    aa_some_sync(AA_OWN(group), AA_GROUP_THREADS);

    aa_state state;
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      state.row[half] = aa_row_at(row_sequence[half], row_position[half], a);
      state.largest[half] = AA_MINUS_INFINITY;
      state.total[half] = 0.0f;
    }
    float sums[Shape::kSums], scores[Shape::kScores];
    aa_u32 weights[Shape::kSlotSteps][4];
    AA_PRAGMA_UNROLL for (int i = 0; i < Shape::kSums; ++i) sums[i] = 0.0f;

    aa_i32 stage = item % Shape::kStages;
    aa_phase_wait(local.key_full + stage, (aa_u32)(item / Shape::kStages) & 1u);
    aa_tile tile = aa_tile_of(local.tile + 4 * stage);
    aa_begin_scores<kSize>(scores, query_rows, aa_descriptor_at(key_rows, stage * Shape::kTileBytes));
    aa_wg_wait(0);
    aa_wg_landed(scores);
    if (lane == 0) aa_phase_arrive(local.key_empty + stage);
    aa_weigh<kSize>(scores, tile, state, a, factor, cap_factor);
    aa_round_weights<kSize>(weights, scores);

    while (!tile.last) {
      const aa_i32 value_stage = stage;
      const aa_u32 value_parity = (aa_u32)(item / Shape::kStages) & 1u;
      const aa_tile before = tile;
      ++item;
      stage = item % Shape::kStages;
      aa_phase_wait(local.key_full + stage, (aa_u32)(item / Shape::kStages) & 1u);
      tile = aa_tile_of(local.tile + 4 * stage);
      aa_some_sync(AA_TURN(group), 2 * AA_GROUP_THREADS);
      aa_begin_scores<kSize>(scores, query_rows, aa_descriptor_at(key_rows, stage * Shape::kTileBytes));
      aa_phase_wait(local.value_full + value_stage, value_parity);
      aa_begin_sums<kSize>(sums, weights, aa_descriptor_at(value_columns, value_stage * Shape::kTileBytes));
      aa_some_arrive(AA_TURN(1 - group), 2 * AA_GROUP_THREADS);
      aa_wg_wait(1);
      aa_wg_landed(scores);
      if (lane == 0) aa_phase_arrive(local.key_empty + stage);
      aa_weigh<kSize>(scores, tile, state, a, factor, cap_factor);
      aa_wg_wait(0);
      aa_wg_landed(sums);
      aa_wg_landed(weights);
      const bool bad = before.partial && local.bad[value_stage] == item;
      AA_WARP_SYNC();
      if (lane == 0) aa_phase_arrive(local.value_empty + value_stage);
      if (bad) aa_add_not_finite<kSize>(sums, v, kv_head, before, state, a);
      aa_rescale<kSize>(sums, state);
      aa_round_weights<kSize>(weights, scores);
    }
    aa_phase_wait(local.value_full + stage, (aa_u32)(item / Shape::kStages) & 1u);
    aa_begin_sums<kSize>(sums, weights, aa_descriptor_at(value_columns, stage * Shape::kTileBytes));
    aa_wg_wait(0);
    aa_wg_landed(sums);
    aa_wg_landed(weights);
    ++item;
    const bool bad = tile.partial && local.bad[stage] == item;
    AA_WARP_SYNC();
    if (lane == 0) aa_phase_arrive(local.value_empty + stage);
    if (bad) aa_add_not_finite<kSize>(sums, v, kv_head, tile, state, a);

    // Through the memory of the warpgroup's queries, which all its warps are done with, so that whole chunks are stored.
    aa_some_sync(AA_OWN(group), AA_GROUP_THREADS);
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      float all = state.total[half];
      all += aa_shuffle_xor(all, 1);
      all += aa_shuffle_xor(all, 2);
      const float scale = all == 0.0f ? 0.0f : 1.0f / all;
      AA_PRAGMA_UNROLL for (int n = 0; n < kSize / 8; ++n) {
        *(aa_u32*)(own_queries + aa_panel_chunk(row0 + 8 * half, n, Shape::kQueryPanel) + lane % 4 * 4) =
            AA_PACK_W(sums[4 * n + 2 * half] * scale, sums[4 * n + 2 * half + 1] * scale);
      }
    }
    AA_WARP_SYNC();
    for (aa_i32 i = lane; i < 16 * Shape::kChunks; i += 32) {
      const aa_i32 row = warp % 4 * 16 + i / Shape::kChunks, chunk = i % Shape::kChunks;
      if (token + row >= a.tokens) continue;
      aa_store16(out, ((token + row) * a.out_stride[0] + head * a.out_stride[1] + 8 * chunk) * 2,
                 *(const aa_u32x4*)(own_queries + aa_panel_chunk(row, chunk, Shape::kQueryPanel)));
    }
    aa_some_sync(AA_OWN(group), AA_GROUP_THREADS);
  }
}

template <int kSize>
AA_FN void aa_hopper(AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence,
                     AA_IN(aa_i32) positions, const aa_tuned_attention& a, aa_u8* memory) {
  using Shape = aa_hopper_shape<kSize>;
  aa_hopper_local local;
  local.queries = memory + (1024 - aa_shared_address(memory) % 1024) % 1024;
  local.keys = local.queries + Shape::kPanels * Shape::kQueryPanel;
  local.values = local.keys + Shape::kStages * Shape::kTileBytes;
  local.key_full = (aa_u64*)(local.values + Shape::kStages * Shape::kTileBytes);
  local.key_empty = local.key_full + Shape::kStages;
  local.value_full = local.key_empty + Shape::kStages;
  local.value_empty = local.value_full + Shape::kStages;
  local.tile = (aa_i32*)(local.value_empty + Shape::kStages);
  local.bad = local.tile + 4 * Shape::kStages;

  aa_grid_launch_next();
  if (AA_LOCAL_ID == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      aa_phase_make(local.key_full + i, AA_BRING_THREADS);
      aa_phase_make(local.value_full + i, AA_BRING_THREADS);
      aa_phase_make(local.key_empty + i, AA_MULTIPLY_WARPS);
      aa_phase_make(local.value_empty + i, AA_MULTIPLY_WARPS);
      local.bad[i] = 0;
    }
    aa_phase_made();
  }
  aa_grid_wait();
  AA_BARRIER();
  if (AA_WARP < 4) {
    aa_fewer_registers(40);
    if (AA_WARP < 2) {
      aa_bring<kSize, false>(k, a.k_stride, sequence, positions, a, local);
    } else {
      aa_bring<kSize, true>(v, a.v_stride, sequence, positions, a, local);
    }
  } else {
    aa_more_registers(232);
    aa_multiply<kSize>(out, q, v, sequence, positions, a, local);
  }
}

#define AA_HOPPER_KERNEL(size)                                                                                         \
  AA_TUNED_KERNEL(AA_NAME_W(hopper_attention_##size), AA_HOPPER_THREADS, 1)                                            \
  (AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,     \
   aa_tuned_attention a) {                                                                                             \
    AA_DYNAMIC_LOCAL(memory);                                                                                          \
    aa_hopper<size>(out, q, k, v, sequence, positions, a, memory);                                                     \
  }                                                                                                                    \
  AA_REGISTER_TUNED(AA_NAME_W(hopper_attention_##size), AA_HOPPER_THREADS)

#if !defined(AA_HEAD) || AA_HEAD == 64
AA_HOPPER_KERNEL(64)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 128
AA_HOPPER_KERNEL(128)
#endif

#endif
