// Ops that choose a token: argmax, repetition_penalty and sample. A group of AA_GROUP_SIZE items works on a row.
//
// sample sorts nothing. Tokens are ordered by a 32-bit key that rises with the logit; a token's distance is how far its key
// lies below the largest. Sums of weights over falling logits are searched by histograms of distances, 8 bits at a time, down
// to a single distance: the tokens there have equal logits, hence equal weights, and come in order of their index. Weights
// are whole numbers of 2^-40 of the largest, so that their sums are exact in any order; what is less counts as nothing.
#include "dialect.h"

#include "arguments.h"
#include "formats.h"
#include "philox.h"

// Rises with the value; a NaN is above all, -0 equals +0.
AA_FN aa_u32 aa_key(float v) {
  const aa_u32 u = aa_bits(v);
  if ((u & 0x7fffffffu) > AA_INFINITY_BITS) return 0xffffffffu;
  if ((u & 0x7fffffffu) == 0) return 0x80000000u;
  return (u >> 31) ? ~u : u | 0x80000000u;
}
// The value of a key that is not a NaN's.
AA_FN float aa_key_value(aa_u32 key) { return aa_float((key >> 31) ? key & 0x7fffffffu : ~key); }

// The largest key of a row; *best is the lowest index that has it. keys and places hold AA_GROUP_SIZE each.
AA_FN aa_u32 aa_row_argmax(AA_IN(void) x, aa_i32 dtype, aa_i64 base, aa_i64 inner, aa_i64 size, aa_i32 id,
                           AA_LOCAL aa_u32* keys, AA_LOCAL aa_i64* places, aa_i64* best) {
  aa_u32 largest = 0;
  aa_i64 place = size;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const aa_u32 key = aa_key(aa_load(x, dtype, base + i * inner));
    if (key > largest) {
      largest = key;
      place = i;
    }
  }
#if AA_GROUP_SIZE > 1
  keys[id] = largest;
  places[id] = place;
  AA_BARRIER();
  for (aa_i32 j = 0; j < AA_GROUP_SIZE; ++j) {
    if (keys[j] > largest || (keys[j] == largest && places[j] < place)) {
      largest = keys[j];
      place = places[j];
    }
  }
  AA_BARRIER();
#endif
  *best = place;
  return largest;
}

AA_KERNEL(argmax, AA_GROUP_SIZE)
(AA_OUT(void) out, aa_i64 out_step, AA_IN(void) x, aa_i64 x_row, aa_i64 x_inner, aa_i64 size, aa_i32 out_dtype,
 aa_i32 x_dtype) {
  AA_LOCAL_ARRAY(aa_u32, keys, AA_GROUP_SIZE);
  AA_LOCAL_ARRAY(aa_i64, places, AA_GROUP_SIZE);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  aa_i64 best;
  aa_row_argmax(x, x_dtype, row * x_row, x_inner, size, id, keys, places, &best);
  if (id == 0) aa_store_index(out, out_dtype, row * out_step, best);
}
AA_REGISTER(argmax, AA_GROUP_SIZE)

// What rounded to 16 bits gives what rounding the exact quotient or product once would give.
AA_FN float aa_penalised(float logit, float penalty, aa_i32 dtype) {
  const float nearest = logit > 0.0f ? logit / penalty : logit * penalty;
  if (dtype == AA_F32) return nearest;
  // The sign of what nearest lacks; penalty is above 0.
  const float missing = logit > 0.0f ? aa_fma(-nearest, penalty, logit) : aa_fma(logit, penalty, -nearest);
  return aa_round_to_odd(nearest, (missing > 0.0f) - (missing < 0.0f));
}

// logits and seen [R,V]; an item per element.
AA_KERNEL(repetition_penalty, AA_ITEMS)
(AA_OUT(void) logits, aa_i64 logit_row, aa_i64 logit_inner, AA_IN(aa_u8) seen, aa_i64 seen_row, aa_i64 seen_inner,
 aa_i64 rows, aa_i64 size, float penalty, aa_i32 dtype) {
  const aa_i64 number = AA_ITEM_ID;
  if (number < rows * size) {
    const aa_i64 row = number / size;
    const aa_i64 i = number - row * size;
    if (seen[row * seen_row + i * seen_inner]) {
      const aa_i64 at = row * logit_row + i * logit_inner;
      aa_store(logits, dtype, at, aa_penalised(aa_load(logits, dtype, at), penalty, dtype));
    }
  }
}
AA_REGISTER(repetition_penalty, AA_ITEMS)

// ---- sample --------------------------------------------------------------------------------------------------------------

// Weight of the largest logit. e^-28 of it is less than 1.
#define AA_ONE ((aa_u64)1 << 40)
#define AA_FAR 28.0f

// A histogram is three arrays of AA_BINS: numbers of tokens, and low and high words of sums of weights. Its first bin holds
// the smallest distances.
#define AA_BINS 256
#define AA_BIN_WEIGHT(bins, b) (((aa_u64)(bins)[2 * AA_BINS + (b)] << 32) + (bins)[AA_BINS + (b)])

// A row of finite largest logit.
typedef struct aa_candidates {
  aa_i64 base;
  aa_i64 inner;
  aa_i64 size;
  float top;
  float temperature;
  aa_u32 top_key;
  aa_u32 farthest; /* tokens at larger distances weigh nothing and count nowhere */
  aa_i32 dtype;
} aa_candidates;

AA_FN aa_u64 aa_weight(aa_candidates c, float logit) {
  if (logit == c.top) return AA_ONE;
  return (aa_u64)(aa_exp((logit - c.top) / c.temperature) * 1099511627776.0f);
}

// The tokens at distances [first, first + (AA_BINS << shift)). Every item sees all of it when this returns.
AA_FN void aa_histogram(AA_IN(void) logits, aa_candidates c, aa_u32 first, aa_i32 shift, aa_i32 id, AA_LOCAL aa_u32* bins) {
  AA_BARRIER();
  for (aa_i32 b = id; b < 3 * AA_BINS; b += AA_GROUP_SIZE) bins[b] = 0;
  AA_BARRIER();
  for (aa_i64 i = id; i < c.size; i += AA_GROUP_SIZE) {
    const float logit = aa_load(logits, c.dtype, c.base + i * c.inner);
    const aa_u32 distance = c.top_key - aa_key(logit);
    const aa_u32 b = (distance - first) >> shift;
    if (distance <= c.farthest && distance >= first && b < AA_BINS) {
      const aa_u64 weight = aa_weight(c, logit);
      const aa_u32 low = (aa_u32)weight;
      const aa_u32 before = aa_atomic_add_local(&bins[AA_BINS + b], low);
      const aa_u32 high = (aa_u32)(weight >> 32) + (before + low < before ? 1u : 0u);
      if (high) aa_atomic_add_local(&bins[2 * AA_BINS + b], high);
      aa_atomic_add_local(&bins[b], 1u);
    }
  }
  AA_BARRIER();
}

// A token in the order of falling probability, lower index first among equals.
typedef struct aa_ranked {
  aa_u64 place;  /* among the tokens of its distance, from 0 */
  aa_u64 weight; /* of all tokens up to it, itself included */
  aa_u32 distance;
} aa_ranked;

// The first token with which the running number of tokens (by_count) or the running weight exceeds `limit`; the caller knows
// that there is one. `all` is the histogram of all candidates, with distances shifted by `shift`; `bins` is overwritten.
AA_FN aa_ranked aa_find(AA_IN(void) logits, aa_candidates c, aa_i32 by_count, aa_u64 limit, aa_i32 shift, aa_i32 id,
                        AA_LOCAL aa_u32* all, AA_LOCAL aa_u32* bins) {
  aa_ranked found;
  aa_u64 count = 0;
  aa_u64 here = 0;
  aa_u64 here_weight = 0;
  aa_i32 level = 0;
  found.distance = 0;
  found.weight = 0;
  for (;;) {
    if (level > 0) aa_histogram(logits, c, found.distance, shift, id, bins);
    aa_i32 b = 0;
    for (;;) {
      here = level > 0 ? bins[b] : all[b];
      here_weight = level > 0 ? AA_BIN_WEIGHT(bins, b) : AA_BIN_WEIGHT(all, b);
      if (b == AA_BINS - 1 || (by_count ? count + here : found.weight + here_weight) > limit) break;
      count += here;
      found.weight += here_weight;
      ++b;
    }
    found.distance += (aa_u32)b << shift;
    if (shift == 0) break;
    shift = shift > 8 ? shift - 8 : 0;
    ++level;
  }
  const aa_u64 each = here ? here_weight / here : 0;
  found.place = by_count ? limit - count : each ? (limit - found.weight) / each : 0;
  found.weight += (found.place + 1) * each;
  return found;
}

// floor(sum * share / 2^32), share at most 2^32; *cut tells whether anything was cut off.
AA_FN aa_u64 aa_share(aa_u64 sum, aa_u64 share, aa_i32* cut) {
  const aa_u64 low = (sum & 0xffffffffu) * share;
  *cut = (low & 0xffffffffu) != 0;
  return (sum >> 32) * share + (low >> 32);
}

// out [R], logits [R,V], rng [2], seen [R,V] or absent (seen_inner 0). V is at most 2^23.
AA_KERNEL(sample, AA_GROUP_SIZE)
(AA_OUT(void) out, aa_i64 out_step, AA_IN(void) logits, aa_i64 logit_row, aa_i64 logit_inner, AA_IN(aa_i64) rng,
 aa_i64 rng_step, AA_OUT(aa_u8) seen, aa_i64 seen_row, aa_i64 seen_inner, aa_i64 size, float temperature, float top_p,
 aa_i32 top_k, aa_i32 out_dtype, aa_i32 logit_dtype, aa_i32 has_seen) {
  AA_LOCAL_ARRAY(aa_u32, keys, AA_GROUP_SIZE);
  AA_LOCAL_ARRAY(aa_i64, places, AA_GROUP_SIZE);
  AA_LOCAL_ARRAY(aa_u32, all, 3 * AA_BINS);
  AA_LOCAL_ARRAY(aa_u32, bins, 3 * AA_BINS);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  aa_candidates c;
  c.base = row * logit_row;
  c.inner = logit_inner;
  c.size = size;
  c.dtype = logit_dtype;
  c.temperature = temperature;
  aa_i64 token;
  c.top_key = aa_row_argmax(logits, logit_dtype, c.base, logit_inner, size, id, keys, places, &token);
  c.top = aa_key_value(c.top_key);

  // A key between those of the infinities: the maximum is finite.
  if (temperature > 0.0f && c.top_key > 0x007fffffu && c.top_key < 0xff800000u) {
    c.farthest = c.top_key - aa_key(c.top - AA_FAR * temperature);
    aa_i32 shift = 0;
    while ((c.farthest >> shift) >= AA_BINS) ++shift;
    aa_histogram(logits, c, 0, shift, id, all);
    aa_u64 count = 0;
    aa_u64 total = 0;
    for (aa_i32 b = 0; b < AA_BINS; ++b) {
      count += all[b];
      total += AA_BIN_WEIGHT(all, b);
    }
    if (top_k > 0 && (aa_u64)top_k < count) {
      total = aa_find(logits, c, 1, (aa_u64)top_k - 1, shift, id, all, bins).weight;
    }
    aa_i32 cut;
    if (top_p < 1.0f) {
      // The first whose running sum reaches top_p * total.
      const aa_u64 reached = aa_share(total, (aa_u64)(top_p * 4294967296.0f), &cut);
      const aa_u64 limit = cut || reached == 0 ? reached : reached - 1;
      total = aa_find(logits, c, 0, limit, shift, id, all, bins).weight;
    }
    aa_u32 words[4];
    aa_philox((aa_u64)rng[0], (aa_u64)rng[rng_step] + (aa_u64)(row / 4), words);
    const aa_u32 word = (row & 2) ? ((row & 1) ? words[3] : words[2]) : (row & 1) ? words[1] : words[0];
    const aa_u64 limit = aa_share(total, (aa_u64)(word >> 8) << 8, &cut);
    const aa_ranked chosen = aa_find(logits, c, 0, limit, shift, id, all, bins);

    // Each item looks through a part of the row of its own.
    const aa_u32 chosen_key = c.top_key - chosen.distance;
    const aa_i64 part = (size + AA_GROUP_SIZE - 1) / AA_GROUP_SIZE;
    const aa_i64 begin = id * part;
    const aa_i64 end = begin + part < size ? begin + part : size;
    aa_u64 before = 0;
#if AA_GROUP_SIZE > 1
    aa_u32 mine = 0;
    for (aa_i64 i = begin; i < end; ++i) mine += aa_key(aa_load(logits, logit_dtype, c.base + i * logit_inner)) == chosen_key;
    keys[id] = mine;
    AA_BARRIER();
    for (aa_i32 j = 0; j < id; ++j) before += keys[j];
    token = -1;
    if (chosen.place >= before && chosen.place < before + mine) token = 0;
    if (token == 0)
#endif
    {
      for (aa_i64 i = begin; i < end; ++i) {
        if (aa_key(aa_load(logits, logit_dtype, c.base + i * logit_inner)) != chosen_key) continue;
        if (before++ == chosen.place) {
          token = i;
          break;
        }
      }
    }
  } else if (id != 0) {
    token = -1;
  }
  if (token >= 0) {
    aa_store_index(out, out_dtype, row * out_step, token);
    if (has_seen) seen[row * seen_row + token * seen_inner] = 1;
  }
}
AA_REGISTER(sample, AA_GROUP_SIZE)
