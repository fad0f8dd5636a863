// LAMB in two passes: the moments with the norms, then the parameters; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

AA_INLINE Vec update_of(Vec p, Vec m, Vec v, const aa_lamb_args& args) {
  const Vec eps(args.eps);
  const Vec corrected = v / Vec(args.correction2);
  const Vec denominator = args.eps_inside ? sqrt(corrected + eps) : sqrt(corrected) + eps;
  return m / Vec(args.correction1) / denominator + Vec(args.weight_decay) * p;
}

__attribute__((noinline)) void moments(const float* g, float* m, float* v, int64_t n, const aa_lamb_args& args) {
  for (int64_t i = 0; i < n; i += Vec::width) {
    const Vec grad = load(g + i) * Vec(args.grad_scale);
    store(m + i, Vec(args.beta1) * load(m + i) + Vec(args.one_minus_beta1) * grad);
    store(v + i, Vec(args.beta2) * load(v + i) + Vec(args.one_minus_beta2) * (grad * grad));
  }
}

__attribute__((noinline)) void updates(const float* p, const float* m, const float* v, float* u, int64_t n,
                                       const aa_lamb_args& args) {
  for (int64_t i = 0; i < n; i += Vec::width) store(u + i, update_of(load(p + i), load(m + i), load(v + i), args));
}

__attribute__((noinline)) void apply(float* p, const float* m, const float* v, int64_t n, float coefficient,
                                     const aa_lamb_args& args) {
  const Vec rate(args.lr * coefficient);
  for (int64_t i = 0; i < n; i += Vec::width) {
    const Vec param = load(p + i);
    store(p + i, param - rate * update_of(param, load(m + i), load(v + i), args));
  }
}

}  // namespace

AA_OP void lamb_moments(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args, double* param_sums,
                        double* update_sums) {
  for_each_segment(parameters, count, [&](int64_t k, int64_t begin, int64_t end, int64_t segment) {
    const aa_parameter& parameter = parameters[k];
    SquareSum params, steps;
    for (int64_t i = begin; i < end; i += kStaged) {
      const int64_t last = end - i < kStaged ? end : i + kStaged;
      run_kernel<2, kState>(parameter, i, last,
                            [&](float*, const float* g, float* m, float* v, int64_t n) { moments(g, m, v, n, *args); });
      // Once more, from the moments as they are kept.
      int64_t left = last - i;
      run_kernel<2, 0>(parameter, i, last, [&](float* p, const float*, float* m, float* v, int64_t n) {
        alignas(64) float u[kStaged];
        updates(p, m, v, u, n, *args);
        // The padding of the last block is zero, but its update may be 0 / 0.
        for (int64_t j = left; j < n; ++j) u[j] = 0.0f;
        left -= n;
        params.add(p, n);
        steps.add(u, n);
      });
    }
    param_sums[segment] = params.total();
    update_sums[segment] = steps.total();
  });
}

AA_OP void lamb_apply(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args,
                      const float* coefficients) {
  for_each_part(parameters, count, kAlign, [&](int64_t k, int64_t begin, int64_t end) {
    run_kernel<2, kParam>(parameters[k], begin, end, [&](float* p, const float*, float* m, float* v, int64_t n) {
      apply(p, m, v, n, coefficients[k], *args);
    });
  });
}
