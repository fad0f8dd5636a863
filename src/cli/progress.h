// Shows the progress of long work on one line of a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/text/progress_line.h"

namespace anyaccel::cli {

// Prints a progress_line() on standard error if that is a terminal, at most ten times a second and not in the first fifth of a
// second, and clears it when destroyed. For one thread.
class Progress {
 public:
  Progress(std::string what, ProgressUnit unit, bool shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True if the line is shown at all.
  bool is_shown() const noexcept { return shown_; }
  void operator()(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  ProgressUnit unit_;
  bool shown_;
  bool printed_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_ + std::chrono::milliseconds(200);
};

}  // namespace anyaccel::cli
