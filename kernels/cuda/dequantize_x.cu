// Converts the x of "quantized_linear" to the dtype of the decoded weights (dequantize.cu), with rows side by side.
#include "dialect.h"
#include "arguments.h"
#include "warp.h"
#include "vectors.h"
#include "dequantize_arguments.h"

// Rows of x [rows, K]; row_step and step in elements.
AA_TUNED_KERNEL(dequantize_x, AA_DEQUANTIZE_THREADS, 4)
(AA_OUT(void) out, AA_IN(void) x, aa_dequantize d) {
  const aa_i64 k = (AA_GROUP_ID(0) * (aa_i64)AA_DEQUANTIZE_THREADS + AA_LOCAL_ID) * AA_DEQUANTIZE_WIDTH;
  aa_grid_wait();
  if (k >= d.k) return;
  for (aa_i64 row = AA_GROUP_ID(1); row < d.rows; row += AA_GROUP_COUNT(1)) {
    float v[AA_DEQUANTIZE_WIDTH];
    AA_PRAGMA_UNROLL for (int j = 0; j < AA_DEQUANTIZE_WIDTH; ++j) {
      v[j] = aa_load(x, d.dtype, row * d.row_step + (k + j) * d.step);
    }
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_DEQUANTIZE_WIDTH; i += AA_VECTOR) {
      aa_store8(out, d.out_dtype, row * d.k + k + i, v + i);
    }
  }
}
AA_REGISTER_TUNED(dequantize_x, AA_DEQUANTIZE_THREADS)
