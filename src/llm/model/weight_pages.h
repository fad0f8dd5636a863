// Moves the weights that a model uses from its files into large pages, a part in each step (base/process/large_pages.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

class WeightPages {
 public:
  // `available`: bytes of memory that this process can have.
  WeightPages(std::vector<std::shared_ptr<const WeightFile>> files, std::function<int64_t()> available)
      : files_(std::move(files)), available_(std::move(available)) {}

  // Called in each step of a session, by any thread; calls that coincide with another one do nothing. In the 16th call, and again in
  // the 256th, 4,096th and so on (an expert may not have been used before), looks for weights in small pages. Each further call
  // moves some until a quarter of the time since the call before has passed, at most a quarter of a second. It ends for good if
  // the system refuses memory or large pages, or anything fails.
  //
  // Nothing is moved, or no more, while what is left could need more than half of the memory that is available: that of the page
  // cache can be dropped when others need it, and is shared by all processes that use the file; copies are neither.
  void after_step() noexcept;
  // Whether the first look is still to come, or what was found has not all been moved or given up.
  bool is_busy() const;

 private:
  using Clock = std::chrono::steady_clock;
  void find();
  void move();

  std::vector<std::shared_ptr<const WeightFile>> files_;
  std::function<int64_t()> available_;
  static constexpr int64_t kFirstLook = 16;
  mutable std::mutex mutex_;  // for the following
  int64_t steps_ = 0, next_look_ = kFirstLook;
  Clock::time_point last_;  // the last call
  size_t left_ = 0;         // bytes in small pages
  size_t file_ = 0;         // whose pages are moved
  size_t piece_ = 0;        // bytes moved at a time
  int64_t pieces_ = 0;      // moved, each of which is a mapping
};

}  // namespace anyaccel::llm
