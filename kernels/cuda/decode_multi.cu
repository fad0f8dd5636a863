// "linear_multi" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h.
#include "decode_products.h"
#include "decode_linear.h"

// (No norm and no residual: x stands where their pointers would.)
#define AA_DECODE_MULTI(shape) \
  AA_TUNED_KERNEL(AA_NAME_W(AA_CAT(decode_multi_, shape)), AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, aa_decode_x xs, AA_OUT(void) out0, AA_IN(void) w0, AA_IN(void) bias0, aa_decode_part part0, \
   AA_OUT(void) out1, AA_IN(void) w1, AA_IN(void) bias1, aa_decode_part part1, AA_OUT(void) out2, AA_IN(void) w2, \
   AA_IN(void) bias2, aa_decode_part part2, AA_OUT(void) out3, AA_IN(void) w3, AA_IN(void) bias3, \
   aa_decode_part part3) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_linear_work<AA_SHAPE_UNIT(shape), 4> work = {{w0, w1, w2, w3}, \
                                          {out0, out1, out2, out3}, \
                                          {bias0, bias1, bias2, bias3}, \
                                          {part0, part1, part2, part3}, \
                                          x, \
                                          {}}; \
    aa_decode<AA_SHAPE_ROWS(shape), AA_SHAPE_UNIT(shape), AA_SHAPE_LOADS(shape)>(work, x, x, xs, local); \
  } \
  AA_REGISTER_TUNED(AA_NAME_W(AA_CAT(decode_multi_, shape)), AA_DECODE_THREADS)

AA_DECODE_KERNELS(AA_DECODE_MULTI)
