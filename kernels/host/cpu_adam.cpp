// The ops adam_step and adam_undo, for Adam with L2 regularization and for AdamW: the arithmetic only. optimizers.h has the
// formulas, optimizer_loops.h the loops and what bounds them.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

template <bool kL2>
struct Step {
  Vec beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, correction, decay, scale;

  explicit Step(const aa_adam_args& args)
      : beta1(args.beta1),
        one_minus_beta1(args.one_minus_beta1),
        beta2(args.beta2),
        one_minus_beta2(args.one_minus_beta2),
        eps(args.eps),
        step_size(args.step_size),
        correction(args.inv_sqrt_correction2),
        decay(kL2 ? args.weight_decay : args.decay),
        scale(args.grad_scale) {}

  static constexpr bool kDivides = true, kSharesDivider = false, kReadsGrad = true, kHasStages = true;
  template <class M>
  AA_INLINE void start(const M& p, const M& g, M& m, M& v, M& dividend, M& square) const {
    M grad = scale * g;
    if (kL2) grad = grad + decay * p;
    dividend = m = beta1 * m + one_minus_beta1 * grad;
    square = v = beta2 * v + one_minus_beta2 * (grad * grad);
  }
  template <class M>
  AA_INLINE void decay_now(M& p) const {
    if (!kL2) p = p + decay * p;
  }
  template <class M>
  AA_INLINE M divisor(const M& root) const {
    return correction * root + eps;
  }
  template <class M>
  AA_INLINE bool begin(M& p, const M& g, M& m, M& v, M& a, M& b) const {
    start(p, g, m, v, a, b);
    decay_now(p);
    b = divisor(sqrt(b));
    return false;
  }
  template <class M>
  AA_INLINE void finish(M& p, const M& quotient) const {
    p = p + step_size * quotient;
  }
};

// Reverses a step. The parameters come first, because with L2 the gradient depends on the old ones.
template <bool kL2>
struct Undo {
  Vec beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, correction, weight_decay, kept, scale;

  explicit Undo(const aa_adam_args& args)
      : beta1(args.beta1),
        one_minus_beta1(args.one_minus_beta1),
        beta2(args.beta2),
        one_minus_beta2(args.one_minus_beta2),
        eps(args.eps),
        step_size(args.step_size),
        correction(args.inv_sqrt_correction2),
        weight_decay(args.weight_decay),
        kept(1.0f + args.decay),
        scale(args.grad_scale) {}

  static constexpr bool kDivides = false, kReadsGrad = true, kHasStages = false;
  template <int kCount>
  AA_INLINE void operator()(Many<kCount>& p, const Many<kCount>& g, Many<kCount>& m, Many<kCount>& v) const {
    p = p - step_size * (m / (correction * sqrt(v) + eps));
    Many<kCount> grad = scale * g;
    if (kL2) {
      grad = grad + weight_decay * p;
    } else {
      p = p / kept;
    }
    m = (m - one_minus_beta1 * grad) / beta1;
    // Rounding must not make a sum of squares negative. A NaN stays NaN: max() returns its second argument then.
    v = (v - one_minus_beta2 * (grad * grad)) / beta2;
    v = each<kCount>([&](int k) { return max(Vec(0.0f), v.v[k]); });
  }
};

template <class Kernel, bool kAll>
void run(const aa_parameter* parameters, int64_t count, const aa_adam_args* args) {
  for_each_element<2, kParam | kState, kAll>(parameters, count, Kernel(*args));
}

}  // namespace

AA_OP void adam_step(const aa_parameter* parameters, int64_t count, const aa_adam_args* args) {
  args->weight_decay != 0.0f ? run<Step<true>, true>(parameters, count, args)
                             : run<Step<false>, true>(parameters, count, args);
}

AA_OP void adam_undo(const aa_parameter* parameters, int64_t count, const aa_adam_args* args) {
  args->weight_decay != 0.0f ? run<Undo<true>, false>(parameters, count, args)
                             : run<Undo<false>, false>(parameters, count, args);
}
