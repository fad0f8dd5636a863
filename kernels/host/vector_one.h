// One float, on other processors: the type and the functions that vector.h describes. Included by vector_lanes.h.
#pragma once

#include "vector_base.h"

namespace anyaccel::op {

struct Vec {
  static constexpr int width = 1;
  float v;
  AA_INLINE Vec() : v(0) {}
  AA_INLINE explicit Vec(float x) : v(x) {}
};
using Mask = bool;

AA_INLINE Vec operator+(Vec a, Vec b) { return Vec(a.v + b.v); }
AA_INLINE Vec operator-(Vec a, Vec b) { return Vec(a.v - b.v); }
AA_INLINE Vec operator*(Vec a, Vec b) { return Vec(a.v * b.v); }
AA_INLINE Vec operator/(Vec a, Vec b) { return Vec(a.v / b.v); }
AA_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }
AA_INLINE Vec multiply_sub_from(Vec a, Vec b, Vec c) { return c - a * b; }
AA_INLINE Vec sqrt(Vec a) { return Vec(__builtin_sqrtf(a.v)); }
AA_INLINE Vec min(Vec a, Vec b) { return a.v < b.v ? a : b; }
AA_INLINE Vec max(Vec a, Vec b) { return a.v > b.v ? a : b; }
AA_INLINE Vec round(Vec a) { return Vec(__builtin_rintf(a.v)); }
AA_INLINE Vec floor(Vec a) { return Vec(__builtin_floorf(a.v)); }
AA_INLINE Vec bit_and(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) & float_bits(b.v))); }
AA_INLINE Vec bit_or(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) | float_bits(b.v))); }
AA_INLINE Vec bit_xor(Vec a, Vec b) { return Vec(bits_float(float_bits(a.v) ^ float_bits(b.v))); }
AA_INLINE Mask less(Vec a, Vec b) { return a.v < b.v; }
AA_INLINE Mask less_equal(Vec a, Vec b) { return a.v <= b.v; }
AA_INLINE Mask equal(Vec a, Vec b) { return a.v == b.v; }
AA_INLINE Mask is_nan(Vec a) { return a.v != a.v; }
AA_INLINE Vec select(Mask m, Vec yes, Vec no) { return m ? yes : no; }
AA_INLINE bool any(Mask m) { return m; }

template <class T>
AA_INLINE Vec load(const T* p) {
  return Vec(to_float(*p));
}
AA_INLINE Vec load(const int8_t* p) { return Vec(static_cast<float>(*p)); }
AA_INLINE Vec load(const uint8_t* p) { return Vec(static_cast<float>(*p)); }
template <class T>
AA_INLINE void store(T* p, Vec a) {
  *p = from_float<T>(a.v);
}
template <class T>
AA_INLINE void stream(T* p, Vec a) {
  store(p, a);
}
AA_INLINE void store_integers(int8_t* p, Vec a) {
  const float x = __builtin_rintf(a.v);
  *p = static_cast<int8_t>(x < -128.0f ? -128 : x > 127.0f ? 127 : static_cast<int>(x));
}

}  // namespace anyaccel::op
