// Implements anyaccel/stream.h: events, streams and ScopeGuard.
#include "anyaccel/stream.h"

#include <exception>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"

namespace anyaccel {

std::shared_ptr<detail::EventState> detail::StreamState::make_event() const {
  throw NotImplementedError("the accelerator of this stream makes no events");
}

void Event::record() { record(get_accelerator()->current_stream()); }
void Event::wait(const Stream& stream) const { stream.wait_event(*this); }
void Event::wait() const { wait(get_accelerator()->current_stream()); }

Event Stream::record_event(anyaccel::Event event) const {
  if (!event) event = anyaccel::Event(state_->make_event());
  event.record(*this);
  return event;
}

void Stream::wait_stream(const Stream& other) const {
  if (state_ == other.state_) return;
  try {
    wait_event(other.record_event());
  } catch (const NotImplementedError&) {
    other.synchronize();
  }
}

ScopeGuard::ScopeGuard(std::function<void(bool unwinding)> exit)
    : exit_(std::move(exit)), exceptions_(std::uncaught_exceptions()) {}

ScopeGuard::ScopeGuard(ScopeGuard&& other) noexcept
    : exit_(std::exchange(other.exit_, nullptr)), exceptions_(other.exceptions_) {}

ScopeGuard::~ScopeGuard() noexcept(false) {
  if (!exit_) return;
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  if (!unwinding) {
    exit_(false);
    return;
  }
  try {
    exit_(true);
  } catch (...) {  // a second exception would end the program; the first one is the cause
  }
}

}  // namespace anyaccel
