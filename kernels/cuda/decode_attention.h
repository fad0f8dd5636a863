// The parts of decode_attention.cu and decode_attention_bytes.cu that do not depend on how caches are read: a block's share of the
// slots, queries as the matrix units want them, weights, and the sums of warps and of blocks. AA_W is the type of numbers that is
// multiplied; caches have it too, unless AA_CACHE_BYTES says that they are in bytes. Include dialect.h, warp.h and tuned_attention.h
// first.
#ifndef ANYACCEL_KERNELS_DECODE_ATTENTION_H_
#define ANYACCEL_KERNELS_DECODE_ATTENTION_H_

#define AA_WARPS (AA_DECODE_ATTENTION_THREADS / 32)
#define AA_F32_IS_f32 1
#define AA_F32_IS_bf16 0
#define AA_F32_IS_f16 0
#define AA_F16_IS_f32 0
#define AA_F16_IS_bf16 0
#define AA_F16_IS_f16 1

#if AA_CAT(AA_F32_IS_, AA_W)
#define AA_HEADS AA_DECODE_HEADS_F32
#else
#define AA_HEADS AA_DECODE_HEADS
#endif

#define AA_SLAB 128                   // elements of a head that the block adds up at once
#define AA_SLAB_PITCH (AA_SLAB + 4)   // from one head to the next: fewer bank conflicts

// The addresses of the numbers of a token, its heads and its slots, for one block.
struct aa_decode_place {
  aa_i64 token, pair;    // pair: number of the token and group of heads
  aa_i64 first_head;
  aa_i32 heads;          // <= AA_HEADS
  aa_i64 k_at, v_at;     // slot 0
  aa_i64 first, end;     // slots of this block
  aa_i32 split, active;  // of how many that have slots
};

AA_FN aa_u32x4 aa_load16_if(bool there, AA_IN(void) p, aa_i64 bytes) {
  aa_u32x4 v = {0, 0, 0, 0};
  if (there) v = aa_load16(p, bytes);
  return v;
}

// 2^(x - largest), and 0 for nothing. What there is weighs at least `least` (else 2^-126), however far below the largest: an
// infinite value stays infinite. NaN stays NaN.
AA_FN float aa_weight2(float x, float largest, float least) {
  const float weight = aa_exp2(x - largest);
  return x == AA_MINUS_INFINITY ? 0.0f : weight < least ? least : weight;
}
AA_FN float aa_weight2(float x, float largest) { return aa_weight2(x, largest, aa_float(0x00800000u)); }

#if AA_CAT(AA_F32_IS_, AA_W)

#define AA_SUMS(size) [AA_HEADS][((size) + 127) / 128][4]
#define AA_QUERY_BYTES(size) (AA_HEADS * (((size) + 127) / 128) * 512)

// The queries, [head][element], zeros beyond what there is. Every thread of the block calls it.
template <int kSize>
AA_FN void aa_take_queries(aa_u32x4* local, float*, AA_IN(void) q, const aa_decode_place& at, const aa_tuned_attention& a) {
  constexpr int kPadded = (kSize + 127) / 128 * 128;
  float* const to = (float*)local;
  for (aa_i32 i = AA_LOCAL_ID; i < AA_HEADS * kPadded; i += AA_DECODE_ATTENTION_THREADS) {
    const aa_i32 head = i / kPadded, d = i % kPadded;
    to[i] = head < at.heads && d < a.size
                ? aa_load(q, a.q_dtype, at.token * a.q_stride[0] + (at.first_head + head) * a.q_stride[1] + d * a.q_stride[2])
                : 0.0f;
  }
}

// Lane l has elements 4l .. 4l + 3 of each 128 of a head; largest and totals are the same in all lanes.
template <int kSize>
AA_FN void aa_decode_slots(float(&sums) AA_SUMS(kSize), float (&largest)[AA_HEADS], float (&total)[AA_HEADS],
                           aa_u32x4* queries, float* factors, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v,
                           const aa_decode_place& at, const aa_tuned_attention& a, aa_u8*) {
  aa_take_queries<kSize>(queries, factors, q, at, a);
  AA_BARRIER();
  constexpr int kChunks = (kSize + 127) / 128;
  constexpr int kRound = 4;  // slots in flight
  const aa_i32 lane = AA_LANE;
  for (aa_i64 first = at.first + AA_WARP * AA_DECODE_TILE; first < at.end; first += AA_WARPS * AA_DECODE_TILE) {
    for (aa_i32 begin = 0; begin < AA_DECODE_TILE; begin += kRound) {
      aa_u32x4 key[kRound][kChunks], value[kRound][kChunks];
      AA_PRAGMA_UNROLL for (int j = 0; j < kRound; ++j) {
        const aa_i64 slot = first + begin + j;
        AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
          const aa_i32 d = 128 * i + 4 * lane;
          key[j][i] = aa_load16_if(slot < at.end && d < a.size, k, (at.k_at + slot * a.k_stride[2] + d) * 4);
        }
      }
      AA_PRAGMA_UNROLL for (int j = 0; j < kRound; ++j) {
        const aa_i64 slot = first + begin + j;
        AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
          const aa_i32 d = 128 * i + 4 * lane;
          value[j][i] = aa_load16_if(slot < at.end && d < a.size, v, (at.v_at + slot * a.v_stride[2] + d) * 4);
        }
      }
      AA_PRAGMA_UNROLL for (int h = 0; h < AA_HEADS; ++h) {
        float weight[kRound];
        float next = largest[h];
        AA_PRAGMA_UNROLL for (int j = 0; j < kRound; ++j) {
          float score = 0.0f;
          AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
            const aa_u32x4 x = queries[(h * kChunks + i) * 32 + lane];
            score = aa_fma(aa_float(x.x), aa_float(key[j][i].x), score);
            score = aa_fma(aa_float(x.y), aa_float(key[j][i].y), score);
            score = aa_fma(aa_float(x.z), aa_float(key[j][i].z), score);
            score = aa_fma(aa_float(x.w), aa_float(key[j][i].w), score);
          }
          weight[j] = aa_exponent(aa_warp_sum(score), a.scale, a.softcap);
          if (first + begin + j >= at.end) weight[j] = AA_MINUS_INFINITY;
          next = aa_fmax(next, weight[j]);
        }
        const float factor = aa_weight2(largest[h], next);
        largest[h] = next;
        total[h] *= factor;
        AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sums[h][i][e] *= factor;
        }
        AA_PRAGMA_UNROLL for (int j = 0; j < kRound; ++j) {
          const float w = aa_weight2(weight[j], next);
          total[h] += w;
          AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
            sums[h][i][0] = aa_fma(w, aa_float(value[j][i].x), sums[h][i][0]);
            sums[h][i][1] = aa_fma(w, aa_float(value[j][i].y), sums[h][i][1]);
            sums[h][i][2] = aa_fma(w, aa_float(value[j][i].z), sums[h][i][2]);
            sums[h][i][3] = aa_fma(w, aa_float(value[j][i].w), sums[h][i][3]);
          }
        }
      }
    }
  }
}

// Leaves the warp's maxima and totals in local memory, [warp][head].
AA_FN void aa_leave_totals(float* maxima, float* totals, const float (&largest)[AA_HEADS], const float (&total)[AA_HEADS]) {
  if (AA_LANE == 0) {
    AA_PRAGMA_UNROLL for (int h = 0; h < AA_HEADS; ++h) {
      maxima[AA_WARP * AA_HEADS + h] = largest[h];
      totals[AA_WARP * AA_HEADS + h] = total[h];
    }
  }
}

// The warp's sums of elements [AA_SLAB * s, ..) to local memory, [warp][head][element].
template <int kSize>
AA_FN void aa_leave_sums(float* slab, const float(&sums) AA_SUMS(kSize), int s) {
  AA_PRAGMA_UNROLL for (int h = 0; h < AA_HEADS; ++h) {
    AA_PRAGMA_UNROLL for (int i = 0; i < (kSize + 127) / 128; ++i) {
      if (i != s) continue;
      const aa_u32x4 four = {aa_bits(sums[h][i][0]), aa_bits(sums[h][i][1]), aa_bits(sums[h][i][2]), aa_bits(sums[h][i][3])};
      *(aa_u32x4*)(slab + (AA_WARP * AA_HEADS + h) * AA_SLAB_PITCH + 4 * AA_LANE) = four;
    }
  }
}

#define AA_STATE_OF_A_LANE AA_HEADS

#else  // caches of 16 bits

#define AA_SUMS(size) [(size) / 16][4]
// Parts of 16 bits of a float.
#if AA_CAT(AA_F16_IS_, AA_W)
#define AA_PARTS 2
#define AA_SHIFT 14.0f  // weights are made 2^14 times larger: their second parts stay clear of f16's denormals
#define AA_LEAST 0x33800000u  // 2^-24
#else
#define AA_PARTS 3
#define AA_SHIFT 0.0f
#define AA_LEAST 0x00800000u  // 2^-126
#endif
#define AA_QUERY_BYTES(size) (AA_PARTS * (size) * 16)

// The order of elements does not matter for a product of query and key, so each way to read caches has its own. The first of a
// lane's two runs of four elements of a query: of 32 elements, by lane % 4.
AA_FN aa_i32 aa_run_of_query(aa_i32 chunk, aa_i32 pair, aa_i32 run) {
#if defined(AA_CACHE_BYTES) && !AA_BLOCKS
  return 64 * (chunk / 2) + 16 * pair + 8 * (chunk % 2) + 4 * run;
#elif defined(AA_CACHE_BYTES)
  return 32 * chunk + 4 * pair + 16 * run;
#else
  return 32 * chunk + 8 * pair + 4 * run;
#endif
}
// The four elements of the result whose sums a lane has in sums[2 * run] and sums[2 * run + 1]: the first, by lane / 4.
AA_FN aa_i32 aa_run_of_result(aa_i32 run, aa_i32 row) {
#if defined(AA_CACHE_BYTES) && AA_BLOCKS
  return 32 * run + 4 * row;
#else
  return 64 * (run / 2) + 8 * row + 4 * (run % 2);
#endif
}

// Two floats as parts, the first float in the low halves. The parts of a number have its sign or are zero; with `kLeast`, the bits of
// the smallest positive number of the type, later parts of positive numbers are never zero: an infinite value times any part of a
// weight is infinite then, and not a NaN.
template <aa_u32 kLeast>
AA_FN void aa_split_f16(float a, float b, aa_u32 (&part)[2]) {
  // Rounding adds at most 2^-11: the first part stays below the number.
  constexpr float kBelow = 1.0f - 1.0f / 2048.0f;
  part[0] = aa_pack_f16(a * kBelow, b * kBelow);
  a -= aa_unpack_f16((aa_u16)(part[0] & 0xffffu));
  b -= aa_unpack_f16((aa_u16)(part[0] >> 16));
  if (kLeast) a += aa_float(kLeast), b += aa_float(kLeast);
  part[1] = aa_pack_f16(a, b);
}
template <aa_u32 kLeast>
AA_FN void aa_split_bf16(float a, float b, aa_u32 (&part)[3]) {
  AA_PRAGMA_UNROLL for (int i = 0; i < 3; ++i) {
    const aa_u32 x = aa_bits(a) & 0xffff0000u, y = aa_bits(b) & 0xffff0000u;
    part[i] = (x >> 16) | y;
    a -= aa_float(x);
    b -= aa_float(y);
    if (kLeast) a += aa_float(kLeast), b += aa_float(kLeast);
  }
}
#define AA_SPLIT AA_CAT(aa_split_, AA_W)

// The queries as parts: of 32 elements, lane l has two runs of four elements of head l / 4 (aa_run_of_query()). Two parts of each run
// as the unit takes them, [32 elements][run][lane], then third parts of both runs, [32 elements][lane]. And for f16, in `factors`,
// what scores of each head are to be multiplied by, since its queries are scaled to at most 1 by a power of two. Every thread of the
// block calls it.
template <int kSize>
AA_FN void aa_take_queries(aa_u32x4* local, float* factors, AA_IN(void) q, const aa_decode_place& at,
                           const aa_tuned_attention& a) {
  const aa_i32 chunk = AA_WARP, lane = AA_LANE, head = lane / 4;
  const aa_i64 from = at.token * a.q_stride[0] + (at.first_head + head) * a.q_stride[1];
  float x[8];
  AA_PRAGMA_UNROLL for (int run = 0; run < 2; ++run) {
    const aa_i32 d = aa_run_of_query(chunk, lane % 4, run);
    const bool there = head < at.heads && d < a.size;
    if (a.q_wide) {
      const aa_u32x4 four = aa_load16_if(there, q, (from + d) * 4);
      x[4 * run] = aa_float(four.x), x[4 * run + 1] = aa_float(four.y);
      x[4 * run + 2] = aa_float(four.z), x[4 * run + 3] = aa_float(four.w);
    } else {
      AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) {
        x[4 * run + e] = there ? aa_load(q, a.q_dtype, from + (d + e) * a.q_stride[2]) : 0.0f;
      }
    }
  }
  float factor = 1.0f;
#if AA_CAT(AA_F16_IS_, AA_W)
  float largest = 0.0f;
  AA_PRAGMA_UNROLL for (int e = 0; e < 8; ++e) largest = aa_fmax(largest, aa_fabs(x[e]));
  // `factors` is free from AA_HEADS on: [warp][head].
  largest = aa_fmax(largest, aa_shuffle_xor(largest, 1));
  largest = aa_fmax(largest, aa_shuffle_xor(largest, 2));
  if (lane % 4 == 0) factors[(1 + chunk) * AA_HEADS + head] = largest;
  AA_BARRIER();
  for (aa_i32 i = 0; i < AA_WARPS; ++i) largest = aa_fmax(largest, factors[(1 + i) * AA_HEADS + head]);
  const aa_i32 exponent = (aa_i32)(aa_bits(largest) >> 23);  // of zero and infinity: no scaling
  if (exponent > 1 && exponent < 253) {
    factor = aa_float((aa_u32)(253 - exponent) << 23);
    if (chunk == 0 && lane % 4 == 0) factors[head] = aa_float((aa_u32)(exponent + 1) << 23);
  } else {
    if (chunk == 0 && lane % 4 == 0) factors[head] = 1.0f;
  }
#endif
  if (chunk < kSize / 32) {
    aa_u32 pair[4][AA_PARTS];
    AA_PRAGMA_UNROLL for (int i = 0; i < 4; ++i) AA_SPLIT<0>(x[2 * i] * factor, x[2 * i + 1] * factor, pair[i]);
    AA_PRAGMA_UNROLL for (int run = 0; run < 2; ++run) {
      const aa_u32x4 four = {pair[2 * run][0], pair[2 * run][1], pair[2 * run + 1][0], pair[2 * run + 1][1]};
      local[(2 * chunk + run) * 32 + lane] = four;
    }
    if (AA_PARTS == 3) {
      const aa_u32x4 four = {pair[0][AA_PARTS - 1], pair[1][AA_PARTS - 1], pair[2][AA_PARTS - 1], pair[3][AA_PARTS - 1]};
      local[(2 * (kSize / 32) + chunk) * 32 + lane] = four;
    }
  }
}

// Scores of a lane's four slots, as exponents of two, become weights; `largest` and `total` take them in. Returns the factor of the
// sums of head lane / 4 so far.
AA_FN float aa_take_scores(float (&x)[4], float& largest, float& total) {
  float next = aa_fmax(aa_fmax(x[0], x[1]), aa_fmax(x[2], x[3]));
  next = aa_fmax(next, aa_shuffle_xor(next, 1));
  next = aa_fmax(next, aa_shuffle_xor(next, 2));
  next = aa_fmax(next, largest);
  const float factor = aa_weight2(largest, next);
  largest = next;
  total *= factor;
  AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) {
    x[e] = aa_weight2(x[e], next - AA_SHIFT, aa_float(AA_LEAST));
    total += x[e];
  }
  return factor;
}

template <int kRuns>
AA_FN void aa_scale_sums(float (&sums)[kRuns][4], float factor) {
  const float even = aa_shuffle(factor, 8 * (AA_LANE % 4)), odd = aa_shuffle(factor, 8 * (AA_LANE % 4) + 4);
  AA_PRAGMA_UNROLL for (int i = 0; i < kRuns; ++i) {
    sums[i][0] *= even;
    sums[i][1] *= odd;
    sums[i][2] *= even;
    sums[i][3] *= odd;
  }
}

#if defined(AA_CACHE_BYTES)
#include "decode_attention_tiles.h"
#else

// One warp's tiles; takes the queries while its first keys and values are on their way, so every thread of the block calls it.
// Its lane has, as the unit lays them out: scores of head lane / 4 and slots 2 (lane % 4) .. + 1 of each 8;
// sums of heads 2 (lane % 4) .. + 1, in sums[4 i + u] of elements 64 i + 8 (lane / 4) + 2 u .. + 1, heads first; `largest`
// and `total` of head lane / 4, the total of the lane's own slots.
template <int kSize>
AA_FN void aa_decode_slots(float(&sums) AA_SUMS(kSize), float (&largest)[1], float (&total)[1], aa_u32x4* queries,
                           float* factors, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, const aa_decode_place& at,
                           const aa_tuned_attention& a, aa_u8*) {
  constexpr int kChunks = kSize / 32, kColumns = kSize / 64;
  const aa_i32 lane = AA_LANE, row = lane / 4, pair = lane % 4;
  // Elements of a head beyond its size are not read.
  const aa_i32 chunks = (aa_i32)((a.size - 8 * pair + 31) / 32), columns = (aa_i32)((a.size - 8 * row + 63) / 64);
  const aa_i64 step = AA_WARPS * AA_DECODE_TILE;
  aa_i64 first = at.first + AA_WARP * AA_DECODE_TILE;

  aa_u32x4 key[2][kChunks], value[4][kColumns];
  const auto load_keys = [&](aa_i64 tile) {
    AA_PRAGMA_UNROLL for (int n = 0; n < 2; ++n) {
      const aa_i64 slot = tile + 8 * n + row;
      const aa_i64 bytes = (at.k_at + slot * a.k_stride[2] + 8 * pair) * 2;
      AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
        key[n][i] = aa_load16_if(slot < at.end && i < chunks, k, bytes + 64 * i);
      }
    }
  };
  const auto load_values = [&](aa_i64 tile) {
    AA_PRAGMA_UNROLL for (int n = 0; n < 4; ++n) {
      const aa_i64 slot = tile + 2 * pair + (n & 1) + 8 * (n >> 1);
      const aa_i64 bytes = (at.v_at + slot * a.v_stride[2] + 8 * row) * 2;
      AA_PRAGMA_UNROLL for (int i = 0; i < kColumns; ++i) {
        value[n][i] = aa_load16_if(slot < at.end && i < columns, v, bytes + 128 * i);
      }
    }
  };
  if (first < at.end) {
    load_keys(first);
    load_values(first);
  }
  aa_take_queries<kSize>(queries, factors, q, at, a);
  AA_BARRIER();
#if AA_CAT(AA_F16_IS_, AA_W)
  const float scale = a.scale * factors[row];
#else
  const float scale = a.scale;
#endif

  for (; first < at.end; first += step) {
    // Scores: rows 0 to 7 of the unit are the heads' first parts (and third), rows 8 to 15 their second.
    float x[4];
    AA_PRAGMA_UNROLL for (int n = 0; n < 2; ++n) {
      float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      AA_PRAGMA_UNROLL for (int i = 0; i < kChunks; ++i) {
        const aa_u32x4 one = queries[2 * i * 32 + lane], two = queries[(2 * i + 1) * 32 + lane];
        const aa_u32 low[4] = {one.x, one.y, one.z, one.w}, high[4] = {two.x, two.y, two.z, two.w};
        AA_MULTIPLY(AA_W)(score, low, key[n][i].x, key[n][i].y);
        AA_MULTIPLY(AA_W)(score, high, key[n][i].z, key[n][i].w);
        if (AA_PARTS == 3) {
          const aa_u32x4 three = queries[(2 * kChunks + i) * 32 + lane];
          const aa_u32 third_low[4] = {three.x, 0, three.y, 0}, third_high[4] = {three.z, 0, three.w, 0};
          AA_MULTIPLY(AA_W)(score, third_low, key[n][i].x, key[n][i].y);
          AA_MULTIPLY(AA_W)(score, third_high, key[n][i].z, key[n][i].w);
        }
      }
      AA_PRAGMA_UNROLL for (int e = 0; e < 2; ++e) {
        const float exponent = aa_exponent(score[e] + score[2 + e], scale, a.softcap);
        x[2 * n + e] = first + 8 * n + 2 * pair + e < at.end ? exponent : AA_MINUS_INFINITY;
      }
    }
    if (first + step < at.end) load_keys(first + step);

    const float factor = aa_take_scores(x, largest[0], total[0]);
    aa_u32 weight[2][AA_PARTS];
    AA_SPLIT<AA_LEAST>(x[0], x[1], weight[0]);
    AA_SPLIT<AA_LEAST>(x[2], x[3], weight[1]);
    aa_scale_sums(sums, factor);
    AA_PRAGMA_UNROLL for (int i = 0; i < kColumns; ++i) {
      const aa_u32 word[4][4] = {{value[0][i].x, value[0][i].y, value[0][i].z, value[0][i].w},
                                 {value[1][i].x, value[1][i].y, value[1][i].z, value[1][i].w},
                                 {value[2][i].x, value[2][i].y, value[2][i].z, value[2][i].w},
                                 {value[3][i].x, value[3][i].y, value[3][i].z, value[3][i].w}};
      AA_PRAGMA_UNROLL for (int u = 0; u < 4; ++u) {
        const aa_u32 across[4] = {(word[0][u] & 0xffffu) | word[1][u] << 16, word[0][u] >> 16 | (word[1][u] & 0xffff0000u),
                                  (word[2][u] & 0xffffu) | word[3][u] << 16, word[2][u] >> 16 | (word[3][u] & 0xffff0000u)};
        AA_PRAGMA_UNROLL for (int part = 0; part < AA_PARTS; ++part) {
          AA_MULTIPLY(AA_W)(sums[4 * i + u], across, weight[0][part], weight[1][part]);
        }
      }
    }
    if (first + step < at.end) load_values(first + step);
  }
  total[0] += aa_shuffle_xor(total[0], 1);
  total[0] += aa_shuffle_xor(total[0], 2);
}

#endif

AA_FN void aa_leave_totals(float* maxima, float* totals, const float (&largest)[1], const float (&total)[1]) {
  if (AA_LANE % 4 == 0) {
    maxima[AA_WARP * AA_HEADS + AA_LANE / 4] = largest[0];
    totals[AA_WARP * AA_HEADS + AA_LANE / 4] = total[0];
  }
}

template <int kSize>
AA_FN void aa_leave_sums(float* slab, const float(&sums) AA_SUMS(kSize), int s) {
  const aa_i32 row = AA_LANE / 4, pair = AA_LANE % 4;
  AA_PRAGMA_UNROLL for (int run = 0; run < kSize / 32; ++run) {
    if (run / (AA_SLAB / 32) != s) continue;
    AA_PRAGMA_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const aa_u32x4 four = {aa_bits(sums[2 * run][odd]), aa_bits(sums[2 * run][2 + odd]), aa_bits(sums[2 * run + 1][odd]),
                             aa_bits(sums[2 * run + 1][2 + odd])};
      *(aa_u32x4*)(slab + (AA_WARP * AA_HEADS + 2 * pair + odd) * AA_SLAB_PITCH + aa_run_of_result(run, row) % AA_SLAB) = four;
    }
  }
}

#define AA_STATE_OF_A_LANE 1

#endif

// Four elements of the result, from 4 * lane of a slab on.
AA_FN void aa_put_four(AA_OUT(void) out, const aa_decode_place& at, const aa_tuned_attention& a, aa_i64 head, aa_i32 d,
                       const float (&sum)[4], float total) {
  const aa_i64 row = at.token * a.out_stride[0] + head * a.out_stride[1];
  AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) {
    if (d + e < a.size) aa_store(out, a.out_dtype, row + (d + e) * a.out_stride[2], total == 0.0f ? 0.0f : sum[e] / total);
  }
}

// Adds up what the splits of a token and group of heads have left: a warp a head.
template <int kSize>
AA_FN void aa_add_splits(AA_OUT(void) out, AA_IN(float) partial, float* factors, const aa_decode_place& at,
                         const aa_tuned_attention& a) {
  constexpr int kSlab = kSize < AA_SLAB ? kSize : AA_SLAB;
  const aa_i64 stride = AA_DECODE_PARTIAL(AA_HEADS, kSize);
  const aa_i64 base = at.pair * a.splits * stride;
  const aa_i32 head = AA_WARP, lane = AA_LANE;
  if (head >= at.heads) return;
  float* const factor = factors + head * AA_DECODE_MAX_SPLITS;
  const aa_i64 sums_at = base + 2 * AA_HEADS + head * kSize + 4 * lane;
  constexpr int kRound = 16;  // splits in flight; the first ones before the factors are known
  aa_u32x4 four[kRound];
  const auto load = [&](int slab, aa_i32 s) {
    AA_PRAGMA_UNROLL for (int i = 0; i < kRound; ++i) {
      four[i] = aa_load16_if(4 * lane < kSlab && s + i < at.active, partial, (sums_at + slab * kSlab + (s + i) * stride) * 4);
    }
  };
  load(0, 0);
  float largest = AA_MINUS_INFINITY;
  for (aa_i32 s = lane; s < at.active; s += 32) largest = aa_fmax(largest, partial[base + s * stride + head]);
  largest = aa_warp_max(largest);
  float total = 0.0f;
  for (aa_i32 s = lane; s < at.active; s += 32) {
    factor[s] = aa_weight2(partial[base + s * stride + head], largest);
    total += factor[s] * partial[base + s * stride + AA_HEADS + head];
  }
  total = aa_warp_sum(total);
  AA_WARP_SYNC();
  for (int slab = 0; slab < kSize / kSlab; ++slab) {
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (aa_i32 s = 0; s < at.active; s += kRound) {
      if (slab + s > 0) load(slab, s);
      AA_PRAGMA_UNROLL for (int i = 0; i < kRound; ++i) {
        const float f = s + i < at.active ? factor[s + i] : 0.0f;
        sum[0] = aa_fma(f, aa_float(four[i].x), sum[0]);
        sum[1] = aa_fma(f, aa_float(four[i].y), sum[1]);
        sum[2] = aa_fma(f, aa_float(four[i].z), sum[2]);
        sum[3] = aa_fma(f, aa_float(four[i].w), sum[3]);
      }
    }
    if (4 * lane < kSlab) aa_put_four(out, at, a, at.first_head + head, slab * kSlab + 4 * lane, sum, total);
  }
}

// `ring`: shared memory of the warps, for caches in bytes. It may be the slab's, which is written once all slots have been read.
template <int kSize>
AA_FN void aa_decode(AA_OUT(void) out, AA_IN(void) q, AA_IN(void) k, AA_IN(void) v, AA_IN(aa_i32) sequence,
                     AA_IN(aa_i32) positions, AA_OUT(float) partial, AA_OUT(aa_u32) counters, const aa_tuned_attention& a,
                     aa_u32x4* queries, aa_u32x4* slab_memory, float* numbers, aa_u32* turn, aa_u8* ring) {
  constexpr int kSlab = kSize < AA_SLAB ? kSize : AA_SLAB;
  float* const slab = (float*)slab_memory;
  float* const maxima = numbers;                          // [warp][head]
  float* const totals = maxima + AA_WARPS * AA_HEADS;     // [warp][head]
  float* const factors = totals + AA_WARPS * AA_HEADS;    // [head], [warp][head]

  aa_decode_place at;
  const aa_i32 groups = (aa_i32)((a.heads_per_kv + AA_HEADS - 1) / AA_HEADS);
  const aa_i64 kv_head = AA_GROUP_ID(1) / groups, first = AA_GROUP_ID(1) % groups * AA_HEADS;
  at.token = AA_GROUP_ID(2);
  at.pair = at.token * a.kv_heads * groups + AA_GROUP_ID(1);
  at.first_head = kv_head * a.heads_per_kv + first;
  at.heads = (aa_i32)(a.heads_per_kv - first < AA_HEADS ? a.heads_per_kv - first : AA_HEADS);
  at.split = (aa_i32)AA_GROUP_ID(0);

  if (!a.early) aa_grid_wait();
  aa_grid_launch_next();
  const aa_i64 b = sequence[at.token * a.sequence_stride];
  const aa_i64 position = positions[at.token * a.position_stride];
  const aa_i64 begin = aa_first_slot(position, a.window);
  aa_i64 end = aa_end_slot(position, a.slots);
  if (b < 0 || b >= a.sequences || end < begin) end = begin;

  // Tiles of a block: what is seen, in equal parts, but none smaller than is worth a block.
  const aa_i32 tiles = (aa_i32)((end - begin + AA_DECODE_TILE - 1) / AA_DECODE_TILE);
  aa_i32 tiles_each = (tiles + a.splits - 1) / a.splits;
  if (tiles_each < AA_DECODE_LEAST_TILES) tiles_each = AA_DECODE_LEAST_TILES;
  at.active = tiles > tiles_each ? (tiles + tiles_each - 1) / tiles_each : 1;
  at.first = begin + (aa_i64)at.split * tiles_each * AA_DECODE_TILE;
  at.end = at.first + (aa_i64)tiles_each * AA_DECODE_TILE;
  if (at.end > end) at.end = end;
  at.k_at = b * a.k_stride[0] + kv_head * a.k_stride[1];
  at.v_at = b * a.v_stride[0] + kv_head * a.v_stride[1];
  if (a.early) {
    // Keys and values come into the second-level cache while the kernel before makes the last of them: later their loads would
    // stand behind the weights of the kernel after this one. More than a part of that cache would push each other out of it, and be
    // read twice.
#if defined(AA_CACHE_BYTES)
    const aa_i32 bytes = 1, row = (aa_i32)aa_bytes_of_row(a.size);
#else
    const aa_i32 bytes = (aa_i32)sizeof(AA_STORAGE(AA_W)), row = (aa_i32)a.size * bytes;
#endif
    aa_i64 end_early = at.split < at.active ? at.end : at.first;
    if (end_early > at.first + AA_DECODE_EARLY_SLOTS) end_early = at.first + AA_DECODE_EARLY_SLOTS;
    for (aa_i64 slot = at.first + AA_LOCAL_ID; slot < end_early; slot += AA_DECODE_ATTENTION_THREADS) {
      for (aa_i32 line = 0; line < row; line += 128) {
        aa_prefetch(k, (at.k_at + slot * a.k_stride[2]) * bytes + line);
        aa_prefetch(v, (at.v_at + slot * a.v_stride[2]) * bytes + line);
      }
    }
    aa_grid_wait();
  }
  if (at.split >= at.active) return;

  float sums AA_SUMS(kSize);
  float largest[AA_STATE_OF_A_LANE], total[AA_STATE_OF_A_LANE];
  float* const all = (float*)sums;
  AA_PRAGMA_UNROLL for (int i = 0; i < (int)(sizeof(sums) / sizeof(float)); ++i) all[i] = 0.0f;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_STATE_OF_A_LANE; ++i) {
    largest[i] = AA_MINUS_INFINITY;
    total[i] = 0.0f;
  }
  aa_decode_slots<kSize>(sums, largest, total, queries, factors, q, k, v, at, a, ring);

  // The warps' results become the block's: a warp a head.
  aa_leave_totals(maxima, totals, largest, total);
  AA_BARRIER();
  const aa_i32 head = AA_WARP, lane = AA_LANE;
  float of_warp[AA_WARPS];
  float block_largest = AA_MINUS_INFINITY, block_total = 0.0f;
  if (head < at.heads) {
    AA_PRAGMA_UNROLL for (int w = 0; w < AA_WARPS; ++w) {
      block_largest = aa_fmax(block_largest, maxima[w * AA_HEADS + head]);
    }
    AA_PRAGMA_UNROLL for (int w = 0; w < AA_WARPS; ++w) {
      of_warp[w] = aa_weight2(maxima[w * AA_HEADS + head], block_largest);
      block_total += of_warp[w] * totals[w * AA_HEADS + head];
    }
  }
  const aa_i64 partial_at = (at.pair * a.splits + at.split) * AA_DECODE_PARTIAL(AA_HEADS, kSize);
  AA_PRAGMA_UNROLL for (int s = 0; s < kSize / kSlab; ++s) {
    if (s > 0) AA_BARRIER();
    aa_leave_sums<kSize>(slab, sums, s);
    AA_BARRIER();
    if (head < at.heads && 4 * lane < kSlab) {
      float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      AA_PRAGMA_UNROLL for (int w = 0; w < AA_WARPS; ++w) {
        const float* const from = slab + (w * AA_HEADS + head) * AA_SLAB_PITCH + 4 * lane;
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sum[e] = aa_fma(of_warp[w], from[e], sum[e]);
      }
      if (at.active == 1) {
        aa_put_four(out, at, a, at.first_head + head, s * kSlab + 4 * lane, sum, block_total);
      } else {
        const aa_u32x4 four = {aa_bits(sum[0]), aa_bits(sum[1]), aa_bits(sum[2]), aa_bits(sum[3])};
        aa_store16(partial, (partial_at + 2 * AA_HEADS + head * kSize + s * kSlab + 4 * lane) * 4, four);
      }
    }
  }
  if (at.active == 1) return;
  if (head < at.heads && lane == 0) {
    partial[partial_at + head] = block_largest;
    partial[partial_at + AA_HEADS + head] = block_total;
  }
  // One thread's fences order what all threads of the block wrote before the barrier, and what they read after the next.
  AA_BARRIER();
  if (AA_LOCAL_ID == 0) {
    aa_device_fence();
    *turn = aa_atomic_add(counters, at.pair, 1);
    aa_device_fence();
  }
  AA_BARRIER();
  if (*turn != (aa_u32)(at.active - 1)) return;
  if (AA_LOCAL_ID == 0) counters[at.pair] = 0;
  // The slab is free: every thread has passed two barriers since it read it.
  aa_add_splits<kSize>(out, partial, slab, at, a);
}

#endif  // ANYACCEL_KERNELS_DECODE_ATTENTION_H_
