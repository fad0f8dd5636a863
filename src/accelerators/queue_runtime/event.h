// Events: a point in a stream that the host and other streams can wait for, and whose time can be measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "accelerators/queue_runtime/device_state.h"
#include "accelerators/streams/events.h"

namespace anyaccel::queue_runtime {

// The asynchronous error of a stream, and how far the stream was found to have come without one: some runtimes tell that a stream
// has failed, and not where. The stream's points are numbered from 1. Thread-safe.
class StreamFault : public streams::StreamFault {
 public:
  uint64_t next_number() noexcept { return points_.fetch_add(1) + 1; }
  uint64_t latest() const noexcept { return points_.load(); }
  // The stream has passed the points up to this one without an error of its own.
  void set_good(uint64_t point) noexcept;
  bool is_good(uint64_t point) const noexcept { return point <= good_.load(); }

 private:
  std::atomic<uint64_t> points_{0};
  std::atomic<uint64_t> good_{0};
};

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
class Point {
 public:
  // Creates a use that is not recorded yet. One stream's are numbered in the order in which they are created and recorded.
  Point(const std::shared_ptr<StreamCore>& stream, bool timed);
  ~Point();
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  EventHandle event() const noexcept { return event_; }
  bool timed() const noexcept { return timed_; }
  DeviceState& device() const noexcept { return *device_; }
  StreamFault& fault() const noexcept { return *fault_; }
  bool is_of(const StreamCore& stream) const noexcept { return stream.fault() == fault_; }
  bool is_same_stream(const Point& other) const noexcept { return other.fault_ == fault_; }
  uint64_t number() const noexcept { return number_; }

  // Returns true if it was found complete, and its stream without an error.
  bool passed() const noexcept { return done_.load(std::memory_order_acquire); }
  // These throw the stream's sticky error, unless the stream was found without one behind this, and keep a new one there.
  bool complete();
  void wait();  // blocks until it is complete
  // Whether no work before it runs any more, also if its stream has failed. An event that tells an error tells that too.
  bool ended();
  // Waits until ended(), whatever the error.
  void settle() noexcept;

 private:
  void find_fault();

  std::weak_ptr<StreamCore> stream_;
  std::shared_ptr<StreamFault> fault_;
  std::shared_ptr<DeviceState> device_;
  const bool timed_;
  const uint64_t number_;
  const EventHandle event_;
  std::atomic<bool> done_{false};
};

// The last point of every other stream that work waits for, itself or by way of other streams. A list that does not change is
// shared by all records between two waits. Null: none.
using Waits = std::shared_ptr<const std::vector<std::shared_ptr<Point>>>;

// Leaves out what has passed.
void drop_passed(Waits& waits);

// Asks about a point, as Point::complete() and Point::wait() do.
bool is_complete(Point& point);
bool is_complete_after_waiting(Point& point);

// Work that waited for a failed stream has failed too: keeps the error in `fault` and throws it. Returns true if all have passed.
bool take_over_faults(StreamFault& fault, const Waits& waits, bool (*ask)(Point& point));

// A point of a stream, and what the work before it waited for on other streams: if that has failed, so has this. Thread-safe.
class Record {
 public:
  Record(const std::shared_ptr<StreamCore>& stream, bool timed, Waits waits)
      : point_(std::make_shared<Point>(stream, timed)), waits_(std::move(waits)) {}

  EventHandle event() const noexcept { return point_->event(); }
  bool timed() const noexcept { return point_->timed(); }
  const DeviceState* device() const noexcept { return &point_->device(); }
  bool is_of(const StreamCore& stream) const noexcept { return point_->is_of(stream); }

  // Returns true if complete() has found it complete, and without an error.
  bool passed() const noexcept { return done_.load(std::memory_order_acquire); }
  // These throw the stream's sticky error, and keep a new one there.
  bool complete() { return ask(is_complete); }
  void wait() { ask(is_complete_after_waiting); }  // blocks until it is complete
  bool ended() { return point_->ended(); }         // as Point's
  void settle() noexcept;                          // as Point's, also for what it waited for
  // Milliseconds from this to `end`; both are timed and complete.
  double milliseconds_until(Record& end);

  // What work on `stream` waits for that waited for `earlier`, and now for this.
  Waits added_to(const Waits& earlier, const StreamCore& stream) const;

 private:
  bool ask(bool (*ask)(Point& point));
  Waits waits() const {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

  const std::shared_ptr<Point> point_;
  std::atomic<bool> done_{false};  // complete, and without an error
  mutable std::mutex mutex_;       // guards the next
  Waits waits_;                    // null too once it is done
};

using EventCore = streams::EventCore<Record>;

class Event final : public streams::RecordedEvent<Record> {
 public:
  using RecordedEvent::RecordedEvent;
  void record(abi::Stream& stream) override;
};

}  // namespace anyaccel::queue_runtime
