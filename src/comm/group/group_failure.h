// Stores the first failure of a group, which every later operation throws.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "anyaccel/error.h"

namespace anyaccel::comm {

class GroupFailure {
 public:
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  // Stores the first failure; returns false if there was one already.
  bool set(const std::string& message, aa_code code) {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    message_ = message;
    code_ = code;
    failed_.store(true, std::memory_order_release);
    return true;
  }

  void check() const {
    if (!failed()) [[likely]]
      return;
    throw CommunicationError(message_, code_);  // never written again
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::string message_;
  aa_code code_ = AA_UNAVAILABLE;
};

}  // namespace anyaccel::comm
