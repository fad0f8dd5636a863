// Numbers of a small floating-point format and their codes, as kernels/host/fp_quantizer_calls.h has them.
#ifndef ANYACCEL_KERNELS_FP_NUMBERS_H_
#define ANYACCEL_KERNELS_FP_NUMBERS_H_

#include "quant_groups.h"

// The scale of a group from its largest magnitude, infinity for one that is not finite.
AA_FN float fp_scale_of(float largest, aa_fp_numbers f) {
  if (!aa_is_finite(largest)) return AA_QUIET_NAN;
  const float scale = aa_div_ftz(largest, f.max_value);
  return scale >= AA_SMALLEST_NORMAL ? scale : 1.0f;
}

#endif  // ANYACCEL_KERNELS_FP_NUMBERS_H_
