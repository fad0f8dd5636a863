// The time limit of an operation that waits for other members of its group.
#pragma once

#include <chrono>

namespace anyaccel::comm {

// Time in which the process was stopped, as those of a suspended job are, does not count: its peers were stopped too, or
// are reported by the job's watch. Used by one thread at a time.
class WaitLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitLimit(std::chrono::milliseconds limit = {}, Clock::time_point now = Clock::now())
      : left_(limit), looked_(now) {}

  // Whether the limit has passed. A waiting thread calls it every few milliseconds; one that did not for much longer was
  // stopped meanwhile.
  bool passed(Clock::time_point now = Clock::now()) noexcept {
    if (now - looked_ < kStopped) left_ -= now - looked_;
    looked_ = now;
    return left_ <= Clock::duration::zero();
  }

 private:
  static constexpr std::chrono::seconds kStopped{2};

  Clock::duration left_;
  Clock::time_point looked_;
};

}  // namespace anyaccel::comm
