// "sample" of anyaccel/abi/ops.h, after argmax.cu, for rows of logits that many blocks share, element type AA_X.
//
// Weights e^((logit - top) / temperature) are whole numbers of 2^-40 of the largest one, as in kernels/portable/sampling.cl:
// their sums are exact in any order, so that the token does not depend on how the work is shared out; what is less counts as
// nothing. Each block adds its tokens to a histogram of AA_SAMPLE_BINS bins of equal width in (top - logit) / temperature, a
// number of tokens and a sum of weights each. The last block searches it up to three times: for the last of the top_k, for the
// last that top_p keeps, for the token (before which it weighs what min_p keeps). A search ends in one bin, whose tokens are
// collected and sorted; if they are too many for that, the bin is divided by keys.
#include "dialect.h"
#include "warp.h"

#include "logits.h"
#include "philox.h"

// Weight of the largest logit. e^-28 of it is less than 1.
#define AA_ONE ((aa_u64)1 << 40)
#define AA_FAR 28.0f

typedef struct sample_row {
  aa_i64 base;
  aa_i64 size;
  float top;
  float temperature;
  float width; /* bins for a logit that is less by 1 */
  aa_u32 top_key;
  aa_u32 farthest; /* tokens whose keys lie farther below the largest weigh nothing and count nowhere */
} sample_row;

AA_CALL aa_u64 logit_weight(sample_row r, float logit) {
  if (logit == r.top) return AA_ONE;
  return (aa_u64)(aa_exp((logit - r.top) / r.temperature) * 1099511627776.0f);
}
// The bin of a logit that counts; it never falls as logits do.
AA_FN aa_i32 logit_bin(sample_row r, float logit) {
  const float b = (r.top - logit) * r.width;
  return b < (float)(AA_SAMPLE_BINS - 1) ? (aa_i32)b : AA_SAMPLE_BINS - 1;
}
AA_FN aa_i32 counts(sample_row r, float logit) { return r.top_key - logit_key(logit) <= r.farthest; }

// Adds a token to a bin: its number, and the low and high words of a sum of weights.
AA_CALL void add_token(sample_row r, float logit, aa_u32* number, aa_u32* low, aa_u32* high) {
  const aa_u64 weight = logit_weight(r, logit);
  const aa_u32 before = aa_atomic_add_local(low, (aa_u32)weight);
  const aa_u32 rest = (aa_u32)(weight >> 32) + (before + (aa_u32)weight < before ? 1u : 0u);
  if (rest) aa_atomic_add_local(high, rest);
  aa_atomic_add_local(number, 1u);
}

// A position in the order of falling probability: where the running number of tokens (by_count) or the running weight first
// exceeds `limit`.
typedef struct sample_search {
  aa_u64 limit;
  aa_u64 count;  /* of the tokens before the part of the order that the search has got to */
  aa_u64 weight; /* of the same */
  aa_i32 by_count;
} sample_search;

AA_FN bool search_hits(sample_search s, aa_u64 count, aa_u64 weight, aa_u64 own) {
  return s.by_count ? s.limit == s.count + count
                    : s.limit >= s.weight + weight && s.limit - s.weight - weight < own;
}

// floor(sum * share / 2^32), share at most 2^32; *cut tells whether anything was cut off.
AA_FN aa_u64 share_of(aa_u64 sum, aa_u64 share, aa_i32* cut) {
  const aa_u64 low = (sum & 0xffffffffu) * share;
  *cut = (low & 0xffffffffu) != 0;
  return (sum >> 32) * share + (low >> 32);
}

// Local memory of the last block. Bins hold running sums: of all bins up to and with this one.
typedef struct sample_local {
  aa_u32* count;
  aa_u64* weight;
  aa_u32* keys; /* the tokens of a bin: AA_LIST of keys, of places, of low and of high words of sums of weights */
  aa_u32* words;  /* 64: of the whole block */
  aa_u64* totals; /* 8 */
} sample_local;
#define AA_LIST 1024  // two to a thread

AA_FN void list_token(float logit, aa_u32 place, sample_local m) {
  const aa_u32 at = aa_atomic_add_local(&m.words[2], 1u);
  m.keys[at] = logit_key(logit);
  m.keys[AA_LIST + at] = place;
}
AA_FN aa_u64 list_sum(sample_local m, aa_i32 e) {
  return ((aa_u64)m.keys[3 * AA_LIST + e] << 32) + m.keys[2 * AA_LIST + e];
}
AA_FN void store_list_sum(sample_local m, aa_i32 e, aa_u64 sum) {
  m.keys[2 * AA_LIST + e] = (aa_u32)sum;
  m.keys[3 * AA_LIST + e] = (aa_u32)(sum >> 32);
}

// Sorts a list of `number` tokens by falling probability, in a bitonic sort of a power of two of entries, whose number it
// returns: those added come last.
AA_CALL aa_i32 sort_list(aa_i32 number, sample_local m) {
  const aa_i32 id = AA_LOCAL_ID;
  aa_i32 length = 2;
  while (length < number) length *= 2;
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 e = number + id; e < length; e += AA_SAMPLE_THREADS) {
    m.keys[e] = 0;
    m.keys[AA_LIST + e] = 0xffffffffu;
  }
  AA_BARRIER();
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 run = 2; run <= length; run *= 2) {
    AA_PRAGMA_NO_UNROLL
    for (aa_i32 apart = run / 2; apart > 0; apart /= 2) {
      for (aa_i32 pair = id; pair < length / 2; pair += AA_SAMPLE_THREADS) {
        const aa_i32 i = 2 * pair - (pair & (apart - 1)), j = i + apart;
        const aa_u32 key = m.keys[i], other = m.keys[j], place = m.keys[AA_LIST + i], others = m.keys[AA_LIST + j];
        const bool after = other > key || (other == key && others < place);
        if (after == ((i & run) == 0)) {
          m.keys[i] = other;
          m.keys[j] = key;
          m.keys[AA_LIST + i] = others;
          m.keys[AA_LIST + j] = place;
        }
      }
      AA_BARRIER();
    }
  }
  return length;
}

// Tokens of one bin that are too many to compare: finds the distance of keys (how far a key lies below the largest) where the
// search ends, 8 bits at a time, then the token by its place among equals. The histogram takes the place of the tokens.
AA_CALL void search_keys(AA_IN(void) x, sample_row r, aa_i32 bin, sample_search s, sample_local m) {
  const aa_i32 id = AA_LOCAL_ID;
  aa_u32 distance = 0;
  aa_u64 each = 0;
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 shift = 24; shift >= 0; shift -= 8) {
    for (aa_i32 b = id; b < 768; b += AA_SAMPLE_THREADS) m.keys[b] = 0;
    AA_BARRIER();
    AA_PRAGMA_NO_UNROLL
    for (aa_i64 i = id; i < r.size; i += AA_SAMPLE_THREADS) {
      const float logit = load_logit(x, r.base + i);
      const aa_u32 mine = r.top_key - logit_key(logit);
      const aa_i32 narrowed = shift == 24 || (mine >> shift >> 8) == (distance >> shift >> 8);
      if (narrowed && mine <= r.farthest && logit_bin(r, logit) == bin) {
        const aa_u32 b = (mine >> shift) & 255u;
        add_token(r, logit, &m.keys[b], &m.keys[256 + b], &m.keys[512 + b]);
      }
    }
    AA_BARRIER();
    AA_PRAGMA_NO_UNROLL
    for (aa_u32 b = 0; b < 256; ++b) {
      const aa_u64 count = m.keys[b];
      const aa_u64 weight = ((aa_u64)m.keys[512 + b] << 32) + m.keys[256 + b];
      if (s.by_count ? s.count + count > s.limit : s.weight + weight > s.limit) {
        distance += b << shift;
        each = count ? weight / count : 0;
        break;
      }
      s.count += count;
      s.weight += weight;
    }
    AA_BARRIER();
  }
  // All of these are equal: the one is named by its number among them. Each thread looks through a part of the row.
  aa_u64 place = s.by_count ? s.limit - s.count : each ? (s.limit - s.weight) / each : 0;
  if (id == 0) m.totals[0] = s.weight + (place + 1) * each;
  const aa_u32 key = r.top_key - distance;
  const aa_i64 part = (r.size + AA_SAMPLE_THREADS - 1) / AA_SAMPLE_THREADS;
  const aa_i64 begin = id * part;
  const aa_i64 end = begin + part < r.size ? begin + part : r.size;
  aa_u32 mine = 0;
  AA_PRAGMA_NO_UNROLL
  for (aa_i64 i = begin; i < end; ++i) mine += logit_key(load_logit(x, r.base + i)) == key;
  m.keys[id] = mine;
  AA_BARRIER();
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 j = 0; j < id; ++j) place -= m.keys[j];
  // `place` counts down to 0 at the token, and wraps where that lies in an earlier part.
  AA_PRAGMA_NO_UNROLL
  for (aa_i64 i = begin; i < end; ++i) {
    if (logit_key(load_logit(x, r.base + i)) == key && place-- == 0) m.words[1] = (aa_u32)i;
  }
  AA_BARRIER();
}

// Finds the token where a search ends: writes its position to m.words[1] and the weight of all tokens up to it to
// m.totals[0].
AA_CALL void search_row(AA_IN(void) x, sample_row r, sample_search s, sample_local m) {
  const aa_i32 id = AA_LOCAL_ID;
  if (id == 0) m.words[2] = 0;
  AA_BARRIER();
  for (aa_i32 b = id; b < AA_SAMPLE_BINS; b += AA_SAMPLE_THREADS) {
    const aa_u64 before = s.by_count ? (b ? m.count[b - 1] : 0) : (b ? m.weight[b - 1] : 0);
    const aa_u64 here = s.by_count ? (aa_u64)m.count[b] : m.weight[b];
    if (before <= s.limit && s.limit < here) m.words[0] = (aa_u32)b;
  }
  AA_BARRIER();
  const aa_i32 bin = (aa_i32)m.words[0];
  s.count = bin ? m.count[bin - 1] : 0;
  s.weight = bin ? m.weight[bin - 1] : 0;
  const aa_i32 number = (aa_i32)(m.count[bin] - (aa_u32)s.count);
  if (number > AA_LIST) return search_keys(x, r, bin, s, m);
  AA_FOR_LOGITS(AA_FLIGHT, x, r.base, r.size, id, AA_SAMPLE_THREADS, {
    if (counts(r, logit) && logit_bin(r, logit) == bin) {
      list_token(logit, i, m);
    }
  })
  AA_BARRIER();
  const aa_i32 length = sort_list(number, m);
  // Running sums of weights, over two neighbours of the list for each thread.
  const aa_i32 e = 2 * id;
  const aa_u64 first = e < number ? logit_weight(r, key_logit(m.keys[e])) : 0;
  const aa_u64 second = e + 1 < number ? logit_weight(r, key_logit(m.keys[e + 1])) : 0;
  aa_u64 sum = first + second;
  if (e < length) store_list_sum(m, id, sum);
  AA_BARRIER();
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 d = 1; d < length / 2; d *= 2) {
    const aa_u64 before = e < length && id >= d ? list_sum(m, id - d) : 0;
    AA_BARRIER();
    sum += before;
    if (e < length) store_list_sum(m, id, sum);
    AA_BARRIER();
  }
  sum -= first + second;
  const aa_u64 place = (aa_u64)e;
  if (e < number && search_hits(s, place, sum, first)) {
    m.words[1] = m.keys[AA_LIST + e];
    m.totals[0] = s.weight + sum + first;
  }
  sum += first;
  if (e + 1 < number && search_hits(s, place + 1, sum, second)) {
    m.words[1] = m.keys[AA_LIST + e + 1];
    m.totals[0] = s.weight + sum + second;
  }
  AA_BARRIER();
}

// The weight of all tokens whose logits, divided by the temperature, lie at most `reach` below the largest.
AA_CALL aa_u64 weight_within(AA_IN(void) x, sample_row r, float reach, sample_local m) {
  const aa_i32 id = AA_LOCAL_ID;
  const aa_u32 farthest = r.top_key - logit_key(r.top - reach * r.temperature);
  if (id < 3) m.words[id] = 0;
  AA_BARRIER();
  AA_FOR_LOGITS(1, x, r.base, r.size, id, AA_SAMPLE_THREADS, {
    if (r.top_key - logit_key(logit) <= farthest) add_token(r, logit, &m.words[0], &m.words[1], &m.words[2]);
  })
  AA_BARRIER();
  const aa_u64 weight = ((aa_u64)m.words[2] << 32) + m.words[1];
  AA_BARRIER();
  return weight;
}

// Turns the histogram in `bins` (numbers, low words, high words) into running sums in m, and zeroes it.
AA_FN void take_histogram(AA_OUT(aa_u32) bins, aa_i64 at, sample_local m) {
  const aa_i32 id = AA_LOCAL_ID;
  aa_u32 count[AA_SAMPLE_BINS / AA_SAMPLE_THREADS];
  aa_u64 weight[AA_SAMPLE_BINS / AA_SAMPLE_THREADS];
  aa_u32 counted = 0;
  aa_u64 weighed = 0;
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_SAMPLE_BINS / AA_SAMPLE_THREADS; ++k) {
    const aa_i64 b = at + id * (AA_SAMPLE_BINS / AA_SAMPLE_THREADS) + k;
    counted += bins[b];
    weighed += ((aa_u64)bins[b + 2 * AA_SAMPLE_BINS] << 32) + bins[b + AA_SAMPLE_BINS];
    count[k] = counted;
    weight[k] = weighed;
    bins[b] = 0;
    bins[b + AA_SAMPLE_BINS] = 0;
    bins[b + 2 * AA_SAMPLE_BINS] = 0;
  }
  // Running sums over threads.
  aa_u64* sums = m.weight;
  aa_u32* numbers = m.count;
  numbers[id] = counted;
  sums[id] = weighed;
  AA_BARRIER();
  AA_PRAGMA_NO_UNROLL
  for (aa_i32 d = 1; d < AA_SAMPLE_THREADS; d *= 2) {
    const aa_u32 more = id >= d ? numbers[id - d] : 0;
    const aa_u64 heavier = id >= d ? sums[id - d] : 0;
    AA_BARRIER();
    numbers[id] += more;
    sums[id] += heavier;
    AA_BARRIER();
  }
  const aa_u32 before = numbers[id] - counted;
  const aa_u64 weight_before = sums[id] - weighed;
  AA_BARRIER();
  AA_PRAGMA_UNROLL for (aa_i32 k = 0; k < AA_SAMPLE_BINS / AA_SAMPLE_THREADS; ++k) {
    const aa_i32 b = id * (AA_SAMPLE_BINS / AA_SAMPLE_THREADS) + k;
    m.count[b] = before + count[k];
    m.weight[b] = weight_before + weight[k];
  }
  AA_BARRIER();
}

AA_TUNED_KERNEL(AA_NAME_X(sample_rows), AA_SAMPLE_THREADS, 1)
(AA_OUT(void) out, AA_IN(void) x, AA_IN(aa_i64) rng, AA_OUT(aa_u8) seen, AA_IN(aa_u32) results, AA_OUT(aa_u32) counters,
 aa_sample_rows a) {
  // A block's own histogram; then, in the last block, running sums, and tokens of a bin.
  AA_LOCAL_ARRAY(aa_u64, weights, AA_SAMPLE_BINS);
  AA_LOCAL_ARRAY(aa_u32, numbers, AA_SAMPLE_BINS);
  AA_LOCAL_ARRAY(aa_u32, keys, 2 * AA_SAMPLE_BINS);
  AA_LOCAL_ARRAY(aa_u32, words, 64);
  AA_LOCAL_ARRAY(aa_u64, totals, 8);
  aa_grid_launch_next();
  aa_grid_wait();
  const aa_i64 row = AA_GROUP_ID(1), blocks = AA_GROUP_COUNT(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_u32 top_key = results[row * AA_SAMPLE_RESULTS];
  if (!key_is_finite(top_key)) {
    if (AA_GROUP_ID(0) == 0 && id == 0) aa_store_index(out, a.out_dtype, row * a.out_step, -1);
    return;
  }
  sample_row r;
  r.base = row * a.row;
  r.size = a.size;
  r.top_key = top_key;
  r.top = key_logit(top_key);
  r.temperature = a.temperature;
  r.width = (float)AA_SAMPLE_BINS / (AA_FAR * a.temperature);
  r.farthest = top_key - logit_key(r.top - AA_FAR * a.temperature);

  aa_u32* low = keys;
  aa_u32* high = keys + AA_SAMPLE_BINS;
  for (aa_i32 b = id; b < AA_SAMPLE_BINS; b += AA_SAMPLE_THREADS) numbers[b] = low[b] = high[b] = 0;
  AA_BARRIER();
  AA_FOR_LOGITS(1, x, r.base, r.size, AA_GROUP_ID(0) * AA_SAMPLE_THREADS + id, blocks * AA_SAMPLE_THREADS, {
    if (counts(r, logit)) {
      const aa_i32 b = logit_bin(r, logit);
      add_token(r, logit, &numbers[b], &low[b], &high[b]);
    }
  })
  AA_BARRIER();
  const aa_i64 at = row * AA_SAMPLE_COUNTERS;
  for (aa_i32 b = id; b < AA_SAMPLE_BINS; b += AA_SAMPLE_THREADS) {
    if (numbers[b] == 0) continue;
    aa_atomic_add(counters, at + 2 + b, numbers[b]);
    const aa_u32 before = aa_atomic_add(counters, at + 2 + AA_SAMPLE_BINS + b, low[b]);
    const aa_u32 rest = high[b] + (before + low[b] < before ? 1u : 0u);
    if (rest) aa_atomic_add(counters, at + 2 + 2 * AA_SAMPLE_BINS + b, rest);
  }
  aa_device_fence();
  if (!last_of_row(counters, at + 1, words)) return;

  sample_local m = {numbers, weights, keys, words, totals};
  take_histogram(counters, at + 2, m);
  const aa_u32 count = m.count[AA_SAMPLE_BINS - 1];
  aa_u64 total = m.weight[AA_SAMPLE_BINS - 1];
  aa_u32 random[4];
  aa_philox((aa_u64)rng[0], (aa_u64)rng[a.rng_step] + (aa_u64)(row / 4), random);
  const aa_u32 word = (row & 2) ? ((row & 1) ? random[3] : random[2]) : (row & 1) ? random[1] : random[0];
  aa_i32 cut;
  sample_search s = {0, 0, 0, 0};
  if (a.top_k > 0 && (aa_u32)a.top_k < count) {
    s.by_count = 1;
    s.limit = (aa_u64)a.top_k - 1;
    search_row(x, r, s, m);
    total = totals[0];
  }
  s.by_count = 0;
  if (a.top_p < 1.0f) {
    // The first whose running weight reaches top_p * total.
    const aa_u64 reached = share_of(total, (aa_u64)(a.top_p * 4294967296.0f), &cut);
    s.limit = cut || reached == 0 ? reached : reached - 1;
    search_row(x, r, s, m);
    total = totals[0];
  }
  if (a.reach < AA_FAR) {
    // min_p, like top_k and top_p, keeps a prefix of the order: the shortest one counts.
    const aa_u64 kept = weight_within(x, r, a.reach, m);
    if (kept < total) total = kept;
  }
  s.limit = share_of(total, (aa_u64)(word >> 8) << 8, &cut);
  search_row(x, r, s, m);
  if (id == 0) {
    const aa_i64 token = words[1];
    aa_store_index(out, a.out_dtype, row * a.out_step, token);
    if (a.has_seen) seen[row * a.seen_row + token * a.seen_inner] = 1;
  }
}
AA_REGISTER_TUNED(AA_NAME_X(sample_rows), AA_SAMPLE_THREADS)
