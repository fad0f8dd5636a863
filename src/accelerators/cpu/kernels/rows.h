// A tensor viewed as rows of its last dimension, over which the row kernels (norms, softmax, sampling, attention)
// iterate.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/abi/base.h"
#include "anyaccel/dtype.h"

namespace anyaccel::cpu {

// One row: `length` elements that lie `stride` elements apart.
struct Row {
  char* data = nullptr;
  DType dtype = DType::None;
  int64_t stride = 0;
  int64_t length = 0;
};

class Rows {
 public:
  // ndim must be at least 1, or the tensor absent.
  explicit Rows(const aa_tensor& t) noexcept
      : data_(static_cast<char*>(t.data)),
        dtype_(static_cast<DType>(t.dtype)),
        item_(static_cast<int64_t>(dtype_size(static_cast<DType>(t.dtype)))) {
    if (dtype_ == DType::None) return;
    length_ = t.shape[t.ndim - 1];
    stride_ = t.strides[t.ndim - 1];
    count_ = 1;
    for (int d = 0; d + 1 < t.ndim; ++d) {
      count_ *= t.shape[d];
      if (t.shape[d] == 1) continue;
      // Two dimensions that continue each other are one.
      if (dims_ > 0 && strides_[dims_ - 1] == t.shape[d] * t.strides[d]) {
        shape_[dims_ - 1] *= t.shape[d];
        strides_[dims_ - 1] = t.strides[d];
      } else {
        shape_[dims_] = t.shape[d];
        strides_[dims_++] = t.strides[d];
      }
    }
  }

  bool present() const noexcept { return dtype_ != DType::None; }
  DType dtype() const noexcept { return dtype_; }
  int64_t count() const noexcept { return count_; }
  int64_t length() const noexcept { return length_; }
  int64_t stride() const noexcept { return stride_; }

  Row row(int64_t r) const noexcept {
    int64_t offset = 0;
    for (int d = dims_ - 1; d > 0; --d) {
      offset += r % shape_[d] * strides_[d];
      r /= shape_[d];
    }
    if (dims_ > 0) offset += r * strides_[0];
    return {data_ + offset * item_, dtype_, stride_, length_};
  }

 private:
  char* data_;
  DType dtype_;
  int64_t item_;
  int64_t length_ = 0;
  int64_t stride_ = 0;
  int64_t count_ = 0;
  int dims_ = 0;
  int64_t shape_[AA_MAX_DIMS] = {};
  int64_t strides_[AA_MAX_DIMS] = {};
};

// Returns the first row of a tensor; one of dtype None if the tensor is absent.
inline Row single_row(const aa_tensor& t) { return t.dtype == AA_DTYPE_NONE ? Row{} : Rows(t).row(0); }

}  // namespace anyaccel::cpu
