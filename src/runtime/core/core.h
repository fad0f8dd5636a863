// The core of an accelerator object: what it does with its driver's devices, memory, streams and work.
// DriverAccelerator gives it the names of the Accelerator interface, which documents each function; the comments here
// cover only the differences.
//
// Functions that take `index` take current_device_index for the calling thread's current device. They open the device,
// and the vendor's runtime, when they are the first to need it. Thread-safe, apart from the state that belongs to the
// calling thread.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/device_allocator.h"
#include "runtime/core/device_context.h"
#include "runtime/core/streams.h"
#include "runtime/ops/portable_ops.h"

namespace anyaccel {

// The state of one thread for one accelerator.
struct ThreadState {
  uint64_t accelerator = 0;  // its id; a later accelerator at the same address has a different one
  int device = 0;
  std::vector<Stream> streams;  // by device; empty: the default stream
  DType amp = DType::None;
  uint64_t pool = 0;  // of the graph being captured; 0 outside
};

class DriverCore {
 public:
  static constexpr int current_device_index = Accelerator::current_device_index;

  // `accelerator` is the object that tensors report as their accelerator; it owns the core. `driver` is a completed
  // table.
  DriverCore(DriverAccelerator& accelerator, const abi::DriverCalls* driver, std::string origin);
  ~DriverCore();
  // Unloads the portable ops' modules. Unloading uses the accelerator, which therefore calls this before any of its
  // members is destroyed.
  void unload_portable_ops();
  DriverCore(const DriverCore&) = delete;
  DriverCore& operator=(const DriverCore&) = delete;

  // -- the driver --
  const abi::DriverCalls& driver() const noexcept { return *driver_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& origin() const noexcept { return origin_; }
  // Opens the runtime on first use. Throws UnavailableError.
  DriverInstance& instance() {
    if (ready_.load(std::memory_order_acquire)) [[likely]]
      return *instance_;
    return open();
  }
  // Null until the runtime is opened.
  const DriverInstance* opened() const noexcept {
    return ready_.load(std::memory_order_acquire) ? instance_.get() : nullptr;
  }

  // -- devices --
  int device_count() {
    instance();
    return static_cast<int>(props_.size());
  }
  // InvalidArgument (AA_OUT_OF_RANGE) for an index out of range.
  int resolve(int index);
  const aa_device_props& props(int index) { return props_[static_cast<size_t>(resolve(index))]; }
  DeviceContext& context(int index);
  // Calls the function now if a device is open, else right after one is opened.
  void when_open(std::function<void()> callback);
  ThreadState& thread() const;

  // -- memory --
  std::shared_ptr<Storage> allocate(size_t bytes, int index);
  std::vector<MemoryKind> memory_kinds(int index);
  // Returns null if there is no kind of that name.
  std::shared_ptr<Storage> allocate_kind(std::string_view kind, size_t bytes, int index);
  // Page-locked host memory of the current device. With `required` false, and where the driver has none, null after a warning.
  std::shared_ptr<Storage> allocate_pinned(size_t bytes, bool required);
  bool is_pinned(const void* pointer);
  bool register_host_memory(void* address, size_t bytes);
  void unregister_host_memory(void* address);
  int64_t available_memory(int index);
  void set_allocator(MakeAllocator make);
  void release_cached_memory() noexcept;
  int64_t living_objects() const;

  // -- streams --
  Stream make_stream(int priority);
  const Stream& current_stream(int index);
  // Until the guard is destroyed, the stream and its device are current on this thread.
  ScopeGuard use_stream(const Stream& stream);
  Event make_event(bool timing);
  bool capturing(int index);
  void flush(int index);
  ScopeGuard step(uint64_t key);

  // -- work, on the calling thread's current stream of the device --
  void copy(void* destination, const void* source, size_t bytes, aa_copy_direction direction, int index);
  bool copy_between(void* destination, int to, const void* source, int from, size_t bytes);
  void fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, int index);
  int32_t find_op(const char* op_name);
  OpHandle resolve_op(const aa_op_call& call, int index);
  void enqueue_op(OpHandle op, const aa_op_call& call, int index);
  Tensor pack_weight(const aa_op_call& example, uint32_t tensor, const Tensor& weight);
  CollectivesAccess collectives(int index);
  Graph create_graph();
  ScopeGuard capture(Graph& graph, std::optional<uint64_t> pool, const Stream& stream);
  void replay(const Graph& graph);

 private:
  struct AtExit;

  DriverInstance& open();
  // Shares ownership of a context of this accelerator.
  const std::shared_ptr<DeviceContext>& shared(const DeviceContext& context) const noexcept {
    return contexts_[static_cast<size_t>(context.index)];
  }
  // Throws InvalidArgument when `context` is not this accelerator's.
  void check_own(const DeviceContext& context, const char* what);
  // Everything that may run the op whose number find_op() returned.
  OpHandle route(const aa_op_call& call) const;
  const Stream& current_stream(const DeviceContext& context) const;
  DriverStream& current(const DeviceContext& context) const {
    return static_cast<DriverStream&>(*current_stream(context).state());  // use_stream() takes no other kind
  }
  void fill_by_copies(DeviceContext& context, void* destination, const void* pattern, size_t pattern_size,
                      size_t bytes);

  DriverAccelerator& accelerator_;
  const abi::DriverCalls* driver_;  // once the process is exiting, a table that rejects every call
  const std::string name_;
  const std::string origin_;
  const uint64_t id_;  // distinguishes accelerators in per-thread state

  mutable std::mutex mutex_;
  std::atomic<bool> ready_{false};  // instance_, props_, open_ and contexts_ have their final size
  std::shared_ptr<DriverInstance> instance_;
  std::vector<aa_device_props> props_;
  std::vector<std::atomic<DeviceContext*>> open_;         // null until the device has been opened
  std::vector<std::shared_ptr<DeviceContext>> contexts_;  // mutex_ for those that open_ does not show
  std::vector<std::function<void()>> when_open_;          // mutex_
  MakeAllocator make_allocator_;                          // mutex_
  std::map<void*, int> registered_;        // mutex_; the device on which register_host_memory registered each address
  std::atomic<bool> lacks_pinned_{false};  // allocate_pinned has already warned

  // The ops that were looked up, by the number that find_op returned: an array, so that calls read it without a lock.
  std::once_flag portable_once_;
  std::unique_ptr<PortableOps> portable_;  // null: the driver compiles no kernels
  std::mutex routes_mutex_;
  std::vector<std::string> route_names_;
  std::array<OpHandle, 64> routes_;
  std::atomic<size_t> route_count_{0};
};

}  // namespace anyaccel
