// Implements flattening, unflattening and byte views, see anyaccel/ops/utils.h.
#include "anyaccel/ops/utils.h"

#include <string>

#include "anyaccel/error.h"
#include "ops/builders.h"

namespace anyaccel::ops {
namespace {

std::string described(size_t index, const Tensor& tensor) {
  return "tensor " + std::to_string(index) + " (" + std::string(dtype_name(tensor.dtype())) + ' ' +
         tensor.shape().to_string() + " on " + tensor.device().name() + ')';
}

}  // namespace

Tensor Utils::flatten(std::span<const Tensor> tensors) const {
  if (tensors.empty()) throw InvalidArgument("flatten: the list of tensors is empty");
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) throw InvalidArgument("flatten: tensor " + std::to_string(i) + " is empty");
    if (tensors[i].dtype() != tensors[0].dtype() || tensors[i].device() != tensors[0].device()) {
      throw InvalidArgument("flatten: all tensors must have one dtype and one device, but " + described(0, tensors[0]) +
                            " and " + described(i, tensors[i]) + " differ");
    }
    total += tensors[i].numel();
  }
  const Tensor flat = Tensor::empty(Shape{total}, tensors[0].dtype(), tensors[0].device());
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    flat.slice(0, begin, begin + tensor.numel()).view(tensor.shape()).copy_from(tensor);
    begin += tensor.numel();
  }
  return flat;
}

std::vector<Tensor> Utils::unflatten(const Tensor& flat, std::span<const Shape> shapes) const {
  if (!flat) throw InvalidArgument("unflatten: the flat tensor is empty");
  if (flat.ndim() != 1 || !flat.is_contiguous()) {
    throw InvalidArgument("unflatten: the flat tensor must be one-dimensional and contiguous; its shape is " +
                          flat.shape().to_string());
  }
  int64_t total = 0;
  for (const Shape& shape : shapes) total += shape.numel();
  if (total != flat.numel()) {
    throw InvalidArgument("unflatten: the shapes have " + std::to_string(total) +
                          " elements together, the flat tensor " + std::to_string(flat.numel()));
  }
  std::vector<Tensor> views;
  views.reserve(shapes.size());
  int64_t begin = 0;
  for (const Shape& shape : shapes) {
    views.push_back(flat.slice(0, begin, begin + shape.numel()).view(shape));
    begin += shape.numel();
  }
  return views;
}

std::vector<Tensor> Utils::unflatten(const Tensor& flat, std::span<const Tensor> likes) const {
  std::vector<Shape> shapes;
  shapes.reserve(likes.size());
  for (size_t i = 0; i < likes.size(); ++i) {
    if (!likes[i]) throw InvalidArgument("unflatten: tensor " + std::to_string(i) + " is empty");
    if (flat && likes[i].dtype() != flat.dtype()) {
      throw InvalidArgument("unflatten: the flat tensor is " + std::string(dtype_name(flat.dtype())) + ", but " +
                            described(i, likes[i]) + " is not");
    }
    shapes.push_back(likes[i].shape());
  }
  return unflatten(flat, shapes);
}

Tensor Utils::cast_to_byte_tensor(const Tensor& tensor) const {
  if (!tensor) throw InvalidArgument("cast_to_byte_tensor: the tensor is empty");
  if (!tensor.is_contiguous()) {
    throw InvalidArgument("cast_to_byte_tensor: a tensor of shape " + tensor.shape().to_string() +
                          " is not contiguous, so its bytes are not a single range; call contiguous() first");
  }
  const size_t element = dtype_size(tensor.dtype());
  if (element == 1) return tensor;
  const int64_t stride = 1;
  return Tensor(tensor.storage(), DType::U8, Shape{static_cast<int64_t>(tensor.nbytes())}, {&stride, 1},
                tensor.storage_offset() * static_cast<int64_t>(element));
}

std::vector<Tensor> Utils::cast_to_byte_tensor(std::span<const Tensor> tensors) const {
  std::vector<Tensor> bytes;
  bytes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) bytes.push_back(cast_to_byte_tensor(tensor));
  return bytes;
}

std::unique_ptr<OpBuilder> make_utils_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<Utils>>("UtilsBuilder", accelerator);
}

}  // namespace anyaccel::ops
