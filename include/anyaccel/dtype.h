// Element types: their names and sizes, and conversions of single bf16 and fp16 values on the host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "anyaccel/abi/base.h"

namespace anyaccel {

// The values are those of aa_dtype, so that a cast converts between them.
enum class DType : int32_t {
  None = AA_DTYPE_NONE,
  Bool = AA_DTYPE_BOOL,
  U8 = AA_DTYPE_U8,
  I8 = AA_DTYPE_I8,
  I16 = AA_DTYPE_I16,
  I32 = AA_DTYPE_I32,
  I64 = AA_DTYPE_I64,
  F16 = AA_DTYPE_F16,
  BF16 = AA_DTYPE_BF16,
  F32 = AA_DTYPE_F32,
  F64 = AA_DTYPE_F64,
  F8E4M3 = AA_DTYPE_F8_E4M3,
  F8E5M2 = AA_DTYPE_F8_E5M2,
};

// Returns the size of one element in bytes; 0 for None.
constexpr size_t dtype_size(DType t) noexcept {
  switch (t) {
    case DType::Bool:
    case DType::U8:
    case DType::I8:
    case DType::F8E4M3:
    case DType::F8E5M2: return 1;
    case DType::I16:
    case DType::F16:
    case DType::BF16: return 2;
    case DType::I32:
    case DType::F32: return 4;
    case DType::I64:
    case DType::F64: return 8;
    case DType::None: return 0;
  }
  return 0;
}

// Returns PyTorch's name: "float32", "bfloat16", ...
constexpr std::string_view dtype_name(DType t) noexcept {
  switch (t) {
    case DType::None: return "none";
    case DType::Bool: return "bool";
    case DType::U8: return "uint8";
    case DType::I8: return "int8";
    case DType::I16: return "int16";
    case DType::I32: return "int32";
    case DType::I64: return "int64";
    case DType::F16: return "float16";
    case DType::BF16: return "bfloat16";
    case DType::F32: return "float32";
    case DType::F64: return "float64";
    case DType::F8E4M3: return "float8_e4m3fn";
    case DType::F8E5M2: return "float8_e5m2";
  }
  return "invalid";
}

// True for F16, BF16 and F32, which the ops call "float".
constexpr bool is_op_float(DType t) noexcept { return t == DType::F16 || t == DType::BF16 || t == DType::F32; }

// Parses the names of dtype_name(), with or without "torch." before them, and the short forms fp32, f32, float, fp64,
// f64, double, fp16, f16, half, bf16, long, int, short, byte and float8_e4m3; returns nothing for any other text.
std::optional<DType> parse_dtype(std::string_view name) noexcept;

inline float bf16_to_float(uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest even; a NaN stays a (quiet) NaN.
inline uint16_t float_to_bf16(float value) noexcept {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float fp16_to_float(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero and subnormals: mantissa * 2^-24 is exact in binary32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

// Rounds to nearest even; overflow gives infinity, a NaN stays a (quiet) NaN.
inline uint16_t float_to_fp16(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below the smallest normal: shift the full significand right and round to even.
    if (magnitude < 0x33000000u) return sign;
    const uint32_t shift = 126u - (magnitude >> 23);
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t kept = significand >> shift;
    const uint32_t rest = significand & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u);
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace anyaccel
