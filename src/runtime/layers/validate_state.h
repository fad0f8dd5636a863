// State of the validate layer for one driver: the living objects and allocations.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "anyaccel/abi/collectives.h"
#include "anyaccel/abi/driver.h"
#include "anyaccel/abi/files.h"
#include "anyaccel/abi/graph.h"
#include "anyaccel/abi/memory_kinds.h"
#include "anyaccel/abi/ops.h"

namespace anyaccel::layers {

enum class ObjectKind { instance, device, stream, event, module, kernel, graph, comm, packed, file };
inline constexpr int object_kinds = 10;
const char* kind_name(ObjectKind kind) noexcept;

inline ObjectKind kind_of(const aa_instance*) { return ObjectKind::instance; }
inline ObjectKind kind_of(const aa_device*) { return ObjectKind::device; }
inline ObjectKind kind_of(const aa_stream*) { return ObjectKind::stream; }
inline ObjectKind kind_of(const aa_event*) { return ObjectKind::event; }
inline ObjectKind kind_of(const aa_module*) { return ObjectKind::module; }
inline ObjectKind kind_of(const aa_kernel*) { return ObjectKind::kernel; }
inline ObjectKind kind_of(const aa_graph*) { return ObjectKind::graph; }
inline ObjectKind kind_of(const aa_comm*) { return ObjectKind::comm; }
inline ObjectKind kind_of(const aa_packed*) { return ObjectKind::packed; }
inline ObjectKind kind_of(const aa_file*) { return ObjectKind::file; }

struct TrackedObject {
  const void* parent = nullptr;  // a device's instance, a kernel's module, else the device
  const void* device = nullptr;  // null for an instance
  // device: the driver lets the host read its memory.
  bool host_coherent = false;
  // device: kernels have no threads below a block.
  bool grid_only = false;
  // The number of calls in progress that use it, and how many of them need exclusive use.
  int inside = 0;
  int alone = 0;
  // stream
  bool capturing = false;
  bool in_step = false;
  std::thread::id only_thread;  // the thread that may enqueue while the stream captures or is inside a step; else empty
  // event
  bool timing = false;
  bool recorded = false;
  bool in_capture = false;
  // comm
  int32_t rank = 0;
  int32_t size = 0;
  bool aborted = false;
};

struct Allocation {
  uintptr_t base = 0;
  size_t size = 0;
  int32_t kind = AA_MEMORY_DEVICE;
  const void* device = nullptr;
};

struct HostCall {
  void (*function)(void* user);
  void* user;
  bool keep;  // recorded in a graph, so it may run again
};

// All members but the mutex are guarded by it. No driver function is called under it.
class ValidateState {
 public:
  std::mutex mutex;

  // The living object, or null.
  TrackedObject* find(ObjectKind kind, const void* handle);
  bool was_destroyed(ObjectKind kind, const void* handle) const;
  TrackedObject& add(ObjectKind kind, const void* handle, const void* parent, const void* device);
  void remove(ObjectKind kind, const void* handle);
  // The number of calls in progress that use objects of a kind that belong to the parent.
  int calls_inside_children(ObjectKind kind, const void* parent) const;
  // Removes the kernels of a module.
  void remove_children(ObjectKind kind, const void* parent);
  // "2 streams, 1 event, 3 allocations (4096 bytes)"; "" when nothing is left. For an instance: its devices.
  std::string living_children(ObjectKind kind, const void* parent) const;

  void add_allocation(const Allocation& allocation);
  // The allocation that begins at the pointer, or null.
  const Allocation* allocation_at(const void* pointer) const;
  void remove_allocation(const void* pointer);
  // Ranges of register_range.
  void add_registered(const Allocation& range);
  bool remove_registered(const void* device, const void* pointer);

  // Returns why a range may not be used as memory of the device, or "" if it may.
  std::string device_range_error(const void* device, const void* pointer, size_t size);
  // Returns why a range may not be the host's side of a copy on the device, or "" if it may.
  std::string host_range_error(const void* device, const void* pointer, size_t size);

  std::unordered_map<int32_t, std::string> op_names;
  // Kept until the process ends: a graph may run its calls any number of times. A few bytes each.
  std::vector<std::unique_ptr<HostCall>> recorded_calls;

 private:
  std::unordered_map<const void*, TrackedObject> living_[object_kinds];
  std::unordered_set<const void*> destroyed_[object_kinds];
  std::map<uintptr_t, Allocation> allocations_;  // by base; ranges do not overlap
  std::map<uintptr_t, Allocation> registered_;   // by base
};

// The bytes that a strided tensor spans: from `first` to `end` (one past the last byte), both relative to data. Zero
// elements span nothing. False when the numbers overflow.
bool tensor_span(const aa_tensor& tensor, int64_t& first, int64_t& end) noexcept;

}  // namespace anyaccel::layers
