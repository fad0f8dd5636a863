// The loops of an elementwise op: tensors of one shape, with their dimensions reordered and merged so that the inner
// loop is long and, where the strides allow, dense.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "accelerators/cpu/kernels/parallel.h"
#include "accelerators/cpu/kernels/rows.h"

namespace anyaccel::cpu {

// Elements that are processed at once: three binary32 buffers of this length stay in the first-level cache.
inline constexpr int64_t kElementwiseChunk = 2048;

template <size_t count>
class ElementwisePlan {
 public:
  using Pieces = std::array<Row, count>;

  // The first tensor is the output, whose strides decide the order of the loops.
  explicit ElementwisePlan(const aa_tensor* tensors) noexcept : tensors_(tensors) {
    int order[AA_MAX_DIMS];
    const aa_tensor& out = tensors[0];
    int n = 0;
    for (int d = 0; d < out.ndim; ++d) {
      elements_ *= out.shape[d];
      if (out.shape[d] != 1) order[n++] = d;
    }
    std::stable_sort(order, order + n, [&](int a, int b) { return out.strides[a] > out.strides[b]; });
    for (int i = 0; i < n; ++i) {
      const int d = order[i];
      bool continues = dims_ > 0;
      for (size_t k = 0; k < count && continues; ++k) {
        continues = strides_[k][dims_ - 1] == tensors[k].strides[d] * out.shape[d];
      }
      if (continues) {
        shape_[dims_ - 1] *= out.shape[d];
      } else {
        shape_[dims_++] = out.shape[d];
      }
      for (size_t k = 0; k < count; ++k) strides_[k][dims_ - 1] = tensors[k].strides[d];
    }
    if (dims_ == 0) {
      shape_[0] = 1;
      for (size_t k = 0; k < count; ++k) strides_[k][0] = 1;
      dims_ = 1;
    }
  }

  int64_t elements() const noexcept { return elements_; }

  // Calls body(pieces, n) with one piece of n <= kElementwiseChunk elements per tensor, covering everything once, on
  // several threads when elements times `work` is worth it.
  template <class Body>
  void run(int64_t work, Body&& body) const {
    if (elements_ == 0) return;
    const int64_t inner = shape_[dims_ - 1];
    const int64_t chunks = (inner + kElementwiseChunk - 1) / kElementwiseChunk;
    const int64_t total = elements_ / inner * chunks;
    parallel_for(total, std::min(inner, kElementwiseChunk) * work, [&](int64_t begin, int64_t end) {
      Place place = place_of(begin / chunks);
      int64_t first = begin % chunks * kElementwiseChunk;
      for (int64_t i = begin; i < end; ++i) {
        body(pieces_at(place, first), std::min(kElementwiseChunk, inner - first));
        first += kElementwiseChunk;
        if (first < inner) continue;
        first = 0;
        advance(place);
      }
    });
  }

 private:
  // A row of the inner dimension: its indices in the others, and where it begins in each tensor.
  struct Place {
    int64_t index[AA_MAX_DIMS];
    std::array<int64_t, count> offset;
  };
  Place place_of(int64_t outer) const noexcept {
    Place place{};
    for (int d = dims_ - 2; d >= 0; --d) {
      place.index[d] = outer % shape_[d];
      outer /= shape_[d];
      for (size_t k = 0; k < count; ++k) place.offset[k] += place.index[d] * strides_[k][d];
    }
    return place;
  }
  // Moves to the next row without divisions, which would take longer than a row of some tens of elements.
  void advance(Place& place) const noexcept {
    for (int d = dims_ - 2; d >= 0; --d) {
      const bool inside = ++place.index[d] < shape_[d];
      const int64_t steps = inside ? 1 : 1 - shape_[d];
      for (size_t k = 0; k < count; ++k) place.offset[k] += steps * strides_[k][d];
      if (inside) return;
      place.index[d] = 0;
    }
  }

  Pieces pieces_at(const Place& place, int64_t first) const noexcept {
    Pieces pieces;
    for (size_t k = 0; k < count; ++k) {
      const DType dtype = static_cast<DType>(tensors_[k].dtype);
      const int64_t stride = strides_[k][dims_ - 1];
      pieces[k] = {static_cast<char*>(tensors_[k].data) +
                       (place.offset[k] + first * stride) * static_cast<int64_t>(dtype_size(dtype)),
                   dtype, stride, shape_[dims_ - 1]};
    }
    return pieces;
  }

  const aa_tensor* tensors_;
  int64_t elements_ = 1;
  int dims_ = 0;
  int64_t shape_[AA_MAX_DIMS] = {};
  int64_t strides_[count][AA_MAX_DIMS] = {};
};

}  // namespace anyaccel::cpu
