// Tensor: copies, conversions and fills, on the device if it supports them, else through the host.
#include <algorithm>
#include <array>
#include <type_traits>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "runtime/tensor/common_bytes.h"
#include "runtime/tensor/host_copy.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel {

namespace {

void require(const Tensor& t, const char* what) {
  if (!t) throw InvalidArgument(std::string(what) + ": the tensor is empty");
}

bool same_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.is_contiguous() && b.is_contiguous();
}

void synchronize(Device device) { device.accelerator->current_stream(device.index).synchronize(); }

void raw_copy(Device device, void* destination, const void* source, size_t bytes, aa_copy_direction direction) {
  if (bytes > 0) device.accelerator->copy(destination, source, bytes, direction, device.index);
}

// Synchronizes while an exception propagates; a second error is ignored, since the first one is being reported.
void wait_quietly(const Device& device) noexcept {
  try {
    device.accelerator->synchronize(device.index);
  } catch (...) {
    return;
  }
}

// Runs the op "copy" on the tensors' device; false if the device cannot.
bool copy_by_op(const Tensor& out, const Tensor& in) {
  const Device device = out.device();
  const int32_t op = device.accelerator->find_op("copy");
  if (op < 0) return false;
  const aa_tensor tensors[] = {out.view_for_driver(), in.view_for_driver()};
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = op;
  call.tensors = tensors;
  call.tensor_count = 2;
  const OpHandle handle = device.accelerator->resolve_op(call, device.index);
  if (!handle) return false;
  device.accelerator->enqueue_op(handle, call, device.index);
  return true;
}

// Returns a host tensor of the same shape and strides, for the part of the storage that the view of a device tensor
// touches.
struct HostImage {
  explicit HostImage(const Tensor& device_tensor) : tensor(device_tensor) {
    Strides strides{};
    for (int d = 0; d < tensor.ndim(); ++d) strides[static_cast<size_t>(d)] = tensor.stride(d);
    extent = extent_of(tensor.shape(), strides);
    const Tensor bytes = Tensor::empty(Shape{extent.high - extent.low}, tensor.dtype());
    image = Tensor(bytes.storage(), tensor.dtype(), tensor.shape(), tensor.strides(), -extent.low);
  }
  void* device_begin() const {
    return static_cast<char*>(tensor.data()) + extent.low * static_cast<int64_t>(dtype_size(tensor.dtype()));
  }
  // Both block.
  void download() const {
    raw_copy(tensor.device(), image.storage()->data(), device_begin(), image.storage()->bytes(),
             AA_COPY_DEVICE_TO_HOST);
    synchronize(tensor.device());
  }
  void upload() const {
    raw_copy(tensor.device(), device_begin(), image.storage()->data(), image.storage()->bytes(),
             AA_COPY_HOST_TO_DEVICE);
    synchronize(tensor.device());
  }

  const Tensor& tensor;
  Extent extent;
  Tensor image;
};

// Host to host.
void copy_on_host(const Tensor& out, const Tensor& in) { host_copy(out.view_for_driver(), in.view_for_driver()); }

void upload(const Tensor& out, const Tensor& in) {
  const Device device = out.device();
  if (same_layout(out, in)) {
    raw_copy(device, out.data(), in.data(), out.nbytes(), AA_COPY_HOST_TO_DEVICE);
    if (!in.storage()->pinned()) synchronize(device);
    return;
  }
  const Tensor packed = in.contiguous();
  if (device.accelerator->find_op("copy") >= 0) {
    const Tensor staged = Tensor::empty(in.shape(), in.dtype(), device);
    raw_copy(device, staged.data(), packed.data(), packed.nbytes(), AA_COPY_HOST_TO_DEVICE);
    bool done = false;
    try {
      done = copy_by_op(out, staged);
    } catch (...) {
      wait_quietly(device);  // the source, which may be destroyed now, is still being read
      throw;
    }
    if (!in.storage()->pinned() || packed.storage() != in.storage()) synchronize(device);
    if (done) return;
  }
  if (out.is_contiguous()) {
    const Tensor converted = packed.to(out.dtype());
    raw_copy(device, out.data(), converted.data(), converted.nbytes(), AA_COPY_HOST_TO_DEVICE);
    synchronize(device);
    return;
  }
  // Data between the elements is downloaded too and written back unchanged.
  const HostImage image(out);
  image.download();
  copy_on_host(image.image, packed);
  image.upload();
}

void download(const Tensor& out, const Tensor& in) {
  const Device device = in.device();
  if (same_layout(out, in)) {
    raw_copy(device, out.data(), in.data(), out.nbytes(), AA_COPY_DEVICE_TO_HOST);
    if (!out.storage()->pinned()) synchronize(device);
    return;
  }
  if (!in.is_contiguous() || in.dtype() != out.dtype()) {
    if (device.accelerator->find_op("copy") >= 0) {
      const Tensor packed = Tensor::empty(in.shape(), out.dtype(), device);
      if (copy_by_op(packed, in)) {
        download(out, packed);
        return;
      }
    }
  }
  const HostImage image(in);
  image.download();
  copy_on_host(out, image.image);
}

void copy_on_device(const Tensor& out, const Tensor& in) {
  if (same_layout(out, in)) {
    raw_copy(out.device(), out.data(), in.data(), out.nbytes(), AA_COPY_DEVICE_TO_DEVICE);
  } else if (!copy_by_op(out, in)) {
    upload(out, in.to(Device{}));
  }
}

// Copies between two devices of one accelerator. Returns false and does nothing if they have no direct copies.
bool copy_between(const Tensor& out, const Tensor& in) {
  const Device to = out.device();
  const Device from = in.device();
  Accelerator& accelerator = *to.accelerator;
  if (from.accelerator != to.accelerator) return false;
  if (!accelerator.copy_between(nullptr, to.index, nullptr, from.index, 0)) return false;
  Tensor packed = in;
  if (!in.is_contiguous() || in.dtype() != out.dtype()) {
    packed = Tensor::empty(in.shape(), out.dtype(), from);
    packed.copy_from(in);
  }
  const Tensor target = out.is_contiguous() ? out : Tensor::empty(out.shape(), out.dtype(), to);
  accelerator.copy_between(target.data(), to.index, packed.data(), from.index, packed.nbytes());
  // The copy is part of the work of the current stream there.
  packed.storage()->record_stream(accelerator.current_stream(from.index));
  if (!out.is_contiguous()) out.copy_from(target);
  return true;
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::F32;
  if constexpr (std::is_same_v<T, double>) return DType::F64;
  if constexpr (std::is_same_v<T, int8_t>) return DType::I8;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::U8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::I16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::I32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::I64;
  return DType::None;
}

}  // namespace

void Tensor::copy_from(const Tensor& source) const {
  require(*this, "copy_from");
  require(source, "copy_from");
  if (shape_ != source.shape_) {
    throw InvalidArgument("copy_from: the shapes differ: " + shape_.to_string() + " from " + source.shape_.to_string());
  }
  if (numel() == 0) return;
  if (is_packed()) throw InvalidArgument("copy_from: the destination is a packed weight, which cannot be written");
  for (int d = 0; d < ndim(); ++d) {
    if (shape_[d] > 1 && strides_[static_cast<size_t>(d)] == 0) {
      throw InvalidArgument("copy_from: dimension " + std::to_string(d) + " of the destination " + shape_.to_string() +
                            " repeats one element (stride 0, as expand() makes it), so that it cannot hold " +
                            "different ones; copy to a tensor with memory for each");
    }
  }
  if (source.is_packed()) return copy_from(source.unpacked());
  const Device to = device();
  const Device from = source.device();
  if (to == from) {
    const aa_tensor out = view_for_driver(), in = source.view_for_driver();
    if (are_same_elements(out, in)) return;
    if (have_common_bytes(out, in)) {
      throw InvalidArgument("copy_from: the destination " + shape_.to_string() +
                            " shares memory with the source, so that "
                            "elements could be overwritten before they are read; copy from source.clone()");
    }
  }
  if (to.is_host() && from.is_host()) {
    copy_on_host(*this, source);
  } else if (to == from) {
    copy_on_device(*this, source);
  } else if (from.is_host()) {
    upload(*this, source);
  } else if (to.is_host()) {
    download(*this, source);
  } else if (!copy_between(*this, source)) {
    upload(*this, source.to(Device{}));
  }
}

Tensor Tensor::clone() const {
  require(*this, "clone");
  Tensor result = empty(shape_, dtype_, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::to(DType dtype) const {
  require(*this, "to");
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(Device device) const {
  require(*this, "to");
  if (device == this->device()) return *this;
  Tensor result = empty(shape_, dtype_, device);
  result.copy_from(*this);
  return result;
}

void Tensor::fill(double value) const {
  require(*this, "fill");
  if (numel() == 0) return;
  if (is_packed()) throw InvalidArgument("fill: the tensor is a packed weight, which cannot be written");
  alignas(8) unsigned char pattern[8] = {};
  const size_t size = dtype_size(dtype_);
  host_store(pattern, static_cast<int32_t>(dtype_), value);
  const Device place = device();
  if (!place.is_host() && is_contiguous()) {
    place.accelerator->fill(data(), pattern, size, nbytes(), place.index);
    return;
  }
  // A scalar, repeated by strides of 0.
  Tensor scalar = empty(Shape{}, dtype_, place);
  if (place.is_host()) {
    std::copy(pattern, pattern + size, static_cast<unsigned char*>(scalar.data()));
  } else {
    place.accelerator->fill(scalar.data(), pattern, size, size, place.index);
  }
  copy_from(scalar.expand(shape_));
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  require(*this, "to_vector");
  DType dtype = dtype_of<T>();
  if constexpr (std::is_same_v<T, uint16_t>) {
    dtype = dtype_;
    if (dtype != DType::F16 && dtype != DType::BF16) {
      throw InvalidArgument("to_vector<uint16_t> gives the bits of float16 and bfloat16 tensors; this one is " +
                            std::string(dtype_name(dtype_)));
    }
  }
  std::vector<T> result(static_cast<size_t>(numel()));
  if (!result.empty()) from_blob(result.data(), shape_, dtype, nullptr).copy_from(*this);
  return result;
}

template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int8_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<int16_t> Tensor::to_vector() const;
template std::vector<uint16_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;

void Tensor::check_single_element() const {
  require(*this, "item");
  if (numel() != 1) {
    throw InvalidArgument("item() needs exactly one element; the shape is " + shape_.to_string());
  }
}

}  // namespace anyaccel
