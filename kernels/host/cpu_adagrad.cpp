// The op adagrad_step: the arithmetic only. optimizers.h has the formula, optimizer_loops.h the loops. With bf16 the divider
// bounds it.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

struct Step {
  Vec eps, step_size, weight_decay, scale;

  explicit Step(const aa_adagrad_args& args)
      : eps(args.eps), step_size(args.step_size), weight_decay(args.weight_decay), scale(args.grad_scale) {}

  static constexpr bool kDivides = true, kSharesDivider = true, kReadsGrad = true, kHasStages = true;
  template <class M>
  AA_INLINE void start(const M& p, const M& g, M& v, M&, M& dividend, M& square) const {
    dividend = scale * g + weight_decay * p;
    v = v + dividend * dividend;
    square = v;
  }
  template <class M>
  AA_INLINE void decay_now(M&) const {}
  template <class M>
  AA_INLINE M divisor(const M& root) const {
    return root + eps;
  }
  template <class M>
  AA_INLINE bool begin(const M& p, const M& g, M& v, M& unused, M& a, M& b) const {
    start(p, g, v, unused, a, b);
    b = divisor(sqrt(b));
    return can_multiply_instead(a, b);
  }
  template <class M>
  AA_INLINE void finish(M& p, const M& quotient) const {
    p = p + step_size * quotient;
  }
};

}  // namespace

AA_OP void adagrad_step(const aa_parameter* parameters, int64_t count, const aa_adagrad_args* args) {
  for_each_element<1, kParam | kState>(parameters, count, Step(*args));
}
