// Captures for runtimes that do not record graphs themselves: a graph is the list of nodes that were enqueued on the capturing
// streams, in the order of the calls, and a replay enqueues them again on one stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::streams {

// Enqueues the items of a launch, and then `behind`, which is no item. A failure by lack of memory after the first item is
// AA_INTERNAL: after AA_RESOURCE_EXHAUSTED the host would launch the graph again, and the items that were taken would run twice.
template <class Items, class Enqueue, class Behind>
void enqueue_all(Items& items, const Enqueue& enqueue, const Behind& behind) {
  size_t taken = 0;
  const auto fail = [&](const std::string& why, int64_t native_code) {
    throw abi::Failure(AA_INTERNAL,
                       "the launch of a graph failed after the stream had taken " + std::to_string(taken) + " of its " +
                           std::to_string(items.size()) + " items, which run: " + why,
                       native_code);
  };
  try {
    for (auto& item : items) {
      enqueue(item);
      ++taken;
    }
    behind();
  } catch (const abi::Failure& failure) {
    if (taken == 0 || failure.code() != AA_RESOURCE_EXHAUSTED) throw;
    fail(failure.what(), failure.native_code());
  } catch (const std::bad_alloc&) {
    if (taken == 0) throw;
    fail("out of host memory", 0);
  }
}

// The nodes that the streams of one capture record. Thread-safe.
template <class Node>
class Capture {
 public:
  // `origin` is the stream where it began and must end.
  explicit Capture(const abi::Stream* origin) : origin_(origin) {}

  const abi::Stream* origin() const noexcept { return origin_; }
  bool is_open() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  void add(Node node) {
    const std::lock_guard lock(mutex_);
    nodes_.push_back(std::move(node));
  }
  // Ends it, and returns what was recorded.
  std::vector<Node> close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
    return std::move(nodes_);
  }

 private:
  const abi::Stream* const origin_;
  mutable std::mutex mutex_;
  bool open_ = true;
  std::vector<Node> nodes_;
};

// The same where a graph of the driver's records. Streams of one capture are used by one thread at a time.
template <class Graph>
class GraphCapture {
 public:
  GraphCapture(const abi::Stream* origin, std::unique_ptr<Graph> graph) : origin_(origin), graph_(std::move(graph)) {}

  const abi::Stream* origin() const noexcept { return origin_; }
  bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  Graph& graph() noexcept { return *graph_; }
  std::unique_ptr<Graph> close() {
    open_.store(false, std::memory_order_release);
    return std::move(graph_);
  }

 private:
  const abi::Stream* const origin_;
  std::atomic<bool> open_{true};
  std::unique_ptr<Graph> graph_;
};

// The capture that one stream takes part in. Used by one thread at a time, as the stream is.
template <class Capture>
class CaptureOf {
 public:
  explicit CaptureOf(const abi::Stream* stream) : stream_(stream) {}
  ~CaptureOf() { abandon(); }
  CaptureOf(const CaptureOf&) = delete;
  CaptureOf& operator=(const CaptureOf&) = delete;

  // Null while the stream is not capturing.
  const std::shared_ptr<Capture>& current() {
    if (capture_ && !capture_->is_open()) capture_.reset();  // it ended on the stream where it began
    return capture_;
  }
  // Ends the capture if it began on this stream, and otherwise leaves it.
  void abandon() {
    if (const auto& open = current(); open && open->origin() == stream_) open->close();
    capture_.reset();
  }
  void refuse(const char* what) {
    if (!current()) return;
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       std::string(what) + " of a stream that is capturing; end the capture first");
  }
  // Where the stream waits for an event that was recorded in the capture `of_event` (null: in none): joins that capture if it is
  // open; the order of the calls is the order of the replay. Returns false if it is not.
  bool join(const std::shared_ptr<Capture>& of_event) {
    if (!of_event || !of_event->is_open()) return false;
    if (current() && current() != of_event) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "the stream and the event belong to two captures; end the capture of the event's stream "
                         "first, or record both streams in one capture");
    }
    capture_ = of_event;
    return true;
  }
  // Where the stream waits for an event that was recorded outside of captures, and is not complete.
  void refuse_outside() {
    if (!current()) return;
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       "a capturing stream cannot wait for an event that was recorded outside the capture and is not "
                       "complete; synchronize it before the capture");
  }
  // `arguments` follow the stream in Capture's constructor.
  template <class... Arguments>
  void begin(Arguments&&... arguments) {
    if (current()) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing already");
    capture_ = std::make_shared<Capture>(stream_, std::forward<Arguments>(arguments)...);
  }
  auto end() {
    const std::shared_ptr<Capture> ending = current();
    if (!ending) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is not capturing");
    if (ending->origin() != stream_) {
      throw abi::Failure(AA_FAILED_PRECONDITION,
                         "the stream joined a capture that began on another stream; it ends on that one");
    }
    capture_.reset();
    return ending->close();
  }

 private:
  const abi::Stream* const stream_;
  std::shared_ptr<Capture> capture_;
};

// `Stream` has submit(), which enqueues a node or records it, and capture(), which is null while it does not capture. `Event` has
// ended(): whether its latest record is complete or has failed.
template <class Node, class Stream, class Event>
class NodeGraph final : public abi::Graph {
 public:
  // `last` is a new event of the device.
  NodeGraph(std::vector<Node> nodes, std::unique_ptr<Event> last) : nodes_(std::move(nodes)), last_(std::move(last)) {}

  void launch(abi::Stream& target) override {
    auto& stream = static_cast<Stream&>(target);
    const bool captures = stream.capture() != nullptr;
    if (!captures) follow_last(stream);
    const auto submit = [&](const Node& node) { stream.submit(node); };
    enqueue_all(nodes_, submit, [&] {
      if (!captures) last_->record(stream);
    });
  }
  int64_t node_count() const override { return static_cast<int64_t>(nodes_.size()); }

 private:
  // A launch that has failed on another stream is nothing to wait for: `stream` would fail with it.
  void follow_last(Stream& stream) {
    if (last_->ended()) return;
    try {
      stream.wait_event(*last_);
    } catch (const abi::Failure&) {
      if (!last_->ended()) throw;
    }
  }

  std::vector<Node> nodes_;
  // Behind the latest launch: the next one follows it on another stream too.
  std::unique_ptr<Event> last_;
};

}  // namespace anyaccel::streams
