// An opened device: the driver's handle, the allocator, the default stream, and the services that the driver may ask for.
//
// Lifetimes: tensors, streams, events and graphs share ownership of their DeviceContext, and contexts share ownership
// of the instance, so that they may outlive the accelerator object; a device closes, and the instance shuts down, when
// the last owner is destroyed. A tensor needs the accelerator object to be used, and accelerator.cpp keeps that object
// alive.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/caching_allocator.h"
#include "anyaccel/generator.h"
#include "anyaccel/stream.h"
#include "runtime/core/instance.h"

namespace anyaccel {

class DriverStream;
class StreamGate;

// One opened device and what the host keeps for it. The sources of the allocator are the context itself.
struct DeviceContext final : aa_host_device, MemorySource, FenceSource, std::enable_shared_from_this<DeviceContext> {
  // If `make` is empty, the allocator is a CachingAllocator.
  DeviceContext(std::shared_ptr<DriverInstance> holder, const aa_device_props& device_props, int device_index,
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
  // Calls a function of the driver. If the function runs out of a resource, idle memory is released and the call is
  // repeated once. Throws the exception that belongs to the status; `what` names the function.
  template <class Call>
  void call(const char* what, Call&& function) {
    aa_status* status = function();
    if (status) [[unlikely]]
      status = after_failure(status, [&] { return function(); });
    check(status, what);
  }
  void check(aa_status* status, const char* what) const { anyaccel::check(status, what, instance->name.c_str()); }
  void check_made(const void* object, const char* what) const {
    anyaccel::check_made(object, what, instance->name.c_str());
  }
  // The driver's event, or a HostEvent where it has none.
  std::shared_ptr<detail::EventState> make_event(bool timing);
  // The stream joins or leaves a capture; in between, record() rejects it.
  void set_capturing(const void* stream, bool captures);

  std::shared_ptr<DriverInstance> instance;
  aa_device_props props;
  int index;
  aa_device* device = nullptr;
  std::unique_ptr<DeviceAllocator> allocator;
  anyaccel::Stream default_stream;
  std::weak_ptr<DriverStream> default_stream_state;  // its use count says how many others hold it
  Generator generator;
  std::mutex named_mutex;
  std::map<int32_t, int64_t> named_bytes;  // named_mutex; of tensors, by the number of their named kind of memory
  std::atomic<bool> lacks_fill{false};     // the driver has reported that it has none

  // The status to report: `status`, or what `again` gave after memory was released.
  aa_status* after_failure(aa_status* status, const std::function<aa_status*()>& again);

 private:
  std::mutex capturing_mutex_;
  std::vector<const void*> capturing_;
};

// A stream as seen by the services for drivers.
struct HostStream final : aa_host_stream {
  DeviceContext* context = nullptr;
  aa_stream* stream = nullptr;       // null until the driver has created it
  const StreamGate* gate = nullptr;  // of the DriverStream
};

}  // namespace anyaccel
