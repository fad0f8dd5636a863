// Products of many matrices in fp32, whose right operands lie in panels, and the panels themselves.
#include "dialect.h"
#include "dense_arguments.h"
#include "products.h"

// Columns of any element type into panels; the other operands of the products are fp32 already.
AA_KERNEL(pack_panels, AA_ITEMS)(AA_OUT(float) out, AA_IN(void) in, AA_VALUE(aa_pack) p) {
  const aa_i64 parts = (p.rows + p.part - 1) / p.part;
  const aa_i64 item = AA_ITEM_ID;
  if (item < p.matrices * p.panels * parts) {
    const aa_i64 part = item % parts;
    const aa_i64 panel = item / parts % p.panels;
    const aa_i64 matrix = item / parts / p.panels;
    const aa_i64 group_column = panel % p.panels_per_group * AA_WIDE;
    const aa_i64 column = panel / p.panels_per_group * p.group + group_column;
    const aa_i64 in_group = p.group - group_column < AA_WIDE ? p.group - group_column : AA_WIDE;
    const aa_i64 columns = p.columns - column < in_group ? p.columns - column : in_group;
    const aa_i64 begin = part * p.part;
    const aa_i64 end = begin + p.part < p.rows ? begin + p.part : p.rows;
    const aa_i64 from = matrix * p.in_matrix + column * p.in_column;
    const aa_i64 to = (matrix * p.panels + panel) * p.rows * AA_WIDE;
    for (aa_i64 j = 0; j < AA_WIDE; ++j) {
      if (j < columns) {
        for (aa_i64 k = begin; k < end; ++k) {
          out[to + k * AA_WIDE + j] = p.scale * aa_load(in, p.in_dtype, from + k * p.in_row + j * p.in_column);
        }
      } else {
        for (aa_i64 k = begin; k < end; ++k) out[to + k * AA_WIDE + j] = 0.0f;
      }
    }
  }
}
AA_REGISTER(pack_panels, AA_ITEMS)

// Rows r .. r + rows - 1 of a times panel p (and the next one) of b.
AA_FN void aa_product_tile(const int rows, const int wides, AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, aa_product s,
                           aa_i64 out_at, aa_i64 a_at, aa_i64 b_at, aa_i64 r, aa_i64 p) {
  aa_wide sums[AA_TILE_ROWS * AA_TILE_WIDES];
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * wides; ++i) sums[i] = aa_wide_all(0.0f);
  aa_tile_add(rows, wides, sums, a, a_at + r * s.a_row, s.a_row, s.a_inner, b, b_at + p * s.b.panel, s.b.panel, s.b.row,
              s.inner);
  AA_PRAGMA_UNROLL for (int i = 0; i < rows; ++i) {
    AA_PRAGMA_UNROLL for (int w = 0; w < wides; ++w) {
      const aa_i64 at = out_at + (r + i) * s.out_row + (p + w) * AA_WIDE;
      const aa_i64 left = s.columns - (p + w) * AA_WIDE;
      if (s.add) {
        aa_tile_add_store(out, at, sums[i * wides + w], left);
      } else {
        aa_tile_store(out, at, sums[i * wides + w], left);
      }
    }
  }
}

AA_KERNEL(dense_product, AA_ITEMS)(AA_OUT(float) out, AA_IN(float) a, AA_IN(float) b, AA_VALUE(aa_product) s) {
  const aa_i64 parts = (s.rows + AA_ITEM_ROWS - 1) / AA_ITEM_ROWS;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.matrices * parts * s.split) {
    const aa_i64 share = item % s.split;
    const aa_i64 begin = item / s.split % parts * AA_ITEM_ROWS;
    const aa_i64 end = begin + AA_ITEM_ROWS < s.rows ? begin + AA_ITEM_ROWS : s.rows;
    const aa_i64 matrix = item / s.split / parts;
    const aa_i64 out_at = matrix * s.out_matrix;
    const aa_i64 a_at = matrix * s.a_matrix;
    const aa_i64 b_at = matrix * s.b.matrix;
    const aa_i64 p_begin = s.split == 1 ? 0 : share;
    const aa_i64 p_end = s.split == 1 ? (s.columns + AA_WIDE - 1) / AA_WIDE : share + 1;
#define AA_TILE(rows, wides, r, p) aa_product_tile(rows, wides, out, a, b, s, out_at, a_at, b_at, r, p)
    AA_EACH_TILE(AA_TILE, begin, end, p_begin, p_end)
#undef AA_TILE
  }
}
AA_REGISTER(dense_product, AA_ITEMS)
