// Float arithmetic of the kernels whose results are the same bits on every device: each operation rounds to nearest even on
// its own, and denormal numbers count as zero, whatever the device does with them. Include after dialect.h.
//
// aa_div_ftz and aa_sqrt_ftz are as exact as the device's division and square root; drivers ask their compilers for the
// correctly rounded ones.
#ifndef ANYACCEL_KERNELS_ARITHMETIC_H_
#define ANYACCEL_KERNELS_ARITHMETIC_H_

AA_FN float aa_flush(float x) {
  const aa_u32 bits = aa_bits(x);
  return aa_float((bits & 0x7f800000u) != 0 ? bits : bits & 0x80000000u);
}
AA_FN float aa_mul_ftz(float a, float b) { return aa_flush(aa_mul_rn(a, b)); }
AA_FN float aa_add_ftz(float a, float b) { return aa_flush(aa_add_rn(a, b)); }
AA_FN float aa_sub_ftz(float a, float b) { return aa_flush(aa_add_rn(a, -b)); }
AA_FN float aa_div_ftz(float a, float b) { return aa_flush(a / b); }
AA_FN float aa_sqrt_ftz(float a) { return aa_flush(aa_sqrt(a)); }

#endif  // ANYACCEL_KERNELS_ARITHMETIC_H_
