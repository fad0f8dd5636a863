// Streams, events and graphs: handles to ordered work on a device.
//
// Each is a value that shares ownership of its object: copies refer to the same stream, event or graph, and the object
// is destroyed with the last handle. An empty handle (default-constructed) may only be assigned, tested and destroyed.
// Destructors never throw: a stream's destructor waits for its work and discards an error that nobody has retrieved.
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
  // Creates an event without timing on the stream's device. The default throws NotImplementedError.
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

// A point in a stream. Created by Accelerator::Event().
class Event {
 public:
  Event() = default;
  explicit Event(std::shared_ptr<detail::EventState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }

  // Marks the point that the stream's work has reached now; recording again replaces the earlier point.
  void record(const Stream& stream) { state_->record(stream); }
  // The same for the calling thread's current stream of get_accelerator()'s current device.
  void record();
  // Makes work enqueued on `stream` later wait for the latest record, like Stream::wait_event; the default is the
  // stream that record() uses.
  void wait(const Stream& stream) const;
  void wait() const;
  // True when the work before the point is complete, or when no point was recorded. Does not block. Throws the stream's
  // error.
  bool query() const { return state_->query(); }
  // Blocks until the work before the point is complete. Throws the stream's error.
  void synchronize() const { state_->synchronize(); }
  // Returns the milliseconds from this event to `end`. Both must be created with timing, recorded and complete; else it
  // throws InvalidArgument (AA_FAILED_PRECONDITION).
  double elapsed_time(const Event& end) const { return state_->elapsed_ms(*end.state_); }

  detail::EventState* state() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<detail::EventState> state_;
};

// An in-order queue of work on one device. Created by Accelerator::Stream().
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<detail::StreamState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }

  int device_index() const noexcept { return state_->device_index(); }
  // True when all work is complete. Does not block, unless the driver cannot tell: it then waits until that is so.
  // Throws an asynchronous error of the stream.
  bool query() const { return state_->query(); }
  // Blocks until all work enqueued so far is complete. Throws an asynchronous error of the stream.
  void synchronize() const { state_->synchronize(); }
  // Makes work enqueued on this stream later wait for the event's latest record, which may be of another device of the
  // same accelerator. Does not block the host, unless the driver lacks such waits.
  void wait_event(const Event& event) const { state_->wait_event(*event.state()); }
  // Makes work enqueued on this stream later wait for everything enqueued on `other` so far. Does not block the host,
  // unless the accelerator has no events: it then blocks until that work is complete. Does nothing if both are the same
  // stream.
  void wait_stream(const Stream& other) const;
  // Records the event, or a new one without timing if none is given, and returns it. If the driver has no events, it
  // waits until the stream's work is complete.
  anyaccel::Event record_event(anyaccel::Event event = {}) const;
  // Runs a function on the host, on any thread, in order with the stream's work. If the driver cannot do that, it waits
  // for the stream's work and runs the function on the calling thread. During a capture it is recorded, and runs in
  // each replay. The function must not use the accelerator; an exception that it throws is logged and otherwise
  // ignored.
  void host_call(std::function<void()> function) const { state_->host_call(std::move(function)); }
  // Returns the vendor's own handle (cudaStream_t, ...); null if there is none. Borrowed. Throws NotImplementedError if
  // the driver lacks the function.
  void* native_handle() const { return state_->native_handle(); }

  detail::StreamState* state() const noexcept { return state_.get(); }
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.state_ == b.state_; }

 private:
  std::shared_ptr<detail::StreamState> state_;
};

// Work that is captured once and can be replayed. Created by Accelerator::create_graph(), filled by capture_to_graph().
class Graph {
 public:
  Graph() = default;
  explicit Graph(std::shared_ptr<detail::GraphState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  // True when a capture has been completed, so that the graph can be replayed.
  bool ready() const noexcept { return state_->ready(); }
  // Returns the memory pool for allocations during the capture; pass it to another capture to share it.
  uint64_t pool() const noexcept { return state_->pool(); }

  detail::GraphState* state() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<detail::GraphState> state_;
};

// Runs a function when it is destroyed; the methods of Accelerator that change something for a scope return it.
// Movable, not copyable. An empty guard does nothing.
class [[nodiscard]] ScopeGuard {
 public:
  ScopeGuard() = default;
  explicit ScopeGuard(std::function<void(bool unwinding)> exit);
  ScopeGuard(ScopeGuard&& other) noexcept;
  ScopeGuard& operator=(ScopeGuard&&) = delete;
  // Runs the function; `unwinding` is true if an exception is unwinding the stack. If it is not, an exception that the
  // function throws propagates.
  ~ScopeGuard() noexcept(false);

 private:
  std::function<void(bool)> exit_;
  int exceptions_ = 0;
};

}  // namespace anyaccel
