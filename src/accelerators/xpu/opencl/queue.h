// A command queue with its sticky error, the thread that runs its host calls, and its markers. Shared by a stream and
// the events recorded on it, which may outlive the stream.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "accelerators/streams/host_calls.h"
#include "accelerators/xpu/opencl/objects.h"

namespace anyaccel::xpu::opencl {

class Queue {
 public:
  Queue(const Api& api, cl_context context, cl_device_id device);

  const Api& api() const noexcept { return api_; }
  cl_context context() const noexcept { return context_; }
  cl_command_queue get() const noexcept { return queue_.get(); }

  // Throws the sticky error, if there is one.
  void raise();
  // Checks the result of a clEnqueue* call: throws on an error, which is sticky if it says that the device is lost.
  // Inline, because it runs for every command.
  void check_enqueue(cl_int error, const char* what) {
    if (error != CL_SUCCESS) [[unlikely]]
      fail_enqueue(error, what);
  }

  // An event that completes when everything enqueued so far has; flushed, so that it completes without a wait.
  OwnedEvent marker();
  // Returns true if `event` of this queue is complete. Throws, and keeps, the error with which it ended.
  bool is_complete(cl_event event);
  // The same without throwing that error.
  bool has_ended(cl_event event) { return status_of(event) <= CL_COMPLETE; }
  // Waits for it. Throws as above.
  void wait(cl_event event);

  // Query and wait for everything enqueued so far. Both throw the sticky error.
  bool idle();
  void finish();
  // To be called after enqueuing work.
  void touch() noexcept { marker_is_last_.store(false, std::memory_order_release); }

  // Later commands wait for `event`, which may be of another context.
  void wait_for(cl_event event, cl_context context);
  void host_call(void (*function)(void* user), void* user);

  // Called when the stream is destroyed: ends the thread of host calls and clears the sticky error.
  void close();

 private:
  [[noreturn]] void fail_enqueue(cl_int error, const char* what);
  void fail_command(cl_int status);
  cl_int status_of(cl_event event) const;
  // When `after` is complete (or failed), `function` is called unless it is null, and the user event `done` completed.
  struct HostCall {
    OwnedEvent after;
    void (*function)(void* user);
    void* user;
    OwnedEvent done;
  };
  void carry_out(const HostCall& call) const;
  // A marker behind everything that was enqueued; empty if nothing ever was.
  OwnedEvent last_marker();
  void call_between(OwnedEvent after, void (*function)(void* user), void* user);

  const Api& api_;
  cl_context context_;
  OwnedQueue queue_;
  std::mutex mutex_;  // of the next three
  std::optional<abi::Failure> error_;
  bool closed_ = false;
  std::unique_ptr<streams::HostCalls<HostCall>> host_calls_;
  std::mutex marker_mutex_;  // of last_marker_
  OwnedEvent last_marker_;
  std::atomic<bool> marker_is_last_{true};  // nothing was enqueued after last_marker_, or ever
};

}  // namespace anyaccel::xpu::opencl
