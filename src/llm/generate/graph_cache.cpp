// Captures decode steps and replays them.
#include "llm/generate/graph_cache.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace anyaccel::llm {
namespace {

// A batch that shrinks one by one passes through many sizes.
constexpr size_t kept_graphs = 8;

}  // namespace

bool GraphCache::replay(Accelerator& accelerator, int64_t batch, const std::function<void()>& prepare,
                        const std::function<void(const BetweenGraphs&)>& enqueue) {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.batch == batch; });
  if (found != steps_.end()) {
    run(accelerator, *found);
  } else if (std::find(warm_.begin(), warm_.end(), batch) == warm_.end()) {
    warm_.push_back(batch);
    return false;
  } else {
    prepare();
    run(accelerator, capture(accelerator, batch, enqueue));
  }
  ++replayed_;
  return true;
}

const GraphCache::Step& GraphCache::capture(Accelerator& accelerator, int64_t batch,
                                            const std::function<void(const BetweenGraphs&)>& enqueue) {
  Step step;
  step.batch = batch;
  {
    std::optional<ScopeGuard> capturing;
    const auto begin = [&] {
      step.pieces.push_back({accelerator.create_graph(), {}});
      capturing.emplace(accelerator.capture_to_graph(step.pieces.back().graph));
    };
    begin();
    enqueue([&](std::function<void()> work) {
      capturing.reset();
      step.pieces.back().work = std::move(work);
      begin();
    });
  }
  if (steps_.size() == kept_graphs) steps_.erase(steps_.begin());
  steps_.push_back(std::move(step));
  return steps_.back();
}

void GraphCache::run(Accelerator& accelerator, const Step& step) {
  for (const Piece& piece : step.pieces) {
    accelerator.replay_graph(piece.graph);
    if (piece.work) piece.work();
  }
}

}  // namespace anyaccel::llm
