// Shared by the kernels of the two quantizers: the elements of an item, random numbers, ranges of groups.
// kernels/host/quant_blocks.h is the host's.
#ifndef ANYACCEL_KERNELS_QUANT_GROUPS_H_
#define ANYACCEL_KERNELS_QUANT_GROUPS_H_

#include "dialect.h"
#include "philox.h"
#include "quantizer_arguments.h"
#include "strips.h"

#define AA_SMALLEST_NORMAL aa_float(0x00800000u)
#define AA_QUIET_NAN aa_float(0x7fc00000u)

AA_FN aa_i32 aa_is_finite(float x) { return (aa_bits(x) & 0x7f800000u) != 0x7f800000u; }

// The elements [begin, end) of a group that are an item's, by number in the whole tensor.
typedef struct aa_quant_part {
  aa_i64 group;
  aa_i64 begin;
  aa_i64 end;
} aa_quant_part;
AA_FN aa_quant_part aa_quant_part_of(aa_quant_groups g, aa_i64 number) {
  aa_quant_part p;
  p.group = number / g.parts;
  const aa_i64 first = (number - p.group * g.parts) * g.part;
  const aa_i64 last = first + g.part < g.group_size ? first + g.part : g.group_size;
  p.begin = p.group * g.group_size + first;
  p.end = p.group * g.group_size + last;
  return p;
}

// The number in [0, 1) for element i of a call; `words` holds those of its neighbours between calls with rising i, the first
// of them with `first`.
AA_FN float aa_quant_draw(aa_quant_options o, aa_i64 i, aa_i32 first, AA_PRIVATE aa_u32* words) {
  if (first || ((aa_u64)i & 3) == 0) aa_philox(o.seed, o.offset + ((aa_u64)i >> 2), words);
  return aa_unit(words[(aa_u64)i & 3]);
}

// The range of a whole group from those of its parts.
typedef struct aa_quant_range {
  float high;
  float negated;
} aa_quant_range;
AA_FN aa_quant_range aa_quant_range_of(AA_IN(float) ranges, aa_i64 group, aa_i64 parts) {
  aa_quant_range r;
  r.high = ranges[2 * group * parts];
  r.negated = ranges[2 * group * parts + 1];
  for (aa_i64 k = group * parts + 1; k < (group + 1) * parts; ++k) {
    r.high = ranges[2 * k] > r.high ? ranges[2 * k] : r.high;
    r.negated = ranges[2 * k + 1] > r.negated ? ranges[2 * k + 1] : r.negated;
  }
  return r;
}

#endif  // ANYACCEL_KERNELS_QUANT_GROUPS_H_
