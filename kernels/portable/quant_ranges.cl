// The range of the elements of each group, or of each part of a large one: the first kernel of quantizing.
#include "dialect.h"
#include "quant_groups.h"

// ranges[2 * number], ranges[2 * number + 1]: the largest element of a part and the largest negated one, infinite where one
// is no finite number. With error feedback elements are x + error.
AA_KERNEL(quant_ranges, AA_GROUP_SIZE)
(AA_IN(void) x, AA_IN(void) error, AA_VALUE(aa_quant_groups) groups, AA_VALUE(aa_quant_options) o,
 AA_OUT(float) ranges) {
  AA_SCRATCH(scratch);
  const aa_i32 id = AA_LOCAL_ID;
  const aa_i64 number = AA_GROUP_ID(0);
  const aa_quant_part p = aa_quant_part_of(groups, number);
  const float infinity = aa_float(0x7f800000u);
  float high = -infinity, negated = -infinity;
  for (aa_i64 i = p.begin + id * AA_STRIP; i < p.end; i += AA_GROUP_SIZE * AA_STRIP) {
    const aa_i32 n = aa_strip_length(p.end - i, AA_STRIP);
    float values[AA_STRIP];
    aa_load_strip(values, x, o.dtype, i, n);
    if (o.error_dtype != 0) {
      float errors[AA_STRIP];
      aa_load_strip(errors, error, o.error_dtype, i, n);
      for (aa_i32 k = 0; k < n; ++k) values[k] = aa_add_ftz(values[k], errors[k]);
    }
    for (aa_i32 k = 0; k < n; ++k) {
      const float v = aa_is_finite(values[k]) ? values[k] : infinity;
      high = v > high ? v : high;
      negated = -v > negated ? -v : negated;
    }
  }
  high = aa_group_max(high, scratch, id);
  negated = aa_group_max(negated, scratch, id);
  if (id == 0) {
    ranges[2 * number] = high;
    ranges[2 * number + 1] = negated;
  }
}
AA_REGISTER(quant_ranges, AA_GROUP_SIZE)
