// Lists of tensors as one: what "UtilsBuilder" loads.
#pragma once

#include <span>
#include <vector>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel {
class Accelerator;
}

namespace anyaccel::ops {

class Utils : public OpLibrary {
 public:
  explicit Utils(Accelerator&) {}

  // A new one-dimensional tensor with the elements of all, one tensor after the other in row-major order. They must be of
  // one dtype and lie on one device; InvalidArgument names those that are not, and an empty list.
  Tensor flatten(std::span<const Tensor> tensors) const;

  // Views of consecutive parts of `flat` in these shapes. InvalidArgument unless `flat` is one-dimensional and contiguous
  // and the shapes have exactly its number of elements.
  std::vector<Tensor> unflatten(const Tensor& flat, std::span<const Shape> shapes) const;
  // The same in the shapes of `likes`, whose dtype must be that of `flat`.
  std::vector<Tensor> unflatten(const Tensor& flat, std::span<const Tensor> likes) const;

  // The bytes of a contiguous tensor as a one-dimensional uint8 view: shares the memory and keeps it alive. A tensor
  // whose elements have one byte is returned unchanged, shape and dtype included.
  Tensor cast_to_byte_tensor(const Tensor& tensor) const;
  std::vector<Tensor> cast_to_byte_tensor(std::span<const Tensor> tensors) const;
};

}  // namespace anyaccel::ops
