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

  template <class M>
  AA_INLINE void operator()(const M& g, M& m, M& v) const {
    const M grad = scale * g;
    m = beta1 * m + one_minus_beta1 * grad;
    v = beta2 * v + one_minus_beta2 * (grad * grad);
  }
};

// The same for what goes through buffers.
struct StagedMoments {
  Moments moments;
  static constexpr bool kDivides = false, kReadsGrad = true, kHasStages = false;
  template <class M>
  AA_INLINE void operator()(M&, const M& g, M& m, M& v) const {
    moments(g, m, v);
  }
};

constexpr bool kHasMultiplyAdd = AA_VECTOR_AVX512 || AA_VECTOR_AVX2;
// Returns true if all elements are at least 2^-76 and below 2^52 in magnitude.
template <int kCount>
AA_INLINE bool are_ordinary(const Many<kCount>& a, const Many<kCount>& b) {
  constexpr uint32_t kLeast = (127 - 76) << 24;
  Words odd{};
#pragma GCC unroll 4
  for (int k = 0; k < kCount; ++k) {
    const Words x = bits_of(a.v[k]), y = bits_of(b.v[k]);
    odd |= ((x + x) - kLeast) | ((y + y) - kLeast);
  }
  return have_none(odd, 0x80000000u);
}

// Divides by a number that all elements share: x / divisor as the processor divides, for ordinary x.
struct Divisor {
  float divisor, inverse, rest;  // inverse + rest is 1 / divisor to 2^-48 of it
  bool in_two_steps;

  explicit Divisor(float by) : divisor(by), inverse(1.0f / by), rest(0), in_two_steps(false) {
    if constexpr (kHasMultiplyAdd) {
      rest = __builtin_fmaf(-inverse, by, 1.0f) / by;
      in_two_steps = two_steps_are_exact();
    }
  }

  // x * inverse + x * rest has an error of at most 2^-47 of x / divisor before it is rounded. It is wrong only for quotients
  // that are as near to the middle between two floats, at odd / 2: X * 2^s - odd * D is at most 4 for the mantissas X
  // and D as integers. These X are tried; a twentieth of all divisors fail.
  bool two_steps_are_exact() const {
    uint64_t odd = (float_bits(divisor) & 0x7fffffu) | 0x800000u;
    const int zeros = __builtin_ctzll(odd);
    odd >>= zeros;
    if (odd == 1 || zeros > 2) return true;
    for (int s = 24; s <= 25; ++s) {
      uint64_t half = 1;  // 2^-(s - zeros) modulo `odd`
      for (int i = 0; i < s - zeros; ++i) half = (half % 2 == 0 ? half : half + odd) / 2;
      for (int64_t difference = -3; difference <= 3; difference += 2) {
        if (((difference < 0 ? -difference : difference) << zeros) > 4) continue;
        const int64_t modulus = static_cast<int64_t>(odd);
        int64_t mantissa = ((difference % modulus + modulus) % modulus) * static_cast<int64_t>(half) % modulus;
        for (; mantissa < 1 << 24; mantissa += modulus) {
          const float x = static_cast<float>(mantissa);
          if (mantissa >= 1 << 23 && __builtin_fmaf(x, inverse, x * rest) != x / divisor) return false;
        }
      }
    }
    return true;
  }

  template <int kCount>
  AA_INLINE Many<kCount> operator()(const Many<kCount>& x) const {
    const Vec by(divisor), hi(inverse), lo(rest);
    if (in_two_steps) {
      return each<kCount>([&](int k) { return multiply_add(x.v[k], hi, x.v[k] * lo); });
    }
    // The first quotient may be a unit and a half wrong, the second, corrected by the remainder, less than a unit; correcting
    // that one gives what a division gives (Markstein 1990).
    Many<kCount> q = hi * x;
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step) {
      q = each<kCount>([&](int k) { return multiply_add(multiply_sub_from(q.v[k], by, x.v[k]), hi, q.v[k]); });
    }
    return q;
  }
};

// The update of a parameter from its moments, a / b + weight_decay * p. Two of its three divisions are by numbers that all
// elements share.
struct Update {
  Vec eps, weight_decay;
  Divisor correction1, correction2;
  bool eps_inside, can_multiply;

  explicit Update(const aa_lamb_args& args)
      : eps(args.eps),
        weight_decay(args.weight_decay),
        correction1(args.correction1),
        correction2(args.correction2),
        eps_inside(args.eps_inside != 0),
        can_multiply(kHasMultiplyAdd && args.correction1 > 0x1p-20f && args.correction2 > 0x1p-20f &&
                     args.eps < 0x1p20f) {}

  // Returns whether divide() may multiply: ordinary moments, divided by the corrections, are in its range.
  template <class M>
  AA_INLINE bool begin(const M& m, const M& v, M& a, M& b) const {
    const bool ordinary = can_multiply && are_ordinary(m, v);
    M second;
    if (ordinary) {
      a = correction1(m);
      second = correction2(v);
    } else {
      a = m / Vec(correction1.divisor);
      second = v / Vec(correction2.divisor);
    }
    b = eps_inside ? sqrt(second + eps) : sqrt(second) + eps;
    return is_intel && ordinary;
  }
  template <class M>
  AA_INLINE M finish(const M& p, const M& quotient) const {
    return quotient + weight_decay * p;
  }
};

struct Apply {
  Update update;
  Vec rate;

  Apply(const aa_lamb_args& args, float coefficient) : update(args), rate(args.lr * coefficient) {}

  static constexpr bool kDivides = true, kSharesDivider = true, kReadsGrad = false, kHasStages = false;
  template <class M>
  AA_INLINE bool begin(const M&, const M&, const M& m, const M& v, M& a, M& b) const {
    return update.begin(m, v, a, b);
  }
  template <class M>
  AA_INLINE void finish(M& p, const M& quotient) const {
    p = p - rate * update.finish(p, quotient);
  }
};

#if AA_VECTOR_AVX512
// The lanes of a SquareSum in registers, for vectors of which each pair are 32 elements, even ones before odd ones
// where kPairs. Adding them up in between steps keeps multipliers busy while the divider is.
template <bool kPairs>
class Squares {
 public:
  explicit Squares(SquareSum& sum) : sum_(sum) {
    for (int i = 0; i < SquareSum::kLanes; ++i) lanes_[i / 8][i % 8] = sum.lanes()[place(i)];
  }
  void give_back() {
    for (int i = 0; i < SquareSum::kLanes; ++i) sum_.lanes()[place(i)] = lanes_[i / 8][i % 8];
  }
  template <int kCount>
  AA_INLINE void add(const Many<kCount>& x) {
#pragma GCC unroll 4
    for (int k = 0; k < kCount; ++k) {
      add_to(lanes_[k % 2 * 2], _mm512_castps512_ps256(x.v[k].v));
      add_to(lanes_[k % 2 * 2 + 1], _mm512_extractf32x8_ps(x.v[k].v, 1));
    }
  }

 private:
  typedef double Eight __attribute__((vector_size(64)));
  static constexpr int place(int i) { return kPairs ? i % 16 * 2 + i / 16 : i; }
  static AA_INLINE void add_to(Eight& lanes, __m256 x) {
    const __m512d exact = _mm512_cvtps_pd(x);
    lanes = (Eight)_mm512_fmadd_pd(exact, exact, (__m512d)lanes);
  }

  SquareSum& sum_;
  Eight lanes_[4];
};
#else
// Elements on their way to a SquareSum. Of pairs, the even and the odd ones of 16 follow one another, and so do their lanes here.
template <bool kPairs>
class Squares {
 public:
  explicit Squares(SquareSum& sum) : sum_(sum) {
    for (int i = 0; i < SquareSum::kLanes; ++i) here_.lanes()[i] = sum.lanes()[place(i)];
  }
  void give_back() {
    empty();
    for (int i = 0; i < SquareSum::kLanes; ++i) sum_.lanes()[place(i)] = here_.lanes()[i];
  }
  template <int kCount>
  AA_INLINE void add(const Many<kCount>& x) {
    x.store(buffer_ + used_);
    used_ += Many<kCount>::width;
    if (used_ == kStaged) empty();
  }

 private:
  static constexpr int place(int i) {
    constexpr int w = Vec::width;
    return kPairs ? i / (2 * w) * (2 * w) + i % w * 2 + i / w % 2 : i;
  }
  void empty() {
    if (used_ > 0) here_.add<false>(buffer_, used_);
    used_ = 0;
  }

  SquareSum& sum_;
  SquareSum here_;
  int64_t used_ = 0;
  alignas(64) float buffer_[kStaged];
};
#endif

// The moments of n elements, n a multiple of kBlock, and from them as they are kept the squares of the updates.
template <class Way, class P, class G, class S>
__attribute__((noinline)) void step_moments(const P* p, const G* g, S* m, S* v, int64_t n,
                                            const Moments& shared_moments, const Update& shared_update,
                                            SquareSum& param_sum, SquareSum& update_sum) {
  constexpr int kCount = Way::kCount;
  const Moments moments = shared_moments;
  const Update update = shared_update;
  constexpr bool kPairs = __is_same(P, bf16) && __is_same(G, bf16) && __is_same(S, bf16);
  constexpr int64_t kStride = Many<kCount>::width;
  Squares<kPairs> params(param_sum), updates(update_sum);
  // Three of them are under way at once, in different parts of the step.
  Unfinished<kCount> before;
  const auto begin = [&](int64_t j) __attribute__((always_inline)) {
    Unfinished<kCount> now;
    now.param = load_many<kCount, kPairs>(p + j);
    now.multiplies = update.begin(load_many<kCount, kPairs>(m + j), load_many<kCount, kPairs>(v + j), now.a, now.b);
    params.add(now.param);
    return now;
  };
  const auto finish = [&]() __attribute__((always_inline)) {
    updates.add(update.finish(before.param, divide<Way::kMultiplies>(before.a, before.b, before.multiplies)));
  };
  for (int64_t i = 0; i < n; i += kBlock) {
    if constexpr (Way::kFetches) {
      fetch(p + i);
      fetch(g + i);
      fetch(m + i);
      fetch(v + i);
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += kStride) {
      Many<kCount> first = load_many<kCount, kPairs>(m + j), second = load_many<kCount, kPairs>(v + j);
      moments(load_many<kCount, kPairs>(g + j), first, second);
      store_many<kPairs, Way::kInOneStep>(m + j, first);
      store_many<kPairs, Way::kInOneStep>(v + j, second);
      if (j == 0) continue;
      const Unfinished<kCount> now = begin(j - kStride);
      if (j > kStride) finish();
      before = now;
    }
  }
  if (n > 0) {
    const Unfinished<kCount> now = begin(n - kStride);
    if (n > kStride) finish();
    before = now;
    finish();
  }
  params.give_back();
  updates.give_back();
}

#if AA_VECTOR_AVX2
// Elements on their way to a SquareSum, added up while the divider is busy with others: while a block of kFilled elements is filled,
// its predecessor goes to the lanes, to four of them with every 16 elements. Pairs are as in Squares.
template <bool kPairs>
class SquaresMeanwhile {
 public:
  explicit SquaresMeanwhile(SquareSum& sum) : sum_(sum) {
    for (int i = 0; i < SquareSum::kLanes; ++i) lanes_[i] = sum.lanes()[place(i)];
  }
  // The elements from j on, a multiple of kCount * Vec::width; each call before one of add_both().
  template <int kCount>
  AA_INLINE void put(int64_t j, const Many<kCount>& x) {
    x.store(block(j) + (j & (kFilled - 1)));
  }
  template <int kCount>
  static AA_INLINE void add_both(int64_t j, SquaresMeanwhile& a, SquaresMeanwhile& b) {
    if (j < kFilled) return;
#pragma GCC unroll 2
    for (int64_t i = 0; i < Many<kCount>::width; i += kShare) {
      const int64_t lane = ((j & (kFilled - 1)) + i) / (kShare / 4) & ~int64_t{3};
      a.add_to_lanes(lane, a.block(j - kFilled), kFilled);
      b.add_to_lanes(lane, b.block(j - kFilled), kFilled);
    }
  }
  // After the last of n elements, a multiple of 32.
  void give_back(int64_t n) {
    const int64_t last = (n - 1) / kFilled * kFilled;
    for (int64_t lane = 4 * (n - last) / kShare; lane < SquareSum::kLanes && last > 0; lane += 4) {
      add_to_lanes(lane, block(last - kFilled), kFilled);
    }
    for (int64_t lane = 0; lane < SquareSum::kLanes; lane += 4) add_to_lanes(lane, block(last), n - last);
    for (int i = 0; i < SquareSum::kLanes; ++i) sum_.lanes()[place(i)] = lanes_[i];
  }

 private:
  static constexpr int64_t kFilled = 2 * kBlock, kShare = 16;
  static_assert(kFilled / kShare == SquareSum::kLanes / 4);
  static constexpr int place(int i) {
    constexpr int w = Vec::width;
    return kPairs ? i / (2 * w) * (2 * w) + i % w * 2 + i / w % 2 : i;
  }
  AA_INLINE float* block(int64_t j) { return blocks_ + (j & kFilled); }
  // What of n elements goes to `lane` and the three after it.
  AA_INLINE void add_to_lanes(int64_t lane, const float* x, int64_t n) {
    __m256d lanes = _mm256_load_pd(lanes_ + lane);
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i += SquareSum::kLanes) {
      const __m256d exact = _mm256_cvtps_pd(_mm_load_ps(x + lane + i));
      lanes = _mm256_fmadd_pd(exact, exact, lanes);
    }
    _mm256_store_pd(lanes_ + lane, lanes);
  }

  SquareSum& sum_;
  alignas(64) double lanes_[SquareSum::kLanes];
  alignas(64) float blocks_[2 * kFilled];
};

// Moments as they are kept: of bf16 the words as well, half as many vectors in which to look for what is not ordinary.
template <bool kPairs, int kCount>
struct Kept {
  Many<kCount> values;
  Words words[kCount / 2];

  template <class S>
  AA_INLINE void load(const S* from) {
    if constexpr (kPairs) {
#pragma GCC unroll 2
      for (int k = 0; k < kCount / 2; ++k) words[k] = load_words_of_pairs(from + 2 * k * Vec::width);
      widen();
    } else {
      values = load_many<kCount, false>(from);
    }
  }
  template <class S>
  AA_INLINE void store(S* to) {
    if constexpr (kPairs) {
#pragma GCC unroll 2
      for (int k = 0; k < kCount / 2; ++k) {
        words[k] = round_pairs({values.v[2 * k], values.v[2 * k + 1]});
        __builtin_memcpy(to + 2 * k * Vec::width, &words[k], sizeof(Words));
      }
      widen();
    } else {
      store_many<false, false>(to, values);
    }
  }
  // Has the second highest bit of each float, or bf16, where it is not as are_ordinary() wants it. Signs are above that bit.
  AA_INLINE Words oddness() const {
    constexpr int kLeast = (127 - 76) << 7;  // of bf16
    __m256i odd = _mm256_setzero_si256();
    if constexpr (kPairs) {
      for (int k = 0; k < kCount / 2; ++k) odd |= _mm256_sub_epi16((__m256i)words[k], _mm256_set1_epi16(kLeast));
    } else {
      for (int k = 0; k < kCount; ++k) {
        odd |= _mm256_sub_epi32((__m256i)bits_of(values.v[k]), _mm256_set1_epi32(kLeast << 16));
      }
    }
    return (Words)odd;
  }
  static constexpr uint32_t kOdd = kPairs ? 0x40004000u : 0x40000000u;

 private:
  AA_INLINE void widen() {
#pragma GCC unroll 2
    for (int k = 0; k < kCount / 2; ++k) {
      const EvenOdd two = widen_pairs(words[k]);
      values.v[2 * k] = two.even, values.v[2 * k + 1] = two.odd;
    }
  }
};

// What the first pass does besides finding updates, and the second.
template <bool kPairs>
struct MeasureUpdates {
  static constexpr bool kStepsMoments = true, kStepsParams = false;
  Moments moments;
  SquaresMeanwhile<kPairs>&params, &updates;
};
struct ApplyUpdates {
  static constexpr bool kStepsMoments = false, kStepsParams = true;
  Vec rate;
};

// A pass over n elements, a positive multiple of kBlock. Steps overlap for the reasons that the other
// step_in_stages() gives. fp32 is faster with two vectors at once, bf16 with four.
template <class P, class G, class S, class Pass>
AA_INLINE void step_in_stages(P* p, const G* g, S* m, S* v, int64_t n, const Update& shared_update,
                              const Pass& shared_pass) {
  constexpr bool kPairs = __is_same(S, bf16);  // as is everything else then; see with_dtypes()
  constexpr int kCount = kPairs ? 4 : 2;
  constexpr int64_t kStride = Many<kCount>::width;
  static_assert(kBlock % kStride == 0 && kBlock >= 2 * kStride);
  const Update update = shared_update;
  const Pass pass = shared_pass;
  const bool usual =
      update.can_multiply && update.correction1.in_two_steps && update.correction2.in_two_steps && !update.eps_inside;
  const Vec inverse1(update.correction1.inverse), rest1(update.correction1.rest);
  const Vec inverse2(update.correction2.inverse), rest2(update.correction2.rest);
  const Vec eps_outside = update.eps_inside ? Vec(0.0f) : update.eps;
  const bool fetches = !fetches_best_alone;
  Many<kCount> dividend, root, quotient;
  const auto start = [&](int64_t j) __attribute__((always_inline)) {
    if (__builtin_expect(fetches, false) && j % kBlock == 0) {
      fetch(p + j);
      if constexpr (Pass::kStepsMoments) fetch(g + j);
      fetch(m + j);
      fetch(v + j);
    }
    Kept<kPairs, kCount> first, second;
    first.load(m + j);
    second.load(v + j);
    if constexpr (Pass::kStepsMoments) {
      pass.moments(load_many<kCount, kPairs>(g + j), first.values, second.values);
      first.store(m + j);
      second.store(v + j);
    }
    Many<kCount> square;
    if (__builtin_expect(usual && have_none(first.oddness() | second.oddness(), first.kOdd), true)) {
      dividend =
          each<kCount>([&](int k) { return multiply_add(first.values.v[k], inverse1, first.values.v[k] * rest1); });
      square =
          each<kCount>([&](int k) { return multiply_add(second.values.v[k], inverse2, second.values.v[k] * rest2); });
    } else {
      if (update.can_multiply && are_ordinary(first.values, second.values)) {
        dividend = update.correction1(first.values);
        square = update.correction2(second.values);
      } else {
        dividend = first.values / Vec(update.correction1.divisor);
        square = second.values / Vec(update.correction2.divisor);
      }
      if (update.eps_inside) square = square + update.eps;
    }
    root = sqrt(square);
  };
  const auto divide = [&]() __attribute__((always_inline)) { quotient = dividend / (root + eps_outside); };
  const auto finish = [&](int64_t j) __attribute__((always_inline)) {
    const Many<kCount> param = load_many<kCount, kPairs>(p + j), change = update.finish(param, quotient);
    if constexpr (Pass::kStepsMoments) {
      pass.params.put(j, param);
      pass.updates.put(j, change);
      SquaresMeanwhile<kPairs>::template add_both<kCount>(j, pass.params, pass.updates);
    }
    if constexpr (Pass::kStepsParams) store_many<kPairs, false>(p + j, param - pass.rate * change);
  };
  overlap_stages(n, kStride, start, divide, finish);
}
#endif

struct MomentsStep {
  template <class P, class G, class S>
  static void run(const aa_parameter& p, int64_t begin, int64_t n, const Moments& moments, const Update& update,
                  SquareSum& param_sum, SquareSum& update_sum) {
    const P* const param = static_cast<const P*>(p.param) + begin;
    const G* const grad = static_cast<const G*>(p.grad) + begin;
    S* const first = static_cast<S*>(p.state[0]) + begin;
    S* const second = static_cast<S*>(p.state[1]) + begin;
#if AA_VECTOR_AVX2
    if (n == 0) return;
    constexpr bool kPairs = __is_same(S, bf16);
    SquaresMeanwhile<kPairs> params(param_sum), updates(update_sum);
    step_in_stages(param, grad, first, second, n, update, MeasureUpdates<kPairs>{moments, params, updates});
    params.give_back(n);
    updates.give_back(n);
#else
    in_best_way<__is_same(S, bf16)>([&]<class Way>(Way) {
      step_moments<Way>(param, grad, first, second, n, moments, update, param_sum, update_sum);
    });
#endif
  }
};

#if AA_VECTOR_AVX2
struct ApplyStep {
  template <class P, class G, class S>
  static void run(const aa_parameter& p, int64_t begin, int64_t n, const Apply& apply) {
    if (n == 0) return;
    step_in_stages(static_cast<P*>(p.param) + begin, static_cast<const G*>(nullptr),
                   static_cast<S*>(p.state[0]) + begin, static_cast<S*>(p.state[1]) + begin, n, apply.update,
                   ApplyUpdates{apply.rate});
  }
};
#endif

}  // namespace

AA_OP void lamb_moments(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args, double* param_sums,
                        double* update_sums) {
  const Moments moments(*args);
  const Update update(*args);
  for_each_segment(parameters, count, [&](int64_t k, int64_t begin, int64_t end, int64_t segment) {
    const aa_parameter& parameter = parameters[k];
    const auto direct = with_dtypes<MomentsStep>(parameter);
    SquareSum params, steps;
    int64_t i = begin;
    if (direct) {
      const int64_t whole = (end - begin) / kBlock * kBlock;
      direct(parameter, begin, whole, moments, update, params, steps);
      i += whole;
    }
    for (; i < end; i += kStaged) {
      const int64_t n = end - i < kStaged ? end - i : kStaged, padded = (n + kBlock - 1) / kBlock * kBlock;
      run_kernel<2, kState, false>(parameter, i, i + n, StagedMoments{moments});
      // Once more, from the moments as they are kept.
      alignas(64) float param[kStaged], first[kStaged], second[kStaged];
      widen(at(parameter.param, parameter.param_dtype, i), parameter.param_dtype, param, n);
      widen(at(parameter.state[0], parameter.state_dtype, i), parameter.state_dtype, first, n);
      widen(at(parameter.state[1], parameter.state_dtype, i), parameter.state_dtype, second, n);
      for (int64_t j = n; j < padded; ++j) param[j] = first[j] = second[j] = 0.0f;
      params.add<false>(param, padded);
      for (int64_t j = 0; j < padded; j += Many<kTogether>::width) {
        Many<kTogether> a, b;
        const bool multiplies = update.begin(Many<kTogether>::load(first + j), Many<kTogether>::load(second + j), a, b);
        update.finish(Many<kTogether>::load(param + j), divide<true>(a, b, multiplies)).store(param + j);
      }
      // The update of zeros may be 0 / 0.
      for (int64_t j = n; j < padded; ++j) param[j] = 0.0f;
      steps.add<false>(param, padded);
    }
    param_sums[segment] = params.total();
    update_sums[segment] = steps.total();
  });
}

AA_OP void lamb_apply(const aa_parameter* parameters, int64_t count, const aa_lamb_args* args,
                      const float* coefficients) {
  for_each_part(parameters, count, kAlign, [&](int64_t k, int64_t begin, int64_t end) {
#if AA_VECTOR_AVX2
    const Apply apply(*args, coefficients[k]);
    if (parameters[k].copy) return run_kernel<2, kParam>(parameters[k], begin, end, apply);
    const auto direct = with_dtypes<ApplyStep>(parameters[k]);
    if (direct) {
      const int64_t whole = (end - begin) / kBlock * kBlock;
      direct(parameters[k], begin, whole, apply);
      begin += whole;
    }
    run_kernel<2, kParam, false>(parameters[k], begin, end, apply);
#else
    run_kernel<2, kParam>(parameters[k], begin, end, Apply(*args, coefficients[k]));
#endif
  });
}
