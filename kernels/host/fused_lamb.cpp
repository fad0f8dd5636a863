// The ops lamb_moments and lamb_apply: LAMB in two passes over memory, because the step of a parameter needs the norms of the
// whole tensor. The first pass updates the moments and sums the squares of the parameters and of their updates u; the caller
// makes a coefficient for each parameter of these sums; the second pass finds the same updates again, so that no array has to
// hold them, and subtracts them. optimizers.h has the formulas, optimizer_loops.h the loops.
//
// Two divisions of an update are by numbers that all elements share and become multiply-adds with the same result
// (Divisor). With AVX2 both passes are software pipelines (the step_in_stages() below); with other instruction sets the first
// one is step_moments() and the second one step_vectors().
#include "optimizer_loops.h"

namespace {

using namespace anyaccel::op;

// The new moments from the gradients.
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

// Moments as a kernel of run_kernel(), for elements that go through buffers.
struct StagedMoments {
  Moments moments;
  static constexpr bool kDivides = false, kReadsGrad = true, kHasStages = false;
  template <class M>
  AA_INLINE void operator()(M&, const M& g, M& m, M& v) const {
    moments(g, m, v);
  }
};

constexpr bool kHasMultiplyAdd = AA_VECTOR_AVX512 || AA_VECTOR_AVX2;
// Returns true if all elements are at least 2^-76 and below 2^52 in magnitude: "ordinary" below. Such numbers neither overflow
// nor underflow in the multiply-adds that replace divisions.
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

#if AA_VECTOR_AVX512
// The same for kCount vectors of bf16 moments in memory. The words of bf16 are half as many vectors as their floats.
template <int kCount>
AA_INLINE bool are_ordinary(const bf16* m, const bf16* v) {
  // The highest bit of an exponent less the least one is set if it is not ordinary; the sign is above it.
  const __m512i least = _mm512_set1_epi16((127 - 76) << 7);
  Words odd{};
#pragma GCC unroll 2
  for (int k = 0; k < kCount / 2; ++k, m += 2 * Vec::width, v += 2 * Vec::width) {
    odd |= (Words)_mm512_sub_epi16((__m512i)load_words_of_pairs(m), least);
    odd |= (Words)_mm512_sub_epi16((__m512i)load_words_of_pairs(v), least);
  }
  return have_none(odd, 0x40004000u);
}
#endif

// Divides by a number that all elements share, by multiply-adds: x / divisor with the same bits as the processor's division, for
// ordinary x.
struct Divisor {
  float divisor, inverse, rest;  // inverse + rest is 1 / divisor with a relative error of 2^-48
  bool in_two_steps;             // whether x * inverse + x * rest rounds as the division does for every x

  explicit Divisor(float by) : divisor(by), inverse(1.0f / by), rest(0), in_two_steps(false) {
    if constexpr (kHasMultiplyAdd) {
      rest = __builtin_fmaf(-inverse, by, 1.0f) / by;
      in_two_steps = two_steps_are_exact();
    }
  }

  // x * inverse + x * rest has a relative error of at most 2^-47 before its last rounding. So it can be wrong only where the
  // quotient lies that close to the midpoint of two adjacent floats. Let X and D be the mantissas of x and of the divisor as
  // integers of 24 bits. In ulps, the quotient is X * 2^(s - 1) / D, where s is 24 or 25, and a midpoint is M / 2 with an odd M.
  // Then |X * 2^s - M * D| is at most 4. Dividing by the power of two in D leaves the congruence X * 2^(s - zeros) = difference
  // modulo the odd part of D, where `difference` is odd. All X that satisfy it are tried. A twentieth of all divisors fail.
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
    // The first quotient is off by up to one and a half ulps. The second one, corrected by the remainder, is off by less than
    // one, and correcting that one rounds as a division does (Markstein 1990).
    Many<kCount> q = hi * x;
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step) {
      q = each<kCount>([&](int k) { return multiply_add(multiply_sub_from(q.v[k], by, x.v[k]), hi, q.v[k]); });
    }
    return q;
  }
};

// The update u of a parameter from its moments: a / b + weight_decay * p with a = m / correction1 and b the denominator that
// optimizers.h defines. Two of the three divisions are by numbers that all elements share.
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

  // Sets the dividend and the divisor; returns whether divide() may multiply. On Intel's processors it may if the moments are
  // ordinary. a (below 2^72) and b (below 2^37) can then exceed the limits of can_multiply_instead(), but nothing overflows,
  // and since a is at least 2^-76, the remainders do not underflow.
  template <class M>
  AA_INLINE bool begin(const M& m, const M& v, M& a, M& b) const {
    return begin(m, v, can_multiply && are_ordinary(m, v), a, b);
  }
  // ordinary: whether the moments are, and can_multiply.
  template <class M>
  AA_INLINE bool begin(const M& m, const M& v, bool ordinary, M& a, M& b) const {
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

// The second pass, as a kernel of run_kernel(): p -= lr * coefficient * u.
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
// A SquareSum with its 32 lanes in registers. Each two vectors that are added have 32 elements: with kPairs those at even
// places, then those at odd places, and the lanes are in the same order. Adding squares in between the steps, rather than a block
// at a time, gives the multipliers work while the divider is busy.
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
// A buffer in front of a SquareSum, which adds up kStaged elements at a time. With kPairs the elements at even places come before
// those at odd places, as in the vectors of load_pairs(), and so do their lanes.
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

// The first pass over n elements, a multiple of kBlock: updates the moments and adds up the squares of the parameters and of the
// updates. Moments are loaded again after they are stored, because the updates use them as their dtype rounds them.
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
  // Three steps are under way at once: the moments of one, the square root of the one before it, and the division of the one
  // before that.
  Unfinished<kCount> before;
  const auto begin = [&](int64_t j) __attribute__((always_inline)) {
    Unfinished<kCount> now;
    now.param = load_many<kCount, kPairs>(p + j);
    const Many<kCount> first = load_many<kCount, kPairs>(m + j), second = load_many<kCount, kPairs>(v + j);
    bool ordinary = update.can_multiply;
#if AA_VECTOR_AVX512
    if constexpr (kPairs) {
      ordinary = ordinary && are_ordinary<kCount>(m + j, v + j);
    } else
#endif
    {
      ordinary = ordinary && are_ordinary(first, second);
    }
    now.multiplies = update.begin(first, second, ordinary, now.a, now.b);
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
// A buffer in front of a SquareSum with two blocks of kFilled elements, so that squares are added up while the divider works
// on other elements. While one block is filled, the other one is added to the lanes: for every kShare elements that are put,
// all of its elements that belong to four of the 32 lanes. With kPairs the lanes are in the order of load_pairs(): of every
// two vectors of elements those at even places, then those at odd places.
template <bool kPairs>
class SquaresMeanwhile {
 public:
  explicit SquaresMeanwhile(SquareSum& sum) : sum_(sum) {
    for (int i = 0; i < SquareSum::kLanes; ++i) lanes_[i] = sum.lanes()[place(i)];
  }
  // Puts the elements from j on, a multiple of kCount * Vec::width. After both sums have theirs, add_both() follows with the
  // same j.
  template <int kCount>
  AA_INLINE void put(int64_t j, const Many<kCount>& x) {
    x.store(block(j) + (j & (kFilled - 1)));
  }
  // Adds a share of the previous blocks of both, as large as what was put at j.
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
  // Call this after the last of n elements, a multiple of 32 and not 0: adds what is left of the previous block, then the
  // last block.
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
  // The block that element j belongs to.
  AA_INLINE float* block(int64_t j) { return blocks_ + (j & kFilled); }
  // Adds, of n elements, those that belong to `lane` and the three lanes after it.
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

// Many moments as their dtype rounds them. With kPairs the words of bf16 are there as well: they are half as many vectors in
// which to look for numbers that are not ordinary.
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
  // Stores the values, and replaces them by what was stored.
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
  // Returns words in which the second highest bit of a float, or of each bf16, is set where are_ordinary() would not hold;
  // kOdd masks these bits. That is the highest bit of the exponent less the least one; the sign above it does not matter.
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

// What each pass does besides finding updates: the first one updates the moments and adds up squares, the second one updates the
// parameters.
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

// One of the two passes over n elements, a positive multiple of kBlock. Steps overlap for the reasons given at step_in_stages()
// of optimizer_loops.h. Two vectors at once are faster with fp32, four with bf16.
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

// lamb_moments in place, on the elements [begin, begin + n) of a parameter, n a multiple of kBlock.
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
// lamb_apply in place, on the elements [begin, begin + n) of a parameter, n a multiple of kBlock.
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
      // The updates are found from the moments as their dtype has rounded them, so these are read again.
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
      // The update of the padding may be 0 / 0, which must not reach the sum.
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
