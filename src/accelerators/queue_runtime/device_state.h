// State that all objects of an opened device share: the vendor's runtime, the current device, and whether the device
// was lost.
//
// The current device. The vendor's calls apply to the device that is current on the calling thread. A thread remembers
// which device was made current last, and bind() is a compare when it is that one. Other code of the process may change
// it behind that memory. So calls that would do the wrong thing on another device without an error (memory, making of
// streams and events) query the vendor first: bind_surely(). Calls that name a stream or an event are rejected by the
// vendor in that case, without effect: ask() makes the device current again and repeats the call.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/queue_runtime/memory.h"
#include "accelerators/queue_runtime/process.h"
#include "accelerators/queue_runtime/vendor.h"

namespace anyaccel::queue_runtime {

// A started runtime and its devices. It outlives every object of the driver.
struct Runtime {
  std::unique_ptr<Vendor> vendor;
  std::vector<DeviceFacts> devices;
  StartedProcess process;
  Allocations allocations;
};

class DeviceState {
 public:
  // Begins to use the device.
  DeviceState(std::shared_ptr<Runtime> runtime, int32_t index);
  ~DeviceState();
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  Vendor& vendor() const noexcept { return *runtime_->vendor; }
  Runtime& runtime() const noexcept { return *runtime_; }
  const DeviceFacts& facts() const noexcept { return runtime_->devices[static_cast<size_t>(index_)]; }
  int32_t index() const noexcept { return index_; }
  std::string label() const;  // "npu:0 (Ascend910B)"

  // Makes the device current on the calling thread. Throws as usable() does.
  void bind() {
    usable();
    if (bound_device != id_) [[unlikely]]
      make_current();
  }
  // The same, even if other code has changed the device.
  void bind_surely();

  // bind(), then the call; repeated if it was rejected because other code had made another device current.
  template <class Call>
  Answer ask(Call&& call) {
    bind();
    Answer answer = call();
    if (answer.result != 0 && vendor().is_wrong_device(answer.result)) [[unlikely]] {
      make_current();
      answer = call();
    }
    return answer;
  }
  // The same; throws unless the result is success.
  template <class Call>
  void run(Call&& call) {
    check(ask(std::forward<Call>(call)));
  }
  // Throws unless the result is success. Records a lost device.
  void check(const Answer& answer) {
    if (answer.result != 0) [[unlikely]]
      fail(answer);
  }
  // Throws AA_DEVICE_LOST, with the same message every time, once the device was lost; and in a forked child.
  void usable() const {
    if (lost_.load(std::memory_order_acquire) || is_forked_child()) [[unlikely]]
      refuse();
  }
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  bool is_forked_child() const noexcept { return runtime_->process.is_forked_child(); }

  // Returns an event whose last record, if any, is complete and has no waiters.
  EventHandle acquire_event(bool timed);
  void give_back_event(EventHandle event, bool timed) noexcept;

  // Raw memory: `kind` is AA_MEMORY_DEVICE or AA_MEMORY_PINNED.
  void* allocate(int32_t kind, size_t size);
  void free(int32_t kind, void* pointer);

 private:
  [[noreturn]] void fail(const Answer& answer);
  [[noreturn]] void refuse() const;
  void make_current();

  // The DeviceState that was last bound on this thread: a number that is never reused.
  static thread_local constinit inline uint64_t bound_device = 0;

  std::shared_ptr<Runtime> runtime_;
  const int32_t index_;
  const uint64_t id_;  // counted from 1
  std::mutex events_mutex_;
  std::array<std::vector<EventHandle>, 2> free_events_;  // by `timed`
  std::mutex lost_mutex_;
  std::atomic<bool> lost_{false};
  std::string lost_text_;  // written once, before lost_
  int64_t lost_native_ = 0;
};

}  // namespace anyaccel::queue_runtime
