// Streams and events of a device, and which of them take part in the capture of a graph.
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

// Functions that a driver holds by address.
using HostCalls = std::vector<std::unique_ptr<std::function<void()>>>;

// A capture of a graph that is under way.
struct CaptureScope : CaptureOwner {
  uint64_t pool = 0;                                   // of the graph
  std::vector<std::shared_ptr<DriverStream>> streams;  // that take part; of the capturing thread

  // The streams are everybody's again; returns the host calls that the graph keeps.
  std::unique_ptr<HostCalls> end();
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
  // Makes the stream part of a capture of the calling thread. InvalidArgument when it takes part in one already. While it
  // does, functions of host_call are kept here, and then by the graph: a replay calls them again.
  void begin_capture(const std::shared_ptr<CaptureScope>& scope);
  // Adds those functions to `calls`.
  void end_capture(HostCalls& calls) noexcept;
  bool capturing() const noexcept { return gate_.closed(); }

 private:
  DeviceContext& context_;
  std::shared_ptr<DeviceContext> owner_;
  HostStream host_;
  mutable StreamGate gate_;
  HostCalls captured_calls_;  // of the capturing thread
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
  // The capture in which it was recorded last, if that is still under way; else null.
  std::shared_ptr<CaptureScope> capture() const;

 private:
  std::shared_ptr<DeviceContext> context_;
  aa_event* event_;
  std::atomic<bool> captured_{false};  // recorded last in a capture
  mutable std::mutex mutex_;
  std::weak_ptr<CaptureScope> capture_;  // mutex_; that capture
};

// An event on a device without events, or without times of them: record() waits until the stream's work is complete and takes
// the host's time, so the event is always complete.
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

// The stream or event of a handle of the interface. InvalidArgument for an empty one, and for another kind of accelerator's.
DriverStream& driver_stream(const anyaccel::Stream& stream);
DriverEvent& driver_event(const anyaccel::Event& event);

// A stream for the length of a call that enqueues work: while it lives no other thread's capture begins there. InvalidArgument
// (AA_FAILED_PRECONDITION) when another thread captures on the stream. Of one thread; the stream must outlive it.
class StreamUse {
 public:
  explicit StreamUse(DriverStream& stream) : stream_(stream), pass_(stream.gate()) {}
  aa_stream* handle() const noexcept { return stream_.stream(); }

 private:
  DriverStream& stream_;
  StreamGate::Pass pass_;
};

}  // namespace anyaccel
