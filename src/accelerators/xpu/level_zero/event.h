// Events: a point in a stream that the host and other streams can wait for, and whose time can be measured.
#pragma once

#include <atomic>
#include <memory>

#include "accelerators/streams/events.h"
#include "accelerators/xpu/level_zero/device_state.h"

namespace anyaccel::xpu::level_zero {

using streams::StreamFault;

// One use of an event of the pool: signaled at one point of one stream. It is returned to the pool when its last owner
// is destroyed; streams own the events that they signal or wait for until they have passed them. Thread-safe.
class Record {
 public:
  Record(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamFault> fault, bool timed);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  EventHandle event() const noexcept { return event_; }
  bool timed() const noexcept { return timed_; }
  const DeviceState* device() const noexcept { return device_.get(); }
  const std::shared_ptr<StreamFault>& fault() const noexcept { return fault_; }

  // These throw the stream's sticky error, and keep a new one there.
  bool complete();
  void wait();  // blocks until it is complete

  // Returns true if it is known to be complete, without throwing.
  bool passed() noexcept;
  // Waits until it is complete or failed, for a second at most when the device was lost.
  void settle() noexcept;

  // Milliseconds from this to `end`; both are timed and complete, on one device.
  double milliseconds_until(Record& end);

 private:
  // False for "not ready".
  bool completed(Result result, const char* call);
  uint64_t ticks();

  std::shared_ptr<DeviceState> device_;
  std::shared_ptr<StreamFault> fault_;
  bool timed_;
  EventHandle event_;
  double made_ms_;  // the host's clock
  std::atomic<bool> done_{false};
};

// Ticks from `start` to `end` of a counter of `valid_bits` bits that wraps around: of all the differences that fit, the one
// nearest to `expected`.
double ticks_between(uint64_t start, uint64_t end, uint32_t valid_bits, double expected);

class Stream;

using EventCore = streams::EventCore<Record>;

class Event final : public streams::RecordedEvent<Record> {
 public:
  using RecordedEvent::RecordedEvent;
  void record(abi::Stream& stream) override;
};

}  // namespace anyaccel::xpu::level_zero
