// Offsets of the elements of strided tensors. Include after dialect.h and arguments.h.
#ifndef ANYACCEL_KERNELS_VIEWS_H_
#define ANYACCEL_KERNELS_VIEWS_H_

// Offset of the first element of a row, in elements.
AA_FN aa_i64 aa_row_offset(aa_rows rows, aa_i64 row) {
  aa_i64 offset = 0;
  for (aa_i32 d = rows.ndim - 1; d > 0; --d) {
    offset += row % rows.shape[d] * rows.stride[d];
    row /= rows.shape[d];
  }
  return offset + row * rows.stride[0];
}

// Offset of an element by its row-major number, in elements.
AA_FN aa_i64 aa_view_offset(aa_view view, aa_i64 i) {
  aa_i64 offset = 0;
  for (aa_i32 d = view.ndim - 1; d > 0; --d) {
    offset += i % view.shape[d] * view.stride[d];
    i /= view.shape[d];
  }
  return offset + i * view.stride[0];
}

#endif  // ANYACCEL_KERNELS_VIEWS_H_
