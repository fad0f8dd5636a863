// Decodes the weights of "quantized_linear" with many rows of x, for the products of the vendor's library
// (src/accelerators/cuda/ops/library_products.cpp): to bf16 where the op may round, else to fp32.
#include "dialect.h"
#include "arguments.h"
#include "warp.h"
#include "vectors.h"
#include "blocks.h"
#include "dequantize_arguments.h"

// Rows of w [rows, K]; row_step in bytes. A thread takes AA_WIDE numbers of every grid(1)-th row.
AA_TUNED_KERNEL(AA_NAME_BLOCK(dequantize_w), AA_DEQUANTIZE_THREADS, 4)
(AA_OUT(void) out, AA_IN(aa_u8) w, aa_dequantize d) {
  const aa_i64 k = (AA_GROUP_ID(0) * (aa_i64)AA_DEQUANTIZE_THREADS + AA_LOCAL_ID) * AA_WIDE;
  aa_grid_wait();
  if (k >= d.k) return;
  for (aa_i64 row = AA_GROUP_ID(1); row < d.rows; row += AA_GROUP_COUNT(1)) {
    const aa_i64 block = row * d.row_step + k / AA_BLOCK_VALUES * AA_BLOCK_BYTES;
    const aa_wide v = aa_decode(w, block, aa_head_of(w, block), (aa_i32)(k & (AA_BLOCK_VALUES - 1)));
    AA_PRAGMA_UNROLL for (int i = 0; i < AA_WIDE; i += AA_VECTOR) aa_store8(out, d.out_dtype, row * d.k + k + i, v.v + i);
  }
}
AA_REGISTER_TUNED(AA_NAME_BLOCK(dequantize_w), AA_DEQUANTIZE_THREADS)
