// Neighbouring elements as floats in an array of the item's own. What is done to a strip is a loop over it: the element
// type is asked once a strip, and a processor that runs one item a row turns the loops into vectors. Include after
// dialect.h.
#ifndef ANYACCEL_KERNELS_STRIPS_H_
#define ANYACCEL_KERNELS_STRIPS_H_

#include "arithmetic.h"

// Elements of a strip in kernels whose items work alone.
#if AA_GROUP_SIZE == 1
#define AA_STRIP 32
#else
#define AA_STRIP 1
#endif

// How many elements the next strip has where `left` are left and strips have at most `most`.
AA_FN aa_i32 aa_strip_length(aa_i64 left, aa_i32 most) { return most == 1 || left > most ? most : (aa_i32)left; }

// Elements i .. i + n - 1; denormal ones as zeros.
AA_FN void aa_load_strip(float* to, AA_IN(void) from, aa_i32 dtype, aa_i64 i, aa_i32 n) {
  if (dtype == AA_F32) {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_flush(aa_load_f32(AA_AS_IN(float, from), i + k));
  } else if (dtype == AA_BF16) {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_flush(aa_load_bf16(AA_AS_IN(aa_u16, from), i + k));
  } else {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_load_f16(AA_AS_IN(aa_u16, from), i + k);
  }
}
AA_FN void aa_store_strip(AA_OUT(void) to, aa_i32 dtype, aa_i64 i, const float* from, aa_i32 n) {
  if (dtype == AA_F32) {
    for (aa_i32 k = 0; k < n; ++k) aa_store_f32(AA_AS_OUT(float, to), i + k, from[k]);
  } else if (dtype == AA_BF16) {
    for (aa_i32 k = 0; k < n; ++k) aa_store_bf16(AA_AS_OUT(aa_u16, to), i + k, from[k]);
  } else {
    for (aa_i32 k = 0; k < n; ++k) aa_store_f16(AA_AS_OUT(aa_u16, to), i + k, from[k]);
  }
}

#endif  // ANYACCEL_KERNELS_STRIPS_H_
