// A command list whose commands run one after another, whatever the driver: the stream's own (immediate) list, and the
// lists that a graph records.
#pragma once

#include <memory>

#include "accelerators/xpu/level_zero/device_state.h"
#include "accelerators/xpu/level_zero/module.h"

namespace anyaccel::xpu::level_zero {

// Not thread-safe.
class CommandList {
 public:
  // Takes the list; destroys it.
  CommandList(std::shared_ptr<DeviceState> device, ListHandle list, bool in_order)
      : device_(std::move(device)), list_(list), in_order_(in_order) {}
  ~CommandList() {
    if (!is_forked_child()) device_->api().zeCommandListDestroy(list_);
  }
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  ListHandle handle() const noexcept { return list_; }

  void copy(void* destination, const void* source, size_t size);
  void fill(void* destination, const void* pattern, size_t pattern_size, size_t size);
  // Thread-safe as far as the kernel is concerned.
  void launch(Kernel& kernel, const aa_launch& launch);
  // The event is signaled after all work so far, and later work comes after that.
  void signal(EventHandle event);
  // Later work waits for the event.
  void wait(EventHandle event);
  // Resets the event after all work so far.
  void reset(EventHandle event);
  // Of an immediate list: waits until all that it has taken has ended, or the device is lost. Returns false if that is not known
  // then: the function is of version 1.6.
  bool settle() noexcept;

 private:
  // Commands of a list may overlap unless the driver keeps their order or there is a barrier between them.
  void order();

  std::shared_ptr<DeviceState> device_;
  ListHandle list_;
  bool in_order_;
  bool needs_barrier_ = false;
};

}  // namespace anyaccel::xpu::level_zero
