// "gated_linear" and "norm_gated_linear" of anyaccel/abi/ops.h for a few rows of x; see decode_products.h.
#include "decode_products.h"
#include "decode_gated.h"

#define AA_DECODE_GATED(shape) \
  AA_TUNED_KERNEL(AA_NAME_W(AA_CAT(decode_gated_, shape)), AA_DECODE_THREADS, 1) \
  (AA_IN(void) x, AA_IN(void) norm, aa_decode_x xs, AA_OUT(void) out, AA_IN(void) gate, AA_IN(void) up, \
   AA_IN(void) gate_bias, AA_IN(void) up_bias, aa_decode_part gate_part, aa_decode_part up_part, aa_i32 kind, \
   aa_i32 reserved) { \
    AA_DYNAMIC_LOCAL(local); \
    const aa_gated_work work = {out, gate, up, gate_bias, up_bias, gate_part, up_part, kind}; \
    aa_decode<AA_SHAPE_ROWS(shape), 2, AA_SHAPE_LOADS(shape)>(work, x, norm, xs, local); \
  } \
  AA_REGISTER_TUNED(AA_NAME_W(AA_CAT(decode_gated_, shape)), AA_DECODE_THREADS)

AA_DECODE_KERNELS(AA_DECODE_GATED)
