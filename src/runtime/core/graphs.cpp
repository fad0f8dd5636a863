// Implements graphs.h. The driver records; the host keeps the memory that captured work uses in a pool of the graph, so that
// nothing else is given that memory while the graph can be replayed.
#include "runtime/core/graphs.h"

namespace anyaccel {

DriverGraph::~DriverGraph() { clear(); }

void DriverGraph::clear() {
  // A replay may still be running; the graph and its memory must outlive it.
  if (graph_ && !(context_->props.caps & AA_CAP_SYNCHRONOUS)) {
    release_status(context_->driver().device_synchronize(context_->device));
  }
  if (graph_) release_status(context_->instance->graph->destroy(graph_));
  if (pool_) context_->allocator->release_pool(pool_);
  graph_ = nullptr;
  pool_ = 0;
  calls_.reset();
}

void DriverGraph::set(aa_graph* graph, uint64_t pool, std::unique_ptr<HostCalls> calls) {
  clear();
  calls_ = std::move(calls);
  graph_ = graph;
  pool_ = pool;
}

}  // namespace anyaccel
