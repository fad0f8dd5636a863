// Holds the captured decode steps of a session, one for each batch size.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "anyaccel/accelerator.h"

namespace anyaccel::llm {

class GraphCache {
 public:
  // Replays the step of this batch size on the current stream, after capturing it if necessary. Returns false if the
  // size has not run before: then the caller runs the step op by op, so that every op has completed its first-use setup
  // before it is captured. `prepare` allocates the memory of the step, `enqueue` enqueues the step.
  bool replay(Accelerator& accelerator, int64_t batch, const std::function<void()>& prepare,
              const std::function<void()>& enqueue);
  // Discards the graphs; call when the state that they captured has changed.
  void clear() { steps_.clear(); }
  // Number of steps that were replayed so far.
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
