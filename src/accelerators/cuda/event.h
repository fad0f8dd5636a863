// Events: the vendor's event, and whether its latest record is part of a captured graph, which the vendor does not
// report.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "accelerators/cuda/device_state.h"

namespace anyaccel::cuda {

struct Capture;

class Event final : public abi::Event {
 public:
  Event(DeviceState& device, uint32_t flags);
  ~Event() override;

  EventHandle handle() const noexcept { return handle_; }
  bool recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }
  // True if the latest record belongs to a capture: capture() then returns it, or null when it has ended.
  bool captured() const noexcept { return captured_.load(std::memory_order_acquire); }
  std::shared_ptr<Capture> capture() const;

  void record(abi::Stream& stream) override;
  bool query() override;
  void synchronize() override;
  double elapsed(abi::Event& end) override;

 private:
  void refuse_captured(const char* what) const;

  DeviceState& device_;
  const bool timed_;
  EventHandle handle_ = nullptr;
  std::atomic<bool> recorded_{false}, captured_{false};
  mutable std::mutex mutex_;  // guards capture_
  std::weak_ptr<Capture> capture_;
};

}  // namespace anyaccel::cuda
