// Looks at the values of a piece of a tensor as bits: the largest magnitude tells at the memory's speed whether anything is
// wrong, and only then each value is looked at.
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
  uint64_t first = UINT64_MAX;  // index of the first value that is counted
  double largest = 0;           // magnitude of the largest finite value

  // `other` is of the values that begin at index `offset`.
  void add(const ScanResult& other, uint64_t offset);
};

// F16, BF16, F32 and F64.
bool can_scan(DType dtype) noexcept;
// `values`: whole elements of `dtype`, at any address. `wanted`: the dtype that finite values have to fit.
ScanResult scan_values(std::span<const std::byte> values, DType dtype, DType wanted);

}  // namespace anyaccel::llm
