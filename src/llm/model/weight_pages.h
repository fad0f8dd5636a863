// Moves the weights that a model uses from its files into large pages, a part after each step (base/process/large_pages.h).
#pragma once

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

  // Called after each step, by any thread; calls that coincide with another one do nothing. After 16 steps, and again after 256, 4,096
  // and so on (an expert may not have been used before), looks for weights in small pages; each further step moves a 64th of them,
  // which takes about a tenth of the time of a step. Nothing is moved if the copies could need more than half of the memory
  // that is available: that of the page cache can be dropped when others need it, copies cannot.
  void after_step();

 private:
  void find();

  std::vector<std::shared_ptr<const WeightFile>> files_;
  std::function<int64_t()> available_;
  std::mutex mutex_;  // for the following
  int64_t steps_ = 0, next_look_ = 16;
  size_t file_ = 0;  // whose pages are moved; files_.size(): none
  size_t part_ = 0;  // bytes for a step; 0: nothing to do
};

}  // namespace anyaccel::llm
