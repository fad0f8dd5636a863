// Describes how the rows of a tensor lie, for kernels that read and write 16 bytes at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "anyaccel/abi/ops.h"
#include "runtime/ops/kernel_arguments.h"

namespace anyaccel::cuda {

inline bool is_float(const aa_tensor& t) {
  return t.dtype == AA_DTYPE_F32 || t.dtype == AA_DTYPE_BF16 || t.dtype == AA_DTYPE_F16;
}
inline int64_t float_bytes(const aa_tensor& t) { return t.dtype == AA_DTYPE_F32 ? 4 : 2; }
inline bool is_aligned_to_16(const aa_tensor& t) { return reinterpret_cast<uintptr_t>(t.data) % 16 == 0; }
inline int64_t row_size(const aa_tensor& t) { return t.shape[t.ndim - 1]; }

// Returns the distance between rows in elements, if it is the same for all rows and each row is contiguous and begins
// at a multiple of 16 bytes.
inline std::optional<int64_t> aligned_row_step(const aa_tensor& t) {
  if (!is_float(t) || !is_aligned_to_16(t)) return std::nullopt;
  if (t.strides[t.ndim - 1] != 1 && row_size(t) > 1) return std::nullopt;
  if (ops::portable::row_count_of(t) == 1) return row_size(t);
  const auto rows = ops::portable::rows_of(t);
  if (rows.ndim != 1 || rows.stride[0] * float_bytes(t) % 16 != 0) return std::nullopt;
  return rows.stride[0];
}

// Elements of a head are neighbours, and each head begins at a multiple of 16 bytes.
inline bool has_whole_heads(const aa_tensor& t) {
  if (!is_float(t) || !is_aligned_to_16(t)) return false;
  const int last = t.ndim - 1;
  if (t.shape[last] > 1 && t.strides[last] != 1) return false;
  for (int d = 0; d < last; ++d) {
    if (t.shape[d] > 1 && t.strides[d] * float_bytes(t) % 16 != 0) return false;
  }
  return true;
}

}  // namespace anyaccel::cuda
