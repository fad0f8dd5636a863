// Implements anyaccel/ops/gds.h over the handles of AsyncIO.
#include "anyaccel/ops/gds.h"

#include <map>
#include <mutex>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "ops/aio/device_files.h"
#include "ops/builders.h"

namespace anyaccel::ops {

struct GdsHandle::Pins {
  Accelerator& accelerator;
  std::shared_ptr<aio::DeviceFiles> files;  // null: transfers go through the host
  mutable std::mutex mutex;
  std::map<const char*, Tensor> tensors;  // by address; each keeps its memory alive

  Pins(Accelerator& active, std::shared_ptr<aio::DeviceFiles> direct) : accelerator(active), files(std::move(direct)) {}
  ~Pins() {
    for (const auto& [address, tensor] : tensors) {
      try {
        unregister(tensor);
      } catch (const std::exception& error) {
        log_warning(std::string("GDS: ") + error.what());
      }
    }
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  // Tensors of a host-coherent accelerator may lie in ordinary memory of the host, which no driver registers.
  bool registers(const Tensor& tensor) const { return files && tensor.device().accelerator == &accelerator; }
  void unregister(const Tensor& tensor) const {
    if (registers(tensor)) files->unregister_memory(tensor);
  }

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

GdsHandle::GdsHandle(AioHandle handle, Accelerator& accelerator, std::shared_ptr<aio::DeviceFiles> files)
    : AioHandle(std::move(handle)), pins_(std::make_unique<Pins>(accelerator, std::move(files))) {}
GdsHandle::GdsHandle(GdsHandle&&) noexcept = default;

GdsHandle& GdsHandle::operator=(GdsHandle&& other) noexcept {
  std::swap(pins_, other.pins_);
  AioHandle::operator=(std::move(other));  // swaps too
  return *this;
}

GdsHandle::~GdsHandle() {
  // Ends the transfers before their memory is unpinned.
  const AioHandle ended(std::move(static_cast<AioHandle&>(*this)));
}

bool GdsHandle::is_direct() const noexcept { return pins_->files != nullptr; }

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
  if (pins_->registers(tensor)) pins_->files->register_memory(tensor);
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
  finish_transfers();
  const Tensor pinned = std::move(found->second);  // keeps the memory alive
  pins_->tensors.erase(found);
  pins_->unregister(pinned);
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
  auto files = aio::DeviceFiles::of(accelerator_);
  return GdsHandle(
      AsyncIO(accelerator_)
          .make_handle(block_size, queue_depth, single_submit, overlap_events, intra_op_parallelism, files),
      accelerator_, files);
}

std::unique_ptr<OpBuilder> make_gds_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<GDS>>("GDSBuilder", accelerator);
}

}  // namespace anyaccel::ops
