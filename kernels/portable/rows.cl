// Ops of whole rows: embedding, rms_norm, layer_norm and softmax. A group of AA_GROUP_SIZE items works on a row; its items take
// every AA_GROUP_SIZE-th element, AA_PARTS of them at once, so that an item alone keeps AA_PARTS independent sums.
#include "dialect.h"

#include "arguments.h"
#include "formats.h"
#include "views.h"

#if AA_GROUP_SIZE == 1
#define AA_PARTS 16
#else
#define AA_PARTS 4
#endif

// ids [T]; the table begins with the row of id `first`; an id outside of the table gives zeros.
AA_KERNEL(embedding, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_i64) out_row, AA_VALUE(aa_i64) out_inner, AA_IN(void) table, AA_VALUE(aa_i64) table_row,
 AA_VALUE(aa_i64) table_inner, AA_IN(void) ids, AA_VALUE(aa_i64) id_step, AA_VALUE(aa_i64) table_rows,
 AA_VALUE(aa_i64) first, AA_VALUE(aa_i64) size, AA_VALUE(aa_i32) out_dtype, AA_VALUE(aa_i32) table_dtype,
 AA_VALUE(aa_i32) id_dtype) {
  const aa_i64 t = AA_GROUP_ID(0);
  const aa_i64 id = aa_load_index(ids, id_dtype, t * id_step);
  const aa_i32 known = id >= first && id - first < table_rows;
  const aa_i64 from = known ? (id - first) * table_row : 0;
  for (aa_i64 i = AA_LOCAL_ID; i < size; i += AA_GROUP_SIZE) {
    const float v = known ? aa_load(table, table_dtype, from + i * table_inner) : 0.0f;
    aa_store(out, out_dtype, t * out_row + i * out_inner, v);
  }
}
AA_REGISTER(embedding, AA_GROUP_SIZE)

// The function whose values are summed over a row.
#define AA_OF_VALUES 0
#define AA_OF_SQUARES 1
#define AA_OF_EXPONENTIALS 2
// (x - shift), its square, or e^(x * scale - shift)
AA_FN float aa_term(float x, aa_i32 of, float scale, float shift) {
  if (of == AA_OF_EXPONENTIALS) return aa_exp(aa_fma(x, scale, -shift));
  const float d = x - shift;
  return of == AA_OF_SQUARES ? d * d : d;
}

// An item's part of a sum over a row of `size` elements. `of` is a constant where this is called.
AA_FN float aa_row_sum(AA_IN(void) p, aa_i32 dtype, aa_i64 base, aa_i64 inner, aa_i64 size, aa_i32 id, aa_i32 of,
                       float scale, float shift) {
  float part[AA_PARTS];
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_PARTS; ++j) part[j] = 0.0f;
  aa_i64 i = id;
  for (; i + (AA_PARTS - 1) * AA_GROUP_SIZE < size; i += AA_PARTS * AA_GROUP_SIZE) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_PARTS; ++j) {
      part[j] += aa_term(aa_load(p, dtype, base + (i + j * AA_GROUP_SIZE) * inner), of, scale, shift);
    }
  }
  for (; i < size; i += AA_GROUP_SIZE) part[0] += aa_term(aa_load(p, dtype, base + i * inner), of, scale, shift);
  AA_PRAGMA_UNROLL for (aa_i32 d = AA_PARTS / 2; d > 0; d /= 2) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < d; ++j) part[j] += part[j + d];
  }
  return part[0];
}

// residual += x, an item's part of a row.
AA_FN void aa_row_add(AA_OUT(void) residual, aa_rows residual_rows, aa_i64 residual_base, AA_IN(void) x, aa_rows x_rows,
                      aa_i64 x_base, aa_i64 size, aa_i32 id) {
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const aa_i64 at = residual_base + i * residual_rows.inner;
    const float sum = aa_load(x, x_rows.dtype, x_base + i * x_rows.inner) + aa_load(residual, residual_rows.dtype, at);
    aa_store(residual, residual_rows.dtype, at, sum);
  }
}

// weight [size], bias [size] and residual may be absent (dtype 0). With `centred` the mean is taken off: layer_norm; without,
// and without a bias: rms_norm.
AA_KERNEL(norm_rows, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_rows, AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_IN(void) weight,
 AA_VALUE(aa_i64) weight_step, AA_IN(void) bias, AA_VALUE(aa_i64) bias_step, AA_OUT(void) residual,
 AA_VALUE(aa_rows) residual_rows, AA_VALUE(aa_i64) size, AA_VALUE(float) eps, AA_VALUE(aa_i32) centred,
 AA_VALUE(aa_i32) weight_dtype, AA_VALUE(aa_i32) bias_dtype) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = aa_row_offset(out_rows, row);
  const aa_i64 x_base = aa_row_offset(x_rows, row);
  const aa_i32 has_residual = residual_rows.dtype != 0;
  const aa_i64 residual_base = has_residual ? aa_row_offset(residual_rows, row) : 0;
  if (has_residual) aa_row_add(residual, residual_rows, residual_base, x, x_rows, x_base, size, id);

  // An item reads back only what it has written.
  AA_IN(void) v = has_residual ? AA_AS_IN(void, residual) : x;
  const aa_i32 dtype = has_residual ? residual_rows.dtype : x_rows.dtype;
  const aa_i64 base = has_residual ? residual_base : x_base;
  const aa_i64 inner = has_residual ? residual_rows.inner : x_rows.inner;
  float mean = 0.0f;
  if (centred) {
    mean =
        aa_group_sum(aa_row_sum(v, dtype, base, inner, size, id, AA_OF_VALUES, 1.0f, 0.0f), scratch, id) / (float)size;
  }
  const float squares =
      aa_group_sum(aa_row_sum(v, dtype, base, inner, size, id, AA_OF_SQUARES, 1.0f, mean), scratch, id);
  const float factor = 1.0f / aa_sqrt(squares / (float)size + eps);
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    float y = (aa_load(v, dtype, base + i * inner) - mean) * factor;
    if (weight_dtype) y *= aa_load(weight, weight_dtype, i * weight_step);
    if (bias_dtype) y += aa_load(bias, bias_dtype, i * bias_step);
    aa_store(out, out_rows.dtype, to + i * out_rows.inner, y);
  }
}
AA_REGISTER(norm_rows, AA_GROUP_SIZE)

AA_KERNEL(softmax, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_rows, AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_VALUE(aa_i64) size,
 AA_VALUE(float) scale) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = aa_row_offset(out_rows, row);
  const aa_i64 base = aa_row_offset(x_rows, row);
  float part[AA_PARTS];
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_PARTS; ++j) part[j] = aa_float(0xff800000u);
  aa_i64 i = id;
  for (; i + (AA_PARTS - 1) * AA_GROUP_SIZE < size; i += AA_PARTS * AA_GROUP_SIZE) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < AA_PARTS; ++j) {
      part[j] = aa_fmax(part[j], aa_load(x, x_rows.dtype, base + (i + j * AA_GROUP_SIZE) * x_rows.inner) * scale);
    }
  }
  for (; i < size; i += AA_GROUP_SIZE) {
    part[0] = aa_fmax(part[0], aa_load(x, x_rows.dtype, base + i * x_rows.inner) * scale);
  }
  for (aa_i32 j = 1; j < AA_PARTS; ++j) part[0] = aa_fmax(part[0], part[j]);
  const float largest = aa_group_max(part[0], scratch, id);
  const float sum = aa_group_sum(
      aa_row_sum(x, x_rows.dtype, base, x_rows.inner, size, id, AA_OF_EXPONENTIALS, scale, largest), scratch, id);
  const float factor = 1.0f / sum;
  for (i = id; i < size; i += AA_GROUP_SIZE) {
    const float v = aa_load(x, x_rows.dtype, base + i * x_rows.inner);
    aa_store(out, out_rows.dtype, to + i * out_rows.inner, aa_term(v, AA_OF_EXPONENTIALS, scale, largest) * factor);
  }
}
AA_REGISTER(softmax, AA_GROUP_SIZE)
