// Reads and writes single elements of a tensor for the reference versions of ops.
#pragma once

#include <cstdint>

#include "anyaccel/abi/base.h"
#include "base/scalar_convert.h"

namespace anyaccel::cpu {

class Elements {
 public:
  explicit Elements(const aa_tensor& tensor) : t_(tensor), dtype_(static_cast<DType>(tensor.dtype)) {}

  bool present() const { return dtype_ != DType::None; }
  int64_t dim(int d) const { return t_.shape[d]; }
  DType dtype() const { return dtype_; }

  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < t_.ndim; ++d) n *= t_.shape[d];
    return n;
  }
  // Size of the last dimension, and how many rows of it there are.
  int64_t row_length() const { return t_.shape[t_.ndim - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int d = 0; d + 1 < t_.ndim; ++d) n *= t_.shape[d];
    return n;
  }

  // Element by its coordinates.
  template <class... Index>
  void* at(Index... index) const {
    const int64_t coordinates[] = {static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (int d = 0; d < static_cast<int>(sizeof...(index)); ++d) offset += coordinates[d] * t_.strides[d];
    return address(offset);
  }
  // Element by its row-major number.
  void* flat(int64_t i) const {
    int64_t offset = 0;
    for (int d = t_.ndim - 1; d >= 0; --d) {
      offset += i % t_.shape[d] * t_.strides[d];
      i /= t_.shape[d];
    }
    return address(offset);
  }

  double get(const void* p) const { return load_floating(p, dtype_); }
  int64_t get_integer(const void* p) const { return load_integer(p, dtype_); }
  template <class Number>
  void set(void* p, Number value) const {
    store_number(p, dtype_, value);
  }

 private:
  void* address(int64_t offset) const {
    return static_cast<char*>(t_.data) + offset * static_cast<int64_t>(dtype_size(dtype_));
  }

  const aa_tensor& t_;
  DType dtype_;
};

}  // namespace anyaccel::cpu
