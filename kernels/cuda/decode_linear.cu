// "linear" and "norm_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h.
#include "decode_products.h"
#include "decode_linear.h"

#define AA_DECODE_LINEAR(shape) \
  AA_TUNED_KERNEL(AA_NAME_W(AA_CAT(decode_linear_, shape)), AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, \
   aa_decode_part part, AA_IN(void) residual, aa_decode_residual res) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_linear_work<AA_SHAPE_UNIT(shape), 1> work = {{w}, {out}, {bias}, {part}, residual, res}; \
    aa_decode<AA_SHAPE_ROWS(shape), AA_SHAPE_UNIT(shape), AA_SHAPE_LOADS(shape)>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(AA_NAME_W(AA_CAT(decode_linear_, shape)), AA_DECODE_THREADS)

AA_DECODE_KERNELS(AA_DECODE_LINEAR)
