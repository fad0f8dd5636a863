// Lion; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

__attribute__((noinline)) void step(float* p, const float* g, float* m, int64_t n, const aa_lion_args& args) {
  const Vec beta1(args.beta1), one_minus_beta1(args.one_minus_beta1);
  const Vec beta2(args.beta2), one_minus_beta2(args.one_minus_beta2);
  const Vec zero(0.0f), up(args.lr), down(-args.lr), keep(args.keep), scale(args.grad_scale);
  for (int64_t i = 0; i < n; i += kBlock) {
    for (int64_t line = 0; line < kBlock; line += 16) {
      prefetch(reinterpret_cast<const char*>(p + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(g + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(m + i + line) + ahead);
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += Vec::width) {
      const Vec grad = load(g + j) * scale;
      const Vec moment = load(m + j);
      const Vec mixed = beta1 * moment + one_minus_beta1 * grad;
      // A value that is neither above nor below zero is zero, which adds nothing, or a NaN, which propagates.
      const Vec change = select(less(zero, mixed), down, select(less(mixed, zero), up, mixed));
      store(p + j, load(p + j) * keep + change);
      store(m + j, beta2 * moment + one_minus_beta2 * grad);
    }
  }
}

}  // namespace

AA_OP void lion_step(const aa_parameter* parameters, int64_t count, const aa_lion_args* args) {
  for_each_element<1, kParam | kState>(
      parameters, count, [&](float* p, const float* g, float* m, float*, int64_t n) { step(p, g, m, n, *args); });
}
