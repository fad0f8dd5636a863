// Matrix products by tiles in local memory; nothing where an item works alone. See linear_parts.h.
#include "linear_parts.h"
#include "shared_tiles.h"

#if AA_GROUP_SIZE > 1
// This item's tile of the group's AA_M rows of x from m0 on times AA_N rows of w from n0 on. Elements of local memory are
// zero where there are none.
AA_FN aa_tile aa_shared_product(AA_IN(aa_x_type) x, aa_linear_x xs, aa_i64 m0, AA_IN(aa_w_type) w, aa_linear_part part,
                                aa_i64 n0, AA_LOCAL float* tiles, aa_i32 id) {
  AA_LOCAL float* xt = tiles;
  AA_LOCAL float* wt = tiles + AA_SHARED_K * AA_M;
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
    tile = aa_shared_step(tile, tiles, id);
    AA_BARRIER();
  }
  return tile;
}

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
(AA_OUT(void) out, AA_IN(aa_x_type) x, AA_IN(aa_w_type) w, AA_IN(void) bias, AA_IN(void) residual,
 AA_VALUE(aa_linear_x) xs, AA_VALUE(aa_linear_part) part, AA_VALUE(aa_linear_residual) res) {
  AA_SHARED_TILES(tiles);
  aa_linear_shared(out, x, w, bias, residual, xs, part, res, AA_GROUP_ID(1) * AA_M, AA_GROUP_ID(0) * AA_N, tiles,
                   AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_XW(linear_shared), AA_GROUP_SIZE)

AA_KERNEL(AA_NAME_XW(linear_multi_shared), AA_GROUP_SIZE)
(AA_IN(aa_x_type) x, AA_VALUE(aa_linear_x) xs, AA_OUT(void) out0, AA_IN(aa_w_type) w0, AA_IN(void) bias0,
 AA_VALUE(aa_linear_part) p0, AA_OUT(void) out1, AA_IN(aa_w_type) w1, AA_IN(void) bias1, AA_VALUE(aa_linear_part) p1,
 AA_OUT(void) out2, AA_IN(aa_w_type) w2, AA_IN(void) bias2, AA_VALUE(aa_linear_part) p2, AA_OUT(void) out3,
 AA_IN(aa_w_type) w3, AA_IN(void) bias3, AA_VALUE(aa_linear_part) p3) {
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
 AA_IN(void) bias_up, AA_VALUE(aa_linear_x) xs, AA_VALUE(aa_linear_part) gate, AA_VALUE(aa_linear_part) up,
 AA_VALUE(aa_i32) kind) {
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
