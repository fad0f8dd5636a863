// Groups of integers: where a group lies in the output, and the scale and offset that turn numbers into its integers and back.
#ifndef ANYACCEL_KERNELS_INTEGER_GROUPS_H_
#define ANYACCEL_KERNELS_INTEGER_GROUPS_H_

#include "quant_groups.h"

AA_FN aa_i64 place_of(aa_quant_order o, aa_i64 group) {
  if (o.nodes == 1 && o.stages == 1) return group;
  const aa_i64 piece = group / o.together, inner = group - piece * o.together;
  const aa_i64 partition = piece / o.stages, stage = piece - partition * o.stages;
  const aa_i64 node = partition / o.devices, on_node = partition - node * o.devices;
  return ((stage * o.devices + on_node) * o.nodes + node) * o.together + inner;
}

// The params of a group. A scale that is a NaN stands for a group that is not finite.
typedef struct group_params {
  float scale, offset;
} group_params;

AA_FN group_params params_of(aa_quant_range r, aa_i32 bits, aa_i32 asymmetric) {
  const float half_range = (float)(1 << (bits - 1));
  const float steps = asymmetric ? 2.0f * half_range - 1.0f : half_range - 1.0f;
  const float span = asymmetric ? aa_add_ftz(r.high, r.negated) : r.high > r.negated ? r.high : r.negated;
  group_params p;
  p.scale = AA_QUIET_NAN;
  p.offset = AA_QUIET_NAN;
  if (aa_is_finite(r.high) && aa_is_finite(r.negated) && aa_is_finite(span)) {
    p.scale = aa_div_ftz(span, steps);
    if (p.scale >= AA_SMALLEST_NORMAL) {
      p.offset = aa_sub_ftz(aa_mul_ftz(half_range, p.scale), r.negated);
    } else {
      p.scale = 1.0f;
      p.offset = 0.0f - r.negated;
    }
  }
  return p;
}

// The parameters that turn numbers into a group's integers and back.
typedef struct group_scale {
  float scale, offset, inverse;
  float low, high;
} group_scale;

AA_FN group_scale scale_of(group_params p, aa_i32 bits, aa_i32 asymmetric) {
  const float half_range = (float)(1 << (bits - 1));
  group_scale s;
  s.scale = p.scale;
  s.offset = asymmetric ? p.offset : 0.0f;
  s.inverse = aa_div_ftz(1.0f, s.scale);
  s.high = half_range - 1.0f;
  s.low = asymmetric ? -half_range : -s.high;
  return s;
}

AA_FN group_params load_params(AA_IN(float) params, aa_i64 group, aa_i32 asymmetric) {
  group_params p;
  p.scale = params[asymmetric ? 2 * group : group];
  p.offset = asymmetric ? params[2 * group + 1] : 0.0f;
  return p;
}
AA_FN void store_params(AA_OUT(float) params, aa_i64 group, aa_i32 asymmetric, group_params p) {
  params[asymmetric ? 2 * group : group] = p.scale;
  if (asymmetric) params[2 * group + 1] = p.offset;
}
AA_FN group_scale load_scale(AA_IN(float) params, aa_i64 group, aa_i32 bits, aa_i32 asymmetric) {
  return scale_of(load_params(params, group, asymmetric), bits, asymmetric);
}

#endif  // ANYACCEL_KERNELS_INTEGER_GROUPS_H_
