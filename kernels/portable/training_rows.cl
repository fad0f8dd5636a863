// Ops of training that work on rows: softmax with a mask and its gradient, moments, the gradients of the norms, the inverse of
// a layer norm, cross-entropy, the gradient of embedding. A group of AA_GROUP_SIZE items works on a row, as in rows.cl. Sums over
// columns are by items that work alone, one for each column.
#include "dialect.h"

#include "arguments.h"
#include "formats.h"
#include "views.h"

// x * scale + mask
AA_FN float aa_score(AA_IN(void) x, aa_rows x_rows, aa_i64 x_base, AA_IN(void) mask, aa_rows mask_rows,
                     aa_i64 mask_base, aa_i64 i, float scale) {
  const float score = aa_load(x, x_rows.dtype, x_base + i * x_rows.inner) * scale;
  return mask_rows.dtype ? score + aa_load(mask, mask_rows.dtype, mask_base + i * mask_rows.inner) : score;
}

AA_KERNEL(softmax_masked, AA_GROUP_SIZE)
(AA_OUT(void) out, AA_VALUE(aa_rows) out_rows, AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_IN(void) mask,
 AA_VALUE(aa_rows) mask_rows, AA_VALUE(aa_i64) size, AA_VALUE(float) scale) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = aa_row_offset(out_rows, row);
  const aa_i64 x_base = aa_row_offset(x_rows, row);
  const aa_i64 mask_base = mask_rows.dtype ? aa_row_offset(mask_rows, row) : 0;
  float part = aa_float(0xff800000u);
  float wrong = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const float score = aa_score(x, x_rows, x_base, mask, mask_rows, mask_base, i, scale);
    part = aa_fmax(part, score);
    if (aa_isnan(score)) wrong = 1.0f;
  }
  const float largest = aa_group_max(part, scratch, id);
  // Nothing but -infinity: zeros. A NaN makes the whole row one, as everywhere.
  const int nothing = largest == aa_float(0xff800000u) && aa_group_max(wrong, scratch, id) == 0.0f;
  part = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    part += aa_exp(aa_score(x, x_rows, x_base, mask, mask_rows, mask_base, i, scale) - largest);
  }
  const float factor = 1.0f / aa_group_sum(part, scratch, id);
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const float score = aa_score(x, x_rows, x_base, mask, mask_rows, mask_base, i, scale);
    aa_store(out, out_rows.dtype, to + i * out_rows.inner, nothing ? 0.0f : aa_exp(score - largest) * factor);
  }
}
AA_REGISTER(softmax_masked, AA_GROUP_SIZE)

AA_KERNEL(softmax_backward, AA_GROUP_SIZE)
(AA_OUT(void) dx, AA_VALUE(aa_rows) dx_rows, AA_IN(void) y, AA_VALUE(aa_rows) y_rows, AA_IN(void) dy,
 AA_VALUE(aa_rows) dy_rows, AA_VALUE(aa_i64) size, AA_VALUE(float) scale) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = aa_row_offset(dx_rows, row);
  const aa_i64 y_base = aa_row_offset(y_rows, row);
  const aa_i64 dy_base = aa_row_offset(dy_rows, row);
  float part = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    part +=
        aa_load(y, y_rows.dtype, y_base + i * y_rows.inner) * aa_load(dy, dy_rows.dtype, dy_base + i * dy_rows.inner);
  }
  const float sum = aa_group_sum(part, scratch, id);
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const float value = aa_load(y, y_rows.dtype, y_base + i * y_rows.inner);
    const float gradient = aa_load(dy, dy_rows.dtype, dy_base + i * dy_rows.inner);
    aa_store(dx, dx_rows.dtype, to + i * dx_rows.inner, scale * value * (gradient - sum));
  }
}
AA_REGISTER(softmax_backward, AA_GROUP_SIZE)

AA_KERNEL(moments, AA_GROUP_SIZE)
(AA_OUT(float) mean, AA_VALUE(aa_view) mean_view, AA_OUT(float) variance, AA_VALUE(aa_view) variance_view,
 AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_VALUE(aa_i64) size, AA_VALUE(float) eps, AA_VALUE(aa_i32) centred) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 base = aa_row_offset(x_rows, row);
  float middle = 0.0f;
  if (centred) {
    float part = 0.0f;
    for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) part += aa_load(x, x_rows.dtype, base + i * x_rows.inner);
    middle = aa_group_sum(part, scratch, id) / (float)size;
  }
  float squares = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    const float d = aa_load(x, x_rows.dtype, base + i * x_rows.inner) - middle;
    squares += d * d;
  }
  squares = aa_group_sum(squares, scratch, id);
  if (id == 0) {
    mean[aa_view_offset(mean_view, row)] = middle;
    variance[aa_view_offset(variance_view, row)] = squares / (float)size + eps;
  }
}
AA_REGISTER(moments, AA_GROUP_SIZE)

// The gradient of a norm's input. weight [size] and mean may be absent (dtype 0).
AA_KERNEL(norm_backward_rows, AA_GROUP_SIZE)
(AA_OUT(void) dx, AA_VALUE(aa_rows) dx_rows, AA_IN(void) dy, AA_VALUE(aa_rows) dy_rows, AA_IN(void) x,
 AA_VALUE(aa_rows) x_rows, AA_IN(void) weight, AA_VALUE(aa_i64) weight_step, AA_IN(float) mean,
 AA_VALUE(aa_view) mean_view, AA_IN(float) variance, AA_VALUE(aa_view) variance_view, AA_VALUE(aa_i64) size,
 AA_VALUE(aa_i32) weight_dtype, AA_VALUE(aa_i32) centred) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = aa_row_offset(dx_rows, row);
  const aa_i64 dy_base = aa_row_offset(dy_rows, row);
  const aa_i64 x_base = aa_row_offset(x_rows, row);
  const float factor = 1.0f / aa_sqrt(variance[aa_view_offset(variance_view, row)]);
  const float middle = centred ? mean[aa_view_offset(mean_view, row)] : 0.0f;
  float sum = 0.0f;
  float product = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    float g = aa_load(dy, dy_rows.dtype, dy_base + i * dy_rows.inner);
    if (weight_dtype) g *= aa_load(weight, weight_dtype, i * weight_step);
    sum += g;
    product += g * ((aa_load(x, x_rows.dtype, x_base + i * x_rows.inner) - middle) * factor);
  }
  sum = aa_group_sum(sum, scratch, id) / (float)size;
  if (!centred) sum = 0.0f;
  product = aa_group_sum(product, scratch, id) / (float)size;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    float g = aa_load(dy, dy_rows.dtype, dy_base + i * dy_rows.inner);
    if (weight_dtype) g *= aa_load(weight, weight_dtype, i * weight_step);
    const float normed = (aa_load(x, x_rows.dtype, x_base + i * x_rows.inner) - middle) * factor;
    aa_store(dx, dx_rows.dtype, to + i * dx_rows.inner, (g - sum - normed * product) * factor);
  }
}
AA_REGISTER(norm_backward_rows, AA_GROUP_SIZE)

// Rows whose sums are taken before they are added to the total: the error of a sum of very many rows stays small.
#define AA_ROW_BLOCK 256

// The gradients of a norm's weight and bias; either may be absent (dtype 0).
AA_KERNEL(norm_backward_columns, AA_ITEMS)
(AA_OUT(void) dweight, AA_VALUE(aa_i64) dweight_step, AA_OUT(void) dbias, AA_VALUE(aa_i64) dbias_step, AA_IN(void) dy,
 AA_VALUE(aa_rows) dy_rows, AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_IN(float) mean, AA_VALUE(aa_view) mean_view,
 AA_IN(float) variance, AA_VALUE(aa_view) variance_view, AA_VALUE(aa_i64) rows, AA_VALUE(aa_i64) size,
 AA_VALUE(aa_i32) dweight_dtype, AA_VALUE(aa_i32) dbias_dtype, AA_VALUE(aa_i32) centred, AA_VALUE(aa_i32) accumulate) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < size) {
    float weights = 0.0f;
    float biases = 0.0f;
    if (accumulate && dweight_dtype) weights = aa_load(AA_AS_IN(void, dweight), dweight_dtype, i * dweight_step);
    if (accumulate && dbias_dtype) biases = aa_load(AA_AS_IN(void, dbias), dbias_dtype, i * dbias_step);
    for (aa_i64 first = 0; first < rows; first += AA_ROW_BLOCK) {
      const aa_i64 end = first + AA_ROW_BLOCK < rows ? first + AA_ROW_BLOCK : rows;
      float block_weights = 0.0f;
      float block_biases = 0.0f;
      for (aa_i64 row = first; row < end; ++row) {
        const float factor = 1.0f / aa_sqrt(variance[aa_view_offset(variance_view, row)]);
        const float middle = centred ? mean[aa_view_offset(mean_view, row)] : 0.0f;
        const float g = aa_load(dy, dy_rows.dtype, aa_row_offset(dy_rows, row) + i * dy_rows.inner);
        const float v = aa_load(x, x_rows.dtype, aa_row_offset(x_rows, row) + i * x_rows.inner);
        block_weights += g * ((v - middle) * factor);
        block_biases += g;
      }
      weights += block_weights;
      biases += block_biases;
    }
    if (dweight_dtype) aa_store(dweight, dweight_dtype, i * dweight_step, weights);
    if (dbias_dtype) aa_store(dbias, dbias_dtype, i * dbias_step, biases);
  }
}
AA_REGISTER(norm_backward_columns, AA_ITEMS)

AA_KERNEL(column_sums, AA_ITEMS)
(AA_OUT(void) out, AA_VALUE(aa_i64) out_step, AA_IN(void) x, AA_VALUE(aa_rows) x_rows, AA_VALUE(aa_i64) rows,
 AA_VALUE(aa_i64) size, AA_VALUE(aa_i32) out_dtype, AA_VALUE(aa_i32) accumulate) {
  const aa_i64 i = AA_ITEM_ID;
  if (i < size) {
    float sum = accumulate ? aa_load(AA_AS_IN(void, out), out_dtype, i * out_step) : 0.0f;
    for (aa_i64 first = 0; first < rows; first += AA_ROW_BLOCK) {
      const aa_i64 end = first + AA_ROW_BLOCK < rows ? first + AA_ROW_BLOCK : rows;
      float block = 0.0f;
      for (aa_i64 row = first; row < end; ++row) {
        block += aa_load(x, x_rows.dtype, aa_row_offset(x_rows, row) + i * x_rows.inner);
      }
      sum += block;
    }
    aa_store(out, out_dtype, i * out_step, sum);
  }
}
AA_REGISTER(column_sums, AA_ITEMS)

AA_KERNEL(layer_norm_inverse, AA_GROUP_SIZE)
(AA_OUT(void) x, AA_VALUE(aa_rows) x_rows, AA_IN(void) y, AA_VALUE(aa_rows) y_rows, AA_IN(void) weight,
 AA_VALUE(aa_i64) weight_step, AA_IN(void) bias, AA_VALUE(aa_i64) bias_step, AA_IN(float) mean,
 AA_VALUE(aa_view) mean_view, AA_IN(float) variance, AA_VALUE(aa_view) variance_view, AA_VALUE(aa_i64) size,
 AA_VALUE(aa_i32) weight_dtype, AA_VALUE(aa_i32) bias_dtype) {
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i64 to = aa_row_offset(x_rows, row);
  const aa_i64 base = aa_row_offset(y_rows, row);
  const float deviation = aa_sqrt(variance[aa_view_offset(variance_view, row)]);
  const float middle = mean[aa_view_offset(mean_view, row)];
  for (aa_i64 i = AA_LOCAL_ID; i < size; i += AA_GROUP_SIZE) {
    const float moved = aa_load(y, y_rows.dtype, base + i * y_rows.inner) - aa_load(bias, bias_dtype, i * bias_step);
    const float normed = moved / aa_load(weight, weight_dtype, i * weight_step);
    aa_store(x, x_rows.dtype, to + i * x_rows.inner, aa_fma(normed, deviation, middle));
  }
}
AA_REGISTER(layer_norm_inverse, AA_GROUP_SIZE)

// loss and dx (dtype 0: absent) of rows. A target outside of the row makes the loss a NaN and changes dx by nothing more.
AA_KERNEL(cross_entropy, AA_GROUP_SIZE)
(AA_OUT(float) loss, AA_VALUE(aa_i64) loss_step, AA_OUT(void) dx, AA_VALUE(aa_rows) dx_rows, AA_IN(void) x,
 AA_VALUE(aa_rows) x_rows, AA_IN(void) targets, AA_VALUE(aa_i64) target_step, AA_VALUE(aa_i64) size,
 AA_VALUE(float) scale, AA_VALUE(aa_i32) target_dtype) {
  AA_SCRATCH(scratch);
  const aa_i64 row = AA_GROUP_ID(0);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 to = dx_rows.dtype ? aa_row_offset(dx_rows, row) : 0;
  const aa_i64 base = aa_row_offset(x_rows, row);
  const aa_i64 target = aa_load_index(targets, target_dtype, row * target_step);
  const int known = target >= 0 && target < size;
  const float of_target = known ? aa_load(x, x_rows.dtype, base + target * x_rows.inner) : aa_float(0x7fc00000u);
  float part = aa_float(0xff800000u);
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    part = aa_fmax(part, aa_load(x, x_rows.dtype, base + i * x_rows.inner));
  }
  const float largest = aa_group_max(part, scratch, id);
  part = 0.0f;
  for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
    part += aa_exp(aa_load(x, x_rows.dtype, base + i * x_rows.inner) - largest);
  }
  // Every item has read the row's target before an item writes to dx, which may be x.
  const float sum = aa_group_sum(part, scratch, id);
  if (id == 0) loss[row * loss_step] = target < 0 ? 0.0f : aa_log(sum) + largest - of_target;
  if (dx_rows.dtype) {
    const float factor = target < 0 ? 0.0f : scale / sum;
    for (aa_i64 i = id; i < size; i += AA_GROUP_SIZE) {
      const float e = aa_exp(aa_load(x, x_rows.dtype, base + i * x_rows.inner) - largest) * factor;
      const float d = i == target ? e - scale : e;
      aa_store(dx, dx_rows.dtype, to + i * dx_rows.inner, target < 0 ? 0.0f : d);
    }
  }
}
AA_REGISTER(cross_entropy, AA_GROUP_SIZE)

// A group for each token; the first token of an id adds up all of that id, in their order. Each item has columns of its own.
AA_KERNEL(embedding_backward, AA_GROUP_SIZE)
(AA_OUT(float) dtable, AA_VALUE(aa_i64) table_row, AA_VALUE(aa_i64) table_inner, AA_IN(void) dy,
 AA_VALUE(aa_rows) dy_rows, AA_IN(void) ids, AA_VALUE(aa_i64) id_step, AA_VALUE(aa_i64) tokens,
 AA_VALUE(aa_i64) table_rows, AA_VALUE(aa_i64) size, AA_VALUE(aa_i32) id_dtype) {
  const aa_i64 t = AA_GROUP_ID(0);
  const aa_i64 id = aa_load_index(ids, id_dtype, t * id_step);
  int first = id >= 0 && id < table_rows;
  for (aa_i64 s = 0; s < t && first; ++s) {
    if (aa_load_index(ids, id_dtype, s * id_step) == id) first = 0;
  }
  if (first) {
    for (aa_i64 s = t; s < tokens; ++s) {
      if (aa_load_index(ids, id_dtype, s * id_step) == id) {
        const aa_i64 base = aa_row_offset(dy_rows, s);
        for (aa_i64 i = AA_LOCAL_ID; i < size; i += AA_GROUP_SIZE) {
          const aa_i64 at = id * table_row + i * table_inner;
          dtable[at] = dtable[at] + aa_load(dy, dy_rows.dtype, base + i * dy_rows.inner);
        }
      }
    }
  }
}
AA_REGISTER(embedding_backward, AA_GROUP_SIZE)
