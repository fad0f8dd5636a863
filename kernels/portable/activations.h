// The activation functions of aa_activation (anyaccel/abi/ops.h), each within a few ulp of the exact value over the whole
// range. Include after dialect.h.
#ifndef ANYACCEL_KERNELS_ACTIVATIONS_H_
#define ANYACCEL_KERNELS_ACTIVATIONS_H_

// The values of aa_activation.
#define AA_SILU 0
#define AA_GELU 1
#define AA_GELU_TANH 2
#define AA_RELU 3
#define AA_SIGMOID 4

// x/2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x|/2 erfc(|x| / sqrt 2), which keeps its precision for negative x; erfc by the
// Chebyshev fit of Numerical Recipes (section 6.2), relative error below 1.2e-7.
AA_FN float aa_gelu(float x) {
  const float magnitude = aa_fabs(x) > 20.0f ? 20.0f : aa_fabs(x);
  const float t = 1.0f / aa_fma(magnitude * 0.70710678f, 0.5f, 1.0f);
  float p = 0.17087277f;
  p = aa_fma(p, t, -0.82215223f);
  p = aa_fma(p, t, 1.48851587f);
  p = aa_fma(p, t, -1.13520398f);
  p = aa_fma(p, t, 0.27886807f);
  p = aa_fma(p, t, -0.18628806f);
  p = aa_fma(p, t, 0.09678418f);
  p = aa_fma(p, t, 0.37409196f);
  p = aa_fma(p, t, 1.00002368f);
  p = aa_fma(p, t, -1.26551223f);
  const float erfc = t * aa_exp(aa_fma(magnitude * -0.5f, magnitude, p));
  return aa_fma(magnitude * -0.5f, erfc, x < 0.0f ? 0.0f : x);
}

// `kind` is an aa_activation.
AA_FN float aa_activate(float x, aa_i32 kind) {
  if (kind == AA_SILU) {
    // -infinity / infinity would be a NaN; below -104 the result is 0 in binary32 anyway.
    const float bounded = x < -104.0f ? -104.0f : x;
    return bounded / (1.0f + aa_exp(-bounded));
  }
  if (kind == AA_GELU) return aa_gelu(x);
  if (kind == AA_GELU_TANH) {
    // x/2 (1 + tanh(u)) = x sigmoid(2u).
    const float bounded = x < -20.0f ? -20.0f : x;
    const float u = aa_fma(bounded * bounded * bounded, 0.044715f, bounded);
    return bounded / (1.0f + aa_exp(u * -1.59576912f));
  }
  if (kind == AA_RELU) return x < 0.0f ? 0.0f : x;
  if (kind == AA_SIGMOID) return 1.0f / (1.0f + aa_exp(-x));
  return aa_tanh(x);
}

#endif  // ANYACCEL_KERNELS_ACTIVATIONS_H_
