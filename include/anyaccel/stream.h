// Streams, events and graphs: handles to work in order on a device.
//
// Each is a value that shares ownership of its object: copies name the same stream, event or graph, and the object is
// destroyed with the last handle. An empty handle (default-constructed) may only be assigned, tested and destroyed.
// Destructors never throw: a stream's destructor waits for its work and drops an error that nobody waited for.
//
// Threads: a stream and an event may be used by several threads at once; work of each is on the stream in the order of
// its calls. While one thread captures a graph on a stream, methods called by others throw InvalidArgument
// (AA_FAILED_PRECONDITION); so does a wait for an event that was recorded last in another thread's capture. A graph is
// captured, replayed and replaced by one thread at a time. A handle (as any value) is assigned by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace anyaccel {

class Event;
class Stream;

// The classes that an accelerator implements behind the handles. Programs use the handles below.
namespace detail {

class EventState {
 public:
  virtual ~EventState() = default;
  virtual void record(const Stream& stream) = 0;
  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
  virtual double elapsed_ms(const EventState& end) const = 0;
};

class StreamState {
 public:
  virtual ~StreamState() = default;
  // A new event without timing on the stream's device. NotImplementedError where there are none, and by default.
  virtual std::shared_ptr<EventState> make_event() const;
  virtual int device_index() const noexcept = 0;
  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
  virtual void wait_event(const EventState& event) = 0;
  virtual void host_call(std::function<void()> function) = 0;
  virtual void* native_handle() const = 0;
};

class GraphState {
 public:
  virtual ~GraphState() = default;
  virtual bool ready() const noexcept = 0;
  virtual uint64_t pool() const noexcept = 0;
};

}  // namespace detail

// A point in a stream. Made by Accelerator::Event().
class Event {
 public:
  Event() = default;
  explicit Event(std::shared_ptr<detail::EventState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }

  // Marks the point that the stream's work has reached now; recording again replaces the earlier point.
  void record(const Stream& stream) { state_->record(stream); }
  // The same for the calling thread's current stream of get_accelerator()'s current device.
  void record();
  // Work enqueued on `stream` later waits for the latest record, as Stream::wait_event; by default the stream of
  // record().
  void wait(const Stream& stream) const;
  void wait() const;
  // True when the work before the point is complete, and when no point was recorded. Does not block. Throws the
  // stream's error.
  bool query() const { return state_->query(); }
  // Blocks until it is. Throws the stream's error.
  void synchronize() const { state_->synchronize(); }
  // Milliseconds from this event to `end`. Both made with timing, recorded and complete; else InvalidArgument with code
  // AA_FAILED_PRECONDITION.
  double elapsed_time(const Event& end) const { return state_->elapsed_ms(*end.state_); }

  detail::EventState* state() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<detail::EventState> state_;
};

// An in-order queue of work on one device. Made by Accelerator::Stream().
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<detail::StreamState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }

  int device_index() const noexcept { return state_->device_index(); }
  // True when all work is complete. Does not block, unless the driver cannot tell. Throws an asynchronous error of the stream.
  bool query() const { return state_->query(); }
  // Blocks until all work enqueued so far is complete. Throws an asynchronous error of the stream.
  void synchronize() const { state_->synchronize(); }
  // Work enqueued on this stream later waits for the event's latest record. Does not block the host.
  void wait_event(const Event& event) const { state_->wait_event(*event.state()); }
  // Work enqueued on this stream later waits for everything enqueued on `other` so far. Does not block the host, unless
  // the accelerator has no events: it then blocks until that work is complete. Nothing to wait for on the same stream.
  void wait_stream(const Stream& other) const;
  // Records the event, or a new one without timing when none is given, and returns it. NotImplementedError where the
  // accelerator has no events.
  anyaccel::Event record_event(anyaccel::Event event = {}) const;
  // Runs a function on the host in order with the stream's work (now, when the driver cannot); it must not use the accelerator.
  void host_call(std::function<void()> function) const { state_->host_call(std::move(function)); }
  // The vendor's own handle (cudaStream_t, ...), null where there is none. Borrowed.
  void* native_handle() const { return state_->native_handle(); }

  detail::StreamState* state() const noexcept { return state_.get(); }
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.state_ == b.state_; }

 private:
  std::shared_ptr<detail::StreamState> state_;
};

// Work that was captured once and is replayed. Made by Accelerator::create_graph(), filled by capture_to_graph().
class Graph {
 public:
  Graph() = default;
  explicit Graph(std::shared_ptr<detail::GraphState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  // True when a capture has been completed, so that it can be replayed.
  bool ready() const noexcept { return state_->ready(); }
  // The memory pool that allocations made while capturing come from; give it to another capture to share it.
  uint64_t pool() const noexcept { return state_->pool(); }

  detail::GraphState* state() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<detail::GraphState> state_;
};

// Runs a function when it leaves its scope; what the scope guards of Accelerator return. Movable, not copyable.
class [[nodiscard]] ScopeGuard {
 public:
  ScopeGuard() = default;
  explicit ScopeGuard(std::function<void(bool unwinding)> exit);
  ScopeGuard(ScopeGuard&& other) noexcept;
  ScopeGuard& operator=(ScopeGuard&&) = delete;
  // Runs the function; `unwinding` tells it that an exception is on its way. An error inside is thrown further unless
  // the stack is unwinding.
  ~ScopeGuard() noexcept(false);

 private:
  std::function<void(bool)> exit_;
  int exceptions_ = 0;
};

}  // namespace anyaccel
