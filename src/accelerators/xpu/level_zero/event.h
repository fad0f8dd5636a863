// Events: a point in a stream that the host and other streams can wait for, and whose time can be measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "accelerators/streams/events.h"
#include "accelerators/xpu/level_zero/device_state.h"

namespace anyaccel::xpu::level_zero {

// Runs the recorded lists of one graph, one after another: launches on different streams share the lists' events, and the
// queue's order prevents a launch from taking another one's signal. Thread-safe.
class GraphQueue {
 public:
  explicit GraphQueue(std::shared_ptr<DeviceState> device);
  ~GraphQueue();
  GraphQueue(const GraphQueue&) = delete;
  GraphQueue& operator=(const GraphQueue&) = delete;

  DeviceState& device() const noexcept { return *device_; }
  QueueHandle handle() const noexcept { return handle_; }
  // Waits until it runs nothing more.
  void settle() noexcept { device_->api().zeCommandQueueSynchronize(handle_, UINT64_MAX); }

 private:
  const std::shared_ptr<DeviceState> device_;
  QueueHandle handle_ = nullptr;
};

// One run of a list. Its fence tells when it has ended and whether it failed, whatever else the queue runs. Thread-safe.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<GraphQueue> queue);
  ~GraphRun();  // waits until it has ended
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;

  void start(ListHandle list);
  // `waits`: blocks until it has. Throws the error of a list that failed.
  bool ended(bool waits);

 private:
  const std::shared_ptr<GraphQueue> queue_;
  FenceHandle fence_ = nullptr;
  bool started_ = false;
};

// The asynchronous error of a stream, whose points are numbered from 1. A list that fails on a graph's queue signals its last
// event nevertheless, so that the stream goes on; the error is the run's.
class StreamFault : public streams::StreamFault {
 public:
  // Keeps the first error. All points from this number on have failed.
  void set(const abi::Failure& failure, uint64_t point);
  void raise_if_failed(uint64_t point) const;
  uint64_t next_number() noexcept { return points_.fetch_add(1, std::memory_order_relaxed) + 1; }
  // Makes room, so that the next watch() cannot fail.
  void expect_run();
  // Work behind this run is enqueued next.
  void watch(std::shared_ptr<GraphRun> run) noexcept;
  // An error of work that was enqueued just now.
  void set_behind_all(const abi::Failure& failure) { set(failure, points_.load(std::memory_order_relaxed) + 1); }
  // Keeps the errors of the runs before the point that have ended. Returns false if one of them has not. `waits`: the stream has
  // passed the point, so that they end now, and are waited for.
  bool look(uint64_t point, bool waits);

 private:
  struct Watched {
    std::shared_ptr<GraphRun> run;
    uint64_t point;  // the first one behind it
  };
  std::mutex mutex_;
  std::vector<Watched> runs_;  // that are not known to have ended, in order
  std::atomic<uint64_t> points_{0};
  std::atomic<uint64_t> failed_{UINT64_MAX};  // the first point that has
};

// One use of an event of the pool: signaled at one point of one stream. It is returned to the pool when its last owner
// is destroyed; streams own the events that they signal or wait for until they have passed them. Thread-safe.
class Point {
 public:
  Point(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamFault> fault, bool timed);
  ~Point();
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  EventHandle event() const noexcept { return event_; }
  bool timed() const noexcept { return timed_; }
  const DeviceState* device() const noexcept { return device_.get(); }
  const std::shared_ptr<StreamFault>& fault() const noexcept { return fault_; }
  // Of two points of one stream the later one has the larger number.
  uint64_t number() const noexcept { return number_; }

  // These throw the stream's sticky error if it is that of work before this, and keep a new one there.
  bool complete();
  void wait();  // blocks until it is complete
  // Returns true if it is known to be complete, and the work before it on its stream without an error.
  bool passed_well() const noexcept { return well_.load(std::memory_order_acquire); }

  // Returns true if it is known to be complete, without throwing.
  bool passed() noexcept;
  // Waits until it is complete or failed, for a second at most when the device was lost.
  void settle() noexcept;

  // Milliseconds from this to `end`; both are timed and complete, on one device.
  double milliseconds_until(Point& end);

 private:
  // False for "not ready".
  bool completed(Result result, const char* call);
  void find_fault(bool waits);
  uint64_t ticks();

  std::shared_ptr<DeviceState> device_;
  std::shared_ptr<StreamFault> fault_;
  bool timed_;
  const uint64_t number_;
  EventHandle event_;
  double made_ms_;  // the host's clock
  std::atomic<bool> done_{false};
  std::atomic<bool> well_{false};
};

// The last point of every other stream that work waits for, itself or by way of other streams; null: none. A list that does not
// change is shared by all records between two waits.
using Waits = std::shared_ptr<const std::vector<std::shared_ptr<Point>>>;

// Leaves out what has passed without an error.
void drop_passed(Waits& waits);

// A point of a stream, and what the work before it waited for on other streams: if that has failed, so has this. Thread-safe.
class Record {
 public:
  Record(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamFault> fault, bool timed, Waits waits)
      : point_(std::make_shared<Point>(std::move(device), std::move(fault), timed)), waits_(std::move(waits)) {}

  EventHandle event() const noexcept { return point_->event(); }
  bool timed() const noexcept { return point_->timed(); }
  const DeviceState* device() const noexcept { return point_->device(); }
  const std::shared_ptr<StreamFault>& fault() const noexcept { return point_->fault(); }
  uint64_t number() const noexcept { return point_->number(); }

  // As Point's.
  bool complete();
  void wait();  // blocks until it is complete
  // Returns true if it is known to be complete, without throwing. Whether work before it failed may not be known.
  bool passed() noexcept { return point_->passed(); }
  // Returns true if complete() has found it complete, and everything before it without an error.
  bool passed_well() const noexcept;
  void settle() noexcept { point_->settle(); }
  double milliseconds_until(Record& end) { return point_->milliseconds_until(*end.point_); }

  // What work of a stream waits for that waited for `earlier`, and now for this.
  Waits added_to(const Waits& earlier, const StreamFault& stream) const;

 private:
  // What waits for a failed stream has failed too.
  template <class Ask>
  void take_over_faults(const Ask& ask);

  const std::shared_ptr<Point> point_;
  const Waits waits_;
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
