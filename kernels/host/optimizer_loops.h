// The loops that the optimizers (cpu_adam.cpp, cpu_adagrad.cpp, cpu_lion.cpp, fused_lamb.cpp) share. They split a list of
// parameters among the threads and give arrays of any dtype to kernels that know float32 only.
//
// A kernel is a class with the arithmetic of one optimizer. Its call operator takes a few vectors (Many) of the parameters,
// of the gradients and of each state as floats, and updates them in place. A kernel that divides (kDivides) has begin() and
// finish() instead, so that the division of one step overlaps with the work of the next (Unfinished). With AVX2, one with
// kHasStages is cut into still smaller parts (step_in_stages()).
//
// The usual combinations of dtypes are converted in registers. The others, and a tail that does not fill a block, go
// through small buffers that stay in the first-level cache. Each array passes through the caches once. With fp32, memory
// bounds a step; with bf16, the divider and the number of instructions do. docs/performance_training.md has the figures.
#pragma once

#include "anyaccel/op_source.h"
#include "optimizers.h"
#include "vector.h"

namespace anyaccel::op {

constexpr int64_t kBlock = 64;    // elements that loops work on between prefetches: 4 vectors of AVX-512
constexpr int64_t kStaged = 256;  // elements that go through the buffers at once
constexpr int64_t kGrain = 8192;  // elements that make waking another thread worthwhile
constexpr int64_t kAlign = 1024;  // elements: threads split a parameter at multiples of this, a 4 KiB page of float32

// Prefetch distance in bytes, for each array. A distance of 0 prefetches the line that is about to be read, which causes no
// additional memory traffic.
inline const int64_t ahead = fetches_best_alone ? 0 : 2048;
// The prefetch distances of step_vectors() and its like. On Intel's processors they prefetch into the second-level cache
// (far) and from there into the first-level cache (near): prefetching 4 arrays from memory straight into the first level
// would occupy too many of its fill buffers. A Granite Rapids is faster with these than
// with 8 KiB, and within 4% as fast with other distances of 2 to 4 KiB.
inline const int64_t far_ahead = is_granite_rapids ? 2048 : is_intel ? 8192 : ahead;
inline const int64_t near_ahead = is_granite_rapids ? 768 : is_intel ? 1024 : ahead;

inline int64_t dtype_bytes(int32_t dtype) { return dtype == AA_DTYPE_F32 ? 4 : 2; }
// The address of element i.
inline char* at(void* p, int32_t dtype, int64_t i) { return static_cast<char*>(p) + i * dtype_bytes(dtype); }
inline const char* at(const void* p, int32_t dtype, int64_t i) {
  return static_cast<const char*>(p) + i * dtype_bytes(dtype);
}

// widen() and narrow() for one 16-bit dtype.
template <class T>
void widen_as(const T* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + Vec::width <= n; i += Vec::width) {
    prefetch(reinterpret_cast<const char*>(from + i) + ahead);
    store(to + i, load(from + i));
  }
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
template <class T>
void narrow_as(const float* from, T* to, int64_t n) {
  int64_t i = 0;
  if constexpr (__is_same(T, bf16)) {
    // narrow_normal() takes no denormals, and there are none: these are results of arithmetic, which flushes them to zero here.
    i = n / Vec::width * Vec::width;
    narrow_normal(from, i, to);
  }
  for (; i + Vec::width <= n; i += Vec::width) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
// Non-temporal stores, for what is not read again soon. `to` is aligned to a cache line; n is a multiple of kBlock. Whoever
// calls this executes stream_fence() before another thread reads (for_each_part() does).
template <class T>
void narrow_past_caches(const float* from, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::width) stream(to + i, load(from + i));
}

// Converts n elements to float32.
inline __attribute__((noinline)) void widen(const void* from, int32_t dtype, float* to, int64_t n) {
  if (dtype == AA_DTYPE_BF16) {
    widen_as(static_cast<const bf16*>(from), to, n);
  } else if (dtype == AA_DTYPE_F16) {
    widen_as(static_cast<const fp16*>(from), to, n);
  } else {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * 4);
  }
}
// Rounds n floats to another dtype. None of those that become bf16 may be denormal.
inline __attribute__((noinline)) void narrow(const float* from, void* to, int32_t dtype, int64_t n) {
  if (dtype == AA_DTYPE_BF16) {
    narrow_as(from, static_cast<bf16*>(to), n);
  } else if (dtype == AA_DTYPE_F16) {
    narrow_as(from, static_cast<fp16*>(to), n);
  } else {
    __builtin_memcpy(to, from, static_cast<size_t>(n) * 4);
  }
}
// As narrow(), for a parameter's copy: with non-temporal stores if alignment and length allow them.
inline __attribute__((noinline)) void narrow_copy(const float* from, void* to, int32_t dtype, int64_t n) {
  const bool streams = reinterpret_cast<uintptr_t>(to) % 64 == 0 && n % kBlock == 0;
  if (streams && dtype == AA_DTYPE_BF16) {
    narrow_past_caches(from, static_cast<bf16*>(to), n);
  } else if (streams && dtype == AA_DTYPE_F16) {
    narrow_past_caches(from, static_cast<fp16*>(to), n);
  } else {
    narrow(from, to, dtype, n);
  }
}

// -- several vectors at once --
// Each operation is applied to all vectors of a Many before the next operation. A step is a dependency chain with a latency
// of some 80 cycles, and out-of-order execution finds independent instructions only among the next 100 or so: the chains of
// several vectors must be interleaved in the code. Zen 4 is faster with two vectors (OnZen4).
constexpr int kTogether = AA_VECTOR_AVX512 ? 4 : 2;
template <int kCount>
struct Many {
  Vec v[kCount];

  static constexpr int64_t width = kCount * Vec::width;
  Many() = default;
  static AA_INLINE Many load(const float* p) {
    Many a;
    for (int k = 0; k < kCount; ++k) a.v[k] = op::load(p + k * Vec::width);
    return a;
  }
  AA_INLINE void store(float* p) const {
    for (int k = 0; k < kCount; ++k) op::store(p + k * Vec::width, v[k]);
  }
};
// Many of function(k) for each k.
template <int kCount, class Function>
AA_INLINE Many<kCount> each(const Function& function) {
  Many<kCount> result;
#pragma GCC unroll 4
  for (int k = 0; k < kCount; ++k) result.v[k] = function(k);
  return result;
}
template <int kCount>
AA_INLINE Many<kCount> operator+(const Many<kCount>& a, const Many<kCount>& b) {
  return each<kCount>([&](int k) { return a.v[k] + b.v[k]; });
}
template <int kCount>
AA_INLINE Many<kCount> operator+(const Many<kCount>& a, Vec b) {
  return each<kCount>([&](int k) { return a.v[k] + b; });
}
template <int kCount>
AA_INLINE Many<kCount> operator-(const Many<kCount>& a, const Many<kCount>& b) {
  return each<kCount>([&](int k) { return a.v[k] - b.v[k]; });
}
template <int kCount>
AA_INLINE Many<kCount> operator*(const Many<kCount>& a, const Many<kCount>& b) {
  return each<kCount>([&](int k) { return a.v[k] * b.v[k]; });
}
template <int kCount>
AA_INLINE Many<kCount> operator*(Vec a, const Many<kCount>& b) {
  return each<kCount>([&](int k) { return a * b.v[k]; });
}
template <int kCount>
AA_INLINE Many<kCount> operator/(const Many<kCount>& a, const Many<kCount>& b) {
  return each<kCount>([&](int k) { return a.v[k] / b.v[k]; });
}
template <int kCount>
AA_INLINE Many<kCount> operator/(const Many<kCount>& a, Vec b) {
  return each<kCount>([&](int k) { return a.v[k] / b; });
}
template <int kCount>
AA_INLINE Many<kCount> sqrt(const Many<kCount>& a) {
  return each<kCount>([&](int k) { return sqrt(a.v[k]); });
}

// Returns true if no lane has any bit of the mask set.
AA_INLINE bool have_none(Words a, uint32_t mask) {
#if AA_VECTOR_AVX512
  return _mm512_test_epi32_mask((__m512i)a, _mm512_set1_epi32(static_cast<int>(mask))) == 0;
#elif AA_VECTOR_AVX2
  return _mm256_testz_si256((__m256i)a, _mm256_set1_epi32(static_cast<int>(mask))) != 0;
#else
  uint32_t any = 0;
  for (int i = 0; i < Vec::width; ++i) any |= a[i];
  return (any & mask) == 0;
#endif
}

// -- divisions that the divider shares with multiply-adds --
// For 16 floats, a square root and a division occupy the divider of an Intel processor for 23 cycles, longer than the rest
// of a step of Adagrad or of LAMB's second pass takes. So a kernel with kSharesDivider divides half of its vectors by
// multiply-adds, with the same results. On Zen 4, whose divider is busy for 16 cycles, that is slower.
//
// Why the results are the same: three multiply-adds refine the estimate of vrcp14ps to a reciprocal that is rounded to
// nearest, except that where 1 / b lies within 2^-37 (relative) of the midpoint of two adjacent floats it may be the float on
// the other side. The first quotient, a times this reciprocal, is off by less than two ulps and the second one by less than
// one. Correcting the second one once more rounds as a division does (Markstein 1990). A reciprocal on the wrong side could
// change only quotients that lie 1 / (2 b) ulps from the midpoint of two floats, where b stands for its mantissa as an odd
// integer. All of these quotients, for every b, were compared with divisions. That holds for the estimates of Intel's
// vrcp14ps, whose bits are specified. The first two of the three multiply-adds round up, which makes the four largest
// mantissas come out right.

// Returns true if divide() may multiply: if 2^-76 <= |a| < 2^52 and 2^-40 <= b < 2^24 for all elements that it would multiply,
// so that nothing overflows or underflows on the way. False on all processors but Intel's.
template <int kCount>
AA_INLINE bool can_multiply_instead(const Many<kCount>& a, const Many<kCount>& b) {
  if (!AA_VECTOR_AVX512 || !is_intel) return false;
  // Less the least exponent, the exponents in range leave the highest bit of 2 * x (whose sign is shifted out) and the three
  // highest of b at zero.
  constexpr uint32_t kLeastA = (127 - 76) << 24, kLeastB = (127 - 40) << 23;
  Words odd_a{}, odd_b{};
#pragma GCC unroll 4
  for (int k = kCount / 2; k < kCount; ++k) {
    const Words x = bits_of(a.v[k]);
    odd_a |= (x + x) - kLeastA;
    odd_b |= bits_of(b.v[k]) - kLeastB;
  }
  return have_none((odd_a & 0x80000000u) | odd_b, 0xe0000000u);
}

// a / b, the same bits as the processor's division. If `multiplies`, half of the vectors are divided by multiply-adds.
template <bool kSharesDivider, int kCount>
AA_INLINE Many<kCount> divide(const Many<kCount>& a, const Many<kCount>& b, bool multiplies) {
#if AA_VECTOR_AVX512
  if (kSharesDivider && multiplies) {
    constexpr int kByDivider = kCount / 2;
    constexpr int kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
    const Vec one(1.0f);
    Many<kCount> q;
    Vec inverse[kCount], error[kCount];
#pragma GCC unroll 4
    for (int k = 0; k < kByDivider; ++k) q.v[k] = a.v[k] / b.v[k];
#pragma GCC unroll 4
    for (int k = kByDivider; k < kCount; ++k) inverse[k] = _mm512_rcp14_ps(b.v[k].v);
#pragma GCC unroll 4
    for (int k = kByDivider; k < kCount; ++k) {
      error[k] = _mm512_fnmadd_round_ps(b.v[k].v, inverse[k].v, one.v, kUp);
    }
#pragma GCC unroll 4
    for (int k = kByDivider; k < kCount; ++k) {
      error[k] = _mm512_fmadd_round_ps(error[k].v, error[k].v, error[k].v, kUp);
    }
#pragma GCC unroll 4
    for (int k = kByDivider; k < kCount; ++k) inverse[k] = multiply_add(inverse[k], error[k], inverse[k]);
#pragma GCC unroll 4
    for (int k = kByDivider; k < kCount; ++k) q.v[k] = a.v[k] * inverse[k];
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step) {
#pragma GCC unroll 4
      for (int k = kByDivider; k < kCount; ++k) error[k] = multiply_sub_from(q.v[k], b.v[k], a.v[k]);
#pragma GCC unroll 4
      for (int k = kByDivider; k < kCount; ++k) q.v[k] = multiply_add(error[k], inverse[k], q.v[k]);
    }
    return q;
  }
#endif
  return a / b;
}

// Variants of a loop over vectors: how many vectors are worked on at once (kCount), whether one instruction rounds to bf16
// (kInOneStep), whether the loop prefetches, and whether multiply-adds may divide.
struct AnyWay {
  static constexpr int kCount = kTogether;
  static constexpr bool kInOneStep = false, kFetches = true, kMultiplies = true;
};
struct InOneStep : AnyWay {
  static constexpr bool kInOneStep = true;
};
struct OnZen4 {
  static constexpr int kCount = 2;
  static constexpr bool kInOneStep = true, kFetches = false, kMultiplies = false;
};
// Calls body(way) with the variant that is fastest on this processor. kBf16: the loop writes bf16.
template <bool kBf16, class Body>
AA_INLINE void in_best_way(const Body& body) {
  if constexpr (AA_VECTOR_AVX512) {
    if (is_zen4) return body(OnZen4{});
    if constexpr (kBf16) {
      if (rounds_to_bf16) return body(InOneStep{});
    }
  }
  body(AnyWay{});
}

// Which arrays of a parameter a kernel writes; flags.
enum Writes { kParam = 1, kState = 2 };

// load_many() and store_many() move as many consecutive elements as a Many has. With kPairs, for loops all of whose arrays are
// bf16, two vectors have the elements at even and at odd places (see vector_pairs.h); else the vectors are consecutive.
//
// store_pairs() wants NaNs that are quiet and have zeros in their lower halves. These are: they come from bf16 arrays or
// from arithmetic, because the arguments of an op are finite. The exception, LAMB's coefficients, may be NaN, but that comes
// from the parameters, too.
template <int kCount, bool kPairs, class T>
AA_INLINE Many<kCount> load_many(const T* p) {
  Many<kCount> a;
#pragma GCC unroll 2
  for (int k = 0; k < kCount; k += 2, p += 2 * Vec::width) {
    EvenOdd two;
    if constexpr (kPairs) {
      two = load_pairs(p);
    } else {
      two = {load(p), load(p + Vec::width)};
    }
    a.v[k] = two.even, a.v[k + 1] = two.odd;
  }
  return a;
}
template <bool kPairs, bool kInOneStep, int kCount, class T>
AA_INLINE void store_many(T* p, const Many<kCount>& a) {
#pragma GCC unroll 2
  for (int k = 0; k < kCount; k += 2, p += 2 * Vec::width) {
    if constexpr (kPairs) {
      store_pairs<kInOneStep>(p, {a.v[k], a.v[k + 1]});
    } else if constexpr (kInOneStep && __is_same(T, bf16)) {
      store_in_order<true>(p, {a.v[k], a.v[k + 1]});
    } else {
      store(p, a.v[k]);
      store(p + Vec::width, a.v[k + 1]);
    }
  }
}
// Prefetches kBlock elements that lie near_ahead bytes behind p into the first-level cache and, if `far`, those far_ahead
// bytes behind p into the second-level cache.
template <class T>
AA_INLINE void fetch(const T* p, bool far = true) {
  for (int64_t i = 0; i < kBlock; i += 64 / static_cast<int64_t>(sizeof(T))) {
    const char* const line = reinterpret_cast<const char*>(p + i);
    if (far) __builtin_prefetch(line + far_ahead, 0, 2);
    prefetch(line + near_ahead);
  }
}

// What a kernel that divides leaves of a step: the parameters, the dividend and the divisor. The step is finished,
// finish(param, a / b), only after the next one has begun, so that the latency of the square root and the division is hidden.
template <int kCount>
struct Unfinished {
  Many<kCount> param, a, b;
  bool multiplies;  // whether divide() may multiply
};

// Runs the kernel in place on n elements, a multiple of kBlock. States that the optimizer does not have are null.
template <int kStates, int kWrites, class Way, class P, class G, class S, class Kernel>
__attribute__((noinline)) void step_vectors(P* p, const G* g, S* s0, S* s1, int64_t n, const Kernel& shared) {
  constexpr int kCount = Way::kCount;
  constexpr bool kInOneStep = Way::kInOneStep;
  const Kernel kernel = shared;  // a copy stays in registers: no store through p, s0 or s1 can alias it
  constexpr bool kPairs = __is_same(P, bf16) && __is_same(G, bf16) && (kStates == 0 || __is_same(S, bf16));
  constexpr int64_t kStride = Many<kCount>::width;
  Unfinished<kCount> before;
  for (int64_t i = 0; i < n; i += kBlock) {
    // Near the end of the array, far prefetches would fetch what lies behind it, which may never be read.
    const bool far = (n - i) * static_cast<int64_t>(sizeof(P)) > far_ahead;
    if constexpr (Way::kFetches) {
      // With AVX2 the number of instructions bounds the loop, so prefetches at distance 0 would cost time though they cause
      // no memory traffic.
      if (!AA_VECTOR_AVX2 || __builtin_expect(!fetches_best_alone, false)) {
        fetch(p + i, far);
        if constexpr (Kernel::kReadsGrad) fetch(g + i, far);
        if constexpr (kStates > 0) fetch(s0 + i, far);
        if constexpr (kStates > 1) fetch(s1 + i, far);
      }
    }
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kBlock; j += kStride) {
      Many<kCount> param = load_many<kCount, kPairs>(p + j), grad, state0, state1;
      if constexpr (Kernel::kReadsGrad) grad = load_many<kCount, kPairs>(g + j);
      if constexpr (kStates > 0) state0 = load_many<kCount, kPairs>(s0 + j);
      if constexpr (kStates > 1) state1 = load_many<kCount, kPairs>(s1 + j);
      if constexpr (Kernel::kDivides) {
        constexpr bool kMultiplies = Kernel::kSharesDivider && Way::kMultiplies;
        Unfinished<kCount> now;
        now.multiplies = kernel.begin(param, grad, state0, state1, now.a, now.b);
        now.param = param;
        if constexpr ((kWrites & kState) && kStates > 0) store_many<kPairs, kInOneStep>(s0 + j, state0);
        if constexpr ((kWrites & kState) && kStates > 1) store_many<kPairs, kInOneStep>(s1 + j, state1);
        if (j > 0) {
          kernel.finish(before.param, divide<kMultiplies>(before.a, before.b, before.multiplies));
          store_many<kPairs, kInOneStep>(p + j - kStride, before.param);
        }
        before = now;
      } else {
        kernel(param, grad, state0, state1);
        if constexpr ((kWrites & kState) && kStates > 0) store_many<kPairs, kInOneStep>(s0 + j, state0);
        if constexpr ((kWrites & kState) && kStates > 1) store_many<kPairs, kInOneStep>(s1 + j, state1);
        if constexpr (kWrites & kParam) store_many<kPairs, kInOneStep>(p + j, param);
      }
    }
  }
  if constexpr (Kernel::kDivides) {
    constexpr bool kMultiplies = Kernel::kSharesDivider && Way::kMultiplies;
    if (n == 0) return;
    kernel.finish(before.param, divide<kMultiplies>(before.a, before.b, before.multiplies));
    store_many<kPairs, kInOneStep>(p + n - kStride, before.param);
  }
}

#if AA_VECTOR_AVX2
// A software pipeline: calls start(j), divide() and finish(j), in this order, for each step at j = 0, step, ... below n. There
// are at least two steps. Each iteration finishes one step, divides for the next one and starts the one after that.
template <class Start, class Divide, class Finish>
AA_INLINE void overlap_stages(int64_t n, int64_t step, const Start& start, const Divide& divide, const Finish& finish) {
  start(0);
  divide();
  start(step);
  for (int64_t j = 2 * step; j < n; j += step) {
    finish(j - 2 * step);
    divide();
    start(j);
  }
  finish(n - 2 * step);
  divide();
  finish(n - step);
}

// As step_vectors(), for a kernel with kHasStages and n > 0, a multiple of kBlock. The kernel's start() updates the states and
// gives the dividend and the number whose square root divisor() turns into the divisor; decay_now() and finish() update the
// parameters.
//
// The parts of three steps overlap (overlap_stages()). The vector schedulers of a Zen 3 have 64 entries, and instructions
// that wait for a square root and then for a division would fill them before the next step can begin. The core takes in fewer
// than four vector instructions per cycle, which bounds the loop. Loads and stores count unless they are the memory operand
// of another instruction, so finish() loads the parameters again rather than having them spilled and reloaded.
template <int kStates, class P, class G, class S, class Kernel>
__attribute__((noinline)) void step_in_stages(P* p, const G* g, S* s0, S* s1, int64_t n, const Kernel& shared) {
  constexpr int kCount = 4;
  const Kernel kernel = shared;  // a copy, as in step_vectors()
  constexpr bool kPairs = __is_same(P, bf16) && __is_same(G, bf16) && __is_same(S, bf16);
  constexpr int64_t kStride = Many<kCount>::width;
  static_assert(kBlock % kStride == 0 && kBlock >= 2 * kStride);
  const bool fetches = !fetches_best_alone;
  Many<kCount> dividend, root, quotient;
  const auto start = [&](int64_t j) __attribute__((always_inline)) {
    if (__builtin_expect(fetches, false) && j % kBlock == 0) {
      const bool far = (n - j) * static_cast<int64_t>(sizeof(P)) > far_ahead;
      fetch(p + j, far);
      fetch(g + j, far);
      fetch(s0 + j, far);
      if constexpr (kStates > 1) fetch(s1 + j, far);
    }
    const Many<kCount> param = load_many<kCount, kPairs>(p + j), grad = load_many<kCount, kPairs>(g + j);
    Many<kCount> state0 = load_many<kCount, kPairs>(s0 + j), state1;
    if constexpr (kStates > 1) state1 = load_many<kCount, kPairs>(s1 + j);
    Many<kCount> square;
    kernel.start(param, grad, state0, state1, dividend, square);
    root = sqrt(square);
    store_many<kPairs, false>(s0 + j, state0);
    if constexpr (kStates > 1) store_many<kPairs, false>(s1 + j, state1);
  };
  const auto divide = [&]() __attribute__((always_inline)) { quotient = dividend / kernel.divisor(root); };
  const auto finish = [&](int64_t j) __attribute__((always_inline)) {
    Many<kCount> param = load_many<kCount, kPairs>(p + j);
    kernel.decay_now(param);
    kernel.finish(param, quotient);
    store_many<kPairs, false>(p + j, param);
  };
  overlap_stages(n, kStride, start, divide, finish);
}
#endif

// The faster one of the two for this kernel and instruction set.
template <int kStates, int kWrites, class Way, class P, class G, class S, class Kernel>
AA_INLINE void step(P* p, const G* g, S* s0, S* s1, int64_t n, const Kernel& kernel) {
#if AA_VECTOR_AVX2
  if constexpr (Kernel::kHasStages) {
    if (n > 0) step_in_stages<kStates>(p, g, s0, s1, n, kernel);
  } else
#endif
  {
    step_vectors<kStates, kWrites, Way>(p, g, s0, s1, n, kernel);
  }
}

// Runs the kernel in place on the elements [begin, begin + n) of a parameter whose arrays have the dtypes P, G and S.
template <int kStates, int kWrites, class Kernel>
struct VectorStep {
  template <class P, class G, class S>
  static void run(const aa_parameter& p, int64_t begin, int64_t n, const Kernel& kernel) {
    P* const param = static_cast<P*>(p.param) + begin;
    const G* const grad = static_cast<const G*>(p.grad) + begin;
    S* const state0 = static_cast<S*>(p.state[0]) + begin;
    S* const state1 = kStates > 1 ? static_cast<S*>(p.state[1]) + begin : nullptr;
    in_best_way<__is_same(P, bf16)>(
        [&]<class Way>(Way) { step<kStates, kWrites, Way>(param, grad, state0, state1, n, kernel); });
  }
};

// Step::run<P, G, S>() for the dtypes of a parameter with states, or null for combinations that no large model has. These ops
// are compiled at run time, and each combination adds to that: without AVX2, or if kAll is false, only float32 is worth it.
template <class Step, bool kAll = true>
AA_INLINE auto with_dtypes(const aa_parameter& p) -> decltype(&Step::template run<float, float, float>) {
  const auto are = [&](int32_t param, int32_t grad, int32_t state) {
    return p.param_dtype == param && p.grad_dtype == grad && p.state_dtype == state;
  };
  constexpr int32_t f32 = AA_DTYPE_F32, b16 = AA_DTYPE_BF16;
  if (are(f32, f32, f32)) return Step::template run<float, float, float>;
  if constexpr (kAll && (AA_VECTOR_AVX512 || AA_VECTOR_AVX2)) {
    if (are(f32, b16, f32)) return Step::template run<float, bf16, float>;
    if (are(b16, b16, b16)) return Step::template run<bf16, bf16, bf16>;
    if (are(b16, b16, f32)) return Step::template run<bf16, bf16, float>;
  }
  return nullptr;
}

// Runs the kernel on the elements [begin, end) of a parameter: in place where with_dtypes() has the dtypes, else (and for the
// tail) through buffers. kStates: the number of state arrays. kWrites: the arrays that are written back (Writes). kAll: as for
// with_dtypes().
template <int kStates, int kWrites, bool kAll = true, class Kernel>
void run_kernel(const aa_parameter& p, int64_t begin, int64_t end, const Kernel& kernel) {
  const bool copies = p.copy != nullptr && (kWrites & kParam) != 0;
  int64_t i = begin;
  // The copy of a 16-bit parameter is rounded from the new value in float32, which only the buffers have.
  const auto direct =
      copies && p.param_dtype != AA_DTYPE_F32 ? nullptr : with_dtypes<VectorStep<kStates, kWrites, Kernel>, kAll>(p);
  if (direct) {
    const int64_t whole = (end - begin) / kBlock * kBlock + begin;
    // With a copy, in pieces that are still in the first-level cache when they are copied.
    while (i < whole) {
      const int64_t n = copies && whole - i > 4 * kStaged ? 4 * kStaged : whole - i;
      direct(p, i, n, kernel);
      if (copies) narrow_copy(static_cast<const float*>(p.param) + i, at(p.copy, p.copy_dtype, i), p.copy_dtype, n);
      i += n;
    }
  }
  alignas(64) float buffers[4][kStaged];
  while (i < end) {
    const int64_t n = end - i < kStaged ? end - i : kStaged;
    const int64_t padded = (n + kBlock - 1) / kBlock * kBlock;
    // Elements that are float32 and fill whole blocks are used in place.
    const auto reach = [&](const void* data, int32_t dtype, float* buffer) {
      const char* const from = at(data, dtype, i);
      if (dtype == AA_DTYPE_F32 && n == padded) return reinterpret_cast<float*>(const_cast<char*>(from));
      widen(from, dtype, buffer, n);
      for (int64_t k = n; k < padded; ++k) buffer[k] = 0.0f;
      return buffer;
    };
    const auto give_back = [&](const float* from, void* data, int32_t dtype, const float* buffer) {
      if (from == buffer) narrow(buffer, at(data, dtype, i), dtype, n);
    };
    float* const param = reach(p.param, p.param_dtype, buffers[0]);
    const float* const grad = Kernel::kReadsGrad ? reach(p.grad, p.grad_dtype, buffers[1]) : nullptr;
    float* const state0 = kStates > 0 ? reach(p.state[0], p.state_dtype, buffers[2]) : nullptr;
    float* const state1 = kStates > 1 ? reach(p.state[1], p.state_dtype, buffers[3]) : nullptr;
    step<kStates, kWrites, AnyWay>(param, grad, state0, state1, padded, kernel);
    if (kWrites & kParam) give_back(param, p.param, p.param_dtype, buffers[0]);
    if (kWrites & kState) {
      if (kStates > 0) give_back(state0, p.state[0], p.state_dtype, buffers[2]);
      if (kStates > 1) give_back(state1, p.state[1], p.state_dtype, buffers[3]);
    }
    if (copies) narrow_copy(param, at(p.copy, p.copy_dtype, i), p.copy_dtype, n);
    i += n;
  }
}

// Calls body(floats, n) for the elements [begin, end) of an array in order. The floats lie in the array itself or in a buffer;
// n is a multiple of kBlock, and zeros pad the last elements to it.
template <class Body>
void read_floats(const void* data, int32_t dtype, int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  if (dtype == AA_DTYPE_F32) {
    const int64_t whole = (end - begin) / kBlock * kBlock;
    if (whole > 0) body(static_cast<const float*>(data) + begin, whole);
    i += whole;
  }
  alignas(64) float buffer[kStaged];
  for (; i < end; i += kStaged) {
    const int64_t n = end - i < kStaged ? end - i : kStaged, padded = (n + kBlock - 1) / kBlock * kBlock;
    widen(at(data, dtype, i), dtype, buffer, n);
    for (int64_t k = n; k < padded; ++k) buffer[k] = 0.0f;
    body(static_cast<const float*>(buffer), padded);
  }
}

// Calls body(index, begin, end), where index is that of a parameter, so that every element of every parameter is covered
// once. The list is treated as one long array that is split evenly among the threads, in a single parallel region. A
// parameter is split at multiples of `align` only.
template <class Body>
void for_each_part(const aa_parameter* parameters, int64_t count, int64_t align, const Body& body) {
  int64_t total = 0;
  for (int64_t k = 0; k < count; ++k) total += parameters[k].count;
  if (total == 0) return;
  int64_t parts = total / kGrain;
  if (parts > threads()) parts = threads();
  const auto part = [&](int64_t index, int64_t used) {
    // The product may not fit in 64 bits.
    const int64_t first = static_cast<int64_t>(static_cast<__int128>(total) * index / used);
    const int64_t last = static_cast<int64_t>(static_cast<__int128>(total) * (index + 1) / used);
    int64_t offset = 0;  // where parameter k begins in the long array
    for (int64_t k = 0; k < count && offset < last; ++k) {
      const int64_t n = parameters[k].count;
      const auto cut = [&](int64_t place) {
        return place <= offset ? 0 : place >= offset + n ? n : (place - offset) / align * align;
      };
      const int64_t begin = cut(first), end = cut(last);
      if (begin < end) body(k, begin, end);
      offset += n;
    }
    stream_fence();
  };
  if (parts <= 1) {
    const FlushDenormals flush;
    part(0, 1);
    return;
  }
  run([&](int index, int size) {
    const int64_t used = parts < size ? parts : size;
    if (index < used) part(index, used);
  });
}

// Runs the kernel on every element of every parameter, on all threads. The template arguments are those of run_kernel().
template <int kStates, int kWrites, bool kAll = true, class Kernel>
void for_each_element(const aa_parameter* parameters, int64_t count, const Kernel& kernel) {
  for_each_part(parameters, count, kAlign, [&](int64_t k, int64_t begin, int64_t end) {
    run_kernel<kStates, kWrites, kAll>(parameters[k], begin, end, kernel);
  });
}

// sum + x * x for an x that was a float. Its square is exact in double, so a fused and an unfused addition give the same bits.
AA_INLINE double add_square(double sum, double x) {
#if defined(__FMA__)
  return __builtin_fma(x, x, sum);
#else
  return sum + x * x;
#endif
}

// A sum of squares in 32 lanes of double. Element i is added to lane i % 32, and total() adds the lanes in a fixed order, so that
// the result does not depend on the width of a vector.
class SquareSum {
 public:
  // n is a multiple of 32. kFetches: whether to prefetch x, because it comes from memory.
  template <bool kFetches>
  __attribute__((noinline)) void add(const float* x, int64_t n) {
    double lanes[kLanes];
    for (int j = 0; j < kLanes; ++j) lanes[j] = lanes_[j];
    for (int64_t i = 0; i < n; i += kLanes) {
      if constexpr (kFetches) {
        prefetch(reinterpret_cast<const char*>(x + i) + ahead);
        prefetch(reinterpret_cast<const char*>(x + i) + ahead + 64);
      }
#pragma GCC unroll 32
      for (int j = 0; j < kLanes; ++j) lanes[j] = add_square(lanes[j], static_cast<double>(x[i + j]));
    }
    for (int j = 0; j < kLanes; ++j) lanes_[j] = lanes[j];
  }
  double* lanes() { return lanes_; }
  // Call this once, last: it overwrites the lanes.
  double total() {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes_[j] += lanes_[j + half];
    }
    return lanes_[0];
  }

  static constexpr int kLanes = 32;

 private:
  double lanes_[kLanes] = {};
};

// Calls body(k, begin, end, segment) for every segment of AA_NORM_SEGMENT elements; the last one of a parameter may be shorter.
// k is the index of the parameter, and segments are numbered through the whole list.
template <class Body>
void for_each_segment(const aa_parameter* parameters, int64_t count, const Body& body) {
  for_each_part(parameters, count, AA_NORM_SEGMENT, [&](int64_t k, int64_t begin, int64_t end) {
    int64_t segment = parameters[k].first_segment + begin / AA_NORM_SEGMENT;
    for (int64_t i = begin; i < end; i += AA_NORM_SEGMENT) {
      body(k, i, end - i < AA_NORM_SEGMENT ? end : i + AA_NORM_SEGMENT, segment++);
    }
  });
}

}  // namespace anyaccel::op

// Every optimizer's library has this op, for clipping by the global norm of the gradients.
AA_OP void grad_square_sums(const aa_parameter* parameters, int64_t count, double* sums) {
  using namespace anyaccel::op;
  for_each_segment(parameters, count, [&](int64_t k, int64_t begin, int64_t end, int64_t segment) {
    SquareSum sum;
    read_floats(parameters[k].grad, parameters[k].grad_dtype, begin, end,
                [&](const float* g, int64_t n) { sum.add<true>(g, n); });
    sums[segment] = sum.total();
  });
}
