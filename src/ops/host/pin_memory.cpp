// Implements page-locked tensors and finds the regions in which they lie, see anyaccel/ops/pin_memory.h.
#include "anyaccel/ops/pin_memory.h"

#include <map>
#include <mutex>
#include <string>

#include "anyaccel/error.h"
#include "ops/builders.h"

namespace anyaccel::ops {
namespace {

// The regions that new_cpu_locked_tensor() handed out, by address. A region whose storage has been destroyed is
// forgotten by a later call; its address may be reused by then.
class Regions {
 public:
  void add(const std::shared_ptr<Storage>& storage) {
    std::lock_guard lock(mutex_);
    std::erase_if(regions_, [](const auto& region) { return region.second.expired(); });
    regions_[address_of(storage->data())] = storage;
  }

  bool remove(const void* address) {
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(address_of(address));
    if (found == regions_.end()) return false;
    const bool alive = !found->second.expired();
    regions_.erase(found);
    return alive;
  }

  bool covers(const void* first, size_t bytes) {
    std::shared_ptr<Storage> storage;  // if this is the last reference, its destructor must run without the lock
    std::lock_guard lock(mutex_);
    auto after = regions_.upper_bound(address_of(first));
    if (after == regions_.begin()) return false;
    storage = std::prev(after)->second.lock();
    if (!storage || !storage->pinned()) return false;  // not pinned() any more: unpin_memory() has moved it
    const size_t begin = address_of(first) - address_of(storage->data());
    return begin <= storage->bytes() && bytes <= storage->bytes() - begin;
  }

 private:
  static uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::mutex mutex_;
  std::map<uintptr_t, std::weak_ptr<Storage>> regions_;
};

Regions& regions() {
  static auto* all = new Regions();  // never destroyed: tensors may outlive static objects
  return *all;
}

}  // namespace

Tensor PinMemory::new_cpu_locked_tensor(int64_t num_elem, DType dtype) {
  if (num_elem < 0) {
    throw InvalidArgument("new_cpu_locked_tensor: the number of elements is " + std::to_string(num_elem) +
                          "; it must not be negative");
  }
  const Tensor tensor = accelerator_.pin_empty(Shape{num_elem}, dtype);
  regions().add(tensor.storage());
  return tensor;
}

Tensor PinMemory::new_cpu_locked_tensor(int64_t num_elem, const Tensor& example) {
  if (!example) throw InvalidArgument("new_cpu_locked_tensor: the example tensor is empty");
  return new_cpu_locked_tensor(num_elem, example.dtype());
}

bool PinMemory::free_cpu_locked_tensor(Tensor& tensor) {
  if (!tensor || !regions().remove(tensor.data())) return false;
  tensor = Tensor();
  return true;
}

bool PinMemory::free_cpu_locked_tensor_by_ptr(const void* address) { return regions().remove(address); }

bool PinMemory::is_managed(const Tensor& tensor) const {
  if (!tensor || !tensor.device().is_host()) return false;
  const auto element = static_cast<int64_t>(dtype_size(tensor.dtype()));
  if (tensor.numel() == 0) return regions().covers(tensor.data(), 0);
  int64_t low = 0;  // the lowest and the highest element in memory, relative to data()
  int64_t high = 0;
  for (int d = 0; d < tensor.ndim(); ++d) {
    const int64_t reach = (tensor.size(d) - 1) * tensor.stride(d);
    (reach < 0 ? low : high) += reach;
  }
  return regions().covers(static_cast<const char*>(tensor.data()) + low * element,
                          static_cast<size_t>((high - low + 1) * element));
}

bool PinMemory::is_pinned(const Tensor& tensor) const {
  return is_managed(tensor) || (tensor && accelerator_.is_pinned(tensor));
}

std::unique_ptr<OpBuilder> make_pin_memory_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<PinMemory>>("PinMemoryBuilder", accelerator);
}

}  // namespace anyaccel::ops
