// Tiles of matrix products in the registers of one item: rows of a dense or blocked left operand times AA_WIDE (or twice as
// many) columns of a right operand whose columns lie in panels. Everything is fp32. Include after dialect.h, and
// where AA_ITEM_ROWS is used dense_arguments.h.
#ifndef ANYACCEL_KERNELS_PRODUCTS_H_
#define ANYACCEL_KERNELS_PRODUCTS_H_

#define AA_ITEM_ROWS AA_ITEM_ROWS_OF(AA_GROUP_SIZE)
// Rows and aa_wides of columns of a tile. A language whose registers hold fewer than a processor with AVX-512 has defines both.
#ifndef AA_TILE_ROWS
#define AA_TILE_ROWS (AA_GROUP_SIZE == 1 ? 8 : 4)
#define AA_TILE_WIDES 2
#endif

#ifndef AA_HAS_WIDE_STORE
AA_FN void aa_wide_store_f32(AA_OUT(float) p, aa_i64 i, aa_wide a) {
  AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) p[i + j] = aa_wide_get(a, j);
}
// The first n < AA_WIDE elements.
AA_FN void aa_wide_store_part(AA_OUT(float) p, aa_i64 i, aa_wide a, aa_i64 n) {
  for (aa_i32 j = 0; j < n; ++j) p[i + j] = aa_wide_get(a, j);
}
#endif

// Calls tile(rows, wides, r, p) for tiles that cover the rows r_begin .. r_end - 1 of the panels p_begin .. p_end - 1; `rows` and
// `wides` are constants.
#define AA_TILES_OF_PANELS(tile, wides, r_begin, r_end, p)                                \
  {                                                                                       \
    aa_i64 r = r_begin;                                                                   \
    for (; r + AA_TILE_ROWS <= r_end; r += AA_TILE_ROWS) tile(AA_TILE_ROWS, wides, r, p); \
    if (AA_TILE_ROWS > 4 && r + 4 <= r_end) {                                             \
      tile(4, wides, r, p);                                                               \
      r += 4;                                                                             \
    }                                                                                     \
    for (; r < r_end; ++r) {                                                              \
      for (aa_i64 w = 0; w < wides; ++w) tile(1, 1, r, p + w);                            \
    }                                                                                     \
  }
#define AA_EACH_TILE(tile, r_begin, r_end, p_begin, p_end) \
  for (aa_i64 p = p_begin; p < p_end;) {                   \
    if (AA_TILE_WIDES == 2 && p + 1 < p_end) {             \
      AA_TILES_OF_PANELS(tile, 2, r_begin, r_end, p)       \
      p += 2;                                              \
    } else {                                               \
      AA_TILES_OF_PANELS(tile, 1, r_begin, r_end, p)       \
      ++p;                                                 \
    }                                                      \
  }

// sums[r * wides + w] += row r of a times panel w of b, over `inner` elements. `rows` and `wides` are constants.
AA_FN void aa_tile_add(const int rows, const int wides, AA_PRIVATE aa_wide* sums, AA_IN(float) a, aa_i64 a_at,
                       aa_i64 a_row, aa_i64 a_inner, AA_IN(float) b, aa_i64 b_at, aa_i64 b_panel, aa_i64 b_row,
                       aa_i64 inner) {
  for (aa_i64 k = 0; k < inner; ++k) {
    aa_wide columns[2];
    AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) columns[w] = AA_LOAD_WIDE(f32, b, b_at + w * b_panel + k * b_row);
    AA_PRAGMA_UNROLL for (int r = 0; r < rows; ++r) {
      const aa_wide value = aa_wide_all(a[a_at + r * a_row + k * a_inner]);
      AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) {
        sums[r * wides + w] = aa_wide_fma(value, columns[w], sums[r * wides + w]);
      }
    }
  }
}

// Stores the sums of one row and panel; `left` columns remain.
AA_FN void aa_tile_store(AA_OUT(float) out, aa_i64 at, aa_wide sums, aa_i64 left) {
  if (left >= AA_WIDE) {
    aa_wide_store_f32(out, at, sums);
  } else {
    aa_wide_store_part(out, at, sums, left);
  }
}

// Adds them to what is there.
AA_FN void aa_tile_add_store(AA_OUT(float) out, aa_i64 at, aa_wide sums, aa_i64 left) {
  if (left >= AA_WIDE) {
    aa_wide_store_f32(out, at, aa_wide_fma(AA_LOAD_WIDE(f32, out, at), aa_wide_all(1.0f), sums));
  } else {
    for (aa_i32 j = 0; j < left; ++j) out[at + j] += aa_wide_get(sums, j);
  }
}

#endif  // ANYACCEL_KERNELS_PRODUCTS_H_
