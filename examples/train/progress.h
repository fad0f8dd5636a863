// Shows the progress of training: one line that is rewritten in place on a terminal, else a new line now and then.
#pragma once

#include <chrono>
#include <cstdint>

class Progress {
 public:
  // `first` is the number of steps that were done before.
  Progress(int64_t first, int64_t steps, int64_t tokens_a_step, bool shown);
  ~Progress();
  void step(int64_t step, double loss, double rate);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t first_, steps_, tokens_;
  bool shown_, terminal_, open_ = false;
  Clock::time_point start_, last_;
};
