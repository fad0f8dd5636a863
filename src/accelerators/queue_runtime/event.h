// Events: a point in a stream that the host and other streams can wait for, and whose time can be measured.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "accelerators/queue_runtime/device_state.h"
#include "accelerators/streams/events.h"

namespace anyaccel::queue_runtime {

using streams::StreamFault;

// The vendor's stream, as long as it lives, and its error.
class StreamCore {
 public:
  StreamCore(std::shared_ptr<DeviceState> device, StreamHandle handle) : device_(std::move(device)), handle_(handle) {}
  ~StreamCore();
  StreamCore(const StreamCore&) = delete;
  StreamCore& operator=(const StreamCore&) = delete;

  DeviceState& device() const noexcept { return *device_; }
  const std::shared_ptr<DeviceState>& shared_device() const noexcept { return device_; }
  StreamHandle handle() const noexcept { return handle_; }
  const std::shared_ptr<StreamFault>& fault() const noexcept { return fault_; }

  // Sets what must be done before the device is waited for: work that the stream has held back is enqueued. May be empty.
  void on_wait(std::function<void()> release);
  // Does it; any thread.
  void release_held();

  // These throw the sticky error, and keep a new one.
  bool complete();
  void wait();

 private:
  std::shared_ptr<DeviceState> device_;
  const StreamHandle handle_;
  std::mutex release_mutex_;
  std::function<void()> release_;
  std::shared_ptr<StreamFault> fault_ = std::make_shared<StreamFault>();
};

// One use of an event of the vendor's: recorded at one point of one stream. It is returned to the device's pool when
// its last owner is destroyed; streams own the records that they make or wait for until they have passed them. So
// recording an Event again does not affect an earlier wait, whatever the vendor does with an event that is recorded
// twice. Thread-safe.
class Record {
 public:
  // Creates a use that is not recorded yet; the stream records it. `waited` are records of other streams that it waits for before
  // this one: if work before those has failed, so has the work before this one.
  Record(const std::shared_ptr<StreamCore>& stream, bool timed, std::vector<std::shared_ptr<Record>> waited);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  EventHandle event() const noexcept { return event_; }
  bool timed() const noexcept { return timed_; }
  const DeviceState* device() const noexcept { return device_.get(); }
  bool is_of(const StreamCore& stream) const noexcept { return stream.fault() == fault_; }

  // Returns true if complete() has found it complete, and without an error.
  bool passed() const noexcept { return done_.load(std::memory_order_acquire); }
  // These throw the stream's sticky error, and keep a new one there.
  bool complete();
  void wait();  // blocks until it is complete
  // Milliseconds from this to `end`; both are timed and complete.
  double milliseconds_until(Record& end);

 private:
  void find_fault();

  std::weak_ptr<StreamCore> stream_;
  std::shared_ptr<StreamFault> fault_;
  std::shared_ptr<DeviceState> device_;
  const bool timed_;
  const EventHandle event_;
  std::atomic<bool> done_{false};  // complete, and without an error
  std::mutex mutex_;               // guards the next
  std::vector<std::shared_ptr<Record>> waited_;
};

// A stream that waited for a record of a failed one has failed too. Throws the stream's error, if there is one.
void take_over_faults(StreamFault& fault, std::span<const std::shared_ptr<Record>> waited);

using EventCore = streams::EventCore<Record>;

class Event final : public streams::RecordedEvent<Record> {
 public:
  using RecordedEvent::RecordedEvent;
  void record(abi::Stream& stream) override;
};

}  // namespace anyaccel::queue_runtime
