// Captures for runtimes that do not record graphs themselves: a graph is the list of nodes that were enqueued on the capturing
// streams, in the order of the calls, and a replay enqueues them again on one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::streams {

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

// The capture that one stream takes part in. Used by one thread at a time, as the stream is.
template <class Node>
class CaptureOf {
 public:
  explicit CaptureOf(const abi::Stream* stream) : stream_(stream) {}
  ~CaptureOf() {
    if (const auto& open = current(); open && open->origin() == stream_) open->close();
  }
  CaptureOf(const CaptureOf&) = delete;
  CaptureOf& operator=(const CaptureOf&) = delete;

  // Null while the stream is not capturing.
  const std::shared_ptr<Capture<Node>>& current() {
    if (capture_ && !capture_->is_open()) capture_.reset();  // it ended on the stream where it began
    return capture_;
  }
  void refuse(const char* what) {
    if (!current()) return;
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       std::string(what) + " of a stream that is capturing; end the capture first");
  }
  // Where the stream waits for an event that was recorded in the capture `of_event` (null: in none): joins that capture if it is
  // open; the order of the calls is the order of the replay. Returns false if it is not.
  bool join(const std::shared_ptr<Capture<Node>>& of_event) {
    if (!of_event || !of_event->is_open()) return false;
    if (current() && current() != of_event) {
      throw abi::Failure(AA_FAILED_PRECONDITION, "the stream and the event belong to two captures");
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
  void begin() {
    if (current()) throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing already");
    capture_ = std::make_shared<Capture<Node>>(stream_);
  }
  std::vector<Node> end() {
    const std::shared_ptr<Capture<Node>> ending = current();
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
  std::shared_ptr<Capture<Node>> capture_;
};

// `Stream` has replay(), which takes the nodes, and capture(), which is null while it does not capture.
template <class Node, class Stream>
class NodeGraph final : public abi::Graph {
 public:
  // `last` is a new event of the device.
  NodeGraph(std::vector<Node> nodes, std::unique_ptr<abi::Event> last)
      : nodes_(std::move(nodes)), last_(std::move(last)) {}

  void launch(abi::Stream& target) override {
    auto& stream = static_cast<Stream&>(target);
    if (stream.capture()) return stream.replay(nodes_);
    stream.wait_event(*last_);
    stream.replay(nodes_);
    last_->record(stream);
  }
  int64_t node_count() const override { return static_cast<int64_t>(nodes_.size()); }

 private:
  std::vector<Node> nodes_;
  // Behind the latest launch: the next one follows it on another stream too.
  std::unique_ptr<abi::Event> last_;
};

}  // namespace anyaccel::streams
