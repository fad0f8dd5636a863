// Holds the captured decode steps of a session, one for each batch size. A step in which the host takes part (it chooses
// experts) is captured as several graphs, with the host's work between them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "anyaccel/accelerator.h"

namespace anyaccel::llm {

// Ends a piece of a step that is being captured. The work runs at each replay, on the stream's thread, when the piece before
// it has been enqueued; it may wait for that piece and enqueue more.
using BetweenGraphs = std::function<void(std::function<void()> work)>;

class GraphCache {
 public:
  // Replays the step of this batch size on the current stream, after capturing it if necessary. Returns false if the
  // size has not run before: then the caller runs the step op by op, so that every op has completed its first-use setup
  // before it is captured. `prepare` allocates the memory of the step, `enqueue` enqueues the step,
  // and hands over the work that cannot be captured.
  bool replay(Accelerator& accelerator, int64_t batch, const std::function<void()>& prepare,
              const std::function<void(const BetweenGraphs&)>& enqueue);
  // Discards the graphs; call when the state that they captured has changed.
  void clear() { steps_.clear(); }
  // Number of steps that were replayed so far.
  uint64_t replayed() const noexcept { return replayed_; }

 private:
  struct Piece {
    Graph graph;
    std::function<void()> work;  // after the graph; empty in the last piece
  };
  struct Step {
    int64_t batch = 0;
    std::vector<Piece> pieces;
  };
  const Step& capture(Accelerator& accelerator, int64_t batch,
                      const std::function<void(const BetweenGraphs&)>& enqueue);
  void run(Accelerator& accelerator, const Step& step);

  std::vector<int64_t> warm_;  // batch sizes that ran once outside a graph
  std::vector<Step> steps_;
  uint64_t replayed_ = 0;
};

}  // namespace anyaccel::llm
