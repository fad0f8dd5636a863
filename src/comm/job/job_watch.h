// Implements the FailureWatch of a job, which its connection to the store sets, and which all waits poll.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/error.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

class JobWatch final : public FailureWatch {
 public:
  using Listener = std::function<void(const std::string&)>;

  bool failed() const noexcept override { return failed_.load(std::memory_order_relaxed); }
  void check() const override {
    if (failed_.load(std::memory_order_acquire)) throw CommunicationError(message_);  // never written again
  }

  // Stores the first message and notifies the listeners.
  void fail(const std::string& message) noexcept;
  // Adds a listener, which is called once when the job fails, on the detecting thread; immediately if it has failed.
  // Must not throw or add listeners.
  void add_listener(Listener listener);

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::string message_;
  std::vector<Listener> listeners_;
};

// The watch of the job that this process has joined by init_process_group(); null if it has joined none.
std::shared_ptr<FailureWatch> job_failure_watch() noexcept;

}  // namespace anyaccel::comm
