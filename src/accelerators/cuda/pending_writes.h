// Tracks the memory written by kernels of a stream that may still run when the next kernel begins. Kernels of ops may
// overlap: one begins while those before it end, and waits itself (aa_grid_wait() of kernels/cuda/warp.h) before it
// reads what they write. Weights, most of what a product of few rows reads, are seldom written: where they are not
// among these ranges, they may be read before that wait. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "anyaccel/dtype.h"

namespace anyaccel::cuda {

class PendingWrites {
 public:
  struct Range {
    uintptr_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  // The bytes from a tensor's first element to its last; empty for an absent or empty tensor.
  static Range range_of(const aa_tensor& tensor) {
    if (tensor.dtype == AA_DTYPE_NONE || !tensor.data) return {};
    int64_t last = 0;
    for (int32_t d = 0; d < tensor.ndim; ++d) {
      if (tensor.shape[d] == 0) return {};
      last += (tensor.shape[d] - 1) * tensor.strides[d];
    }
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
    return {begin, begin + (static_cast<uintptr_t>(last) + 1) * dtype_size(static_cast<DType>(tensor.dtype))};
  }

  // Something else was enqueued, whose writes are unknown.
  void forget() {
    known_ = false;
    ranges_.clear();
  }
  // Returns true if all pending writes are known: then a kernel may let the next one begin before it has waited itself.
  bool known() const noexcept { return known_; }
  bool contains_any_of(std::span<const Range> read) const {
    return std::ranges::any_of(read, [&](const Range& r) {
      return std::ranges::any_of(ranges_, [&](const Range& w) { return r.begin < w.end && w.begin < r.end; });
    });
  }
  // A kernel was enqueued that writes these. `early`: it lets the next one begin before it has waited itself, so those before
  // it may still run then; else they have ended.
  void add(bool early, std::span<const Range> written) {
    if (!early) ranges_.clear();
    known_ = known_ || !early;
    for (const Range& range : written) {
      if (range.begin != range.end && std::ranges::find(ranges_, range) == ranges_.end()) ranges_.push_back(range);
    }
    if (ranges_.size() > most_ranges) forget();
    ++added_;
  }
  // Calls of add() so far.
  uint64_t added() const noexcept { return added_; }

 private:
  // More ranges than the layers of any model write, and few enough to search linearly.
  static constexpr size_t most_ranges = 1024;

  bool known_ = false;
  uint64_t added_ = 0;
  std::vector<Range> ranges_;
};

}  // namespace anyaccel::cuda
