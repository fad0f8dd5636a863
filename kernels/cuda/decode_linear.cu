// "linear" and "norm_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h. AA_SHAPE chooses one
// kernel: 100 times its rows of x, and its loads under way (decode_arguments.h); without it there are all of them.
#include "decode_linear.h"

#define AA_DECODE_LINEAR(name, rows, unit, loads) \
  AA_TUNED_KERNEL(name, AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_OUT(void) out, AA_IN(void) w, AA_IN(void) bias, \
   aa_decode_part part, AA_IN(void) residual, aa_decode_residual res) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_linear_work<unit, 1> work = {{w}, {out}, {bias}, {part}, residual, res}; \
    aa_decode<rows, unit, loads>(work, x, norm, xs, local); \
  }

#if !defined(AA_SHAPE) || AA_SHAPE == 112
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_112), 1, 1, 12)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_112), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 104
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_104), 1, 1, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_104), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 204
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_204), 2, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_204), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 404
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_404), 4, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_404), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 804
AA_DECODE_LINEAR(AA_NAME_W(decode_linear_804), 8, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_linear_804), AA_DECODE_THREADS)
#endif
