// "linear_multi" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h, and decode_linear.cu about AA_ROWS.
#include "decode_linear.h"

// (No norm and no residual: x stands where their pointers would.)
#define AA_DECODE_MULTI(name, rows, unit, blocks) \
  AA_TUNED_KERNEL(name, AA_DECODE_THREADS, blocks) \
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
    aa_decode<rows, unit>(work, x, x, xs, local); \
  }

#if !defined(AA_ROWS) || AA_ROWS == 1
AA_DECODE_MULTI(AA_NAME_W(decode_multi_1), 1, 1, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_1), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 2
AA_DECODE_MULTI(AA_NAME_W(decode_multi_2), 2, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_2), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 4
AA_DECODE_MULTI(AA_NAME_W(decode_multi_4), 4, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_4), AA_DECODE_THREADS)
#endif
#if !defined(AA_ROWS) || AA_ROWS == 8
AA_DECODE_MULTI(AA_NAME_W(decode_multi_8), 8, 2, 1)
AA_REGISTER_TUNED(AA_NAME_W(decode_multi_8), AA_DECODE_THREADS)
#endif
