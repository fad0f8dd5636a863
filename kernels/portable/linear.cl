// Matrix products: "linear", "linear_multi" and "gated_linear" of anyaccel/abi/ops.h.
//
// Two forms. In the first, a team of AA_LANES items multiplies a tile of up to 4 rows of x with 4 rows of w along K, AA_WIDE
// elements a step: names end in _rows1 for one row of x (decoding), where the time is that of reading w, and in _rows4. With
// one lane the running sums are vectors, so that a tile of 4 x 4 fills the registers of a CPU core. In the second, _shared, a
// group loads tiles of x and w into local memory, for products of many rows on devices that have such memory.
//
// Strides are free; where K is contiguous in both x and w it is read AA_WIDE elements at once.
#include "dialect.h"
#include "arguments.h"
#include "linear_arguments.h"
#include "activations.h"

typedef AA_STORAGE(AA_X) aa_x_type;
typedef AA_STORAGE(AA_W) aa_w_type;

typedef struct aa_tile {
  float v[AA_TILE_M * AA_TILE_N];
} aa_tile;

AA_FN float aa_with_bias(float v, AA_IN(void) bias, aa_linear_part part, aa_i64 n) {
  return part.bias_dtype ? v + aa_load(bias, part.bias_dtype, n * part.bias_inner) : v;
}

AA_FN void aa_finish(float v, AA_OUT(void) out, AA_IN(void) bias, aa_linear_part part, AA_IN(void) residual,
                     aa_linear_residual res, aa_i64 m, aa_i64 n) {
  v = aa_with_bias(v, bias, part, n);
  if (res.dtype) v += aa_load(residual, res.dtype, m * res.row + n * res.inner);
  aa_store(out, part.out_dtype, m * part.out_row + n * part.out_inner, v);
}

AA_FN void aa_finish_gated(float gate, float up, AA_OUT(void) out, AA_IN(void) gate_bias, aa_linear_part gate_part,
                           AA_IN(void) up_bias, aa_linear_part up_part, aa_i32 kind, aa_i64 m, aa_i64 n) {
  gate = aa_with_bias(gate, gate_bias, gate_part, n);
  up = aa_with_bias(up, up_bias, up_part, n);
  aa_store(out, gate_part.out_dtype, m * gate_part.out_row + n * gate_part.out_inner, aa_activate(gate, kind) * up);
}

// linear_multi: units of `width` rows of w are numbered through all parts. The part of a unit, and the unit's number within
// it; what lies beyond the last part counts to the last.
AA_FN aa_i64 aa_units(aa_linear_part part, aa_i64 width) { return (part.n + width - 1) / width; }
AA_FN aa_i32 aa_part_of(aa_i64 unit, aa_i64 width, aa_linear_part p0, aa_linear_part p1, aa_linear_part p2,
                        aa_linear_part p3) {
  unit -= aa_units(p0, width);
  if (unit < 0 || p1.n == 0) return 0;
  unit -= aa_units(p1, width);
  if (unit < 0 || p2.n == 0) return 1;
  unit -= aa_units(p2, width);
  return unit < 0 || p3.n == 0 ? 2 : 3;
}
AA_FN aa_i64 aa_unit_in_part(aa_i64 unit, aa_i32 number, aa_i64 width, aa_linear_part p0, aa_linear_part p1,
                             aa_linear_part p2) {
  if (number > 0) unit -= aa_units(p0, width);
  if (number > 1) unit -= aa_units(p1, width);
  if (number > 2) unit -= aa_units(p2, width);
  return unit;
}
#define AA_PICK(number, a, b, c, d) ((number) == 0 ? (a) : (number) == 1 ? (b) : (number) == 2 ? (c) : (d))

// ---- tiles in registers ------------------------------------------------------------------------------------------------

#define AA_TEAM_ID (AA_GROUP_ID(0) * (AA_GROUP_SIZE / AA_LANES) + (aa_u32)AA_LOCAL_ID / AA_LANES)
#if AA_GROUP_SIZE > 1
#define AA_TEAM_SCRATCH(name) AA_SCRATCH(name)
#else
#define AA_TEAM_SCRATCH(name) AA_LOCAL float* name = 0
#endif

// Unrolled, what ends a tile keeps it in registers. A CPU core reads it back from the stack in no time, and there it would
// only make the code several times as long.
#if AA_GROUP_SIZE > 1 && AA_SUBGROUP
#define AA_FINISH_UNROLL AA_PRAGMA_UNROLL
#else
#define AA_FINISH_UNROLL
#endif

// Sums over lanes through local memory are a dozen barriers each: too many to repeat them in the code for each element.
#if AA_LANES == 1 || AA_SUBGROUP
#define AA_LANES_UNROLL AA_PRAGMA_UNROLL
#else
#define AA_LANES_UNROLL
#endif

// A sum over K while it runs.
#if AA_LANES == 1
typedef aa_wide aa_running;
#define aa_running_zero aa_wide_all(0.0f)
#define aa_running_step(a, b, sum) aa_wide_fma(a, b, sum)
#define aa_running_sum(sum) aa_wide_sum(sum)
#else
typedef float aa_running;
#define aa_running_zero 0.0f
#define aa_running_step(a, b, sum) aa_wide_dot(a, b, sum)
#define aa_running_sum(sum) (sum)
#endif

// Products of rows m .. m + rows - 1 of x with rows n .. n + AA_TILE_N - 1 of w; what lies beyond the last row repeats it.
// `rows` is a constant. Every lane gets the sums.
AA_FN aa_tile aa_tile_product(const int rows, AA_IN(aa_x_type) x, aa_linear_x xs, aa_i64 m, AA_IN(aa_w_type) w,
                              aa_linear_part part, aa_i64 n, AA_LOCAL float* scratch, aa_i32 id) {
  const aa_i32 lane = id & (AA_LANES - 1);
  const aa_i64 wide_end = part.contiguous ? xs.k & ~(aa_i64)(AA_LANES * AA_WIDE - 1) : 0;
  aa_i64 x_at[AA_TILE_M];
  aa_i64 w_at[AA_TILE_N];
  aa_running running[AA_TILE_M * AA_TILE_N];
  aa_tile tile;
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) x_at[i] = (m + i < xs.m ? m + i : xs.m - 1) * xs.row;
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) w_at[j] = (n + j < part.n ? n + j : part.n - 1) * part.w_row;
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) running[i] = aa_running_zero;

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

// Whether this lane stores element i of its team's tile, which is (m, n) of an out of m_end x n_end.
AA_FN int aa_stores(int i, aa_i32 id, aa_i64 m, aa_i64 m_end, aa_i64 n, aa_i64 n_end) {
  return (i & (AA_LANES - 1)) == (id & (AA_LANES - 1)) && m < m_end && n < n_end;
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
      AA_FINISH_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) {
        const aa_i64 mi = m + i / AA_TILE_N;
        const aa_i64 ni = n + i % AA_TILE_N;
        if (aa_stores(i, id, mi, m_end, ni, part.n)) aa_finish(tile.v[i], out, bias, part, residual, res, mi, ni);
      }
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

#define AA_REGISTER_TILES(rows, linear_name, multi_name, gated_name)                                                     \
  AA_KERNEL(AA_NAME_XW(linear_name), AA_GROUP_SIZE)                                                                      \
  (AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias, AA_IN(void) residual, aa_linear_x xs,     \
   aa_linear_part part, aa_linear_residual res) {                                                                        \
    AA_TEAM_SCRATCH(scratch);                                                                                            \
    aa_linear_tiles(rows, out, x, w, bias, residual, xs, part, res, AA_GROUP_ID(1) * xs.block,                           \
                    AA_TEAM_ID * xs.tiles * AA_TILE_N, scratch, AA_LOCAL_ID);                                            \
  }                                                                                                                      \
  AA_REGISTER(AA_NAME_XW(linear_name), AA_GROUP_SIZE)                                                                    \
  AA_KERNEL(AA_NAME_XW(multi_name), AA_GROUP_SIZE)                                                                       \
  (AA_IN(aa_x_type) x, aa_linear_x xs, AA_OUT(void) out0, AA_IN(aa_w_type) w0, AA_IN(void) bias0, aa_linear_part p0,     \
   AA_OUT(void) out1, AA_IN(aa_w_type) w1, AA_IN(void) bias1, aa_linear_part p1, AA_OUT(void) out2, AA_IN(aa_w_type) w2, \
   AA_IN(void) bias2, aa_linear_part p2, AA_OUT(void) out3, AA_IN(aa_w_type) w3, AA_IN(void) bias3, aa_linear_part p3) { \
    AA_TEAM_SCRATCH(scratch);                                                                                            \
    const aa_i64 width = xs.tiles * AA_TILE_N;                                                                           \
    const aa_i32 part = aa_part_of(AA_TEAM_ID, width, p0, p1, p2, p3);                                                   \
    const aa_i64 n0 = aa_unit_in_part(AA_TEAM_ID, part, width, p0, p1, p2) * width;                                      \
    const aa_linear_residual none = {0, 0, 0, 0};                                                                        \
    AA_IN(void) bias = AA_PICK(part, bias0, bias1, bias2, bias3);                                                        \
    aa_linear_tiles(rows, AA_PICK(part, out0, out1, out2, out3), x, AA_PICK(part, w0, w1, w2, w3), bias, bias, xs,       \
                    AA_PICK(part, p0, p1, p2, p3), none, AA_GROUP_ID(1) * xs.block, n0, scratch, AA_LOCAL_ID);           \
  }                                                                                                                      \
  AA_REGISTER(AA_NAME_XW(multi_name), AA_GROUP_SIZE)                                                                     \
  AA_KERNEL(AA_NAME_XW(gated_name), AA_GROUP_SIZE)                                                                       \
  (AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate, AA_IN(aa_w_type) w_up, AA_IN(void) bias_gate,          \
   AA_IN(void) bias_up, aa_linear_x xs, aa_linear_part gate, aa_linear_part up, aa_i32 kind) {                           \
    AA_TEAM_SCRATCH(scratch);                                                                                            \
    aa_gated_tiles(rows, out, x, w_gate, w_up, bias_gate, bias_up, xs, gate, up, kind, AA_GROUP_ID(1) * xs.block,        \
                   AA_TEAM_ID * xs.tiles * AA_TILE_N, scratch, AA_LOCAL_ID);                                             \
  }                                                                                                                      \
  AA_REGISTER(AA_NAME_XW(gated_name), AA_GROUP_SIZE)

AA_REGISTER_TILES(1, linear_rows1, linear_multi_rows1, gated_linear_rows1)
AA_REGISTER_TILES(4, linear_rows4, linear_multi_rows4, gated_linear_rows4)

// ---- weights of two element types --------------------------------------------------------------------------------------

// gated_linear where w_up is of another type than w_gate; one item an element of out.
AA_KERNEL(AA_NAME_XW(gated_linear_mixed), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate, AA_IN(void) w_up, AA_IN(void) bias_gate,
 AA_IN(void) bias_up, aa_linear_x xs, aa_linear_part gate, aa_linear_part up, aa_i32 kind, aa_i32 up_dtype) {
  const aa_i64 m = AA_GROUP_ID(1);
  const aa_i64 n = AA_GROUP_ID(0) * AA_GROUP_SIZE + AA_LOCAL_ID;
  if (n >= gate.n) return;
  float gate_sum = 0.0f;
  float up_sum = 0.0f;
  for (aa_i64 k = 0; k < xs.k; ++k) {
    const float a = AA_LOAD(AA_X, x, m * xs.row + k * xs.inner);
    gate_sum += a * AA_LOAD(AA_W, w_gate, n * gate.w_row + k * gate.w_inner);
    up_sum += a * aa_load(w_up, up_dtype, n * up.w_row + k * up.w_inner);
  }
  aa_finish_gated(gate_sum, up_sum, out, bias_gate, gate, bias_up, up, kind, m, n);
}
AA_REGISTER(AA_NAME_XW(gated_linear_mixed), AA_GROUP_SIZE)

// ---- tiles in local memory ---------------------------------------------------------------------------------------------

#if AA_GROUP_SIZE > 1
#define AA_COLUMNS AA_SHARED_COLUMNS(AA_GROUP_SIZE)
#define AA_M AA_SHARED_M(AA_GROUP_SIZE)
#define AA_N AA_SHARED_N(AA_GROUP_SIZE)
#define AA_SHARED_TILES(name) AA_LOCAL_ARRAY(float, name, AA_SHARED_K*(AA_M + AA_N))

// Where an item stands in its group's rectangle. (Unsigned, since a signed quotient is not a shift.)
AA_FN aa_i32 aa_shared_row(aa_i32 id) { return (aa_u32)id / AA_COLUMNS; }
AA_FN aa_i32 aa_shared_column(aa_i32 id) { return (aa_u32)id % AA_COLUMNS; }

// This item's tile of the group's AA_M rows of x from m0 on times AA_N rows of w from n0 on. Elements of local memory are
// zero where there are none; item (i, j) of the group holds rows i + 4-stride: i, i + AA_M / 4, .. and the same for w, so
// that neighbours read neighbouring words.
AA_FN aa_tile aa_shared_product(AA_IN(aa_x_type) x, aa_linear_x xs, aa_i64 m0, AA_IN(aa_w_type) w, aa_linear_part part,
                                aa_i64 n0, AA_LOCAL float* tiles, aa_i32 id) {
  AA_LOCAL float* xt = tiles;
  AA_LOCAL float* wt = tiles + AA_SHARED_K * AA_M;
  const aa_i32 row = aa_shared_row(id);
  const aa_i32 column = aa_shared_column(id);
  aa_tile tile;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) tile.v[i] = 0.0f;
  for (aa_i64 k0 = 0; k0 < xs.k; k0 += AA_SHARED_K) {
    for (aa_u32 i = id; i < AA_SHARED_K * AA_M; i += AA_GROUP_SIZE) {
      const aa_i64 m = m0 + i / AA_SHARED_K;
      const aa_i64 k = k0 + i % AA_SHARED_K;
      xt[i % AA_SHARED_K * AA_M + i / AA_SHARED_K] =
          m < xs.m && k < xs.k ? AA_LOAD(AA_X, x, m * xs.row + k * xs.inner) : 0.0f;
    }
    for (aa_u32 i = id; i < AA_SHARED_K * AA_N; i += AA_GROUP_SIZE) {
      const aa_i64 n = n0 + i / AA_SHARED_K;
      const aa_i64 k = k0 + i % AA_SHARED_K;
      wt[i % AA_SHARED_K * AA_N + i / AA_SHARED_K] =
          n < part.n && k < xs.k ? AA_LOAD(AA_W, w, n * part.w_row + k * part.w_inner) : 0.0f;
    }
    AA_BARRIER();
    for (int k = 0; k < AA_SHARED_K; ++k) {
      float a[AA_TILE_M];
      float b[AA_TILE_N];
      AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) a[i] = xt[k * AA_M + row + i * (AA_M / AA_TILE_M)];
      AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) b[j] = wt[k * AA_N + column + j * AA_COLUMNS];
      AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) tile.v[i] += a[i / AA_TILE_N] * b[i % AA_TILE_N];
    }
    AA_BARRIER();
  }
  return tile;
}

// Rows of x and of w of element i of this item's tile.
AA_FN aa_i64 aa_shared_m(int i, aa_i64 m0, aa_i32 id) {
  return m0 + aa_shared_row(id) + i / AA_TILE_N * (AA_M / AA_TILE_M);
}
AA_FN aa_i64 aa_shared_n(int i, aa_i64 n0, aa_i32 id) { return n0 + aa_shared_column(id) + i % AA_TILE_N * AA_COLUMNS; }

AA_FN void aa_linear_shared(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias,
                            AA_IN(void) residual, aa_linear_x xs, aa_linear_part part, aa_linear_residual res, aa_i64 m0,
                            aa_i64 n0, AA_LOCAL float* tiles, aa_i32 id) {
  const aa_tile tile = aa_shared_product(x, xs, m0, w, part, n0, tiles, id);
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) {
    const aa_i64 m = aa_shared_m(i, m0, id);
    const aa_i64 n = aa_shared_n(i, n0, id);
    if (m < xs.m && n < part.n) aa_finish(tile.v[i], out, bias, part, residual, res, m, n);
  }
}

AA_KERNEL(AA_NAME_XW(linear_shared), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias, AA_IN(void) residual, aa_linear_x xs,
 aa_linear_part part, aa_linear_residual res) {
  AA_SHARED_TILES(tiles);
  aa_linear_shared(out, x, w, bias, residual, xs, part, res, AA_GROUP_ID(1) * AA_M, AA_GROUP_ID(0) * AA_N, tiles,
                   AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_XW(linear_shared), AA_GROUP_SIZE)

AA_KERNEL(AA_NAME_XW(linear_multi_shared), AA_GROUP_SIZE)
(AA_IN(aa_x_type) x, aa_linear_x xs, AA_OUT(void) out0, AA_IN(aa_w_type) w0, AA_IN(void) bias0, aa_linear_part p0,
 AA_OUT(void) out1, AA_IN(aa_w_type) w1, AA_IN(void) bias1, aa_linear_part p1, AA_OUT(void) out2, AA_IN(aa_w_type) w2,
 AA_IN(void) bias2, aa_linear_part p2, AA_OUT(void) out3, AA_IN(aa_w_type) w3, AA_IN(void) bias3, aa_linear_part p3) {
  AA_SHARED_TILES(tiles);
  const aa_i32 part = aa_part_of(AA_GROUP_ID(0), AA_N, p0, p1, p2, p3);
  const aa_i64 n0 = aa_unit_in_part(AA_GROUP_ID(0), part, AA_N, p0, p1, p2) * AA_N;
  const aa_linear_residual none = {0, 0, 0, 0};
  AA_IN(void) bias = AA_PICK(part, bias0, bias1, bias2, bias3);
  aa_linear_shared(AA_PICK(part, out0, out1, out2, out3), x, AA_PICK(part, w0, w1, w2, w3), bias, bias, xs,
                   AA_PICK(part, p0, p1, p2, p3), none, AA_GROUP_ID(1) * AA_M, n0, tiles, AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_XW(linear_multi_shared), AA_GROUP_SIZE)

AA_KERNEL(AA_NAME_XW(gated_linear_shared), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w_gate, AA_IN(aa_w_type) w_up, AA_IN(void) bias_gate,
 AA_IN(void) bias_up, aa_linear_x xs, aa_linear_part gate, aa_linear_part up, aa_i32 kind) {
  AA_SHARED_TILES(tiles);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 m0 = AA_GROUP_ID(1) * AA_M;
  const aa_i64 n0 = AA_GROUP_ID(0) * AA_N;
  const aa_tile gates = aa_shared_product(x, xs, m0, w_gate, gate, n0, tiles, id);
  const aa_tile ups = aa_shared_product(x, xs, m0, w_up, up, n0, tiles, id);
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) {
    const aa_i64 m = aa_shared_m(i, m0, id);
    const aa_i64 n = aa_shared_n(i, n0, id);
    if (m < xs.m && n < gate.n) {
      aa_finish_gated(gates.v[i], ups.v[i], out, bias_gate, gate, bias_up, up, kind, m, n);
    }
  }
}
AA_REGISTER(AA_NAME_XW(gated_linear_shared), AA_GROUP_SIZE)
#endif
