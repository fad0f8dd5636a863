// Moves the weights that a model uses from its files into large pages, a part in each step (base/process/large_pages.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/llm/safetensors.h"

namespace anyaccel::llm {

// What WeightPages asks of the system; tests answer themselves.
struct PageSystem {
  std::function<int64_t()> available;                                 // bytes of memory that this process can have
  std::function<double(std::span<const std::byte>)> seconds_to_read;  // by this thread
};
// The seconds that one pass over the memory takes.
double seconds_to_read(std::span<const std::byte> memory);

class WeightPages {
 public:
  WeightPages(std::vector<std::shared_ptr<const WeightFile>> files, PageSystem system)
      : files_(std::move(files)), system_(std::move(system)) {}

  // Called in each step of a session, by any thread; calls that coincide with another one do nothing. In the 16th call, and again in
  // the 256th, 4,096th and so on (an expert may not have been used before), looks for weights in small pages. Further calls move
  // some. How much large pages help depends on how scattered the small ones are: each of the first calls reads a part before it is
  // moved and again a step later, when the step has displaced it from the caches, and nothing more is moved if that is not
  // faster by kLeastGain. Then each call goes on until a quarter of the time since the call before has passed, at most a quarter
  // of a second. It ends for good if large pages do not help, the system refuses memory or large pages, or anything fails.
  //
  // Nothing is moved, or no more, while what is left could need more than half of the memory that is available: that of the page
  // cache can be dropped when others need it, and is shared by all processes that use the file; copies are neither.
  void after_step() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void find();
  void move();
  bool helps();
  std::span<const std::byte> move_piece(size_t bytes);
  void stop(const std::string& why);

  std::vector<std::shared_ptr<const WeightFile>> files_;
  PageSystem system_;
  std::mutex mutex_;  // for the following
  int64_t steps_ = 0, next_look_ = 16;
  Clock::time_point last_;            // the last call
  size_t left_ = 0;                   // bytes in small pages
  size_t file_ = 0;                   // whose pages are moved
  size_t piece_ = 0;                  // bytes moved at a time
  int64_t pieces_ = 0;                // moved, each of which is a mapping
  std::span<const std::byte> trial_;  // moved in the last call
  double before_ = 0;                 // seconds that reading it took before
  std::vector<double> gains_;         // of the trials: seconds before over seconds after
};

}  // namespace anyaccel::llm
