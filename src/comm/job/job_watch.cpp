// Implements the failure watch of a job.
#include "comm/job/job_watch.h"

namespace anyaccel::comm {

void JobWatch::fail(const std::string& message) noexcept {
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    message_ = message;
    failed_.store(true, std::memory_order_release);
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners) listener(message);
}

void JobWatch::add_listener(Listener listener) {
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
      listeners_.push_back(std::move(listener));
      return;
    }
  }
  listener(message_);
}

}  // namespace anyaccel::comm
