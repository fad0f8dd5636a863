// Products of a block of columns, and their results, for gemv_streams-inl.h and gemv_blocks-inl.h. Included by them, once
// per instruction set.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accelerators/cpu/kernels/bf16_dots-inl.h"
#include "accelerators/cpu/kernels/gemv_tiles-inl.h"
#include "accelerators/cpu/kernels/matmul_finish-inl.h"
#include "accelerators/cpu/kernels/vector-inl.h"

#if defined(ANYACCEL_CPU_KERNELS_GEMV_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ANYACCEL_CPU_KERNELS_GEMV_PRODUCTS_INL_H_
#undef ANYACCEL_CPU_KERNELS_GEMV_PRODUCTS_INL_H_
#else
#define ANYACCEL_CPU_KERNELS_GEMV_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace anyaccel::cpu::HWY_NAMESPACE {

// Elements of K handled between two prefetches: one cache line of a 16-bit type, two of F32.
constexpr int64_t kBlock = 32;
static_assert(kBlock % (2 * kLanes) == 0);
#if HWY_TARGET == HWY_AVX2
static_assert(kBlock == kColumnUnit);  // x is padded for both
#endif

// ---- kinds of products --------------------------------------------------------------------------------------------

// bf16 weights times bf16 rows of x, by dot products of pairs.
struct Bf16Dots {
  using Raw = uint16_t;
};

// The elements of x that go with weights of a type.
template <class Type>
struct XElement {
  using type = float;
};
template <>
struct XElement<Bf16Dots> {
  using type = uint16_t;
};
template <class Type>
using ElementOfX = typename XElement<Type>::type;

template <class X>
struct Activations {
  const X* data;   // [rows][stride], in the order that the type of the weights needs
  int64_t stride;  // at least k rounded up to kBlock; the elements from k on are zero
  int64_t k;
  int64_t rows;
};

// Adds the products of a vector of weights of each of kS rows with a vector of each of kM rows of x to acc[s * kM + m].
// Whichever of the two are fewer stay in registers.
template <int kS, int kM, class Weights, class LoadX, class Add>
HWY_INLINE void add_products(const Weights& weights, const LoadX& load_x, const Add& add, FloatVec (&acc)[kS * kM]) {
  if constexpr (kS <= kM) {
    decltype(weights(0)) w[kS];
    AA_UNROLL for (int s = 0; s < kS; ++s) w[s] = weights(s);
    AA_UNROLL for (int m = 0; m < kM; ++m) {
      const auto row = load_x(m);
      AA_UNROLL for (int s = 0; s < kS; ++s) acc[s * kM + m] = add(w[s], row, acc[s * kM + m]);
    }
  } else {
    decltype(load_x(0)) rows[kM];
    AA_UNROLL for (int m = 0; m < kM; ++m) rows[m] = load_x(m);
    AA_UNROLL for (int s = 0; s < kS; ++s) {
      const auto w = weights(s);
      AA_UNROLL for (int m = 0; m < kM; ++m) acc[s * kM + m] = add(w, rows[m], acc[s * kM + m]);
    }
  }
}

// The same for 2 * kLanes columns from k on.
template <class Type, int kS, int kM>
HWY_INLINE void add_pairs(Type type, const typename Type::Raw* const (&w)[kS], const float* x, int64_t x_stride,
                          int64_t k, FloatVec (&acc)[kS * kM]) {
  AA_UNROLL for (int half = 0; half < 2; ++half) {
    add_products<kS, kM>([&](int s)
                             HWY_ATTR { return half == 0 ? load_first(type, w[s] + k) : load_second(type, w[s] + k); },
                         [&](int m) HWY_ATTR { return hn::LoadU(kFloats, x + m * x_stride + k + half * kLanes); },
                         [](FloatVec a, FloatVec b, FloatVec sum) HWY_ATTR { return hn::MulAdd(a, b, sum); }, acc);
  }
}

// The same for a block of kBlock columns.
template <class Type, int kS, int kM>
HWY_INLINE void add_block(Type type, const typename Type::Raw* const (&w)[kS], const float* x, int64_t x_stride,
                          FloatVec (&acc)[kS * kM]) {
#if HWY_TARGET == HWY_SCALAR  // one lane: unrolled, this would be most of what compiling the file takes
  for (int64_t k = 0; k < kBlock; k += 2 * kLanes) add_pairs<Type, kS, kM>(type, w, x, x_stride, k, acc);
#else
  AA_UNROLL for (int64_t k = 0; k < kBlock; k += 2 * kLanes) { add_pairs<Type, kS, kM>(type, w, x, x_stride, k, acc); }
#endif
}

#if HWY_TARGET == HWY_AVX3
template <class Type, int kS, int kM>
HWY_INLINE void add_block(Bf16Dots /*type*/, const uint16_t* const (&w)[kS], const uint16_t* x, int64_t x_stride,
                          FloatVec (&acc)[kS * kM]) {
  static_assert(kBlock == 2 * kLanes);
  add_products<kS, kM>([&](int s) HWY_ATTR { return _mm512_loadu_si512(w[s]); },
                       [&](int m) HWY_ATTR { return _mm512_loadu_si512(x + m * x_stride); },
                       [](__m512i a, __m512i b, FloatVec sum) HWY_ATTR { return dot_pairs(a, b, sum); }, acc);
}
#endif

template <class Raw>
HWY_INLINE void prefetch_near(const Raw* p, int64_t ahead) {
  const char* bytes = reinterpret_cast<const char*>(p) + ahead;
  AA_UNROLL for (size_t line = 0; line < kBlock * sizeof(Raw); line += 64) __builtin_prefetch(bytes + line, 0, 3);
}
template <class Raw>
HWY_INLINE void prefetch_far(const Raw* p, int64_t ahead) {
  const char* bytes = reinterpret_cast<const char*>(p) + ahead;
  AA_UNROLL for (size_t line = 0; line < kBlock * sizeof(Raw); line += 64) __builtin_prefetch(bytes + line, 0, 2);
}

// Adds the products of the last columns of a row of weights, fewer than kBlock, with kM rows of x.
template <class Type, int kM>
HWY_NOINLINE void add_tail(Type type, const typename Type::Raw* w, int64_t columns, const ElementOfX<Type>* x,
                           int64_t x_stride, FloatVec* acc) {
  typename Type::Raw padded[kBlock] = {};
  std::memcpy(padded, w, static_cast<size_t>(columns) * sizeof(padded[0]));
  const typename Type::Raw* const at[1] = {padded};
  FloatVec sums[kM];
  AA_UNROLL for (int m = 0; m < kM; ++m) sums[m] = acc[m];
  add_block<Type, 1, kM>(type, at, x, x_stride, sums);
  AA_UNROLL for (int m = 0; m < kM; ++m) acc[m] = sums[m];
}

// Adds the products of kBlock columns from k on of kS rows of weights with kM rows of x to acc[s * kM + m].
template <class Type, int kS, int kM>
HWY_INLINE void add_block_at(Type type, const typename Type::Raw* const (&w)[kS], const ElementOfX<Type>* x,
                             int64_t x_stride, int64_t k, FloatVec (&acc)[kS * kM]) {
  const typename Type::Raw* at[kS];
  AA_UNROLL for (int s = 0; s < kS; ++s) at[s] = w[s] + k;
  add_block<Type, kS, kM>(type, at, x + k, x_stride, acc);
}

// Adds the products of the columns before `end` that are left after whole blocks to acc[s * kM + m].
template <class Type, int kS, int kM>
HWY_INLINE void add_tails(Type type, const typename Type::Raw* const (&w)[kS], const ElementOfX<Type>* x,
                          int64_t x_stride, int64_t end, FloatVec (&acc)[kS * kM]) {
  const int64_t whole = end / kBlock * kBlock;
  if (whole < end) {
    AA_UNROLL for (int s = 0; s < kS; ++s) {
      FloatVec of_row[kM];  // acc itself stays in registers
      AA_UNROLL for (int m = 0; m < kM; ++m) of_row[m] = acc[s * kM + m];
      add_tail<Type, kM>(type, w[s] + whole, end - whole, x + whole, x_stride, of_row);
      AA_UNROLL for (int m = 0; m < kM; ++m) acc[s * kM + m] = of_row[m];
    }
  }
}

// to[i * stride] = the sum of acc[i].
template <int kCount>
HWY_INLINE void sum_accumulators(const FloatVec (&acc)[kCount], float* to, int64_t stride) {
  AA_UNROLL for (int i = 0; i < kCount; i += 4) {
    FloatVec four[4];
    float sums[4];
    AA_UNROLL for (int j = 0; j < 4; ++j) four[j] = acc[std::min(i + j, kCount - 1)];
    sum_four(four, sums);
    AA_UNROLL for (int j = 0; j < 4; ++j) {
      if (i + j < kCount) to[(i + j) * stride] = sums[j];
    }
  }
}

// Results of several rows of x are collected for so many rows of weights, a cache line of `out`: written row by row, up to
// 24 results went to as many lines, which took a tenth of the time of 4 to 12 rows of x on a Zen 5.
constexpr int kCollected = 16;

// Writes the results of `count` rows of weights of each of `streams` streams, [streams][m][kCollected]: out[m * out_stride +
// s * rows + r], r < count.
inline void write_results(const float* results, int streams, int64_t m, int64_t count, int64_t rows, float* out,
                          int64_t out_stride) {
  for (int s = 0; s < streams; ++s) {
    for (int64_t i = 0; i < m; ++i, results += kCollected) {
      std::copy_n(results, count, out + i * out_stride + s * rows);
    }
  }
}

// Weights of one row each of kS streams that follow each other, `rows` rows of w each; row r of stream s is row s * rows + r.
template <int kS, class Raw>
HWY_INLINE void find_rows(const Raw* w, int64_t row_stride, int64_t rows, int64_t r, const Raw* (&to)[kS]) {
  AA_UNROLL for (int s = 0; s < kS; ++s) to[s] = w + (s * rows + r) * row_stride;
}

}  // namespace anyaccel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
