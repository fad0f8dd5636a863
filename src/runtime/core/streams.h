// Streams and events of a device, and the record of which streams take part in the capture of a graph.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "anyaccel/stream.h"
#include "runtime/core/device_context.h"
#include "runtime/core/stream_gate.h"

namespace anyaccel {

// Functions whose addresses are passed to a driver.
using HostCalls = std::vector<std::unique_ptr<std::function<void()>>>;

// A capture of a graph in progress.
struct CaptureScope : CaptureOwner {
  uint64_t pool = 0;                                   // of the graph
  std::vector<std::shared_ptr<DriverStream>> streams;  // the streams that take part; accessed by the capturing thread

  std::unique_ptr<HostCalls> calls = std::make_unique<HostCalls>();  // what end() returns

  // Every thread may use the streams again; returns the host calls that the graph keeps.
  std::unique_ptr<HostCalls> end() noexcept;
};

class DriverStream final : public detail::StreamState, public std::enable_shared_from_this<DriverStream> {
 public:
  // `owner` is empty for a device's default stream, which its context owns.
  // Makes the driver's stream.
  DriverStream(DeviceContext& context, std::shared_ptr<DeviceContext> owner, int32_t priority, uint32_t flags);
  ~DriverStream() override;

  int device_index() const noexcept override { return context_.index; }
  std::shared_ptr<detail::EventState> make_event() const override;
  bool query() const override;
  void synchronize() const override;
  void wait_event(const detail::EventState& event) override;
  void host_call(std::function<void()> function) override;
  void* native_handle() const override;

  aa_stream* stream() const noexcept { return host_.stream; }
  DeviceContext& context() const noexcept { return context_; }
  StreamGate& gate() const noexcept { return gate_; }
  // Adds the stream to a capture of the calling thread. InvalidArgument if it takes part in a capture already. During
  // the capture, functions passed to host_call are kept by it, and afterwards by the graph: a replay calls them again.
  void begin_capture(const std::shared_ptr<CaptureScope>& scope);
  void end_capture() noexcept;
  bool capturing() const noexcept { return gate_.closed(); }

 private:
  DeviceContext& context_;
  std::shared_ptr<DeviceContext> owner_;
  HostStream host_;
  mutable StreamGate gate_;
  CaptureScope* capture_ = nullptr;  // of the capturing thread
};

class DriverEvent final : public detail::EventState {
 public:
  DriverEvent(std::shared_ptr<DeviceContext> context, aa_event* event) : context_(std::move(context)), event_(event) {}
  ~DriverEvent() override;

  void record(const anyaccel::Stream& stream) override;
  bool query() const override;
  void synchronize() const override;
  double elapsed_ms(const detail::EventState& end) const override;

  aa_event* event() const noexcept { return event_; }
  DeviceContext& context() const noexcept { return *context_; }
  // The capture in which the event was last recorded, if that capture is still in progress; else null.
  std::shared_ptr<CaptureScope> capture() const;

 private:
  std::shared_ptr<DeviceContext> context_;
  aa_event* event_;
  std::atomic<bool> captured_{false};  // last recorded inside a capture
  mutable std::mutex mutex_;
  std::weak_ptr<CaptureScope> capture_;  // mutex_; that capture
};

// An event on a device that has no events, or whose events have no times: record() waits until the stream's work is
// complete and takes the host's time, so the event is always complete.
class HostEvent final : public detail::EventState {
 public:
  void record(const anyaccel::Stream& stream) override;
  bool query() const override { return true; }
  void synchronize() const override {}
  double elapsed_ms(const detail::EventState& end) const override;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> time() const;

  mutable std::mutex mutex_;
  std::optional<Clock::time_point> time_;  // mutex_; of the latest record
};

// Returns the stream or event behind a handle of the interface. InvalidArgument for an empty handle, and for one of
// another kind of accelerator.
DriverStream& driver_stream(const anyaccel::Stream& stream);
DriverEvent& driver_event(const anyaccel::Event& event);

// Holds a stream for the duration of a call that enqueues work: while the object exists, no other thread can begin a
// capture on the stream. InvalidArgument (AA_FAILED_PRECONDITION) if another thread is capturing on it. Used by one
// thread; the stream must outlive the object.
class StreamUse {
 public:
  explicit StreamUse(DriverStream& stream) : stream_(stream), pass_(stream.gate()) {}
  aa_stream* handle() const noexcept { return stream_.stream(); }

 private:
  DriverStream& stream_;
  StreamGate::Pass pass_;
};

}  // namespace anyaccel
