// Captured decode steps of a session, one for each batch size.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "anyaccel/accelerator.h"

namespace anyaccel::llm {

class GraphCache {
 public:
  // Replays the step of this batch size on the current stream, and captures it before that when the size has run once. False
  // when it has not: then the caller runs the step op by op, so that everything an op sets up on first use is there before it
  // is captured. `prepare` makes memory that the step needs, `enqueue` is the step.
  bool replay(Accelerator& accelerator, int64_t batch, const std::function<void()>& prepare,
              const std::function<void()>& enqueue);
  // Forgets the graphs, because what they hold has changed.
  void clear() { steps_.clear(); }
  // Steps that were replayed so far.
  uint64_t replayed() const noexcept { return replayed_; }

 private:
  struct Step {
    int64_t batch = 0;
    Graph graph;
  };
  const Graph& capture(Accelerator& accelerator, int64_t batch, const std::function<void()>& enqueue);

  std::vector<int64_t> warm_;  // batch sizes that ran once outside a graph
  std::vector<Step> steps_;
  uint64_t replayed_ = 0;
};

}  // namespace anyaccel::llm
