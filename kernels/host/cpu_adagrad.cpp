// Adagrad; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

struct Step {
  Vec eps, step_size, weight_decay, scale;

  explicit Step(const aa_adagrad_args& args)
      : eps(args.eps), step_size(args.step_size), weight_decay(args.weight_decay), scale(args.grad_scale) {}

  AA_INLINE void operator()(Vec& p, Vec g, Vec& v, Vec&) const {
    const Vec grad = g * scale + weight_decay * p;
    v = v + grad * grad;
    p = p + step_size * (grad / (sqrt(v) + eps));
  }
};

}  // namespace

AA_OP void adagrad_step(const aa_parameter* parameters, int64_t count, const aa_adagrad_args* args) {
  for_each_element<1, kParam | kState>(parameters, count, Step(*args));
}
