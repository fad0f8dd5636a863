// "linear" and "norm_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h. AA_ROWS chooses the kernel for 1,
// 2, 4 or 8 rows of x; without it there are all of them.
#include "decode_linear.h"

#define AA_DECODE_LINEAR(name, rows, unit, blocks) \
  AA_TUNED_KERNEL(name, AA_DECODE_THREADS, blocks) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, \
   aa_decode_part part, AA_IN(void) residual, aa_decode_residual res) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_linear_work<unit, 1> work = {{w}, {out}, {bias}, {part}, residual, res}; \
    aa_decode<rows, unit>(work, x, norm, xs, local); \
  }

// Blocks a multiprocessor with one row of x: two, so that the next kernel's can begin; with fp32 weights the registers do not
// suffice for that.
#define AA_BLOCKS_f32 1
#define AA_BLOCKS_bf16 2
#define AA_BLOCKS_f16 2

#if !defined(AA_ROWS) || AA_ROWS == 1
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_1), 1, 1, AA_CAT(AA_BLOCKS_, AA_W))
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_1), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 2
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_2), 2, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_2), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 4
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_4), 4, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_4), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 8
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_8), 8, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_8), AA_DECODE_THREADS)
#endif
