// Implements memory.h: the registry of a driver's allocations.
#include "accelerators/queue_runtime/memory.h"

#include <mutex>

namespace anyaccel::queue_runtime {

void Allocations::add(const Allocation& allocation) {
  const std::unique_lock lock(mutex_);
  all_[reinterpret_cast<uintptr_t>(allocation.base)] = allocation;
}

bool Allocations::remove(const void* base, int32_t kind) {
  const std::unique_lock lock(mutex_);
  const auto found = all_.find(reinterpret_cast<uintptr_t>(base));
  if (found == all_.end() || found->second.kind != kind) return false;
  all_.erase(found);
  return true;
}

bool Allocations::find(const void* pointer, Allocation& found) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::shared_lock lock(mutex_);
  auto next = all_.upper_bound(address);
  if (next == all_.begin()) return false;
  --next;
  if (address - next->first >= next->second.size) return false;
  found = next->second;
  return true;
}

}  // namespace anyaccel::queue_runtime
