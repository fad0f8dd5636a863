// Tiles of x and w in local memory, which a group multiplies (linear_shared.cl, quantized_linear.cl): AA_SHARED_K elements of
// AA_M rows of x, and then of AA_N rows of w, with rows as the inner dimension. Include after linear_parts.h.
#ifndef ANYACCEL_KERNELS_SHARED_TILES_H_
#define ANYACCEL_KERNELS_SHARED_TILES_H_

#if AA_GROUP_SIZE > 1
#define AA_COLUMNS AA_SHARED_COLUMNS(AA_GROUP_SIZE)
#define AA_M AA_SHARED_M(AA_GROUP_SIZE)
#define AA_N AA_SHARED_N(AA_GROUP_SIZE)
#define AA_SHARED_TILES(name) AA_LOCAL_ARRAY(float, name, AA_SHARED_K*(AA_M + AA_N))

// The position of an item in its group's rectangle. (Unsigned, since a signed quotient is not a shift.)
AA_FN aa_i32 aa_shared_row(aa_i32 id) { return (aa_u32)id / AA_COLUMNS; }
AA_FN aa_i32 aa_shared_column(aa_i32 id) { return (aa_u32)id % AA_COLUMNS; }

// Adds the products of the tiles in local memory to an item's tile. Item (i, j) of the group has the rows i, i + AA_M / 4, .. of
// x and the rows j, j + AA_COLUMNS, .. of w, so that neighbours read neighbouring words.
AA_FN aa_tile aa_shared_step(aa_tile tile, AA_LOCAL const float* tiles, aa_i32 id) {
  AA_LOCAL const float* xt = tiles;
  AA_LOCAL const float* wt = tiles + AA_SHARED_K * AA_M;
  const aa_i32 row = aa_shared_row(id);
  const aa_i32 column = aa_shared_column(id);
  for (int k = 0; k < AA_SHARED_K; ++k) {
    float a[AA_TILE_M];
    float b[AA_TILE_N];
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) a[i] = xt[k * AA_M + row + i * (AA_M / AA_TILE_M)];
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) b[j] = wt[k * AA_N + column + j * AA_COLUMNS];
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) tile.v[i] += a[i / AA_TILE_N] * b[i % AA_TILE_N];
  }
  return tile;
}

// Rows of x and of w of element i of this item's tile.
AA_FN aa_i64 aa_shared_m(int i, aa_i64 m0, aa_i32 id) {
  return m0 + aa_shared_row(id) + i / AA_TILE_N * (AA_M / AA_TILE_M);
}
AA_FN aa_i64 aa_shared_n(int i, aa_i64 n0, aa_i32 id) { return n0 + aa_shared_column(id) + i % AA_TILE_N * AA_COLUMNS; }

#endif

#endif  // ANYACCEL_KERNELS_SHARED_TILES_H_
