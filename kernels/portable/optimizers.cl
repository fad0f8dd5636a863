// Steps of the fused optimizers on one parameter: the arithmetic of kernels/host/optimizers.h, bit for bit.
#include "dialect.h"
#include "arguments.h"
#include "strips.h"
#include "optimizer_arguments.h"

// `noop`: nothing is done where it holds another number than 0; may be null.
AA_KERNEL(adam_step, AA_ITEMS)(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) exp_avg_sq,
                               AA_OUT(void) copy, AA_IN(aa_i32) noop, aa_optimizer_types types, aa_adam_numbers a,
                               aa_i64 count, aa_i64 per_item) {
  if (noop && noop[0] != 0) return;
  const aa_i64 begin = AA_ITEM_ID * per_item;
  const aa_i64 end = begin + per_item < count ? begin + per_item : count;
  for (aa_i64 i = begin; i < end; i += AA_STRIP) {
    const aa_i32 n = aa_strip_length(end - i, AA_STRIP);
    float p[AA_STRIP], g[AA_STRIP], m[AA_STRIP], v[AA_STRIP];
    aa_load_strip(p, param, types.param, i, n);
    aa_load_strip(g, grad, types.grad, i, n);
    aa_load_strip(m, exp_avg, types.state, i, n);
    aa_load_strip(v, exp_avg_sq, types.state, i, n);
    for (aa_i32 k = 0; k < n; ++k) {
      float x = aa_mul_ftz(g[k], a.grad_scale);
      if (a.weight_decay != 0.0f) x = aa_add_ftz(x, aa_mul_ftz(a.weight_decay, p[k]));
      m[k] = aa_add_ftz(aa_mul_ftz(a.beta1, m[k]), aa_mul_ftz(a.one_minus_beta1, x));
      v[k] = aa_add_ftz(aa_mul_ftz(a.beta2, v[k]), aa_mul_ftz(a.one_minus_beta2, aa_mul_ftz(x, x)));
      if (a.weight_decay == 0.0f) p[k] = aa_add_ftz(p[k], aa_mul_ftz(a.decay, p[k]));
      const float denominator = aa_add_ftz(aa_mul_ftz(aa_sqrt_ftz(v[k]), a.inv_sqrt_correction2), a.eps);
      p[k] = aa_add_ftz(p[k], aa_mul_ftz(a.step_size, aa_div_ftz(m[k], denominator)));
    }
    aa_store_strip(exp_avg, types.state, i, m, n);
    aa_store_strip(exp_avg_sq, types.state, i, v, n);
    aa_store_strip(param, types.param, i, p, n);
    if (types.copy != 0) aa_store_strip(copy, types.copy, i, p, n);
  }
}
AA_REGISTER(adam_step, AA_ITEMS)

AA_KERNEL(lion_step, AA_ITEMS)(AA_OUT(void) param, AA_IN(void) grad, AA_OUT(void) exp_avg, AA_OUT(void) copy,
                               AA_IN(aa_i32) noop, aa_optimizer_types types, aa_lion_numbers a, aa_i64 count,
                               aa_i64 per_item) {
  if (noop && noop[0] != 0) return;
  const aa_i64 begin = AA_ITEM_ID * per_item;
  const aa_i64 end = begin + per_item < count ? begin + per_item : count;
  for (aa_i64 i = begin; i < end; i += AA_STRIP) {
    const aa_i32 n = aa_strip_length(end - i, AA_STRIP);
    float p[AA_STRIP], g[AA_STRIP], m[AA_STRIP];
    aa_load_strip(p, param, types.param, i, n);
    aa_load_strip(g, grad, types.grad, i, n);
    aa_load_strip(m, exp_avg, types.state, i, n);
    for (aa_i32 k = 0; k < n; ++k) {
      const float x = aa_mul_ftz(g[k], a.grad_scale);
      const float mixed = aa_add_ftz(aa_mul_ftz(a.beta1, m[k]), aa_mul_ftz(a.one_minus_beta1, x));
      // What is neither above nor below zero is zero, which adds nothing, or a NaN, which shows.
      const float change = mixed > 0.0f ? -a.lr : mixed < 0.0f ? a.lr : mixed;
      p[k] = aa_add_ftz(aa_mul_ftz(p[k], a.keep), change);
      m[k] = aa_add_ftz(aa_mul_ftz(a.beta2, m[k]), aa_mul_ftz(a.one_minus_beta2, x));
    }
    aa_store_strip(exp_avg, types.state, i, m, n);
    aa_store_strip(param, types.param, i, p, n);
    if (types.copy != 0) aa_store_strip(copy, types.copy, i, p, n);
  }
}
AA_REGISTER(lion_step, AA_ITEMS)
