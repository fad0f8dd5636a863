// Adam and AdamW; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

// The step on n floats, n a multiple of kBlock. The moments go to m and v, the new parameters to p.
template <bool kL2>
__attribute__((noinline)) void step(float* p, const float* g, float* m, float* v, int64_t n, const aa_adam_args& args) {
  const Vec beta1(args.beta1), one_minus_beta1(args.one_minus_beta1);
  const Vec beta2(args.beta2), one_minus_beta2(args.one_minus_beta2);
  const Vec eps(args.eps), step_size(args.step_size), correction(args.inv_sqrt_correction2);
  const Vec decay(kL2 ? args.weight_decay : args.decay), scale(args.grad_scale);
  for (int64_t i = 0; i < n; i += kBlock) {
    // One cache line holds 16 floats.
    for (int64_t line = 0; line < kBlock; line += 16) {
      prefetch(reinterpret_cast<const char*>(p + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(g + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(m + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(v + i + line) + ahead);
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += Vec::width) {
      Vec param = load(p + j);
      Vec grad = load(g + j) * scale;
      if (kL2) grad += decay * param;
      const Vec first = beta1 * load(m + j) + one_minus_beta1 * grad;
      const Vec second = beta2 * load(v + j) + one_minus_beta2 * (grad * grad);
      if (!kL2) param += decay * param;
      param += step_size * (first / (sqrt(second) * correction + eps));
      store(m + j, first);
      store(v + j, second);
      store(p + j, param);
    }
  }
}

// The step undone: the parameters first, because L2 needs the old ones to know the gradient.
template <bool kL2>
__attribute__((noinline)) void undo(float* p, const float* g, float* m, float* v, int64_t n, const aa_adam_args& args) {
  const Vec beta1(args.beta1), one_minus_beta1(args.one_minus_beta1);
  const Vec beta2(args.beta2), one_minus_beta2(args.one_minus_beta2);
  const Vec eps(args.eps), step_size(args.step_size), correction(args.inv_sqrt_correction2);
  const Vec weight_decay(args.weight_decay), kept(1.0f + args.decay), scale(args.grad_scale);
  for (int64_t i = 0; i < n; i += Vec::width) {
    const Vec first = load(m + i), second = load(v + i);
    Vec param = load(p + i) - step_size * (first / (sqrt(second) * correction + eps));
    Vec grad = load(g + i) * scale;
    if (kL2) {
      grad += weight_decay * param;
    } else {
      param = param / kept;
    }
    store(p + i, param);
    store(m + i, (first - one_minus_beta1 * grad) / beta1);
    // Rounding must not make a sum of squares negative. A NaN stays one: max gives its second argument for it.
    store(v + i, max(Vec(0.0f), (second - one_minus_beta2 * (grad * grad)) / beta2));
  }
}

using Step = void (*)(float*, const float*, float*, float*, int64_t, const aa_adam_args&);

void run_steps(const aa_parameter* parameters, int64_t count, const aa_adam_args* args, Step step) {
  for_each_element<2, kParam | kState>(
      parameters, count, [&](float* p, const float* g, float* m, float* v, int64_t n) { step(p, g, m, v, n, *args); });
}

}  // namespace

AA_OP void adam_step(const aa_parameter* parameters, int64_t count, const aa_adam_args* args) {
  run_steps(parameters, count, args, args->weight_decay != 0.0f ? step<true> : step<false>);
}

AA_OP void adam_undo(const aa_parameter* parameters, int64_t count, const aa_adam_args* args) {
  run_steps(parameters, count, args, args->weight_decay != 0.0f ? undo<true> : undo<false>);
}
