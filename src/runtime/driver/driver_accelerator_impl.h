// The private parts of DriverAccelerator, shared by its source files.
//
// Lifetimes: tensors, streams, events and graphs share ownership of their DeviceContext, and contexts share ownership of
// the instance, so that either may be let go of after the accelerator object is gone; devices close, and the instance shuts
// down, with the last of them. To be used, a tensor needs the accelerator object, which accelerator.cpp keeps.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/caching_allocator.h"
#include "anyaccel/driver_accelerator.h"
#include "runtime/driver/driver_op_builders.h"
#include "runtime/driver/driver_options.h"
#include "runtime/driver/host_services.h"
#include "runtime/driver/stream_gate.h"
#include "runtime/driver/table_members.h"
#include "runtime/portable_ops.h"

namespace anyaccel {

// The vendor's runtime, initialized, and its extension tables, completed.
struct InstanceHolder : ExtensionTables {
  const abi::DriverCalls* driver = nullptr;
  std::string name;
  DriverOptions options;
  aa_instance* instance = nullptr;

  ~InstanceHolder();
  // From now on nothing is asked of the driver: every call is an error.
  void end() noexcept;
};

// One opened device and what the host keeps for it. The sources of the allocator are the context itself.
struct DriverAccelerator::DeviceContext final : aa_host_device,
                                                MemorySource,
                                                FenceSource,
                                                std::enable_shared_from_this<DeviceContext> {
  // An empty `make` makes a CachingAllocator.
  DeviceContext(std::shared_ptr<InstanceHolder> holder, const aa_device_props& device_props, int device_index,
                const MakeAllocator& make);
  ~DeviceContext() override;

  void* allocate(size_t bytes) override;
  void free(void* pointer, size_t bytes) noexcept override;
  void info(int64_t& free_bytes, int64_t& total_bytes) noexcept override;
  std::string name() const override;
  std::string refusal() const override;
  void* record(const void* stream) override;
  bool done(void* fence) override;
  void wait(void* fence) override;
  void destroy(void* fence) noexcept override;

  void acquire_scratch(aa_scratch& scratch) override;
  void release_scratch(aa_scratch& scratch) noexcept override;
  size_t reclaim() override;

  const abi::DriverCalls& driver() const noexcept { return *instance->driver; }
  // Makes a call of the driver's. When it is out of a resource, idle memory is given back and the call is made once more.
  // Throws what the status says; `what` names the function.
  template <class Call>
  void call(const char* what, Call&& function) {
    aa_status* status = function();
    if (status) [[unlikely]]
      status = after_failure(status, [&] { return function(); });
    check(status, what);
  }
  void check(aa_status* status, const char* what) const { anyaccel::check(status, what, instance->name.c_str()); }
  // The driver's event, or a HostEvent where it has none.
  std::shared_ptr<detail::EventState> make_event(bool timing);
  // A stream begins or ends to take part in a capture; between the two record() refuses it.
  void set_capturing(const void* stream, bool captures);

  std::shared_ptr<InstanceHolder> instance;
  aa_device_props props;
  int index;
  aa_device* device = nullptr;
  std::unique_ptr<DeviceAllocator> allocator;
  anyaccel::Stream default_stream;
  std::weak_ptr<StreamImpl> default_stream_state;  // tells how many others hold it
  Generator generator;
  std::mutex named_mutex;
  std::map<int32_t, int64_t> named_bytes;  // named_mutex; of tensors, by the number of their named kind of memory
  std::atomic<bool> lacks_fill{false};     // the driver has said so

  // The status to report: `status`, or what `again` gave after memory was released.
  aa_status* after_failure(aa_status* status, const std::function<aa_status*()>& again);

 private:
  std::mutex capturing_mutex_;
  std::vector<const void*> capturing_;
};

// A stream as the services for drivers see it.
struct DriverAccelerator::HostStream final : aa_host_stream {
  DeviceContext* context = nullptr;
  aa_stream* stream = nullptr;       // null until the driver has made it
  const StreamGate* gate = nullptr;  // of the StreamImpl
};

struct DriverAccelerator::Shared {
  struct AtExit;

  std::mutex mutex;
  std::shared_ptr<InstanceHolder> instance;
  std::atomic<bool> ready{false};  // instance, props and contexts have their final size
  std::vector<aa_device_props> props;
  std::vector<std::atomic<DeviceContext*>> open;  // null until the device is opened
  std::vector<std::shared_ptr<DeviceContext>> contexts;
  std::vector<std::function<void()>> lazy_calls;
  std::atomic<bool> lacks_pinned{false};  // pin_memory has said so
  std::map<void*, int> registered;        // the device that register_host_memory made an address known to
  std::string compile_backend = "graph";
  DriverBuilds builds;           // constant
  MakeAllocator make_allocator;  // mutex

  // The ops that were asked for, by the number that find_op gave: an array, so that calls read it without a lock.
  std::once_flag portable_once;
  std::unique_ptr<PortableOps> portable;  // null: the driver compiles no kernels
  std::mutex routes_mutex;
  std::vector<std::string> route_names;
  std::array<OpHandle, 64> routes;
  std::atomic<size_t> route_count{0};
};

// State of one thread for one accelerator.
struct DriverAccelerator::ThreadState {
  uint64_t accelerator = 0;  // its id; a later one at the same address has another
  int device = 0;
  std::vector<anyaccel::Stream> streams;  // by device; empty: the default stream
  DType amp = DType::None;
  uint64_t pool = 0;  // of the graph being captured; 0 outside
};

// Functions that a driver holds by address.
using HostCalls = std::vector<std::unique_ptr<std::function<void()>>>;

// A capture of a graph that is under way.
struct DriverAccelerator::CaptureScope : CaptureOwner {
  uint64_t pool = 0;                                 // of the graph
  std::vector<std::shared_ptr<StreamImpl>> streams;  // that take part; of the capturing thread

  // The streams are everybody's again; returns the host calls that the graph keeps.
  std::unique_ptr<HostCalls> end();
};

class DriverAccelerator::StreamImpl final : public detail::StreamState,
                                            public std::enable_shared_from_this<StreamImpl> {
 public:
  // `owner` is empty for a device's default stream, which its context owns.
  // Makes the driver's stream.
  StreamImpl(DeviceContext& context, std::shared_ptr<DeviceContext> owner, int32_t priority, uint32_t flags);
  ~StreamImpl() override;

  int device_index() const noexcept override { return context_.index; }
  std::shared_ptr<detail::EventState> make_event() const override;
  bool query() const override;
  void synchronize() const override;
  void wait_event(const detail::EventState& event) override;
  void host_call(std::function<void()> function) override;
  void* native_handle() const override;

  aa_stream* stream() const noexcept { return host_.stream; }
  DeviceContext& context() const noexcept { return context_; }
  StreamGate& gate() const noexcept { return gate_; }
  // Makes the stream part of a capture of the calling thread. InvalidArgument when it takes part in one already. While it
  // does, functions of host_call are kept here, and then by the graph: a replay calls them again.
  void begin_capture(const std::shared_ptr<CaptureScope>& scope);
  // Adds those functions to `calls`.
  void end_capture(HostCalls& calls) noexcept;
  bool capturing() const noexcept { return gate_.closed(); }

 private:
  DeviceContext& context_;
  std::shared_ptr<DeviceContext> owner_;
  HostStream host_;
  mutable StreamGate gate_;
  HostCalls captured_calls_;  // of the capturing thread
};

class DriverAccelerator::EventImpl final : public detail::EventState {
 public:
  EventImpl(std::shared_ptr<DeviceContext> context, aa_event* event) : context_(std::move(context)), event_(event) {}
  ~EventImpl() override;

  void record(const anyaccel::Stream& stream) override;
  bool query() const override;
  void synchronize() const override;
  double elapsed_ms(const detail::EventState& end) const override;

  aa_event* event() const noexcept { return event_; }
  DeviceContext& context() const noexcept { return *context_; }
  // The capture in which it was recorded last, if that is still under way; else null.
  std::shared_ptr<CaptureScope> capture() const;

 private:
  std::shared_ptr<DeviceContext> context_;
  aa_event* event_;
  std::atomic<bool> captured_{false};  // recorded last in a capture
  mutable std::mutex mutex_;
  std::weak_ptr<CaptureScope> capture_;  // mutex_; that capture
};

// An event on a device without events, or without times of them: record() waits until the stream's work is complete and takes
// the host's time, so the event is always complete.
class HostEvent final : public detail::EventState {
 public:
  void record(const anyaccel::Stream& stream) override;
  bool query() const override { return true; }
  void synchronize() const override {}
  double elapsed_ms(const detail::EventState& end) const override;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> time() const;

  mutable std::mutex mutex_;
  std::optional<Clock::time_point> time_;  // mutex_; of the latest record
};

class DriverAccelerator::GraphImpl final : public detail::GraphState {
 public:
  explicit GraphImpl(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {}
  ~GraphImpl() override;

  bool ready() const noexcept override { return graph_ != nullptr; }
  uint64_t pool() const noexcept override { return pool_; }

  // Drops what was captured before.
  void clear();
  // Takes one ownership share of the pool.
  void set(aa_graph* graph, uint64_t pool, std::unique_ptr<HostCalls> calls);

  aa_graph* graph() const noexcept { return graph_; }
  const std::shared_ptr<DeviceContext>& context() const noexcept { return context_; }

 private:
  std::shared_ptr<DeviceContext> context_;
  aa_graph* graph_ = nullptr;
  uint64_t pool_ = 0;
  std::unique_ptr<HostCalls> calls_;
};

}  // namespace anyaccel
