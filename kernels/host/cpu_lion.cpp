// Lion; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

struct Step {
  Vec beta1, one_minus_beta1, beta2, one_minus_beta2, up, down, keep, scale;

  explicit Step(const aa_lion_args& args)
      : beta1(args.beta1),
        one_minus_beta1(args.one_minus_beta1),
        beta2(args.beta2),
        one_minus_beta2(args.one_minus_beta2),
        up(args.lr),
        down(-args.lr),
        keep(args.keep),
        scale(args.grad_scale) {}

  AA_INLINE void operator()(Vec& p, Vec g, Vec& m, Vec&) const {
    const Vec zero(0.0f), grad = g * scale;
    const Vec mixed = beta1 * m + one_minus_beta1 * grad;
    // A value that is neither above nor below zero is zero, which adds nothing, or a NaN, which propagates.
    const Vec change = select(less(zero, mixed), down, select(less(mixed, zero), up, mixed));
    p = p * keep + change;
    m = beta2 * m + one_minus_beta2 * grad;
  }
};

}  // namespace

AA_OP void lion_step(const aa_parameter* parameters, int64_t count, const aa_lion_args* args) {
  for_each_element<1, kParam | kState>(parameters, count, Step(*args));
}
