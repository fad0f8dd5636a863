// Attention: for each token and query head, softmax over the cache slots that the token sees, in one pass (blocks of slots; the
// sums so far are scaled when a block brings a larger score). Slots that it does not see are never read.
//
// A group makes `chunk` elements of one row of out, the whole row for the usual head sizes. Groups of several items take
// AA_GROUP_SIZE slots at a time: first each item has a slot and computes its score, then each item has elements of out.
//
// The including file defines the kernel's name, AA_ATTENTION; the types of elements aa_q_type (read as AA_X) and aa_key_type;
// and how element d, and AA_WIDE elements from d on, of a row of the keys (AA_KEY_AT, AA_KEY_WIDE) and of the values
// (AA_CACHED_AT, AA_CACHED_WIDE) are read. `a` is the kernel's aa_attention.
#ifndef ANYACCEL_KERNELS_ATTENTION_ROWS_H_
#define ANYACCEL_KERNELS_ATTENTION_ROWS_H_

#define AA_MINUS_INFINITY (-aa_float(0x7f800000u))

// Elements of a head that are read AA_WIDE at once, from the first on.
AA_FN aa_i64 aa_wide_part(aa_attention a) { return a.contiguous ? a.size & ~(aa_i64)(AA_WIDE - 1) : 0; }

// q times the key of one slot, as the softmax takes it.
AA_FN float aa_score(AA_IN(aa_q_type) q, aa_i64 q_at, AA_IN(aa_key_type) k, aa_i64 k_at, aa_attention a) {
  aa_wide running = aa_wide_all(0.0f);
  const aa_i64 wide_part = aa_wide_part(a);
  for (aa_i64 d = 0; d < wide_part; d += AA_WIDE) {
    running = aa_wide_fma(AA_LOAD_WIDE(AA_X, q, q_at + d), AA_KEY_WIDE(k, k_at, d), running);
  }
  float score = aa_wide_sum(running);
  for (aa_i64 d = wide_part; d < a.size; ++d) {
    score += AA_LOAD(AA_X, q, q_at + d * a.q_stride[2]) * AA_KEY_AT(k, k_at, d);
  }
  score *= a.scale;
  return a.softcap > 0.0f ? a.softcap * aa_tanh(score / a.softcap) : score;
}

// The weight of a score, and the factor for sums made with an earlier maximum; 0 for a score of -infinity.
AA_FN float aa_weight(float score, float largest) {
  return score == AA_MINUS_INFINITY ? 0.0f : aa_exp(score - largest);
}

AA_FN float aa_mean(float sum, float total) { return total == 0.0f ? 0.0f : sum / total; }

// The token and head of a group, and the slots that they see: [begin, end). A sequence number or position out of range sees
// only what there is.
#define AA_ATTENTION_ROW                                                                   \
  const aa_i64 head = AA_GROUP_ID(0) / a.tokens;                                           \
  const aa_i64 token = AA_GROUP_ID(0) - head * a.tokens;                                   \
  const aa_i64 b = sequence[token * a.sequence_stride];                                    \
  const aa_i64 position = positions[token * a.position_stride];                            \
  const aa_i64 begin = a.window > 0 && position >= a.window ? position - a.window + 1 : 0; \
  const aa_i64 last = position < a.slots ? position + 1 : a.slots;                         \
  const aa_i64 end = b >= 0 && b < a.sequences ? last : begin;                             \
  const aa_i64 q_at = token * a.q_stride[0] + head * a.q_stride[1];                        \
  const aa_i64 k_at = b * a.k_stride[0] + head / a.heads_per_kv * a.k_stride[1];           \
  const aa_i64 v_at = b * a.v_stride[0] + head / a.heads_per_kv * a.v_stride[1];           \
  const aa_i64 out_at = token * a.out_stride[0] + head * a.out_stride[1];                  \
  const aa_i64 d_begin = AA_GROUP_ID(1) * a.chunk;                                         \
  const aa_i64 d_end = d_begin + a.chunk < a.size ? d_begin + a.chunk : a.size;            \
  const float slope = a.has_slopes != 0 ? slopes[head * a.slope_stride] : 0.0f;

#if AA_GROUP_SIZE == 1

// Slots of a block.
#define AA_SLOTS 16

AA_KERNEL(AA_ATTENTION, 1)
(AA_OUT(void) out, AA_IN(aa_q_type) q, AA_IN(aa_key_type) k, AA_IN(void) v, AA_IN(aa_i32) sequence,
 AA_IN(aa_i32) positions, AA_IN(float) slopes, AA_IN(float) sinks, AA_VALUE(aa_attention) a) {
  AA_ATTENTION_ROW
  // The elements of out: first whole aa_wides, then single ones.
  const aa_i64 wide_end = d_end < aa_wide_part(a) ? d_end : aa_wide_part(a);
  const aa_i64 wides = wide_end > d_begin ? (wide_end - d_begin) / AA_WIDE : 0;
  const aa_i64 rest_begin = d_begin + wides * AA_WIDE;
  aa_wide sums[AA_ATTENTION_CHUNK / AA_WIDE];
  float rest[AA_ATTENTION_STRIDED_CHUNK];
  for (aa_i64 i = 0; i < wides; ++i) sums[i] = aa_wide_all(0.0f);
  for (aa_i64 i = rest_begin; i < d_end; ++i) rest[i - rest_begin] = 0.0f;

  float largest = a.has_sinks != 0 ? sinks[head * a.sink_stride] : AA_MINUS_INFINITY;
  float total = a.has_sinks != 0 ? 1.0f : 0.0f;
  for (aa_i64 j0 = begin; j0 < end; j0 += AA_SLOTS) {
    const aa_i32 count = (aa_i32)(end - j0 < AA_SLOTS ? end - j0 : AA_SLOTS);
    float weight[AA_SLOTS];
    float new_largest = largest;
    for (aa_i32 j = 0; j < count; ++j) {
      weight[j] = aa_score(q, q_at, k, k_at + (j0 + j) * a.k_stride[2], a) + slope * (float)(j0 + j - position);
      new_largest = aa_fmax(new_largest, weight[j]);
    }
    const float factor = aa_weight(largest, new_largest);
    largest = new_largest;
    total *= factor;
    for (aa_i32 j = 0; j < count; ++j) {
      weight[j] = aa_weight(weight[j], largest);
      total += weight[j];
    }
    const aa_i64 at = v_at + j0 * a.v_stride[2];
    for (aa_i64 i = 0; i < wides; ++i) {
      aa_wide sum = aa_wide_fma(sums[i], aa_wide_all(factor), aa_wide_all(0.0f));
      for (aa_i32 j = 0; j < count; ++j) {
        sum =
            aa_wide_fma(aa_wide_all(weight[j]), AA_CACHED_WIDE(v, at + j * a.v_stride[2], d_begin + i * AA_WIDE), sum);
      }
      sums[i] = sum;
    }
    for (aa_i64 d = rest_begin; d < d_end; ++d) {
      float sum = rest[d - rest_begin] * factor;
      for (aa_i32 j = 0; j < count; ++j) {
        sum += weight[j] * AA_CACHED_AT(v, at + j * a.v_stride[2], d);
      }
      rest[d - rest_begin] = sum;
    }
  }

  for (aa_i64 i = 0; i < wides; ++i) {
    for (int j = 0; j < AA_WIDE; ++j) {
      aa_store(out, a.out_dtype, out_at + (d_begin + i * AA_WIDE + j) * a.out_stride[2],
               aa_mean(aa_wide_get(sums[i], j), total));
    }
  }
  for (aa_i64 d = rest_begin; d < d_end; ++d) {
    aa_store(out, a.out_dtype, out_at + d * a.out_stride[2], aa_mean(rest[d - rest_begin], total));
  }
}
AA_REGISTER(AA_ATTENTION, 1)

#else

AA_KERNEL(AA_ATTENTION, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(aa_q_type) q, AA_IN(aa_key_type) k, AA_IN(void) v, AA_IN(aa_i32) sequence,
 AA_IN(aa_i32) positions, AA_IN(float) slopes, AA_IN(float) sinks, AA_VALUE(aa_attention) a) {
  AA_SCRATCH(scratch);
  AA_LOCAL_ARRAY(float, weights, AA_GROUP_SIZE);
  const aa_i32 id = AA_LOCAL_ID;
  AA_ATTENTION_ROW
  // If the chunk has fewer elements than the group has items, several items share an element: each takes every
  // slices-th slot.
  aa_i32 width = AA_GROUP_SIZE;
  while (width > 1 && width / 2 >= d_end - d_begin) width /= 2;
  const aa_i32 slices = AA_GROUP_SIZE / width;
  const aa_i32 slice = id / width;
  const aa_i64 d0 = d_begin + (id & (width - 1));
  float sums[AA_ATTENTION_PER_ITEM];
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_ATTENTION_PER_ITEM; ++i) sums[i] = 0.0f;

  float largest = a.has_sinks != 0 ? sinks[head * a.sink_stride] : AA_MINUS_INFINITY;
  float total = a.has_sinks != 0 ? 1.0f : 0.0f;
  for (aa_i64 j0 = begin; j0 < end; j0 += AA_GROUP_SIZE) {
    const aa_i32 count = (aa_i32)(end - j0 < AA_GROUP_SIZE ? end - j0 : AA_GROUP_SIZE);
    float score = AA_MINUS_INFINITY;
    if (id < count) {
      score = aa_score(q, q_at, k, k_at + (j0 + id) * a.k_stride[2], a) + slope * (float)(j0 + id - position);
    }
    const float new_largest = aa_fmax(largest, aa_group_max(score, scratch, id));
    const float weight = aa_weight(score, new_largest);
    const float factor = aa_weight(largest, new_largest);
    largest = new_largest;
    weights[id] = weight;
    total = total * factor + aa_group_sum(weight, scratch, id);
    AA_BARRIER();
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_ATTENTION_PER_ITEM; ++i) {
      const aa_i64 d = d0 + i * AA_GROUP_SIZE;
      if (d < d_end) {
        float sum = sums[i] * factor;
        for (aa_i32 j = slice; j < count; j += slices) {
          sum += weights[j] * AA_CACHED_AT(v, v_at + (j0 + j) * a.v_stride[2], d);
        }
        sums[i] = sum;
      }
    }
    AA_BARRIER();
  }

  AA_PRAGMA_UNROLL for (int i = 0; i < AA_ATTENTION_PER_ITEM; ++i) {
    const aa_i64 d = d0 + i * AA_GROUP_SIZE;
    weights[id] = sums[i];
    AA_BARRIER();
    if (slice == 0 && d < d_end) {
      float sum = weights[id];
      for (aa_i32 s = 1; s < slices; ++s) sum += weights[id + s * width];
      aa_store(out, a.out_dtype, out_at + d * a.out_stride[2], aa_mean(sum, total));
    }
    AA_BARRIER();
  }
}
AA_REGISTER(AA_ATTENTION, AA_GROUP_SIZE)

#endif

#endif  // ANYACCEL_KERNELS_ATTENTION_ROWS_H_
