// Matrix products by tiles in registers: see linear_parts.h.
#ifndef ANYACCEL_KERNELS_LINEAR_TILES_H_
#define ANYACCEL_KERNELS_LINEAR_TILES_H_

#include "linear_parts.h"
#include "teams.h"

// Products of rows m .. m + rows - 1 of x with rows n .. n + AA_TILE_N - 1 of w; what lies beyond the last row repeats it.
// `rows` is a constant. Every lane gets the sums.
AA_FN aa_tile aa_tile_product(const int rows, AA_IN(aa_x_type) x, aa_linear_x xs, aa_i64 m, AA_IN(aa_w_type) w,
                              aa_linear_part part, aa_i64 n, AA_LOCAL float* scratch, aa_i32 id) {
  const aa_i32 lane = id & (AA_LANES - 1);
  const aa_i64 wide_end = part.contiguous ? xs.k & ~(aa_i64)(AA_LANES * AA_WIDE - 1) : 0;
  AA_TILE_BEGIN(rows, xs, m, part, n);
  aa_tile tile;

  for (aa_i64 k = lane * AA_WIDE; k < wide_end; k += AA_LANES * AA_WIDE) {
    aa_wide a[AA_TILE_M];
    AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) a[i] = AA_LOAD_WIDE(AA_X, x, x_at[i] + k);
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) {
      const aa_wide b = AA_LOAD_WIDE(AA_W, w, w_at[j] + k);
      AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
        running[i * AA_TILE_N + j] = aa_running_step(a[i], b, running[i * AA_TILE_N + j]);
      }
    }
  }
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) tile.v[i] = aa_running_sum(running[i]);

  for (aa_i64 k = wide_end + lane; k < xs.k; k += AA_LANES) {
    float a[AA_TILE_M];
    AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) a[i] = AA_LOAD(AA_X, x, x_at[i] + k * xs.inner);
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) {
      const float b = AA_LOAD(AA_W, w, w_at[j] + k * part.w_inner);
      AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) tile.v[i * AA_TILE_N + j] += a[i] * b;
    }
  }
  AA_LANES_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) tile.v[i] = aa_lanes_sum(tile.v[i], scratch, id);
  return tile;
}

// The tiles of a team: xs.tiles of AA_TILE_N rows of w from n0 on, times xs.block rows of x from m0 on. Every item of a group
// goes through the same number of them, since lanes may meet at barriers.
AA_FN void aa_linear_tiles(const int rows, AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias,
                           AA_IN(void) residual, aa_linear_x xs, aa_linear_part part, aa_linear_residual res, aa_i64 m0,
                           aa_i64 n0, AA_LOCAL float* scratch, aa_i32 id) {
  const aa_i64 m_end = m0 + xs.block < xs.m ? m0 + xs.block : xs.m;
  for (aa_i64 n = n0; n < n0 + xs.tiles * AA_TILE_N; n += AA_TILE_N) {
    for (aa_i64 m = m0; m < m_end; m += rows) {
      const aa_tile tile = aa_tile_product(rows, x, xs, m, w, part, n, scratch, id);
      aa_finish_tile(rows, tile, out, bias, residual, part, res, m, m_end, n, id);
    }
  }
}

AA_FN void aa_gated_tiles(const int rows, AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate,
                          AA_IN(aa_w_type) w_up, AA_IN(void) bias_gate, AA_IN(void) bias_up, aa_linear_x xs,
                          aa_linear_part gate, aa_linear_part up, aa_i32 kind, aa_i64 m0, aa_i64 n0,
                          AA_LOCAL float* scratch, aa_i32 id) {
  const aa_i64 m_end = m0 + xs.block < xs.m ? m0 + xs.block : xs.m;
  for (aa_i64 n = n0; n < n0 + xs.tiles * AA_TILE_N; n += AA_TILE_N) {
    for (aa_i64 m = m0; m < m_end; m += rows) {
      const aa_tile gates = aa_tile_product(rows, x, xs, m, w_gate, gate, n, scratch, id);
      const aa_tile ups = aa_tile_product(rows, x, xs, m, w_up, up, n, scratch, id);
      AA_FINISH_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) {
        const aa_i64 mi = m + i / AA_TILE_N;
        const aa_i64 ni = n + i % AA_TILE_N;
        if (aa_stores(i, id, mi, m_end, ni, gate.n)) {
          aa_finish_gated(gates.v[i], ups.v[i], out, bias_gate, gate, bias_up, up, kind, mi, ni);
        }
      }
    }
  }
}

#define AA_REGISTER_TILES(rows, linear_name, multi_name, gated_name)                                               \
  AA_KERNEL(AA_NAME_XW(linear_name), AA_GROUP_SIZE)                                                                \
  (AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias, AA_IN(void) residual,               \
   AA_VALUE(aa_linear_x) xs, AA_VALUE(aa_linear_part) part, AA_VALUE(aa_linear_residual) res) {                    \
    AA_TEAM_SCRATCH(scratch);                                                                                      \
    aa_linear_tiles(rows, out, x, w, bias, residual, xs, part, res, AA_GROUP_ID(1) * xs.block,                     \
                    AA_TEAM_ID * xs.tiles * AA_TILE_N, scratch, AA_LOCAL_ID);                                      \
  }                                                                                                                \
  AA_REGISTER(AA_NAME_XW(linear_name), AA_GROUP_SIZE)                                                              \
  AA_KERNEL(AA_NAME_XW(multi_name), AA_GROUP_SIZE)                                                                 \
  (AA_IN(aa_x_type) x, AA_VALUE(aa_linear_x) xs, AA_OUT(void) out0, AA_IN(aa_w_type) w0, AA_IN(void) bias0,        \
   AA_VALUE(aa_linear_part) p0, AA_OUT(void) out1, AA_IN(aa_w_type) w1, AA_IN(void) bias1,                         \
   AA_VALUE(aa_linear_part) p1, AA_OUT(void) out2, AA_IN(aa_w_type) w2, AA_IN(void) bias2,                         \
   AA_VALUE(aa_linear_part) p2, AA_OUT(void) out3, AA_IN(aa_w_type) w3, AA_IN(void) bias3,                         \
   AA_VALUE(aa_linear_part) p3) {                                                                                  \
    AA_TEAM_SCRATCH(scratch);                                                                                      \
    const aa_i64 width = xs.tiles * AA_TILE_N;                                                                     \
    const aa_i32 part = aa_part_of(AA_TEAM_ID, width, p0, p1, p2, p3);                                             \
    const aa_i64 n0 = aa_unit_in_part(AA_TEAM_ID, part, width, p0, p1, p2) * width;                                \
    const aa_linear_residual none = {0, 0, 0, 0};                                                                  \
    AA_IN(void) bias = AA_PICK(part, bias0, bias1, bias2, bias3);                                                  \
    aa_linear_tiles(rows, AA_PICK(part, out0, out1, out2, out3), x, AA_PICK(part, w0, w1, w2, w3), bias, bias, xs, \
                    AA_PICK(part, p0, p1, p2, p3), none, AA_GROUP_ID(1) * xs.block, n0, scratch, AA_LOCAL_ID);     \
  }                                                                                                                \
  AA_REGISTER(AA_NAME_XW(multi_name), AA_GROUP_SIZE)                                                               \
  AA_KERNEL(AA_NAME_XW(gated_name), AA_GROUP_SIZE)                                                                 \
  (AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate, AA_IN(aa_w_type) w_up, AA_IN(void) bias_gate,    \
   AA_IN(void) bias_up, AA_VALUE(aa_linear_x) xs, AA_VALUE(aa_linear_part) gate, AA_VALUE(aa_linear_part) up,      \
   AA_VALUE(aa_i32) kind) {                                                                                        \
    AA_TEAM_SCRATCH(scratch);                                                                                      \
    aa_gated_tiles(rows, out, x, w_gate, w_up, bias_gate, bias_up, xs, gate, up, kind, AA_GROUP_ID(1) * xs.block,  \
                   AA_TEAM_ID * xs.tiles * AA_TILE_N, scratch, AA_LOCAL_ID);                                       \
  }                                                                                                                \
  AA_REGISTER(AA_NAME_XW(gated_name), AA_GROUP_SIZE)

#endif  // ANYACCEL_KERNELS_LINEAR_TILES_H_
