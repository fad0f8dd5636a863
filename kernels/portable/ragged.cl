// Batches of sequences of different lengths, a paged cache, and mixtures of experts (anyaccel/ops/ragged_ops.h).
#include "dialect.h"
#include "ragged_arguments.h"

// The slot of position p of a sequence in a cache, as (block number) * block + offset; -1: none.
AA_FN aa_i64 aa_cache_place(AA_IN(aa_i32) kv_blocks, aa_i64 sequence, aa_i64 p, aa_i64 block, aa_i64 max_blocks,
                            aa_i64 cache_blocks) {
  aa_i64 place = -1;
  if (p >= 0 && p / block < max_blocks) {
    const aa_i64 number = kv_blocks[sequence * max_blocks + p / block];
    if (number >= 0 && number < cache_blocks) place = number * block + p % block;
  }
  return place;
}

// An item has a head of a token: heads of q first, then those of k and v. `frequencies` may be null.
AA_KERNEL(ragged_kv, AA_ITEMS)
(AA_OUT(void) cache, AA_OUT(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(float) frequencies, AA_IN(aa_i32) seqs,
 AA_IN(aa_i32) tokens_to_seq, AA_IN(aa_i32) kv_blocks, AA_VALUE(aa_ragged) s) {
  const aa_i64 heads = s.q_heads + s.kv_heads;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.tokens * heads) {
    const aa_i64 token = item / heads;
    const aa_i64 head = item % heads;
    const aa_i64 sequence = tokens_to_seq[token];
    if (sequence >= 0 && sequence < s.sequences) {
      const aa_i64 position = (aa_i64)seqs[4 * sequence + 2] + token - seqs[4 * sequence];
      const aa_i64 pairs = s.rotated / 2;
      const aa_i64 is_q = head < s.q_heads;
      const aa_i64 kv_head = head - s.q_heads;
      const aa_i64 from = is_q ? (token * s.q_heads + head) * s.size : (token * s.kv_heads + kv_head) * s.size;
      const aa_i64 place =
          is_q ? 0 : aa_cache_place(kv_blocks, sequence, position, s.block, s.max_blocks, s.cache_blocks);
      const aa_i64 to = (place * 2 * s.kv_heads + kv_head) * s.size;
      if (place >= 0) {
        for (aa_i64 j = 0; j < pairs; ++j) {
          const float frequency =
              s.log_theta != 0.0f ? aa_exp(-s.log_theta * (float)(2 * j) / (float)s.rotated) : frequencies[j];
          const float angle = (float)position * frequency;
          const float c = aa_cos(angle);
          const float n = aa_sin(angle);
          if (is_q) {
            const float x = aa_load(q, s.dtype, from + j);
            const float y = aa_load(q, s.dtype, from + pairs + j);
            aa_store(q, s.dtype, from + j, x * c - y * n);
            aa_store(q, s.dtype, from + pairs + j, y * c + x * n);
          } else {
            const float x = aa_load(k, s.dtype, from + j);
            const float y = aa_load(k, s.dtype, from + pairs + j);
            aa_store(cache, s.dtype, to + j, x * c - y * n);
            aa_store(cache, s.dtype, to + pairs + j, y * c + x * n);
          }
        }
        if (!is_q) {
          for (aa_i64 j = s.rotated; j < s.size; ++j) aa_store(cache, s.dtype, to + j, aa_load(k, s.dtype, from + j));
          for (aa_i64 j = 0; j < s.size; ++j) {
            aa_store(cache, s.dtype, to + s.kv_heads * s.size + j, aa_load(v, s.dtype, from + j));
          }
        }
      }
    }
  }
}
AA_REGISTER(ragged_kv, AA_ITEMS)

// ---- attention: a group has a head of a query, and takes AA_KEYS positions at a time -----------------------------------

#if AA_GROUP_SIZE == 1
#define AA_KEYS 16
#else
#define AA_KEYS AA_GROUP_SIZE
#endif
#define AA_SUMS ((AA_MOST_HEAD_SIZE + AA_GROUP_SIZE - 1) / AA_GROUP_SIZE)
#define AA_LOWEST (-aa_float(0x7f800000u))

AA_KERNEL(ragged_attention, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k_cache, AA_IN(void) v_cache, AA_IN(aa_i32) atoms, AA_IN(aa_i32) kv_blocks,
 AA_VALUE(aa_atoms) s) {
  AA_SCRATCH(scratch);
  AA_LOCAL_ARRAY(float, weights, AA_KEYS);
  AA_LOCAL_ARRAY(aa_i64, places, AA_KEYS);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 head = AA_GROUP_ID(0) % s.heads;
  const aa_i64 query = AA_GROUP_ID(0) / s.heads % s.q_most;
  const aa_i64 atom = AA_GROUP_ID(0) / s.heads / s.q_most;
  const aa_i64 sequence = atoms[8 * atom];
  const aa_i64 row = atoms[8 * atom + 1] + query;
  const aa_i64 kv_head = head / s.heads_per_kv;
  const aa_i64 q_at = (row * s.heads + head) * s.size;
  const aa_i64 extent = atoms[8 * atom + 4];
  const aa_i64 own = (aa_i64)atoms[8 * atom + 5] + query + 1;
  // All items of a group have the same answers here, so they stay together at the barriers.
  const aa_i64 there = query < atoms[8 * atom + 2] && row >= 0 && row < s.q_rows && sequence >= 0 && sequence < s.sequences;
  const aa_i64 limit = s.causal && own < extent ? own : extent;
  const aa_i64 end = there ? limit : 0;
  float sums[AA_SUMS];
  for (int i = 0; i < AA_SUMS; ++i) sums[i] = 0.0f;
  float largest = AA_LOWEST;
  float total = 0.0f;
  for (aa_i64 first = 0; first < end; first += AA_KEYS) {
    const aa_i64 count = end - first < AA_KEYS ? end - first : AA_KEYS;
    float part_largest = AA_LOWEST;
    for (aa_i64 j = id; j < count; j += AA_GROUP_SIZE) {
      const aa_i64 place = aa_cache_place(kv_blocks, sequence, first + j, s.block, s.max_blocks, s.cache_blocks);
      float score = AA_LOWEST;
      if (place >= 0) {
        score = 0.0f;
        const aa_i64 k_at = place / s.block * s.k_stride[0] + place % s.block * s.k_stride[1] + kv_head * s.k_stride[2];
        for (aa_i64 d = 0; d < s.size; ++d) {
          score = aa_fma(aa_load(q, s.dtype, q_at + d), aa_load(k_cache, s.dtype, k_at + d), score);
        }
        score *= s.scale;
      }
      weights[j] = score;
      places[j] = place < 0 ? -1 : place / s.block * s.v_stride[0] + place % s.block * s.v_stride[1] + kv_head * s.v_stride[2];
      part_largest = aa_fmax(part_largest, score);
    }
    part_largest = aa_group_max(part_largest, scratch, id);
    const float next = aa_fmax(largest, part_largest);
    const float shift = next == AA_LOWEST ? 0.0f : next;
    const float factor = aa_exp(largest - shift);
    largest = next;
    float part_total = 0.0f;
    for (aa_i64 j = id; j < count; j += AA_GROUP_SIZE) {
      weights[j] = aa_exp(weights[j] - shift);
      part_total += weights[j];
    }
    total = total * factor + aa_group_sum(part_total, scratch, id);
    AA_BARRIER();
    for (int i = 0; i < AA_SUMS; ++i) {
      const aa_i64 d = id + (aa_i64)i * AA_GROUP_SIZE;
      if (d < s.size) {
        float sum = sums[i] * factor;
        for (aa_i64 j = 0; j < count; ++j) {
          if (places[j] >= 0) {
            sum = aa_fma(weights[j], aa_load(v_cache, s.dtype, places[j] + d), sum);
          }
        }
        sums[i] = sum;
      }
    }
    AA_BARRIER();
  }
  if (there) {
    for (int i = 0; i < AA_SUMS; ++i) {
      const aa_i64 d = id + (aa_i64)i * AA_GROUP_SIZE;
      if (d < s.size) aa_store(out, s.dtype, q_at + d, total == 0.0f ? 0.0f : sums[i] / total);
    }
  }
}
AA_REGISTER(ragged_attention, AA_GROUP_SIZE)

// ---- rows ---------------------------------------------------------------------------------------------------------------

AA_KERNEL(ragged_embed, AA_ITEMS)
(AA_OUT(void) out, AA_IN(aa_i32) ids, AA_IN(void) table, AA_IN(void) position_table, AA_IN(aa_i32) seqs,
 AA_IN(aa_i32) tokens_to_seq, AA_VALUE(aa_ragged_rows) s) {
  const aa_i64 pieces = (s.columns + s.piece - 1) / s.piece;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.tokens * pieces) {
    const aa_i64 token = item / pieces;
    const aa_i64 begin = item % pieces * s.piece;
    const aa_i64 end = begin + s.piece < s.columns ? begin + s.piece : s.columns;
    // The lower half of a number of 8 bytes comes first, and its upper half is 0 for an id.
    const aa_i64 id = s.wide_ids ? (ids[2 * token + 1] == 0 ? (aa_i64)(aa_u32)ids[2 * token] : -1) : ids[token];
    const aa_i64 sequence = tokens_to_seq[token];
    if (id >= 0 && id < s.rows && sequence >= 0 && sequence < s.sequences) {
      aa_i64 position = (aa_i64)seqs[4 * sequence + 2] + token - seqs[4 * sequence] + s.position_offset;
      position = position < 0 ? 0 : position >= s.positions ? s.positions - 1 : position;
      for (aa_i64 j = begin; j < end; ++j) {
        float value = aa_load(table, s.dtype, id * s.columns + j);
        if (s.positions > 0) value += aa_load(position_table, s.dtype, position * s.columns + j);
        aa_store(out, s.dtype, token * s.columns + j, value);
      }
    }
  }
}
AA_REGISTER(ragged_embed, AA_ITEMS)

AA_KERNEL(ragged_last_rows, AA_ITEMS)(AA_OUT(void) out, AA_IN(void) x, AA_IN(aa_i32) seqs, AA_VALUE(aa_ragged_rows) s) {
  const aa_i64 pieces = (s.columns + s.piece - 1) / s.piece;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.sequences * pieces) {
    const aa_i64 sequence = item / pieces;
    const aa_i64 begin = item % pieces * s.piece;
    const aa_i64 end = begin + s.piece < s.columns ? begin + s.piece : s.columns;
    const aa_i64 row = (aa_i64)seqs[4 * sequence] + seqs[4 * sequence + 1] - 1;
    if (row >= 0 && row < s.rows) {
      for (aa_i64 j = begin; j < end; ++j) {
        aa_store(out, s.dtype, sequence * s.columns + j, aa_load(x, s.dtype, row * s.columns + j));
      }
    }
  }
}
AA_REGISTER(ragged_last_rows, AA_ITEMS)

// ---- experts ------------------------------------------------------------------------------------------------------------

// An item has a token.
AA_KERNEL(ragged_top_k, AA_ITEMS)
(AA_OUT(float) scores, AA_OUT(aa_i32) experts, AA_OUT(aa_i32) offsets, AA_IN(void) logits, AA_VALUE(aa_experts) s) {
  const aa_i64 token = AA_ITEM_ID;
  if (token < s.rows) {
    if (token >= s.tokens) {
      for (aa_i64 j = 0; j < s.k; ++j) {
        scores[token * s.k + j] = 0.0f;
        experts[token * s.k + j] = -1;
        offsets[token * s.k + j] = -1;
      }
    } else {
      aa_i32 chosen[AA_MOST_CHOICES];
      float largest = 0.0f;
      for (aa_i64 j = 0; j < s.k; ++j) {
        aa_i64 best = -1;
        float most = 0.0f;
        for (aa_i64 e = 0; e < s.experts; ++e) {
          const float value = aa_load(logits, s.dtype, token * s.experts + e);
          aa_i64 taken = 0;
          for (aa_i64 i = 0; i < j; ++i) taken = taken || chosen[i] == e;
          if (!taken && (best < 0 || value > most)) {
            best = e;
            most = value;
          }
        }
        chosen[j] = (aa_i32)best;
        if (j == 0) largest = most;
      }
      float total = 0.0f;
      for (aa_i64 e = 0; e < s.experts; ++e) {
        total += aa_exp(aa_load(logits, s.dtype, token * s.experts + e) - largest);
      }
      for (aa_i64 j = 0; j < s.k; ++j) {
        scores[token * s.k + j] = aa_exp(aa_load(logits, s.dtype, token * s.experts + chosen[j]) - largest) / total;
        experts[token * s.k + j] = chosen[j];
      }
    }
  }
}
AA_REGISTER(ragged_top_k, AA_ITEMS)

// An item has an expert: its tokens are counted in their order, which does not depend on how many items run.
AA_KERNEL(ragged_expert_counts, AA_ITEMS)
(AA_OUT(aa_i32) counts, AA_OUT(aa_i32) offsets, AA_IN(aa_i32) experts, AA_VALUE(aa_experts) s) {
  const aa_i64 expert = AA_ITEM_ID;
  if (expert < s.experts) {
    aa_i32 count = counts[expert];
    for (aa_i64 i = 0; i < s.tokens * s.k; ++i) {
      if (experts[i] == expert) {
        offsets[i] = count;
        ++count;
      }
    }
    counts[expert] = count;
  }
}
AA_REGISTER(ragged_expert_counts, AA_ITEMS)

// An item has an expert: the tokens of all experts up to it.
AA_KERNEL(ragged_expert_sums, AA_ITEMS)
(AA_OUT(aa_i64) cumsum, AA_IN(aa_i32) counts, AA_VALUE(aa_experts) s) {
  const aa_i64 expert = AA_ITEM_ID;
  if (expert < s.experts) {
    aa_i64 sum = 0;
    for (aa_i64 e = 0; e <= expert; ++e) sum += counts[e];
    cumsum[expert] = sum;
  }
}
AA_REGISTER(ragged_expert_sums, AA_ITEMS)

// An item has a piece of a row of x for one of its experts.
AA_KERNEL(ragged_scatter, AA_ITEMS)
(AA_OUT(void) moe_input, AA_OUT(aa_i32) slots, AA_IN(void) x, AA_IN(aa_i64) cumsum, AA_IN(aa_i32) experts,
 AA_IN(aa_i32) offsets, AA_VALUE(aa_experts) s) {
  const aa_i64 pieces = (s.columns + s.piece - 1) / s.piece;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.rows * s.k * pieces) {
    const aa_i64 choice = item / pieces;
    const aa_i64 begin = item % pieces * s.piece;
    const aa_i64 end = begin + s.piece < s.columns ? begin + s.piece : s.columns;
    const aa_i64 expert = experts[choice];
    aa_i64 slot = -1;
    if (expert >= 0 && expert < s.experts && offsets[choice] >= 0) {
      slot = (expert > 0 ? cumsum[expert - 1] : 0) + offsets[choice];
      if (slot < 0 || slot >= s.rows * s.k) slot = -1;
    }
    if (begin == 0) slots[choice] = (aa_i32)slot;
    if (slot >= 0) {
      for (aa_i64 j = begin; j < end; ++j) {
        aa_store(moe_input, s.dtype, slot * s.columns + j, aa_load(x, s.dtype, choice / s.k * s.columns + j));
      }
    }
  }
}
AA_REGISTER(ragged_scatter, AA_ITEMS)

AA_KERNEL(ragged_gather, AA_ITEMS)
(AA_OUT(void) out, AA_IN(void) moe_output, AA_IN(float) scores, AA_IN(aa_i32) slots, AA_VALUE(aa_experts) s) {
  const aa_i64 pieces = (s.columns + s.piece - 1) / s.piece;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.rows * pieces) {
    const aa_i64 token = item / pieces;
    const aa_i64 begin = item % pieces * s.piece;
    const aa_i64 end = begin + s.piece < s.columns ? begin + s.piece : s.columns;
    float total = 0.0f;
    aa_i64 assigned = 0;
    for (aa_i64 j = 0; j < s.k; ++j) {
      const aa_i64 slot = slots[token * s.k + j];
      if (slot >= 0 && slot < s.rows * s.k) {
        ++assigned;
        total += scores[token * s.k + j];
      }
    }
    const float factor = s.normalize && total != 0.0f ? 1.0f / total : 1.0f;
    if (assigned > 0) {
      for (aa_i64 c = begin; c < end; ++c) {
        float sum = 0.0f;
        for (aa_i64 j = 0; j < s.k; ++j) {
          const aa_i64 slot = slots[token * s.k + j];
          if (slot >= 0 && slot < s.rows * s.k) {
            sum = aa_fma(scores[token * s.k + j] * factor, aa_load(moe_output, s.dtype, slot * s.columns + c), sum);
          }
        }
        aa_store(out, s.dtype, token * s.columns + c, sum);
      }
    }
  }
}
AA_REGISTER(ragged_gather, AA_ITEMS)
