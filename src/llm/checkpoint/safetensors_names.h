// Converts the dtype names of safetensors files, and computes sizes of tensors. F8_E8M0, exponents of scales, are bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "anyaccel/dtype.h"

namespace anyaccel::llm {

inline constexpr std::array<std::pair<std::string_view, DType>, 13> safetensors_dtypes = {{{"BOOL", DType::Bool},
                                                                                           {"U8", DType::U8},
                                                                                           {"I8", DType::I8},
                                                                                           {"I16", DType::I16},
                                                                                           {"I32", DType::I32},
                                                                                           {"I64", DType::I64},
                                                                                           {"F16", DType::F16},
                                                                                           {"BF16", DType::BF16},
                                                                                           {"F32", DType::F32},
                                                                                           {"F64", DType::F64},
                                                                                           {"F8_E4M3", DType::F8E4M3},
                                                                                           {"F8_E5M2", DType::F8E5M2},
                                                                                           {"F8_E8M0", DType::U8}}};

// Returns the size of a tensor in bytes; nothing for a negative size or one that exceeds an int64.
inline std::optional<uint64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = dtype_size(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return bytes;
}

}  // namespace anyaccel::llm
