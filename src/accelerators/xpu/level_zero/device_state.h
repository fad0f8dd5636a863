// State that all objects of an opened device share: its handles, its properties, its events, and whether it was lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accelerators/xpu/level_zero/platform.h"

namespace anyaccel::xpu::level_zero {

// How long one wait of the host lasts. Waits are repeated, so that they notice that another call found the device lost.
inline constexpr uint64_t patience_ns = 1'000'000'000;

// One context for all devices of the driver, so that they see each other's events and memory.
class Context {
 public:
  explicit Context(Platform platform);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Platform& platform() const noexcept { return platform_; }
  const Api& api() const noexcept { return *platform_.api; }
  ContextHandle handle() const noexcept { return handle_; }

 private:
  Platform platform_;
  ContextHandle handle_ = nullptr;
};

// Events of a device, made a pool at a time and used again: an event of Level Zero is signaled once, then must be reset.
// Thread-safe.
class EventPool {
 public:
  explicit EventPool(const Context& context) : context_(context) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that is not signaled. timed: it keeps a timestamp.
  EventHandle acquire(bool timed);
  // Nothing on any device or host waits for the event or will signal it.
  void give_back(EventHandle event, bool timed) noexcept;

 private:
  const Context& context_;
  std::mutex mutex_;
  std::vector<EventHandle> free_[2];  // by `timed`
  std::vector<EventHandle> all_;
  std::vector<PoolHandle> pools_;
};

class DeviceState {
 public:
  DeviceState(std::shared_ptr<const Context> context, int32_t index);

  const Api& api() const noexcept { return context_->api(); }
  const Context& context() const noexcept { return *context_; }
  DeviceHandle handle() const noexcept { return context_->platform().devices[static_cast<size_t>(index_)]; }
  int32_t index() const noexcept { return index_; }
  const DeviceFacts& facts() const noexcept { return facts_; }
  EventPool& events() noexcept { return events_; }

  // Throws for every result but success. A lost device is remembered.
  void check(Result result, const char* call) {
    if (result != success) [[unlikely]]
      fail(result, call);
  }
  // Throws AA_DEVICE_LOST, with the same message every time, once the device was lost; and in a forked child.
  void usable() const {
    if (lost_.load(std::memory_order_acquire) || is_forked_child()) [[unlikely]]
      refuse();
  }
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

 private:
  [[noreturn]] void fail(Result result, const char* call);
  [[noreturn]] void refuse() const;

  std::shared_ptr<const Context> context_;
  int32_t index_;
  DeviceFacts facts_;
  EventPool events_;
  std::mutex lost_mutex_;
  std::atomic<bool> lost_{false};
  std::string lost_text_;  // written once, before lost_
};

}  // namespace anyaccel::xpu::level_zero
