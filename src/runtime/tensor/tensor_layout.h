// Arithmetic on shapes and strides that the sources of Tensor share.
#pragma once

#include <array>
#include <cstdint>

#include "anyaccel/tensor.h"

namespace anyaccel {

using Strides = std::array<int64_t, AA_MAX_DIMS>;

inline Strides contiguous_strides(const Shape& shape) noexcept {
  Strides strides{};
  int64_t step = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = step;
    step *= shape[d] > 0 ? shape[d] : 1;
  }
  return strides;
}

// The elements that a view touches, relative to its first: [low, high). Not valid when the numbers overflow.
struct Extent {
  int64_t low = 0;
  int64_t high = 0;
  bool valid = true;
};

inline Extent extent_of(const Shape& shape, const Strides& strides) noexcept {
  Extent extent;
  if (shape.numel() == 0) return extent;
  for (int d = 0; d < shape.ndim(); ++d) {
    int64_t reach = 0;
    int64_t& end = strides[static_cast<size_t>(d)] < 0 ? extent.low : extent.high;
    if (__builtin_mul_overflow(shape[d] - 1, strides[static_cast<size_t>(d)], &reach) ||
        __builtin_add_overflow(end, reach, &end)) {
      return {0, 0, false};
    }
  }
  if (extent.high == INT64_MAX) return {0, 0, false};
  ++extent.high;
  return extent;
}

// Turns a dimension that may count from the end into an index; InvalidArgument when there is no such dimension.
int resolve_dim(int dim, int ndim);

}  // namespace anyaccel
