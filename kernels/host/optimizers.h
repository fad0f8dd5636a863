// The optimizers' ops: their arguments, their signatures and the arithmetic that they do. The op libraries (cpu_adam.cpp and so
// on) and the code that calls them include this.
//
// Every op works on a list of parameters in one parallel region. Arithmetic is float32 in the order given here, and every
// operation is rounded on its own, so that results have the same bits for every instruction set, number of threads and way
// to divide a list into calls. Parameters and moments are rounded to their own dtypes after the step.
#pragma once

#include <stdint.h>

// One parameter and what belongs to it; every array is contiguous and has `count` elements. Arrays of one parameter must
// not overlap.
struct aa_parameter {
  void* param;
  const void* grad;
  void* state[2];  // Adam, LAMB: exp_avg, exp_avg_sq; Adagrad: exp_avg_sq; Lion: exp_avg
  void* copy;      // receives the new parameters as well; may be null
  int64_t count;
  int64_t first_segment;  // segments (AA_NORM_SEGMENT) of the parameters before this one
  int32_t param_dtype;    // aa_dtype: float32, bfloat16 or float16, as are the others
  int32_t grad_dtype;
  int32_t state_dtype;
  int32_t copy_dtype;
};

// Every op that takes a grad_scale multiplies the gradients by it before anything else. All numbers in the structs of arguments
// are finite; the elements of parameters, gradients and states need not be.

// Squares of a parameter's elements are summed in double, in segments of this many elements with one sum for each, so that
// norms do not depend on how the work is divided among threads.
#define AA_NORM_SEGMENT 16384

// AA_OP void grad_square_sums(const aa_parameter*, int64_t count, double* sums)
// One sum for each segment, parameter after parameter: the squares of the gradients as they are, without grad_scale.
typedef void aa_grad_square_sums(const struct aa_parameter* parameters, int64_t count, double* sums);

// Adam, with g = gradient * grad_scale:
//   L2:     g += weight_decay * p
//   m = beta1 * m + one_minus_beta1 * g
//   v = beta2 * v + one_minus_beta2 * (g * g)
//   AdamW:  p += decay * p                          with decay = -lr * weight_decay
//   p += step_size * (m / (sqrt(v) * inv_sqrt_correction2 + eps))
// with step_size = -lr / (1 - beta1^step) and inv_sqrt_correction2 = 1 / sqrt(1 - beta2^step). Without bias correction these are
// -lr and 1.
struct aa_adam_args {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float step_size;
  float inv_sqrt_correction2;
  float weight_decay;  // 0 for AdamW
  float decay;         // 0 for L2
  float grad_scale;
};
// AA_OP adam_step, adam_undo: adam_step takes a step; adam_undo reverses it, up to rounding, from the same gradients.
typedef void aa_adam_op(const struct aa_parameter* parameters, int64_t count, const struct aa_adam_args* args);

// Adagrad: g += weight_decay * p; v += g * g; p += step_size * (g / (sqrt(v) + eps)), step_size = -lr.
struct aa_adagrad_args {
  float eps;
  float step_size;
  float weight_decay;
  float grad_scale;
};
typedef void aa_adagrad_op(const struct aa_parameter* parameters, int64_t count, const struct aa_adagrad_args* args);

// Lion: c = beta1 * m + one_minus_beta1 * g; p = p * keep - lr * sign(c) with keep = 1 - lr * weight_decay;
// m = beta2 * m + one_minus_beta2 * g. The sign of 0 is 0, that of a NaN is a NaN.
struct aa_lion_args {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float lr;
  float keep;
  float grad_scale;
};
typedef void aa_lion_op(const struct aa_parameter* parameters, int64_t count, const struct aa_lion_args* args);

// LAMB: m and v are updated as in Adam; u = (m / correction1) / denominator + weight_decay * p, where the denominator is
// sqrt(v / correction2) + eps, or with eps_inside sqrt(v / correction2 + eps); then p -= lr * coefficient * u.
// u is computed from m and v after they were rounded to their dtype.
struct aa_lamb_args {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float correction1, correction2;
  float weight_decay;
  float lr;
  float grad_scale;
  int32_t eps_inside;
};
// AA_OP lamb_moments: updates m and v. For each segment, parameter after parameter, gives the sums of squares of p and of u.
typedef void aa_lamb_moments(const struct aa_parameter* parameters, int64_t count, const struct aa_lamb_args* args,
                             double* param_sums, double* update_sums);
// AA_OP lamb_apply: p -= lr * coefficients[parameter] * u.
typedef void aa_lamb_apply(const struct aa_parameter* parameters, int64_t count, const struct aa_lamb_args* args,
                           const float* coefficients);
