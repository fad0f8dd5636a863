// Implements stream_gate.h: keeps one thread's capture of a graph from recording another thread's work.
#include "runtime/core/stream_gate.h"

#include <utility>

#include "anyaccel/error.h"

namespace anyaccel {

namespace {

// The innermost gate that the calling thread is inside of.
thread_local constinit void* passing = nullptr;

}  // namespace

void* StreamGate::enter() {
  void* const outer = passing;
  if (outer == this) return outer;
  if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) != 0) [[unlikely]] {
    try {
      refuse_unless_mine();
    } catch (...) {
      passing = this;
      leave(outer);
      throw;
    }
  }
  passing = this;
  return outer;
}

void StreamGate::leave(void* entered) noexcept {
  if (entered == this) return;
  passing = entered;
  if ((state_.fetch_sub(1, std::memory_order_release) & kClosed) != 0) [[unlikely]]
    state_.notify_all();
}

void StreamGate::refuse_unless_mine() const {
  const std::shared_ptr<CaptureOwner> owner = this->owner();
  if (!owner || owner->is_mine()) return;
  throw InvalidArgument(
      "another thread is capturing a graph on this stream, and work of this thread must not be recorded with it; give "
      "each "
      "thread that captures a stream of its own (Accelerator::Stream() and stream()), or wait until the capture has "
      "ended",
      AA_FAILED_PRECONDITION);
}

bool StreamGate::close(std::shared_ptr<CaptureOwner> owner) {
  const uint32_t own = passing == this ? 1 : 0;
  {
    const std::lock_guard lock(mutex_);
    if (owner_) return false;
    owner_ = std::move(owner);
  }
  uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  while ((state & ~kClosed) > own) {
    state_.wait(state, std::memory_order_acquire);
    state = state_.load(std::memory_order_acquire);
  }
  return true;
}

void StreamGate::open() noexcept {
  const std::lock_guard lock(mutex_);
  state_.fetch_and(~kClosed, std::memory_order_release);
  owner_.reset();
}

std::shared_ptr<CaptureOwner> StreamGate::owner() const {
  const std::lock_guard lock(mutex_);
  return owner_;
}

}  // namespace anyaccel
