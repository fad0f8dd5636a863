// Adagrad; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

struct Step {
  Vec eps, step_size, weight_decay, scale;

  explicit Step(const aa_adagrad_args& args)
      : eps(args.eps), step_size(args.step_size), weight_decay(args.weight_decay), scale(args.grad_scale) {}

  static constexpr bool kDivides = true;
  static constexpr int kByDivider = kTogether / 2;
  AA_INLINE bool begin(const Many& p, const Many& g, Many& v, Many&, Many& a, Many& b) const {
    a = scale * g + weight_decay * p;
    v = v + a * a;
    b = sqrt(v) + eps;
    return can_multiply_instead<kByDivider>(a, b);
  }
  AA_INLINE void finish(Many& p, const Many& quotient) const { p = p + step_size * quotient; }
};

}  // namespace

AA_OP void adagrad_step(const aa_parameter* parameters, int64_t count, const aa_adagrad_args* args) {
  for_each_element<1, kParam | kState>(parameters, count, Step(*args));
}
