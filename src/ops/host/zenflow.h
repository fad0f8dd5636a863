// Declares the control block of ZenFlow's steps (anyaccel/ops/cpu_adam.h): memory that the program and the worker of
// its optimizer share, possibly as two processes. One side submits and waits, the other takes and completes.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace anyaccel::ops {

struct ZenStep {
  static constexpr int most_groups = 1024;

  int exit;  // 1: the worker must end
  int now_state;
  int64_t step;
  float lr[most_groups], beta1[most_groups], beta2[most_groups], eps[most_groups], weight_decay[most_groups];
  uint8_t bias_correction[most_groups];
};

class ZenControl {
 public:
  static constexpr int64_t slots = 4;  // a power of two; one more is reserved for the exit
  static constexpr size_t alignment = 64;

  // Creates the block in `memory`, which must be aligned.
  static void make(void* memory, int num_groups);
  // Returns the block at that address. InvalidArgument if there is none.
  static ZenControl& at(const char* op, void* memory);

  int num_groups() const noexcept { return num_groups_; }
  // For the side that submits: returns null if all slots are taken.
  ZenStep* next_slot(bool for_exit) noexcept;
  void submit() noexcept;
  // Returns false after the timeout. `failure` receives the error of the step; it is empty if the step succeeded.
  bool wait(double timeout_s, std::string& failure);

  // For the worker: blocks until there is a step. The slot is free again after done().
  const ZenStep& take();
  void done(const std::string& failure);

 private:
  static constexpr uint64_t mark = 0x6e65776f6c666f72;
  static constexpr int64_t kept_slots = 2 * slots;
  static constexpr size_t most_text = 256;

  uint64_t mark_;
  int num_groups_;
  sem_t submitted_signal_, done_signal_;
  std::atomic<int64_t> submitted_, taken_, done_, seen_;
  ZenStep steps_[kept_slots];
  // The errors of the last steps, by the steps' numbers. They include those that nobody has waited for yet, unless more
  // waits than that are skipped.
  char failures_[kept_slots][most_text];
};

}  // namespace anyaccel::ops
