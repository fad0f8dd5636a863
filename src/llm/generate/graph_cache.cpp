// Captures decode steps and replays them.
#include "llm/generate/graph_cache.h"

#include <algorithm>
#include <utility>

namespace anyaccel::llm {
namespace {

// A batch that shrinks one by one passes through many sizes.
constexpr size_t kept_graphs = 8;

}  // namespace

bool GraphCache::replay(Accelerator& accelerator, int64_t batch, const std::function<void()>& prepare,
                        const std::function<void()>& enqueue) {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.batch == batch; });
  if (found != steps_.end()) {
    accelerator.replay_graph(found->graph);
  } else if (std::find(warm_.begin(), warm_.end(), batch) == warm_.end()) {
    warm_.push_back(batch);
    return false;
  } else {
    prepare();
    accelerator.replay_graph(capture(accelerator, batch, enqueue));
  }
  ++replayed_;
  return true;
}

const Graph& GraphCache::capture(Accelerator& accelerator, int64_t batch, const std::function<void()>& enqueue) {
  Step step;
  step.batch = batch;
  step.graph = accelerator.create_graph();
  {
    const ScopeGuard capturing = accelerator.capture_to_graph(step.graph);
    enqueue();
  }
  if (steps_.size() == kept_graphs) steps_.erase(steps_.begin());
  steps_.push_back(std::move(step));
  return steps_.back().graph;
}

}  // namespace anyaccel::llm
