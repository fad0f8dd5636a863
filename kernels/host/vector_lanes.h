// Includes the vectors of the instruction set, and adds to them what is written in the same way for all or most of them.
#pragma once

#include "vector_base.h"

#if AA_VECTOR_AVX512
#include "vector_avx512.h"
#elif AA_VECTOR_AVX2
#include "vector_avx2.h"
#elif AA_VECTOR_SSE2
#include "vector_sse2.h"
#else
#include "vector_one.h"
#endif

namespace anyaccel::op {

#if !AA_VECTOR_AVX512 && !AA_VECTOR_AVX2
AA_INLINE void store_integers(int8_t* p, Vec a, Vec b, Vec c, Vec d) {
  store_integers(p, a);
  store_integers(p + Vec::width, b);
  store_integers(p + 2 * Vec::width, c);
  store_integers(p + 3 * Vec::width, d);
}
#endif

AA_INLINE Vec operator-(Vec a) { return bit_xor(a, Vec(-0.0f)); }
AA_INLINE Vec& operator+=(Vec& a, Vec b) { return a = a + b; }
AA_INLINE Vec abs(Vec a) { return bit_and(a, Vec(bits_float(0x7fffffffu))); }
// |magnitude| with the sign of `sign`.
AA_INLINE Vec copy_sign(Vec magnitude, Vec sign) { return bit_or(abs(magnitude), bit_and(sign, Vec(-0.0f))); }

AA_INLINE void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
AA_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

#if !AA_VECTOR_AVX512
// Loads the first n elements (0 < n < width) and sets the others to zero. Nothing behind them is read.
template <class T>
AA_INLINE Vec load_n(const T* p, int64_t n) {
  T lanes[Vec::width] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
// Stores the first n elements (0 < n < width). Nothing behind them is written.
template <class T>
AA_INLINE void store_n(T* p, Vec a, int64_t n) {
  T lanes[Vec::width];
  store(lanes, a);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}
#endif

// Horizontal sum, maximum and minimum. The order of additions, and so the rounding of a sum, depends on the width.
AA_INLINE float sum(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  for (int half = Vec::width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
AA_INLINE float largest(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  float result = lanes[0];
  for (int i = 1; i < Vec::width; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}
AA_INLINE float smallest(Vec a) {
  float lanes[Vec::width];
  store(lanes, a);
  float result = lanes[0];
  for (int i = 1; i < Vec::width; ++i) result = lanes[i] < result ? lanes[i] : result;
  return result;
}

}  // namespace anyaccel::op
