// What the headers of vector.h build on: which instruction set the file is compiled for (one AA_VECTOR_ macro is 1, or none),
// the types of elements, and conversions of single values. Including this header keeps the compiler from contracting a * b + c
// to a fused multiply-add.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define AA_VECTOR_AVX512 0
#define AA_VECTOR_AVX2 0
#define AA_VECTOR_SSE2 0
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#undef AA_VECTOR_AVX512
#define AA_VECTOR_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#undef AA_VECTOR_AVX2
#define AA_VECTOR_AVX2 1
#elif defined(__SSE2__)
#undef AA_VECTOR_SSE2
#define AA_VECTOR_SSE2 1
#endif

#define AA_INLINE inline __attribute__((always_inline))
// For functions that are called once for a block of elements: the call costs nothing there, and inlining them would make the
// sources, which are compiled at run time, take longer to compile.
#define AA_ONCE __attribute__((noinline))

namespace anyaccel::op {

// 16-bit floats as they are in memory.
struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};

// -- single values, converted to the same bits as in vectors --
AA_INLINE uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
AA_INLINE float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }

AA_INLINE float to_float(float x) { return x; }
AA_INLINE float to_float(bf16 x) { return bits_float(uint32_t{x.bits} << 16); }
AA_INLINE float to_float(fp16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  return bits_float(sign | float_bits(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f));
}

template <class T>
T from_float(float x);
template <>
AA_INLINE float from_float<float>(float x) {
  return x;
}
// Rounds to nearest even. A NaN becomes a quiet NaN.
template <>
AA_INLINE bf16 from_float<bf16>(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
// Rounds to nearest even. What is too large becomes infinity, and a NaN becomes a quiet NaN.
template <>
AA_INLINE fp16 from_float<fp16>(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // The ulp of 0.5 is 2^-24, the smallest subnormal fp16, so the addition rounds to a multiple of it.
    half = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace anyaccel::op
