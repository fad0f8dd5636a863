// Implements anyaccel/ops/gds.h over the handles of AsyncIO.
#include "anyaccel/ops/gds.h"

#include <map>
#include <mutex>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "ops/builders.h"

namespace anyaccel::ops {

struct GdsHandle::Pins {
  Accelerator& accelerator;
  mutable std::mutex mutex;
  std::map<const char*, Tensor> tensors;  // by address; each keeps its memory alive

  // Checks that the tensor is present, contiguous and on the accelerator.
  void check(const char* function, const Tensor& tensor) const {
    const std::string what = std::string(function) + ": the tensor ";
    if (!tensor) throw InvalidArgument(what + "is absent");
    const Device device = tensor.device();
    if (device.accelerator != &accelerator && !(device.is_host() && accelerator.is_host_coherent())) {
      throw InvalidArgument(what + "lies on " + device.name() + "; expected one on accelerator \"" +
                            accelerator.name() + "\"");
    }
    if (!tensor.is_contiguous()) throw InvalidArgument(what + "is not contiguous; pin the tensor that it is a view of");
  }
  auto find(const Tensor& tensor) {
    const auto found = tensors.find(static_cast<const char*>(tensor.data()));
    return found != tensors.end() && found->second.nbytes() == tensor.nbytes() ? found : tensors.end();
  }
};

GdsHandle::GdsHandle(AioHandle handle, Accelerator& accelerator)
    : AioHandle(std::move(handle)), pins_(new Pins{accelerator, {}, {}}) {}
GdsHandle::GdsHandle(GdsHandle&&) noexcept = default;
GdsHandle& GdsHandle::operator=(GdsHandle&&) noexcept = default;
GdsHandle::~GdsHandle() = default;

Tensor GdsHandle::new_pinned_device_tensor(int64_t num_elem, const Tensor& example) {
  const char* function = "new_pinned_device_tensor";
  if (!example) throw InvalidArgument(std::string(function) + ": the example is absent");
  if (num_elem < 0) {
    throw InvalidArgument(std::string(function) + ": num_elem is " + std::to_string(num_elem) + "; expected 0 or more");
  }
  Accelerator& accelerator = pins_->accelerator;
  const Device device = example.device().accelerator == &accelerator ? example.device()
                                                                     : accelerator.device(accelerator.current_device());
  const Tensor made = Tensor::empty({num_elem}, example.dtype(), device);
  if (num_elem > 0) pin_device_tensor(made);
  return made;
}

bool GdsHandle::free_pinned_device_tensor(Tensor& tensor) {
  if (!tensor || tensor.numel() > 0) unpin_device_tensor(tensor);
  tensor = Tensor();
  return true;
}

bool GdsHandle::pin_device_tensor(const Tensor& tensor) {
  const char* function = "pin_device_tensor";
  pins_->check(function, tensor);
  if (tensor.numel() == 0) throw InvalidArgument(std::string(function) + ": the tensor has no elements");
  const std::lock_guard lock(pins_->mutex);
  const auto* const begin = static_cast<const char*>(tensor.data());
  const auto* const end = begin + tensor.nbytes();
  for (const auto& [address, pinned] : pins_->tensors) {
    if (address < end && begin < address + pinned.nbytes()) {
      throw InvalidArgument(std::string(function) + ": memory of the tensor " + tensor.shape().to_string() +
                            " is pinned already; unpin_device_tensor() ends that");
    }
  }
  pins_->tensors.emplace(begin, tensor);
  return true;
}

bool GdsHandle::unpin_device_tensor(const Tensor& tensor) {
  const char* function = "unpin_device_tensor";
  pins_->check(function, tensor);
  const std::lock_guard lock(pins_->mutex);
  const auto found = pins_->find(tensor);
  if (found == pins_->tensors.end()) {
    throw InvalidArgument(std::string(function) + ": the tensor " + tensor.shape().to_string() +
                          " is not pinned by this handle");
  }
  pins_->tensors.erase(found);
  return true;
}

bool GdsHandle::is_pinned_device_tensor(const Tensor& tensor) const {
  if (!tensor) throw InvalidArgument("is_pinned_device_tensor: the tensor is absent");
  const std::lock_guard lock(pins_->mutex);
  const auto* const begin = static_cast<const char*>(tensor.data());
  for (const auto& [address, pinned] : pins_->tensors) {
    if (address <= begin && begin + tensor.nbytes() <= address + pinned.nbytes()) return true;
  }
  return false;
}

GdsHandle GDS::gds_handle(int64_t block_size, int queue_depth, bool single_submit, bool overlap_events,
                          int intra_op_parallelism) const {
  return GdsHandle(
      AsyncIO(accelerator_).aio_handle(block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism),
      accelerator_);
}

std::unique_ptr<OpBuilder> make_gds_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<GDS>>("GDSBuilder", accelerator);
}

}  // namespace anyaccel::ops
