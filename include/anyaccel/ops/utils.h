// Combines lists of tensors into one: the library that "UtilsBuilder" loads.
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

  // Returns a new one-dimensional tensor with the elements of all tensors, one tensor after the other in row-major
  // order. They must have the same dtype and device; throws InvalidArgument, which names those that do not, also for an
  // empty list.
  Tensor flatten(std::span<const Tensor> tensors) const;

  // Returns views of consecutive parts of `flat` in these shapes. Throws InvalidArgument unless `flat` is
  // one-dimensional and contiguous and the shapes have exactly its number of elements.
  std::vector<Tensor> unflatten(const Tensor& flat, std::span<const Shape> shapes) const;
  // The same with the shapes of `likes`, whose dtype must be that of `flat`.
  std::vector<Tensor> unflatten(const Tensor& flat, std::span<const Tensor> likes) const;

  // Returns the bytes of a contiguous tensor as a one-dimensional uint8 view, which shares the memory and keeps it
  // alive. A tensor whose elements have one byte is returned unchanged, shape and dtype included.
  Tensor cast_to_byte_tensor(const Tensor& tensor) const;
  std::vector<Tensor> cast_to_byte_tensor(std::span<const Tensor> tensors) const;
};

}  // namespace anyaccel::ops
