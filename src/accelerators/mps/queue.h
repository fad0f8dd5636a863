// Wraps a Metal command queue for a stream: one command buffer is open and takes commands, a committed one runs. A
// stream and the events recorded on it share this object.
//
// Commands go into the open command buffer through one encoder at a time. It is committed when its work is requested
// (flush, query, synchronize), when an event is recorded or a host function is enqueued, and when it has many commands:
// a command buffer costs the CPU microseconds, a command a fraction of one. Therefore the driver has the extension
// "lazy".
//
// Order. Command buffers of one queue start in the order in which they were committed, and Metal makes commands wait
// for earlier ones that use the same buffer; between queues, a command buffer waits for a shared event. A host function
// is a completion handler; the command buffer behind it waits for the shared event, which the handler signals when the
// function has returned.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "accelerators/mps/library.h"

namespace anyaccel::mps {

// Records whether the device was lost. Shared by all objects of the device. Thread-safe.
class DeviceHealth {
 public:
  void lose(const abi::Failure& failure);
  // Throws AA_DEVICE_LOST, with the same message every time, once the device was lost.
  void check() const;

 private:
  mutable std::mutex mutex_;
  std::optional<abi::Failure> failure_;
};

// A committed command buffer. It has failed if it failed itself, if one before it in its queue did, or if one that it waited for
// did. Thread-safe.
class Submission {
 public:
  Submission(Owned buffer, std::shared_ptr<Submission> before, std::vector<std::shared_ptr<Submission>> waits,
             std::shared_ptr<DeviceHealth> health, const void* queue, bool timed)
      : queue_(queue),
        timed_(timed),
        health_(std::move(health)),
        buffer_(std::move(buffer)),
        before_(std::move(before)),
        waits_(std::move(waits)) {}

  // Returns whether it is complete; throws if it failed.
  bool complete();
  // Blocks until it is complete; throws if it failed.
  void wait();
  // Returns the same without throwing, for callers that only need to know whether it is still running.
  bool ended() noexcept;
  bool is_of(const void* queue) const noexcept { return queue == queue_; }
  // The end in seconds on the GPU's clock; valid for a complete submission that was created as `timed`.
  double end_time() const noexcept { return end_time_; }

 private:
  bool settle();
  void raise() const;

  const void* const queue_;
  const bool timed_;
  const std::shared_ptr<DeviceHealth> health_;
  std::mutex mutex_;  // guards what follows. A submission locks only those that were created before it.
  Owned buffer_;      // null once settled
  std::shared_ptr<Submission> before_;
  std::vector<std::shared_ptr<Submission>> waits_;
  bool settled_ = false;
  std::optional<abi::Failure> failure_;
  double end_time_ = 0;
};

// A point of a queue that other queues can wait for.
struct Point {
  std::shared_ptr<Submission> submission;  // null: never recorded
  Owned event;                             // id<MTLSharedEvent>, which has `value` when the point is passed
  uint64_t value = 0;
};

class Queue {
 public:
  Queue(Id device, std::shared_ptr<DeviceHealth> health);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Encodes commands. `commands` gets an encoder; Metal keeps every object that it uses alive until the command buffer
  // is complete.
  template <class Commands>
  void compute(Commands&& commands) {
    encode(Kind::compute, commands);
  }
  template <class Commands>
  void blit(Commands&& commands) {
    encode(Kind::blit, commands);
  }
  void host_call(void (*function)(void* user), void* user);
  Point record(bool timed);
  void wait_for(const Point& point);
  // Commits the open command buffer.
  void flush();
  // idle() returns whether everything is complete, finish() waits for it. Both commit the open command buffer, and
  // throw the queue's failure.
  bool idle();
  void finish();
  Id get() const noexcept { return queue_.get(); }

 private:
  enum class Kind { none, compute, blit };
  struct Handler;

  template <class Commands>
  void encode(Kind kind, Commands& commands) {
    health_->check();
    const Pool pool;
    const std::lock_guard lock(mutex_);
    commands(encoder_locked(kind));
    item_locked();
  }
  Owned new_buffer() const;
  Id buffer_locked();
  Id encoder_locked(Kind kind);
  void end_encoder_locked();
  void item_locked();
  // A handler that calls `function` unless it is null, and then signals the next value, even if the command buffer has failed, so
  // that nothing waits forever.
  std::unique_ptr<Handler> next_handler_locked(void (*function)(void* user), void* user) const;
  // Gives it to the open command buffer, and returns its value.
  uint64_t add_locked(std::unique_ptr<Handler> handler);
  // What tracks the open command buffer, which must then be committed with it. Throws, with nothing done, without memory.
  std::shared_ptr<Submission> submission_locked(bool timed);
  void commit_locked();
  void commit_locked(std::shared_ptr<Submission> submission);
  std::shared_ptr<Submission> last();

  const Id device_;
  const std::shared_ptr<DeviceHealth> health_;
  Owned queue_;
  Owned timeline_;  // the shared event; its values are points of the queue, in order
  std::mutex mutex_;
  Owned open_;  // the command buffer that takes commands; null: none
  Owned encoder_;
  Kind kind_ = Kind::none;
  int items_ = 0;                                   // in the open command buffer
  bool has_work_ = false;                           // of the GPU's, in the open command buffer
  uint64_t value_ = 0;                              // the latest of the timeline that was given out
  std::vector<std::shared_ptr<Submission>> waits_;  // of the open command buffer
  std::shared_ptr<Submission> last_;                // null: nothing was committed yet
  std::deque<std::shared_ptr<Submission>> running_;
  Owned scratch_;  // 4 bytes, for timed records that have no work of the GPU's before them
};

}  // namespace anyaccel::mps
