// What events have in common where a runtime's own events are used once each: an event refers to the latest of its records.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::streams {

// The asynchronous error of a stream; shared with the events recorded on it. Thread-safe.
class StreamFault {
 public:
  // Keeps the first.
  void set(const abi::Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  bool is_set() const {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
  }
  void raise_if_set() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw abi::Failure(*failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<abi::Failure> failure_;
};

// State that an event shares with the graphs that record it. Thread-safe.
template <class Record>
class EventCore {
 public:
  explicit EventCore(bool timed) : timed_(timed) {}
  bool timed() const noexcept { return timed_; }
  // Null: never recorded.
  std::shared_ptr<Record> latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  void set(std::shared_ptr<Record> record) {
    std::shared_ptr<void> no_capture;
    const std::lock_guard lock(mutex_);
    latest_.swap(record);  // the earlier ones are released after the lock
    capture_.swap(no_capture);
  }
  // The driver's own capture in which the event was recorded last; null: in none.
  std::shared_ptr<void> capture() const {
    const std::lock_guard lock(mutex_);
    return capture_;
  }
  void set_captured(std::shared_ptr<void> capture) {
    const std::lock_guard lock(mutex_);
    capture_.swap(capture);
  }

 private:
  const bool timed_;
  mutable std::mutex mutex_;
  std::shared_ptr<Record> latest_;
  std::shared_ptr<void> capture_;
};

// All of an event but record(), which the stream does. A Record has complete(), wait(), timed(), device()
// and milliseconds_until().
template <class Record>
class RecordedEvent : public abi::Event {
 public:
  explicit RecordedEvent(bool timed) : core_(std::make_shared<EventCore<Record>>(timed)) {}
  const std::shared_ptr<EventCore<Record>>& core() const noexcept { return core_; }

  bool query() override {
    const std::shared_ptr<Record> record = core_->latest();
    return !record || record->complete();
  }
  void synchronize() override {
    if (const std::shared_ptr<Record> record = core_->latest()) record->wait();
  }
  double elapsed(abi::Event& end) override {
    const std::shared_ptr<Record> from = core_->latest();
    const std::shared_ptr<Record> to = static_cast<RecordedEvent&>(end).core_->latest();
    for (const auto* record : {&from, &to}) {
      if (!*record) throw abi::Failure(AA_FAILED_PRECONDITION, "an event was never recorded");
      if (!(*record)->timed()) throw abi::Failure(AA_FAILED_PRECONDITION, "an event was made without timing");
      if (!(*record)->complete()) throw abi::Failure(AA_FAILED_PRECONDITION, "an event is not complete yet");
    }
    if (from->device() != to->device()) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "the events are of two devices, whose clocks have nothing in common");
    }
    return from->milliseconds_until(*to);
  }

 private:
  std::shared_ptr<EventCore<Record>> core_;
};

}  // namespace anyaccel::streams
