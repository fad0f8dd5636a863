// Ops that choose a token: argmax, repetition_penalty, frequency_penalty and sample. A group of AA_GROUP_SIZE items works on a row.
//
// sample sorts nothing. Tokens are ordered by a 32-bit key that rises with the logit; a token's distance is how far its key
// lies below the largest. Sums of weights over falling logits are searched by histograms of distances, 8 bits at a time, down
// to a single distance: the tokens there have equal logits, hence equal weights, and come in order of their index. Weights
// are whole numbers of 2^-40 of the largest, so that their sums are exact in any order; what is less counts as nothing.
#include "dialect.h"

#include "arguments.h"
#include "formats.h"
#include "philox.h"

#if AA_GROUP_SIZE > 1
#define AA_TOGETHER() AA_BARRIER()
#else
#define AA_TOGETHER()
#endif

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
                           AA_LOCAL aa_u32* keys, AA_LOCAL aa_i64* places, AA_PRIVATE aa_i64* best) {
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
  AA_TOGETHER();
  for (aa_i32 j = 0; j < AA_GROUP_SIZE; ++j) {
    if (keys[j] > largest || (keys[j] == largest && places[j] < place)) {
      largest = keys[j];
      place = places[j];
    }
  }
  AA_TOGETHER();
#endif
  *best = place;
  return largest;
}

AA_KERNEL(argmax, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_i64) out_step, AA_IN(void) x, AA_VALUE(aa_i64) x_row, AA_VALUE(aa_i64) x_inner,
 AA_VALUE(aa_i64) size, AA_VALUE(aa_i32) out_dtype, AA_VALUE(aa_i32) x_dtype) {
  AA_LOCAL_ARRAY(aa_u32, keys, AA_GROUP_SIZE);
  AA_LOCAL_ARRAY(aa_i64, places, AA_GROUP_SIZE);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  aa_i64 best;
  aa_row_argmax(x, x_dtype, row * x_row, x_inner, size, id, keys, places, &best);
  if (id == 0) aa_store_index(out, out_dtype, row * out_step, best);
}
AA_REGISTER(argmax, AA_GROUP_SIZE)

// Results that, rounded to 16 bits, equal the exact quotient or product rounded once.
AA_FN float aa_penalised(float logit, float penalty, aa_i32 dtype) {
  const float nearest = logit > 0.0f ? logit / penalty : logit * penalty;
  if (dtype == AA_F32) return nearest;
  // The sign of what nearest lacks; penalty is above 0.
  const float missing = logit > 0.0f ? aa_fma(-nearest, penalty, logit) : aa_fma(logit, penalty, -nearest);
  return aa_round_to_odd(nearest, (missing > 0.0f) - (missing < 0.0f));
}

// logits and seen [R,V]; an item per element.
AA_KERNEL(repetition_penalty, AA_ITEMS)
(AA_OUT(void) logits, AA_VALUE(aa_i64) logit_row, AA_VALUE(aa_i64) logit_inner, AA_IN(aa_u8) seen,
 AA_VALUE(aa_i64) seen_row, AA_VALUE(aa_i64) seen_inner, AA_VALUE(aa_i64) rows, AA_VALUE(aa_i64) size,
 AA_VALUE(float) penalty, AA_VALUE(aa_i32) dtype) {
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

// logits and counts [R,V], ids [R] or absent (has_ids 0); an item per element.
AA_KERNEL(frequency_penalty, AA_ITEMS)
(AA_OUT(void) logits, AA_VALUE(aa_i64) logit_row, AA_VALUE(aa_i64) logit_inner, AA_OUT(aa_i32) counts,
 AA_VALUE(aa_i64) count_row, AA_VALUE(aa_i64) count_inner, AA_IN(void) ids, AA_VALUE(aa_i64) id_step,
 AA_VALUE(aa_i64) rows, AA_VALUE(aa_i64) size, AA_VALUE(float) presence, AA_VALUE(float) frequency,
 AA_VALUE(aa_i32) dtype, AA_VALUE(aa_i32) id_dtype, AA_VALUE(aa_i32) has_ids) {
  const aa_i64 number = AA_ITEM_ID;
  if (number < rows * size) {
    const aa_i64 row = number / size;
    const aa_i64 i = number - row * size;
    const aa_i64 counted = row * count_row + i * count_inner;
    aa_i32 count = counts[counted];
    if (has_ids && aa_load_index(ids, id_dtype, row * id_step) == i) counts[counted] = ++count;
    if (count) {
      const aa_i64 at = row * logit_row + i * logit_inner;
      aa_store(logits, dtype, at, aa_load(logits, dtype, at) - aa_fma(frequency, (float)count, presence));
    }
  }
}
AA_REGISTER(frequency_penalty, AA_ITEMS)

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
AA_FN void aa_histogram(AA_IN(void) logits, aa_candidates c, aa_u32 first, aa_i32 shift, aa_i32 id,
                        AA_LOCAL aa_u32* bins) {
  AA_TOGETHER();
  for (aa_i32 b = id; b < 3 * AA_BINS; b += AA_GROUP_SIZE) bins[b] = 0;
  AA_TOGETHER();
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
  AA_TOGETHER();
}

// A search for the first token, in the order of falling probability (lower index first among equals), with which the running
// number of tokens (by_count) or the running weight exceeds `limit`. The caller knows that there is one.
typedef struct aa_search {
  aa_u64 limit;
  aa_u64 count;  /* of the tokens before the bin that the token is in, or before the token's distance */
  aa_u64 weight; /* of the same */
  aa_u64 here;   /* tokens in that bin */
  aa_u64 here_weight;
  aa_u32 distance; /* the smallest of that bin */
  aa_i32 by_count;
} aa_search;

// Narrows a search down to a bin of a histogram that begins where the search has got to.
AA_FN aa_search aa_narrow(aa_search s, aa_i32 shift, AA_LOCAL aa_u32* bins) {
  aa_i32 b = 0;
  for (;;) {
    s.here = bins[b];
    s.here_weight = AA_BIN_WEIGHT(bins, b);
    if (b == AA_BINS - 1 || (s.by_count ? s.count + s.here : s.weight + s.here_weight) > s.limit) break;
    s.count += s.here;
    s.weight += s.here_weight;
    ++b;
  }
  s.distance += (aa_u32)b << shift;
  return s;
}

// floor(sum * share / 2^32), share at most 2^32; *cut tells whether anything was cut off.
AA_FN aa_u64 aa_share(aa_u64 sum, aa_u64 share, AA_PRIVATE aa_i32* cut) {
  const aa_u64 low = (sum & 0xffffffffu) * share;
  *cut = (low & 0xffffffffu) != 0;
  return (sum >> 32) * share + (low >> 32);
}

// out [R], logits [R,V], rng [2], seen [R,V] or absent (seen_inner 0). V is at most 2^23. reach: how far, after division by the
// temperature, a logit may lie below the largest one: -log(min_p), infinite for a min_p of 0.
AA_KERNEL(sample, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_i64) out_step, AA_IN(void) logits, AA_VALUE(aa_i64) logit_row,
 AA_VALUE(aa_i64) logit_inner, AA_IN(aa_i64) rng, AA_VALUE(aa_i64) rng_step, AA_OUT(aa_u8) seen,
 AA_VALUE(aa_i64) seen_row, AA_VALUE(aa_i64) seen_inner, AA_VALUE(aa_i64) size, AA_VALUE(float) temperature,
 AA_VALUE(float) top_p, AA_VALUE(float) reach, AA_VALUE(aa_i32) top_k, AA_VALUE(aa_i32) out_dtype,
 AA_VALUE(aa_i32) logit_dtype, AA_VALUE(aa_i32) has_seen) {
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
  aa_i64 best;
  c.top_key = aa_row_argmax(logits, logit_dtype, c.base, logit_inner, size, id, keys, places, &best);
  c.top = aa_key_value(c.top_key);

  // A key between those of the infinities: the maximum is finite.
  const aa_i32 has_token = c.top_key > 0x007fffffu && c.top_key < 0xff800000u;
  if (temperature > 0.0f && has_token) {
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
    aa_u32 words[4];
    aa_philox((aa_u64)rng[0], (aa_u64)rng[rng_step] + (aa_u64)(row / 4), words);
    const aa_u32 word = (row & 2) ? ((row & 1) ? words[3] : words[2]) : (row & 1) ? words[1] : words[0];

    // Three searches: for the last of the top_k, for the last of those that top_p keeps, and for the token. Each of the first
    // two leaves the weight of all tokens up to the one that it finds.
    aa_search s;
    aa_u64 place = 0;
    for (aa_i32 search = 0; search < 3; ++search) {
      aa_i32 wanted = 1;
      aa_i32 cut;
      s.by_count = search == 0;
      if (search == 2 && reach < AA_FAR) {
        // min_p, like top_k and top_p, keeps a prefix of the order: the shortest one counts.
        aa_candidates near = c;
        near.farthest = c.top_key - aa_key(c.top - reach * temperature);
        aa_histogram(logits, near, 0, shift, id, bins);
        aa_u64 kept = 0;
        for (aa_i32 b = 0; b < AA_BINS; ++b) kept += AA_BIN_WEIGHT(bins, b);
        if (kept < total) total = kept;
      }
      if (search == 0) {
        wanted = top_k > 0 && (aa_u64)top_k < count;
        s.limit = (aa_u64)top_k - 1;
      } else if (search == 1) {
        // The first whose running weight reaches top_p * total.
        wanted = top_p < 1.0f;
        const aa_u64 reached = aa_share(total, (aa_u64)(top_p * 4294967296.0f), &cut);
        s.limit = cut || reached == 0 ? reached : reached - 1;
      } else {
        s.limit = aa_share(total, (aa_u64)(word >> 8) << 8, &cut);
      }
      s.count = 0;
      s.weight = 0;
      s.distance = 0;
      s = aa_narrow(s, shift, all);
      for (aa_i32 level = wanted ? shift : 0; level > 0;) {
        level = level > 8 ? level - 8 : 0;
        aa_histogram(logits, c, s.distance, level, id, bins);
        s = aa_narrow(s, level, bins);
      }
      const aa_u64 each = s.here ? s.here_weight / s.here : 0;
      place = s.by_count ? s.limit - s.count : each ? (s.limit - s.weight) / each : 0;
      if (wanted) total = s.weight + (place + 1) * each;
    }

    // Each item looks through a part of the row of its own.
    const aa_u32 chosen_key = c.top_key - s.distance;
    const aa_i64 part = (size + AA_GROUP_SIZE - 1) / AA_GROUP_SIZE;
    const aa_i64 begin = id * part;
    const aa_i64 end = begin + part < size ? begin + part : size;
#if AA_GROUP_SIZE > 1
    aa_u32 mine = 0;
    for (aa_i64 i = begin; i < end; ++i)
      mine += aa_key(aa_load(logits, logit_dtype, c.base + i * logit_inner)) == chosen_key;
    keys[id] = mine;
    AA_TOGETHER();
    for (aa_i32 j = 0; j < id; ++j) place -= keys[j];
#endif
    // `place` counts down to 0 at the token, and wraps where that lies in an earlier part.
    for (aa_i64 i = begin; i < end; ++i) {
      if (aa_key(aa_load(logits, logit_dtype, c.base + i * logit_inner)) == chosen_key && place-- == 0) {
        aa_store_index(out, out_dtype, row * out_step, i);
        if (has_seen) seen[row * seen_row + i * seen_inner] = 1;
      }
    }
  } else if (id == 0) {
    aa_store_index(out, out_dtype, row * out_step, has_token ? best : -1);
    if (has_seen && has_token) seen[row * seen_row + best * seen_inner] = 1;
  }
}
AA_REGISTER(sample, AA_GROUP_SIZE)
