// Steps of the fused optimizers: the arithmetic of kernels/host/optimizers.h, bit for bit. A launch takes one parameter, or
// up to AA_MANY small ones of the same element types, which is what models of many small tensors need.
#include "dialect.h"
#include "arguments.h"
#include "strips.h"
#include "optimizer_arguments.h"

// An item that works alone on a processor takes AA_PORTION neighbouring elements, strip by strip. In a group, items
// take AA_PORTION elements each that lie AA_ITEMS apart, so that neighbours read neighbours and several loads are in
// flight.
#if AA_GROUP_SIZE == 1
#define AA_PORTION AA_ADAM_ALONE
#define AA_PORTION_STRIP AA_STRIP
#define AA_PORTION_STEP 1
#define AA_PORTION_BEGIN (AA_ITEM_ID * AA_PORTION)
#define AA_PORTION_END (AA_PORTION_BEGIN + AA_PORTION)
#else
#define AA_PORTION AA_ADAM_IN_GROUP
#define AA_PORTION_STRIP AA_PORTION
#define AA_PORTION_STEP AA_ITEMS
#define AA_PORTION_BEGIN (AA_GROUP_ID(0) * AA_ITEMS * AA_PORTION + AA_LOCAL_ID)
#define AA_PORTION_END ((AA_GROUP_ID(0) + 1) * AA_ITEMS * AA_PORTION)
#endif

// Elements of the strip that begins at `i`.
AA_FN aa_i32 aa_portion_length(aa_i64 i, aa_i64 end) {
  const aa_i64 left = (end - i + AA_PORTION_STEP - 1) / AA_PORTION_STEP;
  return left < AA_PORTION_STRIP ? (aa_i32)left : AA_PORTION_STRIP;
}

// n elements from i on, AA_PORTION_STEP apart.
AA_FN void aa_adam_strip(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) exp_avg_sq,
                         AA_OUT(void) copy, aa_optimizer_types types, aa_adam_numbers a, aa_i64 i, aa_i32 n) {
  float p[AA_PORTION_STRIP], g[AA_PORTION_STRIP], m[AA_PORTION_STRIP], v[AA_PORTION_STRIP];
  aa_load_apart(p, param, types.param, i, AA_PORTION_STEP, n);
  aa_load_apart(g, grad, types.grad, i, AA_PORTION_STEP, n);
  aa_load_apart(m, exp_avg, types.state, i, AA_PORTION_STEP, n);
  aa_load_apart(v, exp_avg_sq, types.state, i, AA_PORTION_STEP, n);
  for (aa_i32 k = 0; k < n; ++k) {
    float x = aa_mul_ftz(g[k], a.grad_scale);
    if (a.weight_decay != 0.0f) x = aa_add_ftz(x, aa_mul_ftz(a.weight_decay, p[k]));
    m[k] = aa_add_ftz(aa_mul_ftz(a.beta1, m[k]), aa_mul_ftz(a.one_minus_beta1, x));
    v[k] = aa_add_ftz(aa_mul_ftz(a.beta2, v[k]), aa_mul_ftz(a.one_minus_beta2, aa_mul_ftz(x, x)));
    if (a.weight_decay == 0.0f) p[k] = aa_add_ftz(p[k], aa_mul_ftz(a.decay, p[k]));
    const float denominator = aa_add_ftz(aa_mul_ftz(aa_sqrt_ftz(v[k]), a.inv_sqrt_correction2), a.eps);
    p[k] = aa_add_ftz(p[k], aa_mul_ftz(a.step_size, aa_div_ftz(m[k], denominator)));
  }
  aa_store_apart(exp_avg, types.state, i, AA_PORTION_STEP, m, n);
  aa_store_apart(exp_avg_sq, types.state, i, AA_PORTION_STEP, v, n);
  aa_store_apart(param, types.param, i, AA_PORTION_STEP, p, n);
  if (types.copy != 0) aa_store_apart(copy, types.copy, i, AA_PORTION_STEP, p, n);
}
AA_FN void aa_adam(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) exp_avg_sq,
                   AA_OUT(void) copy, aa_optimizer_types types, aa_adam_numbers a, aa_i64 begin, aa_i64 end) {
  for (aa_i64 i = begin; i < end; i += AA_PORTION_STRIP * AA_PORTION_STEP) {
    const aa_i32 n = aa_portion_length(i, end);
    // Lengths known to the compiler keep the arrays in registers.
    if (n == AA_PORTION_STRIP) {
      aa_adam_strip(param, grad, exp_avg, exp_avg_sq, copy, types, a, i, AA_PORTION_STRIP);
      continue;
    }
    for (aa_i32 k = 0; k < n; ++k) {
      aa_adam_strip(param, grad, exp_avg, exp_avg_sq, copy, types, a, i + k * AA_PORTION_STEP, 1);
    }
  }
}

// `noop`: nothing is done where it holds another number than 0; may be null.
AA_KERNEL(adam_step, AA_ITEMS)
(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) exp_avg_sq, AA_OUT(void) copy,
 AA_IN(aa_i32) noop, AA_VALUE(aa_optimizer_types) types, AA_VALUE(aa_adam_numbers) a, AA_VALUE(aa_i64) count) {
  if (noop && noop[0] != 0) return;
  aa_adam(param, grad, exp_avg, exp_avg_sq, copy, types, a, AA_PORTION_BEGIN, AA_PORTION_END < count ? AA_PORTION_END : count);
}
AA_REGISTER(adam_step, AA_ITEMS)

// Parameter number AA_GROUP_ID(1) of AA_MANY. Where a kernel may have few arguments there is none.
#ifndef AA_FEW_ARGUMENTS
#define AA_ADAM_ARRAYS(n)                                                                                   \
  AA_OUT(void)                                                                                              \
  param##n, AA_IN(void) grad##n, AA_OUT(void) exp_avg##n, AA_OUT(void) exp_avg_sq##n, AA_OUT(void) copy##n, \
      AA_VALUE(aa_i64) count##n
#define AA_ADAM_CHOOSE(n)         \
  if (which == n) {               \
    param = param##n;             \
    grad = grad##n;               \
    exp_avg = exp_avg##n;         \
    exp_avg_sq = exp_avg_sq##n;   \
    copy = copy##n;               \
    count = count##n;             \
  }
AA_KERNEL(adam_step_many, AA_ITEMS)
(AA_IN(aa_i32) noop, AA_VALUE(aa_optimizer_types) types, AA_VALUE(aa_adam_numbers) a, AA_ADAM_ARRAYS(0),
 AA_ADAM_ARRAYS(1), AA_ADAM_ARRAYS(2), AA_ADAM_ARRAYS(3), AA_ADAM_ARRAYS(4), AA_ADAM_ARRAYS(5), AA_ADAM_ARRAYS(6),
 AA_ADAM_ARRAYS(7), AA_ADAM_ARRAYS(8), AA_ADAM_ARRAYS(9), AA_ADAM_ARRAYS(10), AA_ADAM_ARRAYS(11)) {
  if (noop && noop[0] != 0) return;
  const aa_i64 which = AA_GROUP_ID(1);
  AA_OUT(void) param = param0;
  AA_IN(void) grad = grad0;
  AA_OUT(void) exp_avg = exp_avg0;
  AA_OUT(void) exp_avg_sq = exp_avg_sq0;
  AA_OUT(void) copy = copy0;
  aa_i64 count = count0;
  AA_ADAM_CHOOSE(1)
  AA_ADAM_CHOOSE(2)
  AA_ADAM_CHOOSE(3)
  AA_ADAM_CHOOSE(4)
  AA_ADAM_CHOOSE(5)
  AA_ADAM_CHOOSE(6)
  AA_ADAM_CHOOSE(7)
  AA_ADAM_CHOOSE(8)
  AA_ADAM_CHOOSE(9)
  AA_ADAM_CHOOSE(10)
  AA_ADAM_CHOOSE(11)
  aa_adam(param, grad, exp_avg, exp_avg_sq, copy, types, a, AA_PORTION_BEGIN, AA_PORTION_END < count ? AA_PORTION_END : count);
}
AA_REGISTER(adam_step_many, AA_ITEMS)
#endif

AA_FN void aa_lion_strip(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) copy,
                         aa_optimizer_types types, aa_lion_numbers a, aa_i64 i, aa_i32 n) {
  float p[AA_PORTION_STRIP], g[AA_PORTION_STRIP], m[AA_PORTION_STRIP];
  aa_load_apart(p, param, types.param, i, AA_PORTION_STEP, n);
  aa_load_apart(g, grad, types.grad, i, AA_PORTION_STEP, n);
  aa_load_apart(m, exp_avg, types.state, i, AA_PORTION_STEP, n);
  for (aa_i32 k = 0; k < n; ++k) {
    const float x = aa_mul_ftz(g[k], a.grad_scale);
    const float mixed = aa_add_ftz(aa_mul_ftz(a.beta1, m[k]), aa_mul_ftz(a.one_minus_beta1, x));
    // A value that is neither above nor below zero is zero, which adds nothing, or a NaN, which propagates.
    const float change = mixed > 0.0f ? -a.lr : mixed < 0.0f ? a.lr : mixed;
    p[k] = aa_add_ftz(aa_mul_ftz(p[k], a.keep), change);
    m[k] = aa_add_ftz(aa_mul_ftz(a.beta2, m[k]), aa_mul_ftz(a.one_minus_beta2, x));
  }
  aa_store_apart(exp_avg, types.state, i, AA_PORTION_STEP, m, n);
  aa_store_apart(param, types.param, i, AA_PORTION_STEP, p, n);
  if (types.copy != 0) aa_store_apart(copy, types.copy, i, AA_PORTION_STEP, p, n);
}

AA_KERNEL(lion_step, AA_ITEMS)
(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) copy, AA_IN(aa_i32) noop,
 AA_VALUE(aa_optimizer_types) types, AA_VALUE(aa_lion_numbers) a, AA_VALUE(aa_i64) count) {
  if (noop && noop[0] != 0) return;
  const aa_i64 end = AA_PORTION_END < count ? AA_PORTION_END : count;
  for (aa_i64 i = AA_PORTION_BEGIN; i < end; i += AA_PORTION_STRIP * AA_PORTION_STEP) {
    const aa_i32 n = aa_portion_length(i, end);
    if (n == AA_PORTION_STRIP) {
      aa_lion_strip(param, grad, exp_avg, copy, types, a, i, AA_PORTION_STRIP);
      continue;
    }
    for (aa_i32 k = 0; k < n; ++k) {
      aa_lion_strip(param, grad, exp_avg, copy, types, a, i + k * AA_PORTION_STEP, 1);
    }
  }
}
AA_REGISTER(lion_step, AA_ITEMS)
