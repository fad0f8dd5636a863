// The op lion_step: the arithmetic only. optimizers.h has the formula, optimizer_loops.h the loops. Lion needs neither a square
// root nor a division, so memory bounds it, or with bf16 the number of instructions.
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

  static constexpr bool kDivides = false, kReadsGrad = true, kHasStages = false;
  template <int kCount>
  AA_INLINE void operator()(Many<kCount>& p, const Many<kCount>& g, Many<kCount>& m, Many<kCount>&) const {
    const Many<kCount> grad = scale * g;
    const Many<kCount> mixed = beta1 * m + one_minus_beta1 * grad;
    const Many<kCount> change = each<kCount>([&](int k) { return change_for(mixed.v[k]); });
    p = keep * p + change;
    m = beta2 * m + one_minus_beta2 * grad;
  }

 private:
  // -lr * sign(mixed). What is neither above nor below zero is returned as it is: a zero, which adds nothing, or a NaN, which
  // propagates.
  AA_INLINE Vec change_for(Vec mixed) const {
    const Vec zero(0.0f);
#if AA_VECTOR_AVX2
    const Vec by_sign(_mm256_blendv_ps(down.v, up.v, mixed.v));  // selects by the sign bit
    return select({_mm256_cmp_ps(mixed.v, zero.v, _CMP_NEQ_OQ)}, by_sign, mixed);
#else
    return select(less(zero, mixed), down, select(less(mixed, zero), up, mixed));
#endif
  }
};

}  // namespace

AA_OP void lion_step(const aa_parameter* parameters, int64_t count, const aa_lion_args* args) {
  for_each_element<1, kParam | kState>(parameters, count, Step(*args));
}
