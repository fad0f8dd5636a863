// Implements number_formats.h. Formats: IEEE 754, and "OCP 8-bit Floating Point Specification" 1.0 for the F8 dtypes.
#include "conformance/number_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace anyaccel::conformance {
namespace {

// A binary format of up to 32 bits; bits are sign, exponent, mantissa. The derived numbers are stored, because the suite, which is
// compiled with few optimizations, rounds millions of numbers.
struct Format {
  int mantissa_bits;
  bool infinity;  // without it the largest exponent holds numbers, and only all ones are a NaN
  int bias;
  uint32_t sign;
  uint32_t largest_exponent;

  constexpr Format(int exponent_bits, int of_mantissa, bool has_infinity)
      : mantissa_bits(of_mantissa),
        infinity(has_infinity),
        bias((1 << (exponent_bits - 1)) - 1),
        sign(1u << (exponent_bits + of_mantissa)),
        largest_exponent(((1u << exponent_bits) - 1) << of_mantissa) {}
};

constexpr Format f16{5, 10, true}, bf16{8, 7, true}, f32{8, 23, true}, f8_e4m3{4, 3, false}, f8_e5m2{5, 2, true};

const Format& format_of(int32_t dtype) noexcept {
  switch (dtype) {
    case AA_DTYPE_F16: return f16;
    case AA_DTYPE_BF16: return bf16;
    case AA_DTYPE_F32: return f32;
    case AA_DTYPE_F8_E4M3: return f8_e4m3;
    default: return f8_e5m2;
  }
}

// 2^exponent, where that is a normal number. std::ldexp() takes several times as long.
double power_of_two(int exponent) noexcept {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

uint32_t encode(double value, const Format& format) noexcept {
  const uint32_t sign = std::signbit(value) ? format.sign : 0;
  const uint32_t infinity = format.largest_exponent;
  const uint32_t nan = format.infinity ? infinity | (1u << (format.mantissa_bits - 1)) : format.sign - 1;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | nan;
  if (std::isinf(value)) return sign | (format.infinity ? infinity : nan);
  if (magnitude == 0) return sign;
  // The value in units of the last place; ties go to even, as the processor rounds: 2^52 leaves no bit for fractions. A carry out
  // of the mantissa increments the exponent.
  const int binade = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;  // below -1022: -1023
  const int exponent = std::max(binade, 1 - format.bias);
  if (exponent > format.bias + 1) return sign | (format.infinity ? infinity : nan);
  const double unrounded = magnitude * power_of_two(format.mantissa_bits - exponent);
  const auto units = static_cast<int64_t>((unrounded + 0x1p52) - 0x1p52);
  const int64_t bits = (static_cast<int64_t>(exponent + format.bias) << format.mantissa_bits) + units -
                       (int64_t{1} << format.mantissa_bits);
  if (format.infinity ? bits >= infinity : bits >= nan) return sign | (format.infinity ? infinity : nan);
  return sign | static_cast<uint32_t>(bits);
}

double decode(uint32_t bits, const Format& format) noexcept {
  const bool negative = bits & format.sign;
  bits &= format.sign - 1;
  double magnitude = 0;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits);
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  if (format.infinity && bits >= format.largest_exponent) {
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (!format.infinity && bits == format.sign - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = mantissa * power_of_two(1 - format.bias - format.mantissa_bits);
  } else {
    magnitude = (mantissa + (1u << format.mantissa_bits)) * power_of_two(exponent - format.bias - format.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

template <class T>
T read(const void* data) noexcept {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

template <class T>
void write(void* data, T value) noexcept {
  std::memcpy(data, &value, sizeof(value));
}

template <class T>
void write_saturated(void* data, double value) noexcept {
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  // One beyond the largest: exact in double for every width.
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  T result = 0;
  if (value >= high) {
    result = std::numeric_limits<T>::max();
  } else if (value <= low) {
    result = std::numeric_limits<T>::min();
  } else if (!std::isnan(value)) {
    result = static_cast<T>(value);
  }
  write(data, result);
}

}  // namespace

const char* dtype_text(int32_t dtype) noexcept {
  static constexpr const char* names[] = {"none", "bool", "u8",  "i8",  "i16",     "i32",    "i64",
                                          "f16",  "bf16", "f32", "f64", "f8_e4m3", "f8_e5m2"};
  return dtype >= 0 && dtype <= AA_DTYPE_F8_E5M2 ? names[dtype] : "unknown";
}

int64_t dtype_size(int32_t dtype) noexcept {
  static constexpr int64_t sizes[] = {0, 1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1};
  return sizes[dtype];
}

bool is_float(int32_t dtype) noexcept { return dtype >= AA_DTYPE_F16; }

double unit_roundoff(int32_t dtype) noexcept {
  if (!is_float(dtype) || dtype == AA_DTYPE_F64) return 0;
  return std::ldexp(1.0, -format_of(dtype).mantissa_bits - 1);
}

double smallest_roundoff(int32_t dtype) noexcept {
  if (!is_float(dtype) || dtype == AA_DTYPE_F64) return 0;
  const Format& format = format_of(dtype);
  return std::ldexp(1.0, -format.bias - format.mantissa_bits);
}

double load(const void* data, int32_t dtype) noexcept {
  switch (dtype) {
    case AA_DTYPE_BOOL:
    case AA_DTYPE_U8: return read<uint8_t>(data);
    case AA_DTYPE_I8: return read<int8_t>(data);
    case AA_DTYPE_I16: return read<int16_t>(data);
    case AA_DTYPE_I32: return read<int32_t>(data);
    case AA_DTYPE_I64: return static_cast<double>(read<int64_t>(data));
    case AA_DTYPE_F64: return read<double>(data);
    case AA_DTYPE_F32: return read<float>(data);
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16: return decode(read<uint16_t>(data), dtype == AA_DTYPE_F16 ? f16 : bf16);
    default: return decode(read<uint8_t>(data), format_of(dtype));
  }
}

void store(void* data, int32_t dtype, double value) noexcept {
  switch (dtype) {
    case AA_DTYPE_BOOL: write<uint8_t>(data, value != 0); break;
    case AA_DTYPE_U8: write_saturated<uint8_t>(data, value); break;
    case AA_DTYPE_I8: write_saturated<int8_t>(data, value); break;
    case AA_DTYPE_I16: write_saturated<int16_t>(data, value); break;
    case AA_DTYPE_I32: write_saturated<int32_t>(data, value); break;
    case AA_DTYPE_I64: write_saturated<int64_t>(data, value); break;
    case AA_DTYPE_F64: write<double>(data, value); break;
    case AA_DTYPE_F32: write<uint32_t>(data, encode(value, f32)); break;
    case AA_DTYPE_F16:
    case AA_DTYPE_BF16:
      write<uint16_t>(data, static_cast<uint16_t>(encode(value, dtype == AA_DTYPE_F16 ? f16 : bf16)));
      break;
    default: write<uint8_t>(data, static_cast<uint8_t>(encode(value, format_of(dtype))));
  }
}

double rounded(double value, int32_t dtype) noexcept {
  unsigned char bytes[8];
  store(bytes, dtype, value);
  return load(bytes, dtype);
}

}  // namespace anyaccel::conformance
