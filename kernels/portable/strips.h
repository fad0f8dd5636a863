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

// The number of elements of the next strip if `left` are left and strips have at most `most`.
AA_FN aa_i32 aa_strip_length(aa_i64 left, aa_i32 most) { return most == 1 || left > most ? most : (aa_i32)left; }

// Elements i, i + step, ..., n of them; denormal ones as zeros.
AA_FN void aa_load_apart(AA_PRIVATE float* to, AA_IN(void) from, aa_i32 dtype, aa_i64 i, aa_i32 step, aa_i32 n) {
  if (dtype == AA_F32) {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_flush(aa_load_f32(AA_AS_IN(float, from), i + k * step));
  } else if (dtype == AA_BF16) {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_flush(aa_load_bf16(AA_AS_IN(aa_u16, from), i + k * step));
  } else {
    for (aa_i32 k = 0; k < n; ++k) to[k] = aa_load_f16(AA_AS_IN(aa_u16, from), i + k * step);
  }
}
AA_FN void aa_store_apart(AA_OUT(void) to, aa_i32 dtype, aa_i64 i, aa_i32 step, AA_PRIVATE const float* from,
                          aa_i32 n) {
  if (dtype == AA_F32) {
    for (aa_i32 k = 0; k < n; ++k) aa_store_f32(AA_AS_OUT(float, to), i + k * step, from[k]);
  } else if (dtype == AA_BF16) {
    for (aa_i32 k = 0; k < n; ++k) aa_store_bf16(AA_AS_OUT(aa_u16, to), i + k * step, from[k]);
  } else {
    for (aa_i32 k = 0; k < n; ++k) aa_store_f16(AA_AS_OUT(aa_u16, to), i + k * step, from[k]);
  }
}
// Elements i .. i + n - 1.
#define aa_load_strip(to, from, dtype, i, n) aa_load_apart(to, from, dtype, i, 1, n)
#define aa_store_strip(to, dtype, i, from, n) aa_store_apart(to, dtype, i, 1, from, n)

#endif  // ANYACCEL_KERNELS_STRIPS_H_
