// Teams of neighbouring items, each with a group of elements of which every item holds up to AA_FOURS fours in registers (a
// constant of the file that includes this one): number `lane` of the group, `lane + width`, and so on, so that a team's
// accesses are neighbours. For devices with sub-groups only.
#ifndef ANYACCEL_KERNELS_QUANT_TEAMS_H_
#define ANYACCEL_KERNELS_QUANT_TEAMS_H_

#include "quant_groups.h"
#include "fours.h"

// Returns v, or zero (of either sign) for a denormal number and a NaN.
AA_FN float zero_tiny(float v) { return aa_fabs(v) >= AA_SMALLEST_NORMAL ? v : 0.0f; }

// Returns whether a denormal number that counts as one, and not as zero, could change what becomes of a group whose numbers are
// rounded to nearest: only times more than 2^60 can it be more than half of a step. True for a NaN.
AA_FN aa_i32 tiny_matters(float inverse) { return !(inverse < aa_float(187u << 23)); }

// The lower bytes of the bits hold the integer, from -2^22 to 2^22, to which v is rounded to nearest even.
AA_FN aa_u32 rounded_bits(float v) { return aa_bits(aa_add_rn(v, 12582912.0f)); }

AA_FN aa_u32 larger(aa_u32 a, aa_u32 b) { return a > b ? a : b; }

#if AA_SUBGROUP
// The largest v, of which none is a NaN, of a team of `width` items: a power of two and at least a sub-group. Every item of
// the group of AA_GROUP_SIZE calls it.
AA_FN float team_max(float v, aa_i32 width, AA_LOCAL float* scratch, aa_i32 id) {
  v = aa_subgroup_max(v);
  if (width == AA_SUBGROUP) return v;
  if (id % AA_SUBGROUP == 0) scratch[id / AA_SUBGROUP] = v;
  AA_BARRIER();
  const aa_u32 first = (aa_u32)(id & ~(width - 1)) / AA_SUBGROUP, count = (aa_u32)width / AA_SUBGROUP;
#if AA_GROUP_SIZE / AA_SUBGROUP <= AA_SUBGROUP
  v = aa_subgroup_max(scratch[first + ((aa_u32)id & (count - 1))]);
#else
  for (aa_u32 s = first; s < first + count; ++s) v = aa_fmax(v, scratch[s]);
#endif
  AA_BARRIER();
  return v;
}
#endif

// The part of an item's range that a four adds.
typedef struct team_range {
  aa_u32 magnitude; /* the largest, as bits */
  float high, negated;
} team_range;
AA_FN team_range no_range(void) {
  team_range r;
  r.magnitude = 0;
  r.high = r.negated = -aa_float(0x7f800000u);
  return r;
}
AA_FN team_range range_with(team_range r, aa_four x, aa_i32 both) {
  AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) r.magnitude = larger(r.magnitude, aa_bits(x.v[j]) & 0x7fffffffu);
  if (both) {
    AA_PRAGMA_UNROLL for (aa_i32 j = 0; j < 4; ++j) {
      r.high = aa_fmax(r.high, x.v[j]);
      r.negated = aa_fmax(r.negated, -x.v[j]);
    }
  }
  return r;
}
// The largest magnitude, or infinity if one is no finite number. What is denormal counts as zero.
AA_FN float largest_of(team_range r) { return aa_flush(aa_float(r.magnitude < 0x7f800000u ? r.magnitude : 0x7f800000u)); }

#endif  // ANYACCEL_KERNELS_QUANT_TEAMS_H_
