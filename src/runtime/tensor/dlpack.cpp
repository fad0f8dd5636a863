// DLPack in both directions: see anyaccel/dlpack.h.
#include "anyaccel/dlpack.h"

#include <algorithm>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel::dlpack {

namespace {

struct TypeEntry {
  DType dtype;
  uint8_t code;
  uint8_t bits;
};
constexpr TypeEntry kTypes[] = {
    {DType::Bool, kDLBool, 8},
    {DType::U8, kDLUInt, 8},
    {DType::I8, kDLInt, 8},
    {DType::I16, kDLInt, 16},
    {DType::I32, kDLInt, 32},
    {DType::I64, kDLInt, 64},
    {DType::F16, kDLFloat, 16},
    {DType::BF16, kDLBfloat, 16},
    {DType::F32, kDLFloat, 32},
    {DType::F64, kDLFloat, 64},
    {DType::F8E4M3, kDLFloat8_e4m3fn, 8},
    {DType::F8E5M2, kDLFloat8_e5m2, 8},
};

DLDataType type_of(DType dtype) {
  for (const TypeEntry& entry : kTypes) {
    if (entry.dtype == dtype) return {entry.code, entry.bits, 1};
  }
  throw InvalidArgument("DLPack has no type for " + std::string(dtype_name(dtype)));
}

DType dtype_of(DLDataType type) {
  for (const TypeEntry& entry : kTypes) {
    if (entry.code == type.code && entry.bits == type.bits && type.lanes == 1) return entry.dtype;
  }
  throw InvalidArgument("from_dlpack: no dtype fits code " + std::to_string(type.code) + ", " +
                        std::to_string(type.bits) + " bits, " + std::to_string(type.lanes) +
                        " lanes; convert the tensor where it was made");
}

DLDevice device_of(const Tensor& tensor) {
  const Device device = tensor.device();
  if (device.is_host()) return {kDLCPU, 0};
  const int32_t type = device.accelerator->device_properties(device.index).dlpack_device_type;
  if (type == 0) {
    throw InvalidArgument("DLPack has no device type for " + device.name() + "; copy the tensor to the host first");
  }
  return {type, type == kDLCPU ? 0 : device.index};
}

Device device_from(DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost) {
    return {};
  }
  Accelerator* accelerator = get_accelerator();
  if (device.device_id >= 0 && device.device_id < accelerator->device_count() &&
      accelerator->device_properties(device.device_id).dlpack_device_type == device.device_type) {
    return Device{accelerator, device.device_id};
  }
  throw InvalidArgument("from_dlpack: the tensor lies on device " + std::to_string(device.device_id) +
                        " of DLPack type " + std::to_string(device.device_type) + ", which the active accelerator \"" +
                        accelerator->name() + "\" does not have; copy it to the host where it was made");
}

// State that an exported tensor needs until it is deleted.
template <class Managed>
struct Exported {
  explicit Exported(const Tensor& t) : tensor(t) {
    if (!t) throw InvalidArgument("to_dlpack: the tensor is empty");
    if (t.is_packed()) throw InvalidArgument("to_dlpack: the tensor is a packed weight; export Tensor::unpacked()");
    DLTensor& out = managed.dl_tensor;
    out.dtype = type_of(t.dtype());
    out.device = device_of(t);
    out.data = t.data();
    out.ndim = t.ndim();
    std::copy(t.shape().dims().begin(), t.shape().dims().end(), shape.begin());
    std::copy(t.strides().begin(), t.strides().end(), strides.begin());
    out.shape = shape.data();
    out.strides = strides.data();
    out.byte_offset = 0;
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->manager_ctx); };
  }

  Managed managed{};
  Tensor tensor;
  Strides shape{};
  Strides strides{};
};

template <class Managed>
class ImportedStorage final : public Storage {
 public:
  ImportedStorage(void* data, size_t bytes, Device device, bool pinned) noexcept
      : Storage(data, bytes, device), pinned_(pinned) {}
  ~ImportedStorage() override {
    if (managed_ && managed_->deleter) managed_->deleter(managed_);
  }
  bool pinned() const noexcept override { return pinned_; }
  void own(Managed* managed) noexcept { managed_ = managed; }

 private:
  Managed* managed_ = nullptr;
  bool pinned_;
};

template <class Managed>
Tensor import(Managed* managed) {
  const DLTensor& in = managed->dl_tensor;
  const DType dtype = dtype_of(in.dtype);
  const Device device = device_from(in.device);
  if (in.ndim < 0 || in.ndim > AA_MAX_DIMS || (in.ndim > 0 && !in.shape)) {
    throw InvalidArgument("from_dlpack: a tensor of " + std::to_string(in.ndim) + " dimensions was given; at most " +
                          std::to_string(AA_MAX_DIMS) + " are possible");
  }
  const auto ndim = static_cast<size_t>(in.ndim);
  const Shape shape(std::span<const int64_t>(in.shape, ndim));
  Strides strides = contiguous_strides(shape);
  if (in.strides) std::copy(in.strides, in.strides + in.ndim, strides.begin());
  const Extent extent = extent_of(shape, strides);
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  if (!extent.valid || extent.high - extent.low > INT64_MAX / size) {
    throw InvalidArgument("from_dlpack: the strides of a tensor of shape " + shape.to_string() + " overflow");
  }
  if (!in.data && shape.numel() > 0) {
    throw InvalidArgument("from_dlpack: the data of a tensor of shape " + shape.to_string() + " is null");
  }
  // The storage begins at the lowest element that the view reaches.
  char* first = in.data ? static_cast<char*>(in.data) + in.byte_offset : nullptr;
  if (reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(size) != 0) {
    throw InvalidArgument("from_dlpack: the data is not aligned to its elements of " + std::to_string(size) + " bytes");
  }
  char* low = first ? first + extent.low * size : nullptr;
  const bool pinned = in.device.device_type == kDLCUDAHost || in.device.device_type == kDLROCMHost;
  auto storage = std::make_shared<ImportedStorage<Managed>>(low, static_cast<size_t>((extent.high - extent.low) * size),
                                                            device, pinned);
  Tensor result(storage, dtype, shape, {strides.data(), ndim}, -extent.low);
  storage->own(managed);  // from here on nothing throws
  return result;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  auto* exported = new Exported<DLManagedTensorVersioned>(tensor);
  exported->managed.version = {1, 0};
  return &exported->managed;
}

DLManagedTensor* to_dlpack_legacy(const Tensor& tensor) { return &(new Exported<DLManagedTensor>(tensor))->managed; }

Tensor from_dlpack(DLManagedTensorVersioned* managed, ImportOptions options) {
  if (!managed) throw InvalidArgument("from_dlpack: null was given");
  if (managed->version.major != 1) {
    throw InvalidArgument("from_dlpack: the tensor is of DLPack " + std::to_string(managed->version.major) + "." +
                              std::to_string(managed->version.minor) + "; version 1 is understood",
                          AA_INCOMPATIBLE);
  }
  if ((managed->flags & kFlagReadOnly) && !options.allow_read_only) {
    throw InvalidArgument(
        "from_dlpack: the tensor is read-only; copy it where it was made, or set "
        "ImportOptions::allow_read_only and do not write to it");
  }
  return import(managed);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw InvalidArgument("from_dlpack: null was given");
  return import(managed);
}

}  // namespace anyaccel::dlpack
