// Implements graph.h: recorded graphs.
#include "accelerators/queue_runtime/graph.h"

#include "accelerators/queue_runtime/stream.h"

namespace anyaccel::queue_runtime {

Graph::~Graph() {
  if (last_launch_ && !device_->is_forked_child()) {
    try {
      last_launch_->wait();  // after an error the caller could not
    } catch (const abi::Failure&) {
      // After that nothing of the graph is running.
    }
  }
  for (void* buffer : staging_) {
    try {
      device_->free(AA_MEMORY_PINNED, buffer);
    } catch (const abi::Failure&) {
      // The others must still be freed.
    }
  }
}

void Graph::add(GraphStep step, int64_t items) {
  steps_.push_back(std::move(step));
  items_ += items;
}

void* Graph::add_staging(size_t size) {
  staging_.reserve(staging_.size() + 1);
  staging_.push_back(device_->allocate(AA_MEMORY_PINNED, size));
  return staging_.back();
}

Graph::HostCopy* Graph::add_host_copy(const HostCopy& copy) {
  host_copies_.push_back(std::make_unique<HostCopy>(copy));
  return host_copies_.back().get();
}

void Graph::launch(abi::Stream& target) {
  auto& stream = static_cast<Stream&>(target);
  if (stream.capturing()) {
    throw abi::Failure(AA_UNIMPLEMENTED, "a graph cannot be launched on a stream that captures another one");
  }
  // Launches run one after another, even on different streams.
  if (last_launch_) stream.wait_for(last_launch_);
  try {
    for (const GraphStep& step : steps_) step(stream);
  } catch (const abi::Failure&) {
    last_launch_ = stream.end_of_work();  // of what was enqueued
    throw;
  }
  last_launch_ = stream.end_of_work();
}

}  // namespace anyaccel::queue_runtime
