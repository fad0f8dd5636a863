// State that all objects of an opened device share: its context, its properties, whether it was lost, and scratch
// memory.
//
// The current context. The vendor wants the device's context current on the calling thread. A thread remembers which device
// was bound last, and bind() is a compare when it is that one. Other code of the process may change the current context
// behind that memory, though it should restore it (PyTorch and the vendor's libraries do). So:
//  - calls that would do the wrong thing in another context without an error (memory, making of streams, events and
//    modules) ask the vendor first what is current: bind_surely();
//  - calls that name a stream, an event or a kernel are refused by the vendor when another context is current, and have
//    done nothing then: enqueue() and rebound() put the context back and try once more.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/cuda/platform/platform.h"

namespace anyaccel::cuda {

class DeviceMemory;
struct StreamCore;

// While it lives, the calling thread may make calls that a capture of this thread forbids (memory, queries). The capture
// is not touched by them.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(const Api& api) noexcept : api_(api) {
    if (api_.has_graphs) exchanged_ = api_.capture_mode_exchange(&mode_) == success;
  }
  ~RelaxedCaptureMode() {
    if (exchanged_) api_.capture_mode_exchange(&mode_);
  }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const Api& api_;
  int mode_ = capture_mode_relaxed;
  bool exchanged_ = false;
};

class DeviceState {
 public:
  // Retains the primary context of the device, which the vendor creates if it does not exist yet.
  DeviceState(const Platform& platform, int32_t index);
  ~DeviceState();
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  const Platform& platform() const noexcept { return platform_; }
  const Api& api() const noexcept { return api_; }
  const DeviceFacts& facts() const noexcept { return platform_.devices[static_cast<size_t>(index_)]; }
  int32_t index() const noexcept { return index_; }
  ContextHandle context() const noexcept { return context_; }
  double open_seconds() const noexcept { return open_seconds_; }  // the memory that creating the context took
  std::string label() const;                                      // "cuda:0 (NVIDIA H200)"
  // Returns whether the two are shares of one GPU, or each can access the other's memory. Calls the vendor.
  bool copies_from(const DeviceState& source) const;
  // The priority of streams nearest to `wanted` that the device has.
  int clamp_priority(int32_t wanted) const noexcept;

  // Makes the context current on the calling thread, which nearly every function of the vendor wants. A load and a compare
  // when this class made it current before: see the head of this file. Throws as usable() does.
  void bind() const {
    usable();
    if (bound_device != id_) [[unlikely]]
      make_current();
  }
  // The same, even if other code has changed the context.
  void bind_surely() const;
  // Called after a call failed with `result`: returns true if it failed because other code had made another context
  // current. This context is then current again, and the call may be repeated.
  bool rebound(Result result) const;
  // bind(), then a call that names a stream or an object of this device, repeated if rebound() says so.
  template <class Call>
  Result enqueue_result(Call&& call) const {
    bind();
    Result result = call();
    if (result != success && rebound(result)) [[unlikely]]
      result = call();
    return result;
  }
  template <class Call>
  void enqueue(const char* name, Call&& call) const {
    check(enqueue_result(std::forward<Call>(call)), name);
  }

  // Throws for every result but success: `call` is the vendor's function. Errors that the vendor keeps repeating (700, 719,
  // a lost device) are thrown as what they are once, and remembered.
  void check(Result result, const char* call) const {
    if (result != success) [[unlikely]]
      fail(result, call);
  }
  // Throws AA_DEVICE_LOST, with the same words every time, once the device was lost; and in a forked child.
  void usable() const {
    if (lost_.load(std::memory_order_acquire) || is_forked_child()) [[unlikely]]
      refuse();
  }
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  DeviceMemory& memory() noexcept { return *memory_; }

  // Device memory for what one op leaves to its next kernel. At least `bytes`, aligned to 256; the same memory for every
  // call with the same stream until a larger one is asked for, so only work of that stream may use it. Memory handed out
  // earlier stays valid until the device closes: captured graphs may hold it. Contents are undefined. Zeroed when first
  // made, which counters rely on that their users leave at zero. Work that is captured gets memory of its graph's own.
  enum class Scratch { partial_results, counters, products };
  void* scratch(Scratch purpose, StreamHandle stream, size_t bytes);

  // ---- of Stream and Graph ----
  void add(const std::shared_ptr<StreamCore>& stream);
  // The living ones of this device.
  std::vector<std::shared_ptr<StreamCore>> streams();
  // Scratch memory of the stream is the capture's (0: none) from now on.
  void set_capture(StreamHandle stream, uint64_t capture);
  // The stream has ended, and its scratch memory may serve another one.
  void release_stream(StreamHandle stream) noexcept;
  // The graph of a capture was destroyed, and its scratch memory may be used by another one.
  void release_capture(uint64_t capture) noexcept;

 private:
  [[noreturn]] void fail(Result result, const char* call) const;
  [[noreturn]] void refuse() const;
  [[noreturn]] void refuse_open(Result result) const;
  void make_current() const;
  void* make_scratch(size_t bytes);

  struct ScratchBlock {
    Scratch purpose;
    StreamHandle stream;  // null: the stream has ended
    uint64_t capture;     // 0: work that runs at once
    void* pointer;
    size_t bytes;
  };

  // The DeviceState that was last bound on this thread. A number instead of a context, because a context's address may
  // be reused.
  static thread_local constinit inline uint64_t bound_device = 0;

  const Platform& platform_;
  const Api& api_;
  const int32_t index_;
  const uint64_t id_;  // counted from 1
  ContextHandle context_ = nullptr;
  double open_seconds_ = 0;
  int least_priority_ = 0, greatest_priority_ = 0;
  std::unique_ptr<DeviceMemory> memory_;
  std::mutex scratch_mutex_;  // guards the next three
  std::vector<ScratchBlock> scratch_;
  std::vector<std::pair<StreamHandle, uint64_t>> captures_;
  StreamHandle zeroing_stream_ = nullptr;
  std::mutex streams_mutex_;
  std::vector<std::weak_ptr<StreamCore>> streams_;
  mutable std::mutex lost_mutex_;
  mutable std::atomic<bool> lost_{false};
  mutable std::string lost_text_;  // written once, before lost_
  mutable int64_t lost_native_ = 0;
};

}  // namespace anyaccel::cuda
