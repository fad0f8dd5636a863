// Converts single elements between all dtypes, each rounded once. The reference ops use it for everything, the fast
// kernels for the rare dtypes and for strided data.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "anyaccel/dtype.h"

namespace anyaccel {

// Rounds to odd: `value` truncated to binary32, with the last bit set if anything was cut off. Rounding the result to a
// format at least two bits shorter is the same as rounding `value` once (Boldo and Melquiond 2008).
template <class Wide>
inline float round_to_odd(Wide value) noexcept {
  const float nearest = static_cast<float>(value);
  if (std::isnan(nearest) || static_cast<Wide>(nearest) == value) return nearest;
  if (std::isinf(nearest)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<Wide>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

// The 8-bit formats: `mantissa` bits of fraction, an exponent bias, and the largest finite value.
struct Fp8Format {
  int mantissa;
  int bias;
  double largest;
  uint8_t overflow;  // result for a larger magnitude: infinity, or NaN in the format without infinity
};
inline constexpr Fp8Format kE4M3{3, 7, 448.0, 0x7f};
inline constexpr Fp8Format kE5M2{2, 15, 57344.0, 0x7c};

inline uint8_t float_to_fp8(float value, const Fp8Format& format) noexcept {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  if (std::isinf(value)) return static_cast<uint8_t>(sign | format.overflow);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int lowest = 1 - format.bias;
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const double quantum = std::ldexp(1.0, exponent - format.mantissa);
  const double steps = std::nearbyint(magnitude / quantum);
  if (steps * quantum > format.largest) return static_cast<uint8_t>(sign | format.overflow);
  const int count = static_cast<int>(steps);
  const int one = 1 << format.mantissa;
  if (count < one) return static_cast<uint8_t>(sign | count);  // subnormal or zero
  return static_cast<uint8_t>(sign | (((exponent + format.bias) << format.mantissa) + count - one));
}

inline float fp8_to_float(uint8_t bits, const Fp8Format& format) noexcept {
  const int magnitude = bits & 0x7f;
  const int exponent = magnitude >> format.mantissa;
  const int fraction = magnitude & ((1 << format.mantissa) - 1);
  float value;
  if (format.overflow == 0x7f ? magnitude == 0x7f : magnitude > format.overflow) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (format.overflow != 0x7f && magnitude == format.overflow) {
    value = std::numeric_limits<float>::infinity();
  } else {
    const int significand = exponent ? fraction + (1 << format.mantissa) : fraction;
    value = std::ldexp(static_cast<float>(significand), (exponent ? exponent : 1) - format.bias - format.mantissa);
  }
  return bits & 0x80 ? -value : value;
}

template <class T>
inline T load_bits(const void* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <class T>
inline void store_bits(void* p, T value) noexcept {
  std::memcpy(p, &value, sizeof(T));
}

constexpr bool is_floating(DType t) noexcept {
  return is_op_float(t) || t == DType::F64 || t == DType::F8E4M3 || t == DType::F8E5M2;
}

// Reads an element that is_floating.
inline double load_floating(const void* p, DType t) noexcept {
  switch (t) {
    case DType::F16: return fp16_to_float(load_bits<uint16_t>(p));
    case DType::BF16: return bf16_to_float(load_bits<uint16_t>(p));
    case DType::F32: return load_bits<float>(p);
    case DType::F64: return load_bits<double>(p);
    case DType::F8E4M3: return fp8_to_float(load_bits<uint8_t>(p), kE4M3);
    case DType::F8E5M2: return fp8_to_float(load_bits<uint8_t>(p), kE5M2);
    default: return 0;
  }
}

// Reads an element that is not is_floating.
inline int64_t load_integer(const void* p, DType t) noexcept {
  switch (t) {
    case DType::Bool: return load_bits<uint8_t>(p) != 0;
    case DType::U8: return load_bits<uint8_t>(p);
    case DType::I8: return load_bits<int8_t>(p);
    case DType::I16: return load_bits<int16_t>(p);
    case DType::I32: return load_bits<int32_t>(p);
    case DType::I64: return load_bits<int64_t>(p);
    default: return 0;
  }
}

// Truncates toward zero, saturates, and returns 0 for NaN.
template <class Integer, class Wide>
inline Integer saturate(Wide value) noexcept {
  if (!(value == value)) return 0;
  // The upper bound is exact as a power of two; the largest Integer itself may not be.
  const Wide above = std::ldexp(Wide{1}, std::numeric_limits<Integer>::digits);
  if (value >= above) return std::numeric_limits<Integer>::max();
  if (value <= static_cast<Wide>(std::numeric_limits<Integer>::min())) return std::numeric_limits<Integer>::min();
  return static_cast<Integer>(value);
}

// Writes a number (int64_t, float, double or long double) as any dtype, by the rules of the op "copy".
template <class Number>
inline void store_number(void* p, DType t, Number value) noexcept {
  if constexpr (std::is_integral_v<Number>) {
    switch (t) {
      case DType::U8:
      case DType::I8: return store_bits(p, static_cast<uint8_t>(value));
      case DType::I16: return store_bits(p, static_cast<uint16_t>(value));
      case DType::I32: return store_bits(p, static_cast<uint32_t>(value));
      case DType::I64: return store_bits(p, static_cast<int64_t>(value));
      default: break;
    }
  } else {
    switch (t) {
      case DType::U8: return store_bits(p, saturate<uint8_t>(value));
      case DType::I8: return store_bits(p, saturate<int8_t>(value));
      case DType::I16: return store_bits(p, saturate<int16_t>(value));
      case DType::I32: return store_bits(p, saturate<int32_t>(value));
      case DType::I64: return store_bits(p, saturate<int64_t>(value));
      default: break;
    }
  }
  // Integers go through long double, whose significand holds 64 bits.
  using Wide = std::conditional_t<std::is_integral_v<Number>, long double, Number>;
  const Wide wide = static_cast<Wide>(value);
  switch (t) {
    case DType::Bool: return store_bits<uint8_t>(p, value != Number{0});
    case DType::F16: return store_bits(p, float_to_fp16(round_to_odd(wide)));
    case DType::BF16: return store_bits(p, float_to_bf16(round_to_odd(wide)));
    case DType::F32: return store_bits(p, static_cast<float>(wide));
    case DType::F64: return store_bits(p, static_cast<double>(wide));
    case DType::F8E4M3: return store_bits(p, float_to_fp8(round_to_odd(wide), kE4M3));
    case DType::F8E5M2: return store_bits(p, float_to_fp8(round_to_odd(wide), kE5M2));
    default: break;
  }
}

}  // namespace anyaccel
