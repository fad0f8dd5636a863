// The control block of ZenFlow's steps (anyaccel/ops/cpu_adam.h): memory that the program and the worker of its optimizer share,
// perhaps as two processes. One side submits and waits, the other takes and completes.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace anyaccel::ops {

struct ZenStep {
  static constexpr int most_groups = 1024;

  int exit;  // 1: the worker is to end
  int now_state;
  int64_t step;
  float lr[most_groups], beta1[most_groups], beta2[most_groups], eps[most_groups], weight_decay[most_groups];
  uint8_t bias_correction[most_groups];
};

class ZenControl {
 public:
  static constexpr int64_t slots = 4;  // a power of two; one more is kept for the exit
  static constexpr size_t alignment = 64;

  // `memory` must be aligned; the block is made there.
  static void make(void* memory, int num_groups);
  // The block at that address. InvalidArgument where there is none.
  static ZenControl& at(const char* op, void* memory);

  int num_groups() const noexcept { return num_groups_; }
  // The side that submits. Null when all slots are taken.
  ZenStep* next_slot(bool for_exit) noexcept;
  void submit() noexcept;
  // False after the time. `failure` is what the step failed with, empty when it did not.
  bool wait(double timeout_s, std::string& failure);

  // The worker's side: blocks until there is a step. The slot is free again after done().
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
  // Of the last steps, by their number: those that nobody waited for yet are among them as long as waits are not skipped for longer.
  char failures_[kept_slots][most_text];
};

}  // namespace anyaccel::ops
