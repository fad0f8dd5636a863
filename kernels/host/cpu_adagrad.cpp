// Adagrad; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

__attribute__((noinline)) void step(float* p, const float* g, float* v, int64_t n, const aa_adagrad_args& args) {
  const Vec eps(args.eps), step_size(args.step_size), weight_decay(args.weight_decay), scale(args.grad_scale);
  for (int64_t i = 0; i < n; i += kBlock) {
    for (int64_t line = 0; line < kBlock; line += 16) {
      prefetch(reinterpret_cast<const char*>(p + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(g + i + line) + ahead);
      prefetch(reinterpret_cast<const char*>(v + i + line) + ahead);
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += Vec::width) {
      const Vec param = load(p + j);
      const Vec grad = load(g + j) * scale + weight_decay * param;
      const Vec sum = load(v + j) + grad * grad;
      store(v + j, sum);
      store(p + j, param + step_size * (grad / (sqrt(sum) + eps)));
    }
  }
}

}  // namespace

AA_OP void adagrad_step(const aa_parameter* parameters, int64_t count, const aa_adagrad_args* args) {
  for_each_element<1, kParam | kState>(
      parameters, count, [&](float* p, const float* g, float* v, float*, int64_t n) { step(p, g, v, n, *args); });
}
