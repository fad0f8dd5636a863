// "linear_multi" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h, and decode_linear.cu about AA_SHAPE.
#include "decode_linear.h"

// (No norm and no residual: x stands where their pointers would.)
#define AA_DECODE_MULTI(name, rows, unit, loads) \
  AA_TUNED_KERNEL(name, AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, aa_decode_x xs, AA_OUT(void) out0, AA_IN(void) w0, AA_IN(void) bias0, aa_decode_part part0, \
   AA_OUT(void) out1, AA_IN(void) w1, AA_IN(void) bias1, aa_decode_part part1, AA_OUT(void) out2, AA_IN(void) w2, \
   AA_IN(void) bias2, aa_decode_part part2, AA_OUT(void) out3, AA_IN(void) w3, AA_IN(void) bias3, \
   aa_decode_part part3) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_linear_work<unit, 4> work = {{w0, w1, w2, w3}, \
                                          {out0, out1, out2, out3}, \
                                          {bias0, bias1, bias2, bias3}, \
                                          {part0, part1, part2, part3}, \
                                          x, \
                                          {}}; \
    aa_decode<rows, unit, loads>(work, x, x, xs, local); \
  }

#if !defined(AA_SHAPE) || AA_SHAPE == 112
AA_DECODE_MULTI(AA_NAME_W(decode_multi_112), 1, 1, 12)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_112), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 104
AA_DECODE_MULTI(AA_NAME_W(decode_multi_104), 1, 1, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_104), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 204
AA_DECODE_MULTI(AA_NAME_W(decode_multi_204), 2, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_204), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 404
AA_DECODE_MULTI(AA_NAME_W(decode_multi_404), 4, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_404), AA_DECODE_THREADS)
#endif
#if !defined(AA_SHAPE) || AA_SHAPE == 804
AA_DECODE_MULTI(AA_NAME_W(decode_multi_804), 8, 2, 4)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_804), AA_DECODE_THREADS)
#endif
