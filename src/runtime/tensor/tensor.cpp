// Tensor: storage, construction and what describes it. Views are in tensor_views.cpp, copies in tensor_copy.cpp.
#include "anyaccel/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "base/copy_bytes.h"
#include "runtime/tensor/tensor_layout.h"

namespace anyaccel {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// A cache line and the widest vector; large tensors lie in huge pages, which files past the page cache are read into at
// several times the speed.
std::align_val_t host_alignment(size_t bytes) { return std::align_val_t{bytes < kHugePage ? 64 : kHugePage}; }

void* allocate_host(size_t bytes) {
  try {
    void* memory = ::operator new(std::max<size_t>(bytes, 1), host_alignment(bytes));
    if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError("the host is out of memory: " + std::to_string(bytes) +
                           " bytes were asked; try a smaller batch or model, or close other programs");
  }
}

class HostStorage final : public Storage {
 public:
  explicit HostStorage(size_t bytes) : Storage(allocate_host(bytes), bytes, Device{}) {}
  ~HostStorage() override { ::operator delete(data(), host_alignment(bytes())); }
};

// Memory that the tensor does not own.
class BorrowedStorage final : public Storage {
 public:
  BorrowedStorage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
      : Storage(data, bytes, device), owner_(std::move(owner)) {}

 private:
  std::shared_ptr<void> owner_;
};

void check_dtype(DType dtype) {
  if (dtype_size(dtype) == 0) throw InvalidArgument("a tensor needs a dtype; \"none\" was given");
}

Tensor contiguous_on(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape) {
  const auto strides = contiguous_strides(shape);
  return Tensor(std::move(storage), dtype, shape, {strides.data(), static_cast<size_t>(shape.ndim())});
}

}  // namespace

void Storage::record_stream(const Stream&) {}
bool Storage::is_all_of(const Tensor&) const noexcept { return false; }
Tensor Storage::unpacked(bool) const { throw InvalidArgument("the storage is not a packed weight"); }

Tensor Tensor::unpacked(bool keep) const {
  if (!is_packed()) return *this;
  return Tensor(storage_->unpacked(keep).storage(), dtype_, shape_, strides(), offset_);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, std::span<const int64_t> strides,
               int64_t offset)
    : storage_(std::move(storage)), dtype_(dtype), shape_(shape), offset_(offset) {
  check_dtype(dtype);
  if (!storage_) throw InvalidArgument("a tensor of shape " + shape.to_string() + " needs a storage; none was given");
  if (strides.size() != static_cast<size_t>(shape.ndim())) {
    throw InvalidArgument("the shape " + shape.to_string() + " needs " + std::to_string(shape.ndim()) + " strides; " +
                          std::to_string(strides.size()) + " were given");
  }
  std::copy(strides.begin(), strides.end(), strides_.begin());
  const Extent extent = extent_of(shape_, strides_);
  const auto available = static_cast<int64_t>(storage_->bytes() / dtype_size(dtype));
  int64_t end = 0;
  if (!extent.valid || offset < 0 || extent.low < -offset || __builtin_add_overflow(offset, extent.high, &end) ||
      end > available) {
    throw InvalidArgument("a view of shape " + shape.to_string() + " at offset " + std::to_string(offset) +
                          " reaches outside its storage of " + std::to_string(available) + " elements of " +
                          std::string(dtype_name(dtype)));
  }
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check_dtype(dtype);
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  return contiguous_on(
      device.is_host() ? std::make_shared<HostStorage>(bytes) : device.accelerator->allocate(bytes, device.index),
      dtype, shape);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  const size_t bytes = result.nbytes();
  const uint8_t zero = 0;
  if (device.is_host()) {
    std::memset(result.data(), 0, bytes);
  } else if (bytes > 0) {
    device.accelerator->fill(result.data(), &zero, 1, bytes, device.index);
  }
  return result;
}

Tensor Tensor::from_host(const void* data, const Shape& shape, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  const size_t bytes = result.nbytes();
  if (bytes == 0) return result;
  if (!data) throw InvalidArgument("Tensor::from_host: null was given for " + std::to_string(bytes) + " bytes");
  if (device.is_host()) {
    copy_bytes(result.data(), data, bytes);
  } else {
    device.accelerator->copy(result.data(), data, bytes, AA_COPY_HOST_TO_DEVICE, device.index);
    device.accelerator->current_stream(device.index).synchronize();
  }
  return result;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device) {
  check_dtype(dtype);
  const size_t bytes = static_cast<size_t>(shape.numel()) * dtype_size(dtype);
  if (!data && bytes > 0) {
    throw InvalidArgument("Tensor::from_blob: null was given for " + std::to_string(bytes) + " bytes");
  }
  return contiguous_on(std::make_shared<BorrowedStorage>(data, bytes, device, std::move(owner)), dtype, shape);
}

int64_t Tensor::size(int dim) const { return shape_[resolve_dim(dim, ndim())]; }
int64_t Tensor::stride(int dim) const { return strides_[static_cast<size_t>(resolve_dim(dim, ndim()))]; }

bool Tensor::is_contiguous() const noexcept {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (int d = ndim() - 1; d >= 0; --d) {
    if (shape_[d] == 1) continue;
    if (strides_[static_cast<size_t>(d)] != expected) return false;
    expected *= shape_[d];
  }
  return true;
}

void* Tensor::data() const noexcept {
  if (!storage_) return nullptr;
  auto* base = static_cast<char*>(storage_->data());
  return base ? base + offset_ * static_cast<int64_t>(dtype_size(dtype_)) : nullptr;
}

aa_tensor Tensor::view_for_driver() const noexcept {
  aa_tensor view{};
  view.data = data();
  view.dtype = static_cast<int32_t>(dtype_);
  view.ndim = ndim();
  for (int d = 0; d < AA_MAX_DIMS; ++d) {
    view.shape[d] = d < ndim() ? shape_[d] : 1;
    view.strides[d] = d < ndim() ? strides_[static_cast<size_t>(d)] : 0;
  }
  return view;
}

void Tensor::check_element_size(size_t size) const {
  if (!storage_) throw InvalidArgument("the data of an empty tensor was asked for");
  if (size != dtype_size(dtype_)) {
    throw InvalidArgument("the data of a " + std::string(dtype_name(dtype_)) + " tensor was asked for as elements of " +
                          std::to_string(size) + " bytes; they have " + std::to_string(dtype_size(dtype_)));
  }
}

}  // namespace anyaccel
