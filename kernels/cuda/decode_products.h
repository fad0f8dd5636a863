// Products of a few rows of x with rows of weights, for decoding: the time is that of reading the weights once. What
// decode_linear.cu, decode_gated.cu and decode_qkv.cu share; include first, with AA_W given.
//
// One block of 16 warps a multiprocessor takes an even share of the units: one row of weights, or two that belong
// together. Its warps take even shares of the block's groups of 512 bytes, so a unit may end in another warp than it
// began in; what such a warp has of it waits in shared memory for the warp where it began, which adds the parts in
// their order. Each thread keeps loads of 16 bytes in flight, from memory to its own places of a ring in shared memory,
// across the ends of units, so that the memory never waits for arithmetic. x lies in shared memory as floats,
// multiplied by the norm's weight; its root mean square is applied to the sums at the end, or, where the norm's result is
// rounded, to x in shared memory before.
//
// The kernel after this one may start at once, and where its weights were not written lately (`early`), it fills its ring before
// this one has ended. The host gives a block more than half of a multiprocessor's shared memory: with two blocks of a kernel
// on one multiprocessor and none on another, which is what the device does with smaller ones, half of the memory's speed is
// lost.
//
// A kind of product is a struct with overloads of
//   aa_unit_rows(work, unit, row)           the rows of weights of a unit, as AA_IN(aa_u8)
//   aa_unit_token(work, token)              what a token has for all units, an aa_decode_token without its scale
//   aa_unit_fetch(work, unit, token, raw)   loads four numbers that the end of the unit will need, as they lie in memory
//   aa_unit_end(work, unit, token, sums, raw, about)
#ifndef ANYACCEL_KERNELS_DECODE_PRODUCTS_H_
#define ANYACCEL_KERNELS_DECODE_PRODUCTS_H_

#include "decode_units.h"

// Weights in 16 bytes, and quads of them.
#define AA_W_VALUES ((aa_i32)(16 / sizeof(AA_STORAGE(AA_W))))
#define AA_W_QUADS (AA_W_VALUES / 4)

#define AA_W_QUAD(v, quad) AA_CAT(aa_quad_of_, AA_W)(v, quad)

// Sums of kRows values (a power of two) over the warp; a lane gets the one of its token, lane / (32 / kRows).
template <int kRows>
AA_FN float aa_sums_by_token(float (&v)[kRows], aa_i32 lane) {
  aa_i32 distance = 16;
  AA_PRAGMA_UNROLL for (int half = kRows / 2; half > 0; half /= 2) {
    const bool upper = (lane & distance) != 0;
    AA_PRAGMA_UNROLL for (int i = 0; i < half; ++i) {
      const float sent = upper ? v[i] : v[i + half];
      const float kept = upper ? v[i + half] : v[i];
      v[i] = kept + aa_shuffle_xor(sent, distance);
    }
    distance /= 2;
  }
  float sum = v[0];
  for (; distance > 0; distance /= 2) sum += aa_shuffle_xor(sum, distance);
  return sum;
}

// The location of a quad of a row of x in shared memory: [group][row][quad of 16 bytes of weights][lane].
AA_FN aa_i32 aa_staged_at(aa_i32 quad, aa_i32 m, aa_i32 rows) {
  const aa_i32 chunk = quad / AA_W_QUADS;
  return (((chunk >> 5) * rows + m) * AA_W_QUADS + quad % AA_W_QUADS) * 32 + (chunk & 31);
}

// Brings x [rows,K] to shared memory, multiplied by the norm's weight, with zeros beyond M and K, and leaves the sums of squares
// by warp and row.
AA_FN void aa_stage(AA_IN(void) x, AA_IN(void) norm, const aa_decode_x& xs, aa_i32 quads, aa_quad* staged, float* squares) {
  constexpr int kFlight = 4;  // loads of x in flight: one round for K up to 8192
  const aa_i32 dtype = aa_opaque(xs.dtype);
  const aa_i32 norm_dtype = aa_opaque(xs.norm_dtype);
  AA_PRAGMA_NO_UNROLL for (aa_i32 m = 0; m < xs.rows; ++m) {
    AA_IN(aa_u8) from = AA_AS_IN(aa_u8, x) + m * xs.row;
    AA_IN(aa_u8) factors = AA_AS_IN(aa_u8, norm);
    const aa_i32 there = m < xs.m ? xs.k / 4 : 0;
    float sum = 0;
    AA_PRAGMA_NO_UNROLL for (aa_i32 round = AA_LOCAL_ID; round < quads; round += kFlight * AA_DECODE_THREADS) {
      aa_u32x4 values[kFlight], by[kFlight];
      AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
        const aa_i32 q = round + i * AA_DECODE_THREADS;
        values[i] = {0, 0, 0, 0};
        by[i] = {0, 0, 0, 0};
        if (q < there) {
          values[i] = aa_load_quad(from, dtype, q);
          if (norm_dtype) by[i] = aa_load_quad(factors, norm_dtype, q);
        }
      }
      AA_PRAGMA_UNROLL for (int i = 0; i < kFlight; ++i) {
        const aa_i32 q = round + i * AA_DECODE_THREADS;
        if (q >= quads) continue;
        aa_quad v = aa_quad_value(values[i], dtype);
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sum = aa_fma(v.v[e], v.v[e], sum);
        if (norm_dtype && q < there) {
          const aa_quad factor = aa_quad_value(by[i], norm_dtype);
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) v.v[e] *= factor.v[e];
        }
        staged[aa_staged_at(q, m, xs.rows)] = v;
      }
    }
    if (!xs.normed) continue;
    sum = aa_warp_sum(sum);
    if (AA_LANE == 0) squares[AA_WARP * xs.rows + m] = sum;
  }
}

// Returns the factor of a token's norm, from the sums of squares that aa_stage left.
template <int kRows>
AA_FN float aa_norm_factor(const aa_decode_x& xs, const float* squares, aa_i32 token) {
  float sum = 0;
  AA_PRAGMA_UNROLL for (int w = 0; w < AA_DECODE_WARPS; ++w) sum += squares[w * kRows + token];
  return 1.0f / aa_sqrt(aa_fma(sum, xs.inverse_k, xs.eps));
}

// Multiplies what aa_stage brought by the norm's factor and rounds it to bf16. Every thread changes what it brought itself.
template <int kRows>
AA_FN void aa_round_staged(const aa_decode_x& xs, aa_i32 quads, aa_quad* staged, const float* squares) {
  AA_PRAGMA_NO_UNROLL for (aa_i32 m = 0; m < xs.m; ++m) {
    const float factor = aa_norm_factor<kRows>(xs, squares, m);
    AA_PRAGMA_NO_UNROLL for (aa_i32 q = AA_LOCAL_ID; q < quads; q += AA_DECODE_THREADS) {
      aa_quad* const at = staged + aa_staged_at(q, m, kRows);
      const aa_quad v = *at;
      const aa_u32 low = aa_pack_bf16(v.v[0] * factor, v.v[1] * factor);
      const aa_u32 high = aa_pack_bf16(v.v[2] * factor, v.v[3] * factor);
      *at = aa_quad_of_bf16({low, high, 0, 0}, 0);
    }
  }
}

// kRows: rows of x; kUnit: rows of weights in a unit; kLoads: see decode_arguments.h.
template <int kRows, int kUnit, int kLoads, class Work>
AA_FN void aa_decode(const Work& work, AA_IN(void) x, AA_IN(void) norm, const aa_decode_x& xs, aa_u8* local) {
  constexpr int kSlots = kLoads / kUnit;  // groups in flight
  constexpr int kLanes = 32 / kRows;      // that have the same token
  aa_u32x4* const ring = (aa_u32x4*)local + AA_LOCAL_ID;                   // [slot][row of the unit][thread]
  aa_quad* const staged = (aa_quad*)(local + AA_DECODE_RING_BYTES(kLoads));
  float* const squares = (float*)(staged + xs.groups * (kRows * AA_W_QUADS * 32));  // [warp][row of x]
  float* const begun = squares + AA_DECODE_WARPS * kRows;                  // [warp][row of the unit][token]
  float* const ended = begun + AA_DECODE_WARPS * kUnit * kRows;            // the same

  const aa_i32 lane = AA_LANE;
  const aa_i32 warp = (aa_i32)aa_shuffle_u32((aa_u32)AA_WARP, 0);  // which tells the compiler that it is the same in all lanes
  const aa_i32 block = (aa_i32)AA_GROUP_ID(0);
  const aa_i32 more = block < xs.units_more ? 1 : 0;
  const aa_i32 first = block * xs.units_each + (more ? block : xs.units_more);
  const aa_i32 groups = xs.groups;
  const aa_i64 all = (aa_i64)(xs.units_each + more) * groups;
  const aa_i32 begin = (aa_i32)(all * warp / AA_DECODE_WARPS), end = (aa_i32)(all * (warp + 1) / AA_DECODE_WARPS);
  const aa_i32 chunks = xs.k / AA_W_VALUES;

  // The next group of the block to load, which is group `ask_group` of its unit.
  AA_IN(aa_u8) row[kUnit];
  aa_i32 ask = begin, ask_unit = first + begin / groups, ask_group = begin % groups;
  const aa_u64 policy = aa_read_once();
  const auto load = [&](int slot) {
    if (ask < end) {
      const aa_i32 chunk = ask_group * 32 + lane;
      AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
        aa_async_copy16_once(ring + (slot * kUnit + r) * AA_DECODE_THREADS, row[r], chunk * 16, chunk < chunks, policy);
      }
      ++ask;
      if (++ask_group == groups) {
        ask_group = 0;
        ++ask_unit;
        if (ask < end) aa_unit_rows(work, ask_unit, row);
      }
    }
    aa_async_commit();
  };
  if (!xs.early) aa_grid_wait();
  aa_grid_launch_next();
  if (begin < end) aa_unit_rows(work, ask_unit, row);
  AA_PRAGMA_NO_UNROLL for (int slot = 0; slot < kSlots; ++slot) load(slot);
  aa_grid_wait();

  aa_stage(x, norm, xs, groups * (AA_W_QUADS * 32), staged, squares);
  AA_BARRIER();
  if (xs.rounds) {
    aa_round_staged<kRows>(xs, groups * (AA_W_QUADS * 32), staged, squares);
    AA_BARRIER();
  }
  // The token whose results this lane finishes; -1: none.
  const aa_i32 token = lane % kLanes == 0 && lane / kLanes < xs.m ? lane / kLanes : -1;
  aa_decode_token about = {1.0f, 0, 0};
  if (token >= 0) {
    about = aa_unit_token(work, token);
    about.scale = xs.normed && !xs.rounds ? aa_norm_factor<kRows>(xs, squares, token) : 1.0f;
  }

  aa_i32 unit = first + begin / groups, group = begin % groups;
  bool whole = false;  // the unit began in this warp
  aa_u32 raw[4] = {0, 0, 0, 0};
  float sums[kUnit][kRows];
  const auto start = [&] {
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
      AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) sums[r][m] = 0;
    }
    whole = group == 0;
    if (whole && token >= 0) aa_unit_fetch(work, unit, token, raw);
  };
  if (begin < end) start();
  int slot = 0;
  AA_PRAGMA_NO_UNROLL for (aa_i32 at = begin; at < end; ++at) {
    aa_async_wait(kSlots - 1);
    const aa_quad* const values = staged + group * (kRows * AA_W_QUADS * 32) + lane;
    aa_u32x4 chunk[kUnit];
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) chunk[r] = ring[(slot * kUnit + r) * AA_DECODE_THREADS];
    AA_PRAGMA_UNROLL for (int quad = 0; quad < AA_W_QUADS; ++quad) {
      aa_quad w[kUnit];
      AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) w[r] = AA_W_QUAD(chunk[r], quad);
      AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) {
        const aa_quad v = values[(m * AA_W_QUADS + quad) * 32];
        AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
          AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sums[r][m] = aa_fma(w[r].v[e], v.v[e], sums[r][m]);
        }
      }
    }
    load(slot);
    slot = slot + 1 == kSlots ? 0 : slot + 1;
    ++group;
    if (group < groups && at + 1 < end) continue;

    float result[kUnit];
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] = aa_sums_by_token<kRows>(sums[r], lane);
    const bool complete = whole && group == groups;
    if (token >= 0) {
      if (complete) {
        AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] *= about.scale;
        aa_unit_end(work, unit, token, result, raw, about);
      } else {
        float* const to = (whole ? begun : ended) + warp * (kUnit * kRows) + token;
        AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) to[r * kRows] = result[r];
      }
    }
    if (complete) whole = false;
    if (group == groups && at + 1 < end) {
      group = 0;
      ++unit;
      start();
    }
  }
  AA_BARRIER();
  // A unit that began here and ended in the warps after this one.
  if (!whole || token < 0) return;
  float result[kUnit];
  AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] = begun[(warp * kUnit + r) * kRows + token];
  const aa_i64 unit_end = (aa_i64)(unit - first + 1) * groups;
  AA_PRAGMA_NO_UNROLL for (aa_i32 w = warp + 1; w < AA_DECODE_WARPS; ++w) {
    const aa_i64 from = all * w / AA_DECODE_WARPS;
    if (from >= unit_end) break;
    if (from == all * (w + 1) / AA_DECODE_WARPS) continue;  // a warp without groups
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] += ended[(w * kUnit + r) * kRows + token];
  }
  AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] *= about.scale;
  aa_unit_end(work, unit, token, result, raw, about);
}

// The kernels that a file has, AA_DECODE_KERNELS(X) being X(shape) for each: a shape is 100 times the rows of x plus the loads under
// way. With AA_SHAPE given that one only, else all that the host chooses from (src/accelerators/cuda/ops/decode_plan.h).
#if defined(AA_SHAPE)
#define AA_DECODE_KERNELS(X) X(AA_SHAPE)
#else
#define AA_DECODE_KERNELS(X) X(112) X(104) X(204) X(404) X(804)
#endif
#define AA_SHAPE_ROWS(shape) ((shape) / 100)
#define AA_SHAPE_LOADS(shape) ((shape) % 100)
// Rows of weights in a unit of a product that has no pairs of them.
#define AA_SHAPE_UNIT(shape) (AA_SHAPE_ROWS(shape) == 1 ? 1 : 2)

#endif  // ANYACCEL_KERNELS_DECODE_PRODUCTS_H_
