// Shape: see anyaccel/tensor.h.
#include <algorithm>

#include "anyaccel/error.h"
#include "anyaccel/tensor.h"

namespace anyaccel {

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > AA_MAX_DIMS) {
    throw InvalidArgument("a shape of " + std::to_string(dims.size()) + " dimensions was asked for; at most " +
                          std::to_string(AA_MAX_DIMS) + " are possible");
  }
  std::copy(dims.begin(), dims.end(), dims_.begin());
  ndim_ = static_cast<int>(dims.size());
  // An element has at most eight bytes, so sizes in bytes fit too. A dimension of size 0 does not hide an overflow of
  // the others, which are in the strides; NumPy and PyTorch refuse such shapes too.
  int64_t product = 1;
  for (const int64_t d : dims) {
    if (d < 0) throw InvalidArgument("the shape " + to_string() + " has a negative size");
    if (__builtin_mul_overflow(product, std::max<int64_t>(d, 1), &product) || product > INT64_MAX / 8) {
      throw InvalidArgument(
          "the shape " + to_string() + " has more elements than fit in memory" +
          (std::find(dims.begin(), dims.end(), 0) != dims.end() ? ", or would have without its sizes of 0" : ""));
    }
  }
}

int64_t Shape::numel() const noexcept {
  int64_t n = 1;
  for (const int64_t d : dims()) n *= d;
  return n;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < ndim_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

}  // namespace anyaccel
