// Products of a few rows of x with rows of weights, for decoding: the time is that of reading the weights once. What
// decode_linear.cu, decode_gated.cu and decode_qkv.cu share; include first, with AA_W given.
//
// One block of 16 warps a multiprocessor takes an even share of the rows of weights. A warp streams one unit (1, 2 or 4
// rows) after another: each thread keeps 4 to 8 loads of 16 bytes under way in a ring of registers, across the ends
// of rows, so that the memory never waits for arithmetic. x lies in shared memory as floats, multiplied by the norm's weight;
// its root mean square is applied to the sums at the end. Where there are few units several warps share one along K.
//
// The first weights are asked for (into the second-level cache) while the kernel before ends; nothing else happens before
// aa_grid_wait(), not even a read of weights, which an earlier kernel may have made. The next kernel may start when a block
// has issued its last loads.
//
// A kind of product is a struct with overloads of
//   aa_unit_rows(work, unit, row)       the rows of weights of a unit, as AA_IN(aa_u8)
//   aa_unit_token(work, token)          what a token has for all units, an aa_decode_token without its scale; -1: none
//   aa_unit_inputs(work, unit, token)   four numbers that its end will need, loaded early
//   aa_unit_end(work, unit, token, sums, inputs, about)
#ifndef ANYACCEL_KERNELS_DECODE_PRODUCTS_H_
#define ANYACCEL_KERNELS_DECODE_PRODUCTS_H_

#include "../portable/dialect.h"
#include "../portable/arguments.h"
#include "decode_arguments.h"
#include "warp.h"

struct alignas(16) aa_quad {
  float v[4];
};

// What the end of a unit knows of a token: the factor of its sums, and two numbers of the kind of product.
struct alignas(16) aa_decode_token {
  float scale;
  aa_i32 first, second, reserved;
};

// Weights in 16 bytes, and quads of them.
#define AA_W_VALUES ((aa_i32)(16 / sizeof(AA_STORAGE(AA_W))))
#define AA_W_QUADS (AA_W_VALUES / 4)

AA_FN aa_quad aa_quad_of_f32(aa_u32x4 v, aa_i32) {
  return {{aa_float(v.x), aa_float(v.y), aa_float(v.z), aa_float(v.w)}};
}
AA_FN aa_quad aa_quad_of_bf16(aa_u32x4 v, aa_i32 quad) {
  const aa_u32 a = quad ? v.z : v.x;
  const aa_u32 b = quad ? v.w : v.y;
  return {{aa_float(a << 16), aa_float(a & 0xffff0000u), aa_float(b << 16), aa_float(b & 0xffff0000u)}};
}
AA_FN aa_quad aa_quad_of_f16(aa_u32x4 v, aa_i32 quad) {
  const aa_u32 a = quad ? v.z : v.x;
  const aa_u32 b = quad ? v.w : v.y;
  return {{aa_unpack_f16((aa_u16)a), aa_unpack_f16((aa_u16)(a >> 16)), aa_unpack_f16((aa_u16)b),
           aa_unpack_f16((aa_u16)(b >> 16))}};
}
#define AA_W_QUAD(v, quad) AA_CAT(aa_quad_of_, AA_W)(v, quad)

// A value of a type known when running; aa_load without its branches.
AA_FN float aa_load_value(AA_IN(void) p, aa_i32 dtype, aa_i64 i) {
  if (dtype == AA_F32) return AA_AS_IN(float, p)[i];
  const aa_u16 bits = AA_AS_IN(aa_u16, p)[i];
  return dtype == AA_BF16 ? aa_from_bf16(bits) : aa_unpack_f16(bits);
}
AA_FN void aa_store_value(AA_OUT(void) p, aa_i32 dtype, aa_i64 i, float v) {
  if (dtype == AA_F32) {
    AA_AS_OUT(float, p)[i] = v;
  } else {
    const aa_u32 f16 = aa_pack_f16(v, v);
    const aa_u32 bf16 = aa_pack_bf16(v, v);
    AA_AS_OUT(aa_u16, p)[i] = (aa_u16)(dtype == AA_BF16 ? bf16 : f16);
  }
}

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

// Four neighbours of a type known when running, as they lie in memory: aligned to 16 bytes (F32) or 8.
AA_FN aa_u32x4 aa_load_quad(AA_IN(aa_u8) p, aa_i32 dtype, aa_i32 quad) {
  if (dtype == AA_F32) return aa_load16(p, (aa_i64)quad * 16);
  const aa_u64 bits = AA_AS_IN(aa_u64, p)[quad];
  return {(aa_u32)bits, (aa_u32)(bits >> 32), 0, 0};
}
AA_FN aa_quad aa_quad_value(aa_u32x4 v, aa_i32 dtype) {
  if (dtype == AA_F32) return aa_quad_of_f32(v, 0);
  const aa_quad bf16 = aa_quad_of_bf16(v, 0);
  const aa_quad f16 = aa_quad_of_f16(v, 0);
  aa_quad value;
  AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) value.v[e] = dtype == AA_BF16 ? bf16.v[e] : f16.v[e];
  return value;
}

// Where a quad of a row of x lies in shared memory: [group][row][quad of 16 bytes of weights][lane].
AA_FN aa_i32 aa_staged_at(aa_i32 quad, aa_i32 m, aa_i32 rows) {
  const aa_i32 chunk = quad / AA_W_QUADS;
  return (((chunk >> 5) * rows + m) * AA_W_QUADS + quad % AA_W_QUADS) * 32 + (chunk & 31);
}

// Begins to bring x [rows,K] to shared memory, with zeros beyond M and K. Without registers, most of which hold weights that
// are under way, and all of it at once: it takes one trip to the second-level cache.
AA_FN void aa_stage_begin(AA_IN(void) x, const aa_decode_x& xs, aa_i32 quads, aa_quad* staged) {
  const aa_i32 dtype = aa_opaque(xs.dtype);
  AA_PRAGMA_NO_UNROLL for (aa_i32 m = 0; m < xs.rows; ++m) {
    AA_IN(aa_u8) from = AA_AS_IN(aa_u8, x) + m * xs.row;
    const aa_i32 there = m < xs.m ? xs.k / 4 : 0;
    AA_PRAGMA_NO_UNROLL for (aa_i32 q = AA_LOCAL_ID; q < quads; q += AA_DECODE_THREADS) {
      aa_quad* to = &staged[aa_staged_at(q, m, xs.rows)];
      if (dtype == AA_F32) {
        aa_async_copy16(to, from, (aa_i64)q * 16, q < there);
      } else {
        aa_u32x4 v = {0, 0, 0, 0};
        if (q < there) v = aa_load_quad(from, dtype, q);
        *to = aa_quad_value(v, dtype);
      }
    }
  }
  aa_async_commit();
}

// Ends it: multiplies by the norm's weight, and leaves the sums of squares by warp and row. Each thread does what it has
// brought.
AA_FN void aa_stage_end(AA_IN(void) norm, const aa_decode_x& xs, aa_i32 quads, aa_quad* staged, float* squares) {
  const aa_i32 dtype = aa_opaque(xs.norm_dtype);
  const aa_i32 there = dtype ? xs.k / 4 : 0;
  AA_IN(aa_u8) from = AA_AS_IN(aa_u8, norm);
  aa_u32x4 next = {0, 0, 0, 0};
  if (AA_LOCAL_ID < there) next = aa_load_quad(from, dtype, AA_LOCAL_ID);
  aa_async_wait(0);
  if (!xs.normed) return;
  AA_PRAGMA_NO_UNROLL for (aa_i32 m = 0; m < xs.m; ++m) {
    float sum = 0;
    AA_PRAGMA_NO_UNROLL for (aa_i32 q = AA_LOCAL_ID; q < quads; q += AA_DECODE_THREADS) {
      const aa_u32x4 factor = next;
      const aa_i32 after = q + AA_DECODE_THREADS < quads ? q + AA_DECODE_THREADS : AA_LOCAL_ID;
      if (after < there && after != q) next = aa_load_quad(from, dtype, after);
      aa_quad* at = &staged[aa_staged_at(q, m, xs.rows)];
      aa_quad v = *at;
      AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sum = aa_fma(v.v[e], v.v[e], sum);
      if (q < there) {
        const aa_quad by = aa_quad_value(factor, dtype);
        AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) v.v[e] *= by.v[e];
        *at = v;
      }
    }
    sum = aa_warp_sum(sum);
    if (AA_LANE == 0) squares[AA_WARP * xs.rows + m] = sum;
  }
}

// The token whose results thread `id` finishes, in the first warp of a team; -1: none.
template <int kRows>
AA_FN aa_i32 aa_token_of(const aa_decode_x& xs, aa_i32 id) {
  constexpr int kLanes = 32 / kRows;
  const aa_i32 token = (id & 31) / kLanes;
  const aa_i32 share = (id >> 5) & ((1 << xs.split_bits) - 1);
  return id % kLanes == 0 && token < xs.m && share == 0 ? token : -1;
}

// kRows: rows of x; kUnit: rows of weights in a unit.
template <int kRows, int kUnit, class Work>
AA_FN void aa_decode(const Work& work, AA_IN(void) x, AA_IN(void) norm, const aa_decode_x& xs, aa_u8* local) {
  constexpr int kStep = AA_DECODE_STEP(kRows, kUnit);
  constexpr int kLanes = 32 / kRows;  // that have the same token
  aa_quad* staged = (aa_quad*)local;
  aa_decode_token* tokens = (aa_decode_token*)(local + xs.steps * (kStep * kRows * AA_W_QUADS * 512));  // [warp][row]
  aa_quad* inputs = (aa_quad*)(tokens + AA_DECODE_WARPS * kRows);  // [warp][row]
  float* squares = (float*)(inputs + AA_DECODE_WARPS * kRows);
  float* partial = squares + AA_DECODE_WARPS * kRows;  // [2][warp][row of the unit][token]

  const aa_i32 lane = AA_LANE;
  const aa_i32 warp = (aa_i32)aa_shuffle_u32((aa_u32)AA_WARP, 0);  // which tells the compiler that it is the same in all lanes
  const aa_i32 teams = AA_DECODE_WARPS >> xs.split_bits;
  const aa_i32 team = warp >> xs.split_bits;
  const aa_i32 share = warp & ((1 << xs.split_bits) - 1);
  const aa_i32 block = (aa_i32)AA_GROUP_ID(0);
  const aa_i32 more = block < xs.units_more ? 1 : 0;
  const aa_i32 first = block * xs.units_each + (more ? block : xs.units_more);
  const aa_i32 last = first + xs.units_each + more;
  const aa_i32 begin = ((xs.steps * share) >> xs.split_bits) * kStep;
  const aa_i32 end = ((xs.steps * (share + 1)) >> xs.split_bits) * kStep;
  const aa_i32 chunks = xs.k / AA_W_VALUES;
  const aa_i32 stop = chunks < end * 32 ? chunks : end * 32;

  AA_IN(aa_u8) row[kUnit];
  AA_PRAGMA_NO_UNROLL for (aa_i32 ahead = 0; ahead < xs.prefetch_units; ++ahead) {
    const aa_i32 unit = first + ahead * teams + team;
    if (unit >= last) break;
    aa_unit_rows(work, unit, row);
    const aa_i32 most = begin * 512 + xs.prefetch_bytes;
    const aa_i32 to = most < stop * 16 ? most : stop * 16;
    AA_PRAGMA_NO_UNROLL for (aa_i32 at = begin * 512 + lane * 128; at < to; at += 32 * 128) {
      AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) aa_prefetch(row[r], at);
    }
  }
  if (xs.norm_dtype) {
    const aa_i32 bytes = xs.k * (xs.norm_dtype == AA_F32 ? 4 : 2);
    AA_PRAGMA_NO_UNROLL for (aa_i32 at = AA_LOCAL_ID * 128; at < bytes; at += AA_DECODE_THREADS * 128) aa_prefetch(norm, at);
  }
  aa_grid_wait();

  // The loads that are issued next: this lane's chunk of 16 bytes of the unit's rows, and how many chunks there are from it
  // on.
  aa_i32 left = 0;
  aa_u32x4 ring[kStep][kUnit];
  const auto enter = [&](aa_i32 unit) {
    left = 0;
    if (unit >= last) return;
    aa_unit_rows(work, unit, row);
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) row[r] = row[r] + (begin * 512 + lane * 16);
    left = stop - begin * 32 - lane;
  };
  const auto load = [&](int j) {
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) ring[j][r] = aa_load16_stream_if(row[r], 512 * j, left > 32 * j);
  };
  enter(first + team);
  AA_PRAGMA_UNROLL for (int j = 0; j < kStep; ++j) load(j);

  const aa_i32 quads = xs.steps * (kStep * 32 * AA_W_QUADS);
  aa_stage_begin(x, xs, quads, staged);
  aa_stage_end(norm, xs, quads, staged, squares);
  AA_BARRIER();
  if (lane % kLanes == 0) {
    aa_decode_token about = aa_unit_token(work, aa_token_of<kRows>(xs, AA_LOCAL_ID));
    about.scale = 1.0f;
    if (xs.normed) {
      float sum = 0;
      AA_PRAGMA_UNROLL for (int w = 0; w < AA_DECODE_WARPS; ++w) sum += squares[w * kRows + lane / kLanes];
      about.scale = 1.0f / aa_sqrt(aa_fma(sum, xs.inverse_k, xs.eps));
    }
    tokens[AA_WARP * kRows + lane / kLanes] = about;  // for this very thread
  }

  AA_PRAGMA_NO_UNROLL for (aa_i32 start = first; start < last; start += teams) {
    const aa_i32 mine = start + team;
    // What the end of the unit needs waits in shared memory, for this very thread, while registers hold weights.
    {
      const aa_i32 token = mine < last ? aa_token_of<kRows>(xs, aa_opaque(AA_LOCAL_ID)) : -1;
      if (token >= 0) inputs[AA_WARP * kRows + token] = aa_unit_inputs(work, mine, token);
    }
    float sums[kUnit][kRows];
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
      AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) sums[r][m] = 0;
    }
    if (mine < last) {
      AA_PRAGMA_NO_UNROLL for (aa_i32 g = begin; g < end; g += kStep) {
        if (g + kStep < end) {
          left -= 32 * kStep;
          AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) row[r] = row[r] + 512 * kStep;
        } else {
          enter(mine + teams);
          if (mine + teams >= last) aa_grid_launch_next();
        }
        const aa_quad* values = staged + g * (kRows * AA_W_QUADS * 32) + lane;
        AA_PRAGMA_UNROLL for (int j = 0; j < kStep; ++j) {
          AA_PRAGMA_UNROLL for (int quad = 0; quad < AA_W_QUADS; ++quad) {
            aa_quad w[kUnit];
            AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) w[r] = AA_W_QUAD(ring[j][r], quad);
            if (kRows > 4) AA_WARP_SYNC();
            AA_PRAGMA_UNROLL for (int m = 0; m < kRows; ++m) {
              const aa_quad v = values[((j * kRows + m) * AA_W_QUADS + quad) * 32];
              AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) {
                AA_PRAGMA_UNROLL for (int e = 0; e < 4; ++e) sums[r][m] = aa_fma(w[r].v[e], v.v[e], sums[r][m]);
              }
            }
          }
          load(j);
          if (kRows > 1) AA_WARP_SYNC();  // keeps ptxas from loading more of x ahead than there are registers
        }
      }
    }
    // What follows happens once a unit and computes its numbers again, so that they take no registers from the loop above.
    const aa_i32 id = aa_opaque(AA_LOCAL_ID);
    const aa_i32 token = mine < last ? aa_token_of<kRows>(xs, id) : -1;
    float result[kUnit];
    AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] = aa_sums_by_token<kRows>(sums[r], id & 31);
    if (xs.split_bits > 0) {
      const aa_i32 slot = (id & 31) / kLanes;
      // Two buffers in turn: teams is a power of two, and start - first a multiple of it.
      const aa_i32 buffer = ((start - first) & teams) ? AA_DECODE_WARPS * kUnit * kRows : 0;
      float* here = partial + buffer + (id >> 5) * (kUnit * kRows) + slot;
      if (id % kLanes == 0) {
        AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) here[r * kRows] = result[r];
      }
      AA_BARRIER();
      if (token >= 0) {
        AA_PRAGMA_NO_UNROLL for (aa_i32 s = (1 << xs.split_bits) - 1; s > 0; --s) {
          here += kUnit * kRows;
          AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] += here[r * kRows];
        }
      }
    }
    if (token >= 0) {
      const aa_decode_token about = tokens[(id >> 5) * kRows + token];
      AA_PRAGMA_UNROLL for (int r = 0; r < kUnit; ++r) result[r] *= about.scale;
      aa_unit_end(work, mine, token, result, inputs[(id >> 5) * kRows + token], about);
    }
  }
}

#endif  // ANYACCEL_KERNELS_DECODE_PRODUCTS_H_
