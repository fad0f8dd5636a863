// Products of rows with the weights of their expert, which may be integers of 8 or 4 bits (anyaccel/ops/inference_cutlass.h).
#include "dialect.h"
#include "activations.h"
#include "grouped_arguments.h"

#define AA_GROUPED_ROWS AA_GROUPED_ROWS_OF(AA_GROUP_SIZE)
#define AA_GROUPED_COLUMNS AA_GROUPED_COLUMNS_OF(AA_GROUP_SIZE)
#define AA_GROUPED_WIDES (AA_GROUPED_COLUMNS / AA_WIDE)

// Element i of a weight.
AA_FN float aa_weight(AA_IN(void) w, aa_i32 kind, aa_i64 i) {
  if (kind == AA_WEIGHT_8) return (float)AA_AS_IN(aa_i8, w)[i];
  if (kind == AA_WEIGHT_4) {
    const aa_i32 byte = AA_AS_IN(aa_u8, w)[i / 2];
    const aa_i32 value = i % 2 == 0 ? byte & 15 : byte >> 4;
    return (float)((value ^ 8) - 8);
  }
  return aa_load(w, kind, i);
}

// Elements i to i + AA_WIDE - 1; `kind` is a constant, and i is even where two elements share a byte.
AA_FN aa_wide aa_weights(AA_IN(void) w, const aa_i32 kind, aa_i64 i) {
  if (kind == AA_WEIGHT_8) return aa_wide_load_i8(AA_AS_IN(aa_i8, w), i);
  if (kind == AA_WEIGHT_4) return aa_wide_load_i4(AA_AS_IN(aa_u8, w), i);
  if (kind == AA_F32) return AA_LOAD_WIDE(f32, AA_AS_IN(float, w), i);
  if (kind == AA_BF16) return AA_LOAD_WIDE(bf16, AA_AS_IN(aa_u16, w), i);
  return AA_LOAD_WIDE(f16, AA_AS_IN(aa_u16, w), i);
}

AA_FN void aa_grouped_store(AA_OUT(void) out, AA_IN(void) scales, AA_IN(void) bias, aa_grouped s, aa_i64 expert,
                            aa_i64 row, aa_i64 column, float sum) {
  if (s.has_scales) sum *= aa_load(scales, s.dtype, expert * s.columns + column);
  if (s.has_bias) sum += aa_load(bias, s.dtype, expert * s.columns + column);
  if (s.activation >= 0) sum = aa_activate(sum, s.activation);
  aa_store(out, s.dtype, row * s.columns + column, sum);
}

// The sums of rows row .. row + rows - 1 and of `wides` times AA_WIDE columns, to the corner of `results` [.., AA_GROUPED_COLUMNS];
// w_at is the weight's first element in the first of the columns. rows, wides and kind are constants.
AA_FN void aa_grouped_tile(const int rows, const int wides, AA_PRIVATE float* results, AA_IN(float) x, AA_IN(void) w,
                           const aa_i32 kind, aa_grouped s, aa_i64 w_at, aa_i64 row) {
  aa_wide sums[AA_GROUPED_ROWS * AA_GROUPED_WIDES];
  AA_PRAGMA_UNROLL for (int i = 0; i < rows * wides; ++i) sums[i] = aa_wide_all(0.0f);
  for (aa_i64 k = 0; k < s.inner; ++k) {
    aa_wide weights[AA_GROUPED_WIDES];
    AA_PRAGMA_UNROLL for (int c = 0; c < wides; ++c) weights[c] = aa_weights(w, kind, w_at + k * s.columns + c * AA_WIDE);
    AA_PRAGMA_UNROLL for (int r = 0; r < rows; ++r) {
      const aa_wide value = aa_wide_all(x[(row + r) * s.inner + k]);
      AA_PRAGMA_UNROLL for (int c = 0; c < wides; ++c) {
        sums[r * wides + c] = aa_wide_fma(value, weights[c], sums[r * wides + c]);
      }
    }
  }
  AA_PRAGMA_UNROLL for (int r = 0; r < rows; ++r) {
    AA_PRAGMA_UNROLL for (int c = 0; c < wides; ++c) {
      AA_PRAGMA_UNROLL for (int j = 0; j < AA_WIDE; ++j) {
        results[r * AA_GROUPED_COLUMNS + c * AA_WIDE + j] = aa_wide_get(sums[r * wides + c], j);
      }
    }
  }
}

// An item's rows and `columns` columns from `column` on, for a weight of one kind.
AA_FN void aa_grouped_item(AA_PRIVATE float* results, AA_IN(float) x, AA_IN(void) w, const aa_i32 kind, aa_grouped s,
                           aa_i64 expert, aa_i64 row, aa_i64 rows, aa_i64 column, aa_i64 columns) {
  const aa_i64 w_at = expert * s.inner * s.columns + column;
  if (rows == AA_GROUPED_ROWS && columns == AA_GROUPED_COLUMNS) {
    aa_grouped_tile(AA_GROUPED_ROWS, AA_GROUPED_WIDES, results, x, w, kind, s, w_at, row);
  } else {
    // Compilers that know the largest number of rows and columns write every combination of their tails out.
    AA_PRAGMA_NO_UNROLL for (aa_i64 r = 0; r < rows; ++r) {
      AA_PRIVATE float* to = results + r * AA_GROUPED_COLUMNS;
      aa_i64 c = 0;
#if AA_GROUP_SIZE == 1
      if (columns == AA_GROUPED_COLUMNS) {
        aa_grouped_tile(1, AA_GROUPED_WIDES, to, x, w, kind, s, w_at, row + r);
        c = columns;
      }
#endif
      AA_PRAGMA_NO_UNROLL for (; c + AA_WIDE <= columns; c += AA_WIDE) {
        aa_grouped_tile(1, 1, to + c, x, w, kind, s, w_at + c, row + r);
      }
      AA_PRAGMA_NO_UNROLL for (; c < columns; ++c) {
        float sum = 0.0f;
        for (aa_i64 k = 0; k < s.inner; ++k) {
          sum = aa_fma(x[(row + r) * s.inner + k], aa_weight(w, kind, w_at + k * s.columns + c), sum);
        }
        to[c] = sum;
      }
    }
  }
}

// `before` are the rows up to and including each expert's. Rows of no expert are left as they are.
AA_KERNEL(grouped_product, AA_ITEMS)
(AA_OUT(void) out, AA_IN(float) x, AA_IN(void) w, AA_IN(void) scales, AA_IN(void) bias, AA_IN(aa_i64) before,
 AA_VALUE(aa_grouped) s) {
  const aa_i64 strips = (s.columns + AA_GROUPED_COLUMNS - 1) / AA_GROUPED_COLUMNS;
  const aa_i64 item = AA_ITEM_ID;
  if (item < s.tiles * strips) {
    // A processor keeps the weights of a strip in its cache; neighbours on a device read neighbouring weights.
#if AA_GROUP_SIZE == 1
    aa_i64 tile = item % s.tiles;
    const aa_i64 strip = item / s.tiles;
#else
    aa_i64 tile = item / strips;
    const aa_i64 strip = item % strips;
#endif
    aa_i64 expert = -1;
    aa_i64 row = 0;
    aa_i64 end = 0;
    if (s.all_rows) {
      expert = 0;
      end = s.rows;
      row = tile * AA_GROUPED_ROWS;
    } else {
      for (aa_i64 e = 0; e < s.experts && expert < 0; ++e) {
        const aa_i64 begin = end;
        const aa_i64 last = before[e] < s.rows ? before[e] : s.rows;
        if (last > begin) {
          const aa_i64 tiles = (last - begin + AA_GROUPED_ROWS - 1) / AA_GROUPED_ROWS;
          if (tile < tiles) {
            expert = e;
            row = begin + tile * AA_GROUPED_ROWS;
          }
          tile -= tiles;
          end = last;
        }
      }
    }
    if (expert >= 0 && row < end) {
      const aa_i64 rows = end - row < AA_GROUPED_ROWS ? end - row : AA_GROUPED_ROWS;
      const aa_i64 column = strip * AA_GROUPED_COLUMNS;
      const aa_i64 left = s.columns - column;
      const aa_i64 columns = left < AA_GROUPED_COLUMNS ? left : AA_GROUPED_COLUMNS;
      float results[AA_GROUPED_ROWS * AA_GROUPED_COLUMNS];
      if (s.weight == AA_WEIGHT_8) {
        aa_grouped_item(results, x, w, AA_WEIGHT_8, s, expert, row, rows, column, columns);
      } else if (s.weight == AA_WEIGHT_4) {
        aa_grouped_item(results, x, w, AA_WEIGHT_4, s, expert, row, rows, column, columns);
      } else if (s.weight == AA_F32) {
        aa_grouped_item(results, x, w, AA_F32, s, expert, row, rows, column, columns);
      } else if (s.weight == AA_BF16) {
        aa_grouped_item(results, x, w, AA_BF16, s, expert, row, rows, column, columns);
      } else {
        aa_grouped_item(results, x, w, AA_F16, s, expert, row, rows, column, columns);
      }
      AA_PRAGMA_NO_UNROLL for (aa_i64 r = 0; r < rows; ++r) {
        AA_PRAGMA_NO_UNROLL for (aa_i64 c = 0; c < columns; ++c) {
          aa_grouped_store(out, scales, bias, s, expert, row + r, column + c, results[r * AA_GROUPED_COLUMNS + c]);
        }
      }
    }
  }
}
AA_REGISTER(grouped_product, AA_ITEMS)
