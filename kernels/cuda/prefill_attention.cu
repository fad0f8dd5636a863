// "attention" of anyaccel/abi/ops.h for many tokens, on the matrix units, in the manner of FlashAttention-2: a block takes
// AA_PREFILL_ROWS tokens of one query head and goes through the keys and values that they see, AA_PREFILL_SLOTS at a time, two
// tiles in shared memory, the next one on its way while one is multiplied. Queries and the weights of the slots are rounded to
// the 16 bits of the caches before they are multiplied; sums, maxima and totals are fp32. AA_W is the element type of the
// caches and of out; AA_HEAD, when given, the one head size that is wanted.
//
// Tokens may have any sequences and positions. A tile of tokens goes through the slots once for each sequence in it: one time
// for a prompt. What a token does not see gets weight 0; where all tokens of a warp see all of a tile, nothing is compared.
// A value that is not finite has no effect on tokens that do not see it, although 0 times it is not a number: in tiles that
// some token sees in part, such values are taken out and added, as they are, to the sums of the tokens that see them.
//
// Rows of tiles are 16-byte chunks whose number is exchanged by the row's lowest three bits, which keeps eight rows of one
// column of chunks in different banks.
#include "dialect.h"
#include "warp.h"
#include "tuned_attention.h"
#include "prefill_values.h"

#if AA_CAT(AA_16_BITS_, AA_W)

#define AA_WARPS (AA_PREFILL_THREADS / 32)

template <int kSize>
struct aa_prefill_shape {
  static constexpr int kRows = AA_PREFILL_ROWS(kSize), kSlots = AA_PREFILL_SLOTS(kSize);
  static constexpr int kRowTiles = kRows / (16 * AA_WARPS);  // of 16 rows, of each warp
  static constexpr int kSlotTiles = kSlots / 8, kSteps = kSize / 16, kColumns = kSize / 8;
  static constexpr int kRowBytes = AA_PREFILL_PITCH(kSize) * 2, kTileBytes = kSlots * kRowBytes;
};

// The offsets of the parts of the block's shared memory.
struct aa_prefill_local {
  aa_u8* queries;
  aa_u8* keys;    // two tiles
  aa_u8* values;  // two tiles
  aa_i32* first;  // per row: slots that it sees, and its sequence; none: AA_NO_SEQUENCE
  aa_i32* end;
  aa_i32* sequence;
  aa_i32* numbers;  // [4]: of each warp; from 8 on those below; from 16 on four of each warp (registers are scarce)
};
#define AA_LAST_NOT_FINITE 8  // the last tile with an infinity or NaN: its first slot + 1
#define AA_ALL_FIRST 9        // slots that all rows of the pass see
#define AA_ALL_END 10
#define AA_ANY_FIRST 11  // the first slot that any sees
#define AA_OF_WARP (16 + 4 * AA_WARP)  // what its rows see: first and end of any, first and end of all

AA_FN aa_i32 aa_chunk(aa_i32 row, aa_i32 chunk, aa_i32 row_bytes) { return row * row_bytes + (chunk ^ (row & 7)) * 16; }

AA_FN aa_i32 aa_block_smallest(aa_i32 v, aa_i32* numbers) {
  v = aa_warp_smallest(v);
  AA_BARRIER();  // the numbers of the call before have been read
  if (AA_LANE == 0) numbers[AA_WARP] = v;
  AA_BARRIER();
  return aa_smaller(aa_smaller(numbers[0], numbers[1]), aa_smaller(numbers[2], numbers[3]));
}

// The queries of the block's rows to shared memory, rounded; zeros for rows beyond the tokens.
template <int kSize>
AA_FN void aa_take_rows(aa_u8* to, AA_IN(void) q, aa_i64 token, aa_i64 head, const aa_tuned_attention& a) {
  using Shape = aa_prefill_shape<kSize>;
  for (aa_i32 i = AA_LOCAL_ID; i < Shape::kRows * Shape::kColumns; i += AA_PREFILL_THREADS) {
    const aa_i32 row = i / Shape::kColumns, chunk = i % Shape::kColumns;
    aa_u32x4 eight = {0, 0, 0, 0};
    if (token + row < a.tokens) {
      eight = aa_query_chunk(q, (token + row) * a.q_stride[0] + head * a.q_stride[1] + 8 * chunk, a.q_dtype);
    }
    *(aa_u32x4*)(to + aa_chunk(row, chunk, Shape::kRowBytes)) = eight;
  }
}

// A tile of keys or values, in the background; zeros for slots that no row sees. A thread takes chunk id % 8 of each eight, of
// rows id / 8 and every 16th after it: the distances in shared memory are constants. `bytes`: where its first chunk lies.
template <int kSize>
AA_FN void aa_take_tile(aa_u8* to, AA_IN(void) from, aa_i64 bytes, aa_i64 bytes_of_16_slots, aa_i32 slot0, aa_i32 first,
                        aa_i32 end) {
  using Shape = aa_prefill_shape<kSize>;
  const aa_i32 row = AA_LOCAL_ID / 8, column = AA_LOCAL_ID % 8;
  aa_u8* const at = to + aa_chunk(row, column, Shape::kRowBytes);
  AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlots / 16; ++n) {
    const aa_i32 slot = slot0 + row + 16 * n;
    const bool there = slot >= first && slot < end;
    AA_PRAGMA_UNROLL for (int c = 0; c < Shape::kColumns; c += 8) {
      if (Shape::kColumns - c >= 8 || column < Shape::kColumns - c) {
        aa_async_copy16(at + n * 16 * Shape::kRowBytes + c * 16, from, bytes + c * 16, there);
      }
    }
    bytes += bytes_of_16_slots;
  }
}

// scores = rows of queries times transpose(keys).
template <int kSize>
AA_FN void aa_multiply_keys(float (&scores)[aa_prefill_shape<kSize>::kRowTiles][aa_prefill_shape<kSize>::kSlotTiles][4],
                            const aa_u8* queries, const aa_u8* keys) {
  using Shape = aa_prefill_shape<kSize>;
  const aa_i32 lane = AA_LANE;
  const aa_u8* const q_at = queries + (AA_WARP * 16 * Shape::kRowTiles + lane % 16) * Shape::kRowBytes;
  const aa_u8* const k_at = keys + (lane / 16 * 8 + lane % 8) * Shape::kRowBytes;
  const aa_i32 q_chunk = (lane / 16 ^ lane % 8) * 16, k_chunk = (lane / 8 % 2 ^ lane % 8) * 16;
  AA_PRAGMA_UNROLL for (int m = 0; m < Shape::kRowTiles; ++m) {
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlotTiles; ++n) {
      AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) scores[m][n][e] = 0.0f;
    }
  }
  AA_PRAGMA_UNROLL for (int step = 0; step < Shape::kSteps; ++step) {
    aa_u32 query[Shape::kRowTiles][4];
    AA_PRAGMA_UNROLL for (int m = 0; m < Shape::kRowTiles; ++m) {
      aa_ldmatrix(query[m], q_at + m * 16 * Shape::kRowBytes + (q_chunk ^ step * 32));
    }
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kSlotTiles; n += 2) {
      aa_u32 key[4];
      aa_ldmatrix(key, k_at + n * 8 * Shape::kRowBytes + (k_chunk ^ step * 32));
      AA_PRAGMA_UNROLL for (int m = 0; m < Shape::kRowTiles; ++m) {
        AA_MULTIPLY(AA_W)(scores[m][n], query[m], key[0], key[1]);
        AA_MULTIPLY(AA_W)(scores[m][n + 1], query[m], key[2], key[3]);
      }
    }
  }
}

// sums += weights times values; the weights in 16 bits, as the unit wants its first operand.
template <int kSize>
AA_FN void aa_multiply_values(float (&sums)[aa_prefill_shape<kSize>::kRowTiles][aa_prefill_shape<kSize>::kColumns][4],
                              const aa_u32 (&weights)[aa_prefill_shape<kSize>::kRowTiles]
                                                     [aa_prefill_shape<kSize>::kSlots / 16][4],
                              const aa_u8* values) {
  using Shape = aa_prefill_shape<kSize>;
  const aa_i32 lane = AA_LANE;
  const aa_u8* const v_at = values + lane % 16 * Shape::kRowBytes;
  const aa_i32 v_chunk = (lane / 16 ^ lane % 8) * 16;
  AA_PRAGMA_UNROLL for (int step = 0; step < Shape::kSlots / 16; ++step) {
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kColumns; n += 2) {
      aa_u32 value[4];
      aa_ldmatrix_transposed(value, v_at + step * 16 * Shape::kRowBytes + (v_chunk ^ n * 16));
      AA_PRAGMA_UNROLL for (int m = 0; m < Shape::kRowTiles; ++m) {
        AA_MULTIPLY(AA_W)(sums[m][n], weights[m][step], value[0], value[1]);
        AA_MULTIPLY(AA_W)(sums[m][n + 1], weights[m][step], value[2], value[3]);
      }
    }
  }
}

// Returns whether this thread's part of a tile of values contains one that is not finite.
template <int kSize>
AA_FN bool aa_find_not_finite(const aa_u8* values) {
  using Shape = aa_prefill_shape<kSize>;
  aa_u32 found = 0;
  for (aa_i32 i = AA_LOCAL_ID; i < Shape::kSlots * Shape::kColumns; i += AA_PREFILL_THREADS) {
    const aa_u32x4 eight = *(const aa_u32x4*)(values + aa_chunk(i / Shape::kColumns, i % Shape::kColumns, Shape::kRowBytes));
    found |= AA_NOT_FINITE(eight.x) | AA_NOT_FINITE(eight.y) | AA_NOT_FINITE(eight.z) | AA_NOT_FINITE(eight.w);
  }
  return found != 0;
}

// Adds the values of a tile that are not finite to the sums of the rows that see them, and makes them zero in the tile. Every
// thread of the block calls it.
template <int kSize>
AA_FN void aa_add_not_finite(float (&sums)[aa_prefill_shape<kSize>::kRowTiles][aa_prefill_shape<kSize>::kColumns][4],
                             aa_u8* values, aa_i32 slot0, aa_i32 sequence, const aa_prefill_local& local) {
  using Shape = aa_prefill_shape<kSize>;
  const aa_i32 lane = AA_LANE, row0 = AA_WARP * 16 * Shape::kRowTiles + lane / 4;
  for (aa_i32 j = 0; j < Shape::kSlots; ++j) {
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kColumns; ++n) {
      const aa_u32 two = *(const aa_u32*)(values + aa_chunk(j, n, Shape::kRowBytes) + lane % 4 * 4);
      if (!AA_NOT_FINITE(two)) continue;
      AA_PRAGMA_UNROLL for (int m = 0; m < Shape::kRowTiles; ++m) {
        AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
          const aa_i32 row = row0 + 16 * m + 8 * half;
          if (local.sequence[row] != sequence || slot0 + j < local.first[row] || slot0 + j >= local.end[row]) continue;
          sums[m][n][2 * half] += aa_value_if_not_finite(two & 0xffffu);
          sums[m][n][2 * half + 1] += aa_value_if_not_finite(two >> 16);
        }
      }
    }
  }
  AA_BARRIER();
  for (aa_i32 i = AA_LOCAL_ID; i < Shape::kSlots * Shape::kColumns * 4; i += AA_PREFILL_THREADS) {
    const aa_i32 chunk = i / 4;
    aa_u32* const at =
        (aa_u32*)(values + aa_chunk(chunk / Shape::kColumns, chunk % Shape::kColumns, Shape::kRowBytes) + i % 4 * 4);
    *at = aa_only_finite(*at);
  }
  AA_BARRIER();
}

template <int kSize>
AA_FN void aa_prefill(AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence,
                      AA_IN(aa_i32) positions, const aa_tuned_attention& a, aa_u8* memory) {
  using Shape = aa_prefill_shape<kSize>;
  constexpr int kRowTiles = Shape::kRowTiles, kSlotTiles = Shape::kSlotTiles, kSlots = Shape::kSlots;
  aa_prefill_local local;
  local.queries = memory;
  local.keys = local.queries + Shape::kRows * Shape::kRowBytes;
  local.values = local.keys + 2 * Shape::kTileBytes;
  local.first = (aa_i32*)(local.values + 2 * Shape::kTileBytes);
  local.end = local.first + Shape::kRows;
  local.sequence = local.end + Shape::kRows;
  local.numbers = local.sequence + Shape::kRows;

  const aa_i32 id = AA_LOCAL_ID, lane = AA_LANE;
  const aa_i64 head = AA_GROUP_ID(0), kv_head = head / a.heads_per_kv;
  // The last tokens of a prompt see most: their blocks come first.
  const aa_i64 token = (AA_GROUP_COUNT(1) - 1 - AA_GROUP_ID(1)) * Shape::kRows;

  aa_grid_launch_next();
  aa_grid_wait();
  aa_i32 my_first = 0, my_end = 0, my_sequence = AA_NO_SEQUENCE;
  if (id < Shape::kRows) {
    if (token + id < a.tokens) {
      const aa_i64 b = sequence[(token + id) * a.sequence_stride];
      const aa_i64 position = positions[(token + id) * a.position_stride];
      const aa_i64 first = aa_first_slot(position, a.window), end = aa_end_slot(position, a.slots);
      if (b >= 0 && b < a.sequences && first < end) {
        my_sequence = (aa_i32)b;
        my_first = (aa_i32)first;
        my_end = (aa_i32)end;
      }
    }
    local.first[id] = my_first;
    local.end[id] = my_end;
    local.sequence[id] = my_sequence;
  }
  if (id == 0) local.numbers[AA_LAST_NOT_FINITE] = 0;
  aa_take_rows<kSize>(local.queries, q, token, head, a);

  float sums[kRowTiles][Shape::kColumns][4];
  float largest[kRowTiles][2], total[kRowTiles][2];
  AA_PRAGMA_UNROLL for (int m = 0; m < kRowTiles; ++m) {
    AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kColumns; ++n) {
      AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
    }
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      largest[m][half] = AA_MINUS_INFINITY;
      total[m][half] = 0.0f;
    }
  }
  const float cap_factor = a.softcap > 0.0f ? 2.0f * AA_LOG2_E * a.scale / a.softcap : 0.0f;
  const float factor = a.softcap > 0.0f ? AA_LOG2_E : AA_LOG2_E * a.scale;
  const aa_i32 row0 = AA_WARP * 16 * kRowTiles + lane / 4;
  // Rows beyond the tokens are not stored: what they see does not matter.
  const bool is_token = id < Shape::kRows && token + id < a.tokens;

  aa_i32 now = -1;
  for (;;) {
    // The next sequence, in rising order, and what its rows see: from the first slot of any to the last of any, and, within,
    // the slots that all see.
    const bool later = my_sequence != AA_NO_SEQUENCE && my_sequence > now;
    now = aa_block_smallest(later ? my_sequence : AA_NO_SEQUENCE, local.numbers);
    if (now == AA_NO_SEQUENCE) break;
    const bool mine = my_sequence == now;
    const aa_i32 first = aa_block_smallest(mine ? my_first : AA_NO_SEQUENCE, local.numbers);
    const aa_i32 end = -aa_block_smallest(mine ? -my_end : 0, local.numbers);
    const aa_i32 all_first = -aa_block_smallest(mine ? -my_first : 0, local.numbers);
    const aa_i32 all_end = aa_block_smallest(mine ? my_end : is_token ? 0 : AA_NO_SEQUENCE, local.numbers);
    if (id == 0) {
      local.numbers[AA_ALL_FIRST] = all_first;
      local.numbers[AA_ALL_END] = all_end;
      local.numbers[AA_ANY_FIRST] = first;
    }
    // The same for the warp's own rows.
    {
      const aa_i32 row = AA_WARP * 16 * kRowTiles + lane % (16 * kRowTiles);
      const bool in_pass = local.sequence[row] == now;
      const aa_i32 warp_first = aa_warp_smallest(in_pass ? local.first[row] : AA_NO_SEQUENCE);
      const aa_i32 warp_end = -aa_warp_smallest(in_pass ? -local.end[row] : 0);
      const aa_i32 warp_all_first = -aa_warp_smallest(in_pass ? -local.first[row] : 0);
      const aa_i32 warp_all_end =
          aa_warp_smallest(in_pass ? local.end[row] : token + row < a.tokens ? 0 : AA_NO_SEQUENCE);
      if (lane == 0) {
        local.numbers[AA_OF_WARP] = warp_first;
        local.numbers[AA_OF_WARP + 1] = warp_end;
        local.numbers[AA_OF_WARP + 2] = warp_all_first;
        local.numbers[AA_OF_WARP + 3] = warp_all_end;
      }
    }

    aa_i32 stage = 0;
    aa_i32 slot0 = first / kSlots * kSlots;
    // The address of this thread's first chunk in the next tile.
    const aa_i64 my_slot = slot0 + id / 8;
    aa_i64 k_at = (now * a.k_stride[0] + kv_head * a.k_stride[1] + my_slot * a.k_stride[2] + id % 8 * 8) * 2;
    aa_i64 v_at = (now * a.v_stride[0] + kv_head * a.v_stride[1] + my_slot * a.v_stride[2] + id % 8 * 8) * 2;
    aa_take_tile<kSize>(local.keys, k, k_at, a.k_stride[2] * 32, slot0, first, end);
    aa_take_tile<kSize>(local.values, v, v_at, a.v_stride[2] * 32, slot0, first, end);
    aa_async_commit();
    for (; slot0 < end; slot0 += kSlots) {
      aa_async_wait(0);
      AA_BARRIER();  // the tile is there for all, and all are done with the one before
      const aa_u8* const keys = local.keys + stage * Shape::kTileBytes;
      aa_u8* const values = local.values + stage * Shape::kTileBytes;
      stage ^= 1;
      if (slot0 + kSlots < end) {
        k_at += a.k_stride[2] * (2 * kSlots);
        v_at += a.v_stride[2] * (2 * kSlots);
        const aa_i32 any_first = local.numbers[AA_ANY_FIRST];
        aa_take_tile<kSize>(local.keys + stage * Shape::kTileBytes, k, k_at, a.k_stride[2] * 32, slot0 + kSlots, any_first, end);
        aa_take_tile<kSize>(local.values + stage * Shape::kTileBytes, v, v_at, a.v_stride[2] * 32, slot0 + kSlots, any_first,
                            end);
        aa_async_commit();
      }

      const bool seen = slot0 < local.numbers[AA_OF_WARP + 1] && slot0 + kSlots > local.numbers[AA_OF_WARP];
      aa_u32 weights[kRowTiles][kSlots / 16][4];
      if (seen) {
        float scores[kRowTiles][kSlotTiles][4];
        aa_multiply_keys<kSize>(scores, local.queries, keys);
        if (a.softcap > 0.0f) {
          AA_PRAGMA_UNROLL for (int m = 0; m < kRowTiles; ++m) {
            AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
              AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) scores[m][n][e] = aa_capped(scores[m][n][e], cap_factor, a.softcap);
            }
          }
        }
        if (slot0 < local.numbers[AA_OF_WARP + 2] || slot0 + kSlots > local.numbers[AA_OF_WARP + 3]) {
          AA_PRAGMA_UNROLL for (int m = 0; m < kRowTiles; ++m) {
            AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
              const aa_i32 row = row0 + 16 * m + 8 * half;
              const bool in_pass = local.sequence[row] == now;
              const aa_i32 from = local.first[row] - slot0 - lane % 4 * 2;
              const aa_i32 to = (in_pass ? local.end[row] : 0) - slot0 - lane % 4 * 2;
              AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
                AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
                  const bool hidden = (8 * n + e < from) | (8 * n + e >= to);
                  scores[m][n][2 * half + e] = hidden ? AA_MINUS_INFINITY : scores[m][n][2 * half + e];
                }
              }
            }
          }
        }
        AA_PRAGMA_UNROLL for (int m = 0; m < kRowTiles; ++m) {
          AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
            float next = largest[m][half];
            AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
              next = aa_fmax(next, aa_fmax(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
            }
            next = aa_fmax(next, aa_shuffle_xor(next, 1));
            next = aa_fmax(next, aa_shuffle_xor(next, 2));
            const float anchor = next == AA_MINUS_INFINITY ? 0.0f : next;
            float base = anchor * factor;
            const float rescale = aa_exp2((largest[m][half] - anchor) * factor);
            largest[m][half] = next;
            if (aa_fabs(base) > AA_LARGE_BASE) {
              AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
                scores[m][n][2 * half] -= anchor;
                scores[m][n][2 * half + 1] -= anchor;
              }
              base = 0.0f;
            }
            float sum = 0.0f;
            AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
              AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
                const float weight = aa_exp2(aa_fma(scores[m][n][2 * half + e], factor, -base));
                scores[m][n][2 * half + e] = weight;
                sum += weight;
              }
            }
            total[m][half] = total[m][half] * rescale + sum;
            AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kColumns; ++n) {
              sums[m][n][2 * half] *= rescale;
              sums[m][n][2 * half + 1] *= rescale;
            }
          }
          AA_PRAGMA_UNROLL for (int n = 0; n < kSlotTiles; ++n) {
            weights[m][n / 2][n % 2 * 2] = AA_PACK_W(scores[m][n][0], scores[m][n][1]);
            weights[m][n / 2][n % 2 * 2 + 1] = AA_PACK_W(scores[m][n][2], scores[m][n][3]);
          }
        }
      }
      if (slot0 < local.numbers[AA_ALL_FIRST] || slot0 + kSlots > local.numbers[AA_ALL_END]) {
        if (aa_find_not_finite<kSize>(values)) local.numbers[AA_LAST_NOT_FINITE] = slot0 + 1;
        AA_BARRIER();
        if (local.numbers[AA_LAST_NOT_FINITE] == slot0 + 1) aa_add_not_finite<kSize>(sums, values, slot0, now, local);
      }
      if (seen) aa_multiply_values<kSize>(sums, weights, values);
    }
    AA_BARRIER();  // all are done with both tiles
  }

  // Through the warp's own rows of the queries' memory, so that whole chunks are stored.
  AA_PRAGMA_UNROLL for (int m = 0; m < kRowTiles; ++m) {
    AA_PRAGMA_UNROLL for (int half = 0; half < 2; ++half) {
      float all = total[m][half];
      all += aa_shuffle_xor(all, 1);
      all += aa_shuffle_xor(all, 2);
      const float scale = all == 0.0f ? 0.0f : 1.0f / all;
      AA_PRAGMA_UNROLL for (int n = 0; n < Shape::kColumns; ++n) {
        *(aa_u32*)(local.queries + aa_chunk(row0 + 16 * m + 8 * half, n, Shape::kRowBytes) + lane % 4 * 4) =
            AA_PACK_W(sums[m][n][2 * half] * scale, sums[m][n][2 * half + 1] * scale);
      }
    }
  }
  AA_WARP_SYNC();
  for (aa_i32 i = lane; i < 16 * kRowTiles * Shape::kColumns; i += 32) {
    const aa_i32 row = AA_WARP * 16 * kRowTiles + i / Shape::kColumns, chunk = i % Shape::kColumns;
    if (token + row >= a.tokens) continue;
    aa_store16(out, ((token + row) * a.out_stride[0] + head * a.out_stride[1] + 8 * chunk) * 2,
               *(const aa_u32x4*)(local.queries + aa_chunk(row, chunk, Shape::kRowBytes)));
  }
}

#define AA_PREFILL_KERNEL(size, blocks)                                                                                  \
  AA_TUNED_KERNEL(AA_NAME_W(prefill_attention_##size), AA_PREFILL_THREADS, blocks)                                       \
  (AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence, AA_IN(aa_i32) positions,       \
   aa_tuned_attention a) {                                                                                               \
    AA_DYNAMIC_LOCAL(memory);                                                                                            \
    aa_prefill<size>(out, q, k, v, sequence, positions, a, memory);                                                      \
  }                                                                                                                      \
  AA_REGISTER_TUNED(AA_NAME_W(prefill_attention_##size), AA_PREFILL_THREADS)

#if !defined(AA_HEAD) || AA_HEAD == 64
AA_PREFILL_KERNEL(64, 2)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 80
AA_PREFILL_KERNEL(80, 2)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 96
AA_PREFILL_KERNEL(96, 2)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 128
AA_PREFILL_KERNEL(128, 2)
#endif
#if !defined(AA_HEAD) || AA_HEAD == 256
AA_PREFILL_KERNEL(256, 2)
#endif

#endif
