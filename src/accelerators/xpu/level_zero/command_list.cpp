// Implements command_list.h: a command list whose commands run one after another, whatever the driver.
#include "accelerators/xpu/level_zero/command_list.h"

namespace anyaccel::xpu::level_zero {

void CommandList::order() {
  if (in_order_) return;
  if (needs_barrier_) {
    device_->check(device_->api().zeCommandListAppendBarrier(list_, nullptr, 0, nullptr), "zeCommandListAppendBarrier");
  }
  needs_barrier_ = true;
}

void CommandList::copy(void* destination, const void* source, size_t size) {
  order();
  device_->check(device_->api().zeCommandListAppendMemoryCopy(list_, destination, source, size, nullptr, 0, nullptr),
                 "zeCommandListAppendMemoryCopy");
}

void CommandList::fill(void* destination, const void* pattern, size_t pattern_size, size_t size) {
  order();
  device_->check(device_->api().zeCommandListAppendMemoryFill(list_, destination, pattern, pattern_size, size, nullptr,
                                                              0, nullptr),
                 "zeCommandListAppendMemoryFill");
}

void CommandList::launch(Kernel& kernel, const aa_launch& launch) {
  order();
  kernel.append(list_, launch);
}

void CommandList::signal(EventHandle event) {
  device_->check(device_->api().zeCommandListAppendBarrier(list_, event, 0, nullptr), "zeCommandListAppendBarrier");
  needs_barrier_ = false;
}

// A barrier that waits for an event waits for nothing else, so a needed one stays needed.
void CommandList::wait(EventHandle event) {
  device_->check(device_->api().zeCommandListAppendBarrier(list_, nullptr, 1, &event), "zeCommandListAppendBarrier");
}

void CommandList::reset(EventHandle event) {
  order();
  device_->check(device_->api().zeCommandListAppendEventReset(list_, event), "zeCommandListAppendEventReset");
}

bool CommandList::settle() noexcept {
  const auto wait = device_->api().zeCommandListHostSynchronize;
  if (!wait) return false;
  Result result = not_ready;
  while (result == not_ready && !device_->lost()) result = wait(list_, patience_ns);
  return result == success;
}

}  // namespace anyaccel::xpu::level_zero
