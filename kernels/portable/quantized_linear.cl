// "quantized_linear", "quantized_embedding" and "quantized_embedding_shard" of anyaccel/abi/ops.h, compiled for one format of
// blocks (AA_BLOCK). Strides of w are in bytes. Nothing is rounded.
//
// The forms are those of "linear" (linear_parts.h): quantized_rows1 for one row of x, quantized_rows4 for several, and
// quantized_shared by tiles in local memory. A row's sums do not depend on the number of rows in quantized_rows4.
#include "linear_parts.h"
#include "teams.h"
#include "shared_tiles.h"
#include "blocks.h"
#include "formats.h"

// Values that a lane decodes at once: in every format they have one scale.
#define AA_RUN 16

// Models have x in fp32, the elements of a row side by side; what else there is is read one by one.
AA_FN int aa_is_plain(aa_i32 dtype, aa_linear_x xs) { return dtype == AA_F32 && xs.inner == 1; }

// AA_WIDE elements of x, of which the first is element `k` of the row that begins at `row`.
AA_FN aa_wide aa_x_wide(const int plain, AA_IN(void) x, aa_i32 dtype, aa_linear_x xs, aa_i64 row, aa_i64 k) {
  if (plain) return AA_LOAD_WIDE(f32, AA_AS_IN(float, x), row + k);
  aa_wide r = aa_wide_all(0.0f);
  for (int j = 0; j < AA_WIDE; ++j) aa_wide_get(r, j) = aa_load(x, dtype, row + (k + j) * xs.inner);
  return r;
}

// The byte at which the block with value k of a row begins, and the value's number in it.
AA_FN aa_i64 aa_block_of(aa_i64 row, aa_i64 k) { return row + k / AA_BLOCK_VALUES * AA_BLOCK_BYTES; }
AA_FN aa_i32 aa_in_block(aa_i64 k) { return (aa_i32)(k & (AA_BLOCK_VALUES - 1)); }

// Products of rows m .. m + rows - 1 of x with rows n .. n + AA_TILE_N - 1 of w; what lies beyond the last row repeats it.
// `rows` is a constant, and `plain` where that pays (aa_is_plain). Every lane gets the sums.
AA_FN aa_tile aa_quantized_product(const int rows, const int plain, AA_IN(void) x, aa_i32 x_dtype, aa_linear_x xs, aa_i64 m,
                                   AA_IN(aa_u8) w, aa_linear_part part, aa_i64 n, AA_LOCAL float* scratch, aa_i32 id) {
  AA_TILE_BEGIN(rows, xs, m, part, n);
  aa_tile tile;
#if AA_LANES == 1
  aa_i64 block = 0;
  for (aa_i64 k0 = 0; k0 < xs.k; k0 += AA_BLOCK_VALUES) {
    aa_head heads[AA_TILE_N];
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) heads[j] = aa_head_of(w + w_at[j], block);
    AA_PRAGMA_UNROLL for (aa_i32 in_block = 0; in_block < AA_BLOCK_VALUES; in_block += AA_WIDE) {
      aa_wide a[AA_TILE_M];
      AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) a[i] = aa_x_wide(plain, x, x_dtype, xs, x_at[i], k0 + in_block);
      AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) {
        const aa_wide b = aa_decode(w + w_at[j], block, heads[j], in_block);
        AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
          running[i * AA_TILE_N + j] = aa_running_step(a[i], b, running[i * AA_TILE_N + j]);
        }
      }
    }
    block += AA_BLOCK_BYTES;
  }
#else
  for (aa_i64 k = (id & (AA_LANES - 1)) * AA_RUN; k < xs.k; k += AA_LANES * AA_RUN) {
    AA_PRAGMA_UNROLL for (aa_i32 step = 0; step < AA_RUN; step += AA_WIDE) {
      aa_wide a[AA_TILE_M];
      AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) a[i] = aa_x_wide(plain, x, x_dtype, xs, x_at[i], k + step);
      AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) {
        const aa_i64 block = aa_block_of(w_at[j], k);
        const aa_wide b = aa_decode(w, block, aa_head_of(w, block), aa_in_block(k) + step);
        AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
          running[i * AA_TILE_N + j] = aa_running_step(a[i], b, running[i * AA_TILE_N + j]);
        }
      }
    }
  }
#endif
  AA_LANES_UNROLL for (int i = 0; i < rows * AA_TILE_N; ++i) {
    tile.v[i] = aa_lanes_sum(aa_running_sum(running[i]), scratch, id);
  }
  return tile;
}

#if AA_GROUP_SIZE == 1
// An item alone decodes AA_CHUNK elements of AA_TILE_N rows of w, and multiplies them with all rows of its block of x.
#define AA_CHUNK 256

AA_FN void aa_multiply_chunk(AA_PRIVATE aa_wide* sums, AA_PRIVATE const aa_wide* decoded, aa_i32 wides, AA_IN(void) x,
                             aa_i32 x_dtype, aa_linear_x xs, aa_i64 m, aa_i64 k0) {
  const int plain = aa_is_plain(x_dtype, xs);
  aa_i64 x_at[AA_TILE_M];
  aa_wide running[AA_TILE_M * AA_TILE_N];
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) x_at[i] = (m + i < xs.m ? m + i : xs.m - 1) * xs.row;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) running[i] = sums[i];
  for (aa_i32 k = 0; k < wides; ++k) {
    aa_wide a[AA_TILE_M];
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) a[i] = aa_x_wide(plain, x, x_dtype, xs, x_at[i], k0 + k * AA_WIDE);
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_TILE_N; ++j) {
      const aa_wide b = decoded[k * AA_TILE_N + j];
      AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M; ++i) {
        running[i * AA_TILE_N + j] = aa_wide_fma(a[i], b, running[i * AA_TILE_N + j]);
      }
    }
  }
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) sums[i] = running[i];
}

AA_FN void aa_quantized_tiles(AA_OUT(void) out, AA_IN(void) x, aa_i32 x_dtype, AA_IN(aa_u8) w, AA_IN(void) bias,
                              AA_IN(void) residual, aa_linear_x xs, aa_linear_part part, aa_linear_residual res,
                              aa_i64 m0, aa_i64 n0, AA_LOCAL float* scratch, aa_i32 id) {
  aa_wide decoded[AA_CHUNK / AA_WIDE * AA_TILE_N];
  aa_wide sums[AA_LARGEST_BLOCK * AA_TILE_N];
  const aa_i32 rows = (aa_i32)(xs.m - m0 < xs.block ? xs.m - m0 : xs.block);
  for (aa_i64 n = n0; n < n0 + xs.tiles * AA_TILE_N; n += AA_TILE_N) {
    for (aa_i32 i = 0; i < (rows + AA_TILE_M - 1) / AA_TILE_M * AA_TILE_M * AA_TILE_N; ++i) sums[i] = aa_wide_all(0.0f);
    for (aa_i64 k0 = 0; k0 < xs.k; k0 += AA_CHUNK) {
      const aa_i32 count = (aa_i32)(xs.k - k0 < AA_CHUNK ? xs.k - k0 : AA_CHUNK);
      for (aa_i32 j = 0; j < AA_TILE_N; ++j) {
        const aa_i64 row = (n + j < part.n ? n + j : part.n - 1) * part.w_row;
        for (aa_i32 k = 0; k < count; k += AA_BLOCK_VALUES) {
          const aa_i64 block = aa_block_of(row, k0 + k);
          const aa_head head = aa_head_of(w, block);
          for (aa_i32 i = 0; i < AA_BLOCK_VALUES; i += AA_WIDE) {
            decoded[(k + i) / AA_WIDE * AA_TILE_N + j] = aa_decode(w, block, head, i);
          }
        }
      }
      for (aa_i32 m = 0; m < rows; m += AA_TILE_M) {
        aa_multiply_chunk(sums + m * AA_TILE_N, decoded, count / AA_WIDE, x, x_dtype, xs, m0 + m, k0);
      }
    }
    for (aa_i32 i = 0; i < rows * AA_TILE_N; ++i) {
      const aa_i64 ni = n + i % AA_TILE_N;
      if (ni < part.n) aa_finish(aa_wide_sum(sums[i]), out, bias, part, residual, res, m0 + i / AA_TILE_N, ni);
    }
  }
}
#else
AA_FN void aa_quantized_tiles(AA_OUT(void) out, AA_IN(void) x, aa_i32 x_dtype, AA_IN(aa_u8) w, AA_IN(void) bias,
                              AA_IN(void) residual, aa_linear_x xs, aa_linear_part part, aa_linear_residual res,
                              aa_i64 m0, aa_i64 n0, AA_LOCAL float* scratch, aa_i32 id) {
  const aa_i64 m_end = m0 + xs.block < xs.m ? m0 + xs.block : xs.m;
  for (aa_i64 n = n0; n < n0 + xs.tiles * AA_TILE_N; n += AA_TILE_N) {
    for (aa_i64 m = m0; m < m_end; m += AA_TILE_M) {
      const aa_tile tile =
          aa_quantized_product(AA_TILE_M, aa_is_plain(x_dtype, xs), x, x_dtype, xs, m, w, part, n, scratch, id);
      aa_finish_tile(AA_TILE_M, tile, out, bias, residual, part, res, m, m_end, n, id);
    }
  }
}
#endif

#define AA_QUANTIZED_PARAMETERS                                                                                        \
  AA_OUT(void) out, AA_IN(void) x, AA_IN(aa_u8) w, AA_IN(void) bias, AA_IN(void) residual, AA_VALUE(aa_linear_x) xs,   \
      AA_VALUE(aa_linear_part) part, AA_VALUE(aa_linear_residual) res, AA_VALUE(aa_i32) x_dtype

AA_KERNEL(AA_NAME_BLOCK(quantized_rows1), AA_GROUP_SIZE)(AA_QUANTIZED_PARAMETERS) {
  AA_TEAM_SCRATCH(scratch);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 n = AA_TEAM_ID * AA_TILE_N;
  aa_tile tile;
  if (aa_is_plain(x_dtype, xs)) {
    tile = aa_quantized_product(1, 1, x, x_dtype, xs, 0, w, part, n, scratch, id);
  } else {
    tile = aa_quantized_product(1, 0, x, x_dtype, xs, 0, w, part, n, scratch, id);
  }
  aa_finish_tile(1, tile, out, bias, residual, part, res, 0, 1, n, id);
}
AA_REGISTER(AA_NAME_BLOCK(quantized_rows1), AA_GROUP_SIZE)

AA_KERNEL(AA_NAME_BLOCK(quantized_rows4), AA_GROUP_SIZE)(AA_QUANTIZED_PARAMETERS) {
  AA_TEAM_SCRATCH(scratch);
  aa_quantized_tiles(out, x, x_dtype, w, bias, residual, xs, part, res, AA_GROUP_ID(1) * xs.block,
                     AA_TEAM_ID * xs.tiles * AA_TILE_N, scratch, AA_LOCAL_ID);
}
AA_REGISTER(AA_NAME_BLOCK(quantized_rows4), AA_GROUP_SIZE)

#if AA_GROUP_SIZE > 1
AA_KERNEL(AA_NAME_BLOCK(quantized_shared), AA_GROUP_SIZE)(AA_QUANTIZED_PARAMETERS) {
  AA_SHARED_TILES(tiles);
  const aa_i32 id = AA_LOCAL_ID;
  AA_LOCAL float* wt = tiles + AA_SHARED_K * AA_M;
  const aa_i64 m0 = AA_GROUP_ID(1) * AA_M;
  const aa_i64 n0 = AA_GROUP_ID(0) * AA_N;
  aa_tile tile;
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) tile.v[i] = 0.0f;
  // Rows beyond the last repeat it.
  for (aa_i64 k0 = 0; k0 < xs.k; k0 += AA_SHARED_K) {
    for (aa_u32 i = id; i < AA_SHARED_K * AA_M; i += AA_GROUP_SIZE) {
      const aa_i64 m = m0 + i / AA_SHARED_K < xs.m ? m0 + i / AA_SHARED_K : xs.m - 1;
      tiles[i % AA_SHARED_K * AA_M + i / AA_SHARED_K] = aa_load(x, x_dtype, m * xs.row + (k0 + i % AA_SHARED_K) * xs.inner);
    }
    for (aa_u32 i = id; i < AA_SHARED_K / AA_WIDE * AA_N; i += AA_GROUP_SIZE) {
      const aa_i32 row = i % AA_N;
      const aa_i32 k = (aa_i32)(i / AA_N) * AA_WIDE;
      const aa_i64 block = aa_block_of((n0 + row < part.n ? n0 + row : part.n - 1) * part.w_row, k0);
      const aa_wide v = aa_decode(w, block, aa_head_of(w, block), aa_in_block(k0) + k);
      AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) wt[(k + j) * AA_N + row] = aa_wide_get(v, j);
    }
    AA_BARRIER();
    tile = aa_shared_step(tile, tiles, id);
    AA_BARRIER();
  }
  AA_PRAGMA_UNROLL for (int i = 0; i < AA_TILE_M * AA_TILE_N; ++i) {
    const aa_i64 m = aa_shared_m(i, m0, id);
    const aa_i64 n = aa_shared_n(i, n0, id);
    if (m < xs.m && n < part.n) aa_finish(tile.v[i], out, bias, part, residual, res, m, n);
  }
}
AA_REGISTER(AA_NAME_BLOCK(quantized_shared), AA_GROUP_SIZE)
#endif

// ids [T]; the table begins with the row of id `first`, and an id outside of it gives zeros. A group has a row of out.
AA_KERNEL(AA_NAME_BLOCK(quantized_embedding), AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_i64) out_row, AA_VALUE(aa_i64) out_inner, AA_IN(aa_u8) table, AA_VALUE(aa_i64) table_row,
 AA_VALUE(aa_i64) table_rows, AA_VALUE(aa_i64) first, AA_IN(void) ids, AA_VALUE(aa_i64) id_step, AA_VALUE(aa_i64) size,
 AA_VALUE(aa_i32) out_dtype, AA_VALUE(aa_i32) id_dtype) {
  const aa_i64 t = AA_GROUP_ID(0);
  const aa_i64 id = aa_load_index(ids, id_dtype, t * id_step);
  const aa_i32 known = id >= first && id - first < table_rows;
  for (aa_i64 k = AA_LOCAL_ID * AA_WIDE; k < size; k += AA_GROUP_SIZE * AA_WIDE) {
    aa_wide v = aa_wide_all(0.0f);
    if (known) {
      const aa_i64 block = aa_block_of((id - first) * table_row, k);
      v = aa_decode(table, block, aa_head_of(table, block), aa_in_block(k));
    }
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) {
      aa_store(out, out_dtype, t * out_row + (k + j) * out_inner, aa_wide_get(v, j));
    }
  }
}
AA_REGISTER(AA_NAME_BLOCK(quantized_embedding), AA_GROUP_SIZE)
