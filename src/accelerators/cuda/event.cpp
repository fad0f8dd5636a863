// Implements event.h: events.
#include "accelerators/cuda/event.h"

#include <string>

#include "accelerators/cuda/graph.h"
#include "accelerators/cuda/stream.h"

namespace anyaccel::cuda {

Event::Event(DeviceState& device, uint32_t flags) : device_(device), timed_((flags & AA_EVENT_TIMING) != 0) {
  device.bind_surely();
  const unsigned wanted =
      (timed_ ? 0 : event_disable_timing) | (flags & AA_EVENT_BLOCKING_SYNC ? event_blocking_sync : 0);
  device.check(device.api().event_create(&handle_, wanted), "cuEventCreate");
}

Event::~Event() {
  if (is_forked_child()) return;
  try {
    device_.bind();
  } catch (const abi::Failure&) {
    // The handle of a lost device is released too.
  }
  const RelaxedCaptureMode relaxed(device_.api());
  device_.api().event_destroy(handle_);
}

std::shared_ptr<Capture> Event::capture() const {
  const std::lock_guard lock(mutex_);
  return capture_.lock();
}

void Event::record(abi::Stream& recorded_on) {
  auto& stream = static_cast<Stream&>(recorded_on);
  device_.enqueue("cuEventRecord", [&] { return device_.api().event_record(handle_, stream.handle()); });
  recorded_.store(true, std::memory_order_release);
  if (!stream.captures() && !captured()) return;
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Capture> capture = stream.core()->capture();
  capture_ = capture;
  captured_.store(capture != nullptr, std::memory_order_release);
}

void Event::refuse_captured(const char* what) const {
  if (!captured()) return;
  throw abi::Failure(AA_FAILED_PRECONDITION,
                     "the event was recorded last in a capture, where it is a place in the graph: "
                     "it cannot be " +
                         std::string(what) + " before it is recorded again");
}

bool Event::query() {
  device_.usable();
  if (!recorded()) return true;
  refuse_captured("queried");
  const RelaxedCaptureMode relaxed(device_.api());
  const Result result = device_.enqueue_result([&] { return device_.api().event_query(handle_); });
  if (result == error_not_ready) return false;
  device_.check(result, "cuEventQuery");
  return true;
}

void Event::synchronize() {
  device_.usable();
  if (!recorded()) return;
  refuse_captured("waited for");
  const RelaxedCaptureMode relaxed(device_.api());
  device_.enqueue("cuEventSynchronize", [&] { return device_.api().event_synchronize(handle_); });
}

double Event::elapsed(abi::Event& end_event) {
  auto& end = static_cast<Event&>(end_event);
  if (&end.device_ != &device_) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the events are of two devices, whose clocks have nothing in common");
  }
  for (const Event* event : {static_cast<const Event*>(this), static_cast<const Event*>(&end)}) {
    if (!event->timed_) throw abi::Failure(AA_FAILED_PRECONDITION, "an event was made without AA_EVENT_TIMING");
    if (!event->recorded()) throw abi::Failure(AA_FAILED_PRECONDITION, "an event was never recorded");
    event->refuse_captured("timed");
  }
  float milliseconds = 0;
  const Result result =
      device_.enqueue_result([&] { return device_.api().event_elapsed(&milliseconds, handle_, end.handle_); });
  if (result == error_not_ready) throw abi::Failure(AA_FAILED_PRECONDITION, "an event is not complete yet");
  device_.check(result, "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace anyaccel::cuda
