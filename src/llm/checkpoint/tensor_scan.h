// Checks the values of a piece of a tensor as bits: computing the largest magnitude shows at memory speed whether any
// value is damaged, and only then is each value examined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "anyaccel/dtype.h"

namespace anyaccel::llm {

struct ScanResult {
  uint64_t nan_count = 0;
  uint64_t infinite_count = 0;
  uint64_t overflow_count = 0;
  uint64_t first = UINT64_MAX;  // index of the first damaged value
  double largest = 0;           // largest magnitude of a finite value

  // Adds `other`, the result for the values that begin at index `offset`.
  void add(const ScanResult& other, uint64_t offset);
};

// Returns true for F16, BF16, F32 and F64.
bool can_scan(DType dtype) noexcept;
// `values` holds whole elements of `dtype`, at any address. `wanted` is the dtype that must be able to represent the
// finite values.
ScanResult scan_values(std::span<const std::byte> values, DType dtype, DType wanted);

}  // namespace anyaccel::llm
