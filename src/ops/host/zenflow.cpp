// Implements ZenFlow's steps: the control block of zenflow.h, and the calls of anyaccel/ops/cpu_adam.h except those
// that make a step.
#include "ops/host/zenflow.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <new>

#include "anyaccel/error.h"
#include "anyaccel/ops/cpu_adam.h"

namespace anyaccel::ops {

static_assert(std::atomic<int64_t>::is_always_lock_free, "the counters are shared by processes");

void ZenControl::make(void* memory, int num_groups) {
  std::memset(memory, 0, sizeof(ZenControl));
  auto* control = new (memory) ZenControl;
  control->num_groups_ = num_groups;
  if (sem_init(&control->submitted_signal_, 1, 0) != 0 || sem_init(&control->done_signal_, 1, 0) != 0) {
    throw Error("zenflow_adam_ctrl_init: the system refuses a semaphore: " + std::string(std::strerror(errno)),
                AA_INTERNAL, errno);
  }
  for (auto* counter : {&control->submitted_, &control->taken_, &control->done_, &control->seen_}) counter->store(0);
  control->mark_ = mark;
}

ZenControl& ZenControl::at(const char* op, void* memory) {
  auto* control = static_cast<ZenControl*>(memory);
  if (!memory || reinterpret_cast<uintptr_t>(memory) % alignment != 0 || control->mark_ != mark) {
    throw InvalidArgument(std::string(op) +
                          ": there is no control block at that address; zenflow_adam_ctrl_init makes one");
  }
  return *control;
}

ZenStep* ZenControl::next_slot(bool for_exit) noexcept {
  const int64_t number = submitted_.load(std::memory_order_relaxed);
  const int64_t limit = for_exit ? kept_slots : slots;
  if (number - taken_.load(std::memory_order_acquire) >= limit) return nullptr;
  return &steps_[number % kept_slots];
}

void ZenControl::submit() noexcept {
  submitted_.fetch_add(1, std::memory_order_release);
  sem_post(&submitted_signal_);
}

bool ZenControl::wait(double timeout_s, std::string& failure) {
  timespec deadline{};
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  // A longer timeout means for ever.
  const double seconds = std::min(timeout_s, 1e9);
  const double whole = std::floor(seconds);
  deadline.tv_sec += static_cast<time_t>(whole);
  deadline.tv_nsec += static_cast<long>((seconds - whole) * 1e9);
  if (deadline.tv_nsec >= 1000000000L) {
    deadline.tv_sec += 1;
    deadline.tv_nsec -= 1000000000L;
  }
  while (sem_clockwait(&done_signal_, CLOCK_MONOTONIC, &deadline) != 0) {
    if (errno != EINTR) return false;
  }
  static_cast<void>(done_.load(std::memory_order_acquire));
  failure = failures_[seen_.fetch_add(1, std::memory_order_relaxed) % kept_slots];
  return true;
}

const ZenStep& ZenControl::take() {
  while (sem_wait(&submitted_signal_) != 0) {
    if (errno != EINTR) {
      throw Error("zenflow_adam_run_worker: waiting for a step: " + std::string(std::strerror(errno)), AA_INTERNAL,
                  errno);
    }
  }
  static_cast<void>(submitted_.load(std::memory_order_acquire));
  return steps_[taken_.load(std::memory_order_relaxed) % kept_slots];
}

void ZenControl::done(const std::string& failure) {
  const int64_t number = taken_.load(std::memory_order_relaxed);
  char* text = failures_[number % kept_slots];
  const size_t length = std::min(failure.size(), most_text - 1);
  std::memcpy(text, failure.data(), length);
  text[length] = 0;
  taken_.store(number + 1, std::memory_order_release);
  done_.fetch_add(1, std::memory_order_release);
  sem_post(&done_signal_);
}

int64_t CPUAdam::zenflow_adam_ctrl_size() noexcept { return static_cast<int64_t>(sizeof(ZenControl)); }

void CPUAdam::zenflow_adam_ctrl_init(void* control, int num_groups) {
  if (!control || reinterpret_cast<uintptr_t>(control) % ZenControl::alignment != 0) {
    throw InvalidArgument("zenflow_adam_ctrl_init: the control block must lie at a multiple of 64 bytes");
  }
  if (num_groups < 1 || num_groups > ZenStep::most_groups) {
    throw InvalidArgument("zenflow_adam_ctrl_init: num_groups is " + std::to_string(num_groups) + "; it must be 1 to " +
                          std::to_string(ZenStep::most_groups));
  }
  ZenControl::make(control, num_groups);
}

void CPUAdam::zenflow_adam_submit(void* control, int now_state, int64_t step, std::span<const float> lr,
                                  std::span<const float> beta1, std::span<const float> beta2,
                                  std::span<const float> eps, std::span<const float> weight_decay,
                                  std::span<const uint8_t> bias_correction) {
  const char* op = "zenflow_adam_submit";
  ZenControl& block = ZenControl::at(op, control);
  const auto groups = static_cast<size_t>(block.num_groups());
  const auto check = [&](const char* name, size_t count) {
    if (count == groups) return;
    throw InvalidArgument(std::string(op) + ": " + name + " has " + std::to_string(count) +
                          " values; expected one for each of " + std::to_string(groups) + " groups");
  };
  check("lr", lr.size());
  check("beta1", beta1.size());
  check("beta2", beta2.size());
  check("eps", eps.size());
  check("weight_decay", weight_decay.size());
  check("bias_correction", bias_correction.size());
  if (now_state != 0 && now_state != 1) {
    throw InvalidArgument(std::string(op) + ": now_state is " + std::to_string(now_state) + "; it must be 0 or 1");
  }
  ZenStep* slot = block.next_slot(false);
  if (!slot) {
    throw Error(std::string(op) + ": " + std::to_string(ZenControl::slots) +
                    " steps wait already and the worker begins none; does it still run?",
                AA_RESOURCE_EXHAUSTED);
  }
  slot->exit = 0;
  slot->now_state = now_state;
  slot->step = step;
  std::copy(lr.begin(), lr.end(), slot->lr);
  std::copy(beta1.begin(), beta1.end(), slot->beta1);
  std::copy(beta2.begin(), beta2.end(), slot->beta2);
  std::copy(eps.begin(), eps.end(), slot->eps);
  std::copy(weight_decay.begin(), weight_decay.end(), slot->weight_decay);
  std::copy(bias_correction.begin(), bias_correction.end(), slot->bias_correction);
  block.submit();
}

bool CPUAdam::zenflow_adam_wait(void* control, double timeout_s) {
  const char* op = "zenflow_adam_wait";
  ZenControl& block = ZenControl::at(op, control);
  if (!(timeout_s >= 0)) {
    throw InvalidArgument(std::string(op) + ": timeout_s is " + std::to_string(timeout_s) + "; expected 0 or more");
  }
  std::string failure;
  if (!block.wait(timeout_s, failure)) return false;
  if (!failure.empty()) throw Error(std::string(op) + ": the step failed: " + failure, AA_INTERNAL);
  return true;
}

void CPUAdam::zenflow_adam_ctrl_exit(void* control) {
  const char* op = "zenflow_adam_ctrl_exit";
  ZenControl& block = ZenControl::at(op, control);
  ZenStep* slot = block.next_slot(true);
  if (!slot) throw Error(std::string(op) + ": the worker was told before", AA_RESOURCE_EXHAUSTED);
  slot->exit = 1;
  block.submit();
}

}  // namespace anyaccel::ops
