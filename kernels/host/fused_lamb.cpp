// LAMB in two passes: the moments with the norms, then the parameters; see optimizers.h.
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

struct Moments {
  Vec beta1, one_minus_beta1, beta2, one_minus_beta2, scale;

  explicit Moments(const aa_lamb_args& args)
      : beta1(args.beta1),
        one_minus_beta1(args.one_minus_beta1),
        beta2(args.beta2),
        one_minus_beta2(args.one_minus_beta2),
        scale(args.grad_scale) {}

  AA_INLINE void operator()(Vec&, Vec g, Vec& m, Vec& v) const {
    const Vec grad = g * scale;
    m = beta1 * m + one_minus_beta1 * grad;
    v = beta2 * v + one_minus_beta2 * (grad * grad);
  }
};

#if AA_VECTOR_AVX512 || AA_VECTOR_AVX2
constexpr bool kHasMultiplyAdd = true;
// Whether all elements of both are at least 2^-76 and below 2^60.
AA_INLINE bool are_ordinary(Vec a, Vec b) {
  constexpr uint32_t kLeast = (127 - 76) << 23, kSpan = (60 + 76) << 23;
  const Words x = bits_of(a) - kLeast, y = bits_of(b) - kLeast;
  const Words largest = x > y ? x : y;
#if AA_VECTOR_AVX512
  return _mm512_cmpge_epu32_mask((__m512i)largest, _mm512_set1_epi32(kSpan)) == 0;
#else
  const __m256i limit = _mm256_set1_epi32(kSpan - 1);
  const __m256i within = _mm256_cmpeq_epi32(_mm256_max_epu32((__m256i)largest, limit), limit);
  return _mm256_movemask_epi8(within) == -1;
#endif
}
#else
constexpr bool kHasMultiplyAdd = false;
AA_INLINE bool are_ordinary(Vec, Vec) { return false; }
#endif

// x / divisor, given 1 / divisor rounded; only for ordinary numbers. The first quotient may be a unit and a half wrong, the
// second, corrected by the remainder, less than a unit; correcting that one gives what a division gives (Markstein 1990).
AA_INLINE Vec quotient(Vec x, Vec divisor, Vec inverse) {
  Vec q = x * inverse;
  q = multiply_add(multiply_add(-q, divisor, x), inverse, q);
  return multiply_add(multiply_add(-q, divisor, x), inverse, q);
}

// The update of a parameter from its moments. Two of the three divisions are by numbers that all elements share: those take
// multiply-adds instead, in a quarter of the time.
struct Update {
  Vec eps, correction1, correction2, inverse1, inverse2, weight_decay;
  bool eps_inside, can_multiply;

  explicit Update(const aa_lamb_args& args)
      : eps(args.eps),
        correction1(args.correction1),
        correction2(args.correction2),
        inverse1(1.0f / args.correction1),
        inverse2(1.0f / args.correction2),
        weight_decay(args.weight_decay),
        eps_inside(args.eps_inside != 0),
        can_multiply(kHasMultiplyAdd && args.correction1 > 0x1p-40f && args.correction2 > 0x1p-40f) {}

  AA_INLINE Vec operator()(Vec p, Vec m, Vec v) const {
    Vec first, second;
    if (can_multiply && are_ordinary(abs(m), v)) {
      first = quotient(m, correction1, inverse1);
      second = quotient(v, correction2, inverse2);
    } else {
      first = m / correction1;
      second = v / correction2;
    }
    const Vec denominator = eps_inside ? sqrt(second + eps) : sqrt(second) + eps;
    return first / denominator + weight_decay * p;
  }
};

struct Apply {
  Update update;
  Vec rate;

  Apply(const aa_lamb_args& args, float coefficient) : update(args), rate(args.lr * coefficient) {}

  AA_INLINE void operator()(Vec& p, Vec, Vec& m, Vec& v) const { p = p - rate * update(p, m, v); }
};

// Parameters and updates of at most kStaged elements, as floats.
struct Floats {
  alignas(64) float params[kStaged], updates[kStaged];
};

// The moments of n elements, n a multiple of kBlock, and from them as they are kept the updates.
template <bool kInOneStep, class P, class G, class S>
__attribute__((noinline)) void step_moments(const P* p, const G* g, S* m, S* v, int64_t n,
                                            const Moments& shared_moments, const Update& shared_update, Floats& out) {
  const Moments moments = shared_moments;
  const Update update = shared_update;
  for (int64_t i = 0; i < n; i += kBlock) {
    fetch(p + i);
    fetch(g + i);
    fetch(m + i);
    fetch(v + i);
    for (int64_t j = i; j < i + kBlock; j += 2 * Vec::width) {
      EvenOdd param = load_two<false>(p + j), first = load_two<false>(m + j), second = load_two<false>(v + j);
      const EvenOdd grad = load_two<false>(g + j);
      moments(param.even, grad.even, first.even, second.even);
      moments(param.odd, grad.odd, first.odd, second.odd);
      store_two<false, kInOneStep>(m + j, first);
      store_two<false, kInOneStep>(v + j, second);
      first = load_two<false>(m + j);
      second = load_two<false>(v + j);
      store(out.params + j, param.even);
      store(out.params + j + Vec::width, param.odd);
      store(out.updates + j, update(param.even, first.even, second.even));
      store(out.updates + j + Vec::width, update(param.odd, first.odd, second.odd));
    }
  }
}

struct MomentsStep {
  template <class P, class G, class S>
  static void run(const aa_parameter& p, int64_t begin, int64_t n, const Moments& moments, const Update& update,
                  Floats& out) {
    const P* const param = static_cast<const P*>(p.param) + begin;
    const G* const grad = static_cast<const G*>(p.grad) + begin;
    S* const first = static_cast<S*>(p.state[0]) + begin;
    S* const second = static_cast<S*>(p.state[1]) + begin;
    if constexpr (__is_same(S, bf16) && AA_VECTOR_AVX512) {
      if (rounds_to_bf16) return step_moments<true>(param, grad, first, second, n, moments, update, out);
    }
    step_moments<false>(param, grad, first, second, n, moments, update, out);
  }
};

}  // namespace

AA_OP void lamb_moments(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args, double* param_sums,
                        double* update_sums) {
  const Moments moments(*args);
  const Update update(*args);
  for_each_segment(parameters, count, [&](int64_t k, int64_t begin, int64_t end, int64_t segment) {
    const aa_parameter& parameter = parameters[k];
    const auto direct = with_dtypes<MomentsStep>(parameter);
    SquareSum params, steps;
    Floats floats;
    for (int64_t i = begin; i < end; i += kStaged) {
      const int64_t n = end - i < kStaged ? end - i : kStaged, padded = (n + kBlock - 1) / kBlock * kBlock;
      if (direct && n == padded) {
        direct(parameter, i, n, moments, update, floats);
      } else {
        run_kernel<2, kState, false>(parameter, i, i + n, moments);
        // Once more, from the moments as they are kept.
        alignas(64) float first[kStaged], second[kStaged];
        widen(at(parameter.param, parameter.param_dtype, i), parameter.param_dtype, floats.params, n);
        widen(at(parameter.state[0], parameter.state_dtype, i), parameter.state_dtype, first, n);
        widen(at(parameter.state[1], parameter.state_dtype, i), parameter.state_dtype, second, n);
        for (int64_t j = n; j < padded; ++j) floats.params[j] = first[j] = second[j] = 0.0f;
        for (int64_t j = 0; j < padded; j += Vec::width) {
          store(floats.updates + j, update(load(floats.params + j), load(first + j), load(second + j)));
        }
        // The update of zeros may be 0 / 0.
        for (int64_t j = n; j < padded; ++j) floats.updates[j] = 0.0f;
      }
      params.add<false>(floats.params, padded);
      steps.add<false>(floats.updates, padded);
    }
    param_sums[segment] = params.total();
    update_sums[segment] = steps.total();
  });
}

AA_OP void lamb_apply(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args,
                      const float* coefficients) {
  for_each_part(parameters, count, kAlign, [&](int64_t k, int64_t begin, int64_t end) {
    run_kernel<2, kParam>(parameters[k], begin, end, Apply(*args, coefficients[k]));
  });
}
