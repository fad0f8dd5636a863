// Implements graph.h: recorded graphs.
#include "accelerators/queue_runtime/graph.h"

#include <array>

#include "accelerators/queue_runtime/stream.h"
#include "accelerators/streams/captures.h"

namespace anyaccel::queue_runtime {

Graph::~Graph() {
  if (last_launch_) last_launch_->settle();  // after an error the caller could not wait
  if (captured_ && !device_->is_forked_child()) device_->vendor().captured_destroy(captured_);
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
  capturable_ = false;
}

void Graph::add_capturable(GraphStep step) {
  steps_.push_back(std::move(step));
  ++items_;
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
  stream.release_held();
  follow_last_launch(stream);
  const auto end = [&] { last_launch_ = stream.end_of_work(); };
  bool taken = false;
  try {
    if (is_captured()) {
      std::array one{captured_};
      streams::enqueue_all(
          one,
          [&](CapturedHandle captured) {
            stream.launch_captured(captured);
            taken = true;
          },
          end);
    } else {
      streams::enqueue_all(
          steps_,
          [&](const GraphStep& step) {
            step(stream);
            taken = true;
          },
          end);
    }
  } catch (...) {
    keep_end(stream, taken);  // of what was enqueued
    throw;
  }
  launched_ = true;
}

// Without a record of its end a launch must not go on: nothing would wait for it before the graph's memory is used again or
// freed. A launch of which nothing was taken must not wait: the caller may be the one who lets the stream's earlier work go on.
void Graph::keep_end(Stream& stream, bool taken) noexcept {
  try {
    last_launch_ = stream.end_of_work();
    return;
  } catch (...) {
    // The record is not to be had.
  }
  if (!taken) return;
  try {
    stream.synchronize();
  } catch (...) {
    // The stream's error; all of its work has ended.
  }
}

// Launches run one after another, even on different streams, since they share the graph's memory. One that has failed on another
// stream is nothing to wait for: `stream` would fail with it.
void Graph::follow_last_launch(Stream& stream) {
  if (!last_launch_ || stream.made(*last_launch_)) return;
  try {
    if (last_launch_->complete()) return;
  } catch (const abi::Failure&) {
    device_->usable();
    if (last_launch_->ended()) return;
    throw abi::Failure(
        AA_FAILED_PRECONDITION,
        "the graph's earlier launch, on another stream, has not ended, and that stream has failed: synchronize it, "
        "which waits for its work, before the graph is launched again, destroy it, or capture another graph");
  }
  stream.wait_for(last_launch_);
}

bool Graph::is_captured() {
  if (!capturable_ || !launched_ || steps_.empty() || !device_->vendor().captures()) return false;
  if (!captured_) capture();
  return captured_ != nullptr;
}

// On a stream that nobody else knows: others may wait for theirs meanwhile, which no stream allows that captures.
void Graph::capture() {
  capturable_ = false;  // once only
  StreamList nobody;
  aa_stream_params params = abi::sized<aa_stream_params>();
  Stream stream(device_, nobody, params);
  Vendor& vendor = device_->vendor();
  const StreamHandle handle = stream.handle();
  if (device_->ask([&] { return vendor.capture_begin(handle); }).result != 0) return;
  bool complete = true;
  try {
    for (const GraphStep& step : steps_) step(stream);
  } catch (const abi::Failure&) {
    complete = false;
  }
  CapturedHandle captured = nullptr;
  const Answer ended = device_->ask([&] { return vendor.capture_end(handle, captured); });
  if (ended.result == 0 && complete) {
    captured_ = captured;
    capturable_ = true;
  } else if (captured) {
    vendor.captured_destroy(captured);
  }
}

}  // namespace anyaccel::queue_runtime
