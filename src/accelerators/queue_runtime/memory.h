// The registry of a driver's allocations, for queries about an address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

namespace anyaccel::queue_runtime {

struct Allocation {
  void* base = nullptr;
  size_t size = 0;     // bytes
  int32_t kind = 0;    // aa_memory_kind
  int32_t device = 0;  // index
};

// Thread-safe. Only raw allocations come here, a few for each segment of the host's caching allocator.
class Allocations {
 public:
  void add(const Allocation& allocation);
  // Returns false if no allocation of this kind begins there.
  bool remove(const void* base, int32_t kind);
  // Returns false if no allocation contains this byte.
  bool find(const void* pointer, Allocation& found) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Allocation> all_;  // by base
};

}  // namespace anyaccel::queue_runtime
