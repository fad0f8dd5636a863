// Implements captures and executable graphs.
#include "simulators/engine/capture.h"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

std::vector<std::shared_ptr<Capture>>& running_captures() {
  static auto* captures = new std::vector<std::shared_ptr<Capture>>;
  return *captures;
}

// Every node that one of `last` comes after, and they themselves.
std::set<std::size_t> ancestors(const std::vector<Node>& nodes, const std::set<std::size_t>& last) {
  std::set<std::size_t> seen = last;
  std::vector<std::size_t> open(last.begin(), last.end());
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    for (const std::size_t earlier : nodes[node].after) {
      if (seen.insert(earlier).second) open.push_back(earlier);
    }
  }
  return seen;
}

}  // namespace

std::shared_ptr<Capture> begin_capture(const std::shared_ptr<CapturingStream>& stream, CaptureMode mode) {
  auto capture = std::make_shared<Capture>();
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->origin = stream;
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->tail.clear();
  running_captures().push_back(capture);
  return capture;
}

void capture_node(CapturingStream& stream, Node node) {
  auto& nodes = stream.capture->nodes;
  node.after.assign(stream.tail.begin(), stream.tail.end());
  stream.tail = {nodes.size()};
  nodes.push_back(std::move(node));
}

bool join_capture(const std::shared_ptr<CapturingStream>& stream, const CapturedRecord& record) {
  if (stream->capture == nullptr) {
    stream->capture = record.capture;
    stream->tail.clear();
    record.capture->streams.push_back(stream);
  } else if (stream->capture != record.capture) {
    return false;
  }
  stream->tail.insert(record.after.begin(), record.after.end());
  return true;
}

bool has_unjoined_work(const Capture& capture) {
  const auto origin = capture.origin.lock();
  if (origin == nullptr) return true;
  const std::set<std::size_t> joined = ancestors(capture.nodes, origin->tail);
  return std::any_of(capture.streams.begin(), capture.streams.end(), [&](const auto& weak) {
    const auto other = weak.lock();
    return other != nullptr && other != origin && other->capture.get() == &capture &&
           !std::includes(joined.begin(), joined.end(), other->tail.begin(), other->tail.end());
  });
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& weak : capture->streams) {
    const auto stream = weak.lock();
    if (stream == nullptr || stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->tail.clear();
  }
  std::erase(running_captures(), capture);
}

std::vector<std::shared_ptr<Capture>> captures_against(CaptureMode thread_mode) {
  std::vector<std::shared_ptr<Capture>> against;
  if (thread_mode == CaptureMode::relaxed) return against;
  const auto me = std::this_thread::get_id();
  for (const auto& capture : running_captures()) {
    const bool mine = capture->thread == me && capture->mode != CaptureMode::relaxed;
    const bool others =
        thread_mode == CaptureMode::global && capture->thread != me && capture->mode == CaptureMode::global;
    if (mine || others) against.push_back(capture);
  }
  return against;
}

// A node runs on the stream of a node that it waits for, if that one was the last there; else on a separate stream,
// like the branches of a graph on a device.
ExecutableGraph::ExecutableGraph(Engine& engine, int device, std::vector<Node> nodes) : nodes_(std::move(nodes)) {
  std::vector<std::size_t> last;  // node of each lane
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::size_t lane = last.size();
    for (const std::size_t earlier : nodes_[i].after) {
      if (last[lane_[earlier]] == earlier) lane = std::min(lane, lane_[earlier]);
    }
    if (lane == last.size()) last.push_back(i);
    last[lane] = i;
    lane_.push_back(lane);
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) {
    lanes_.push_back(std::make_shared<Stream>(engine, device, true));
  }
}

int ExecutableGraph::launch(const char* what, const Submit& submit) {
  std::vector<std::shared_ptr<Event>> begin;
  if (last_ != nullptr) begin.push_back(last_);
  const auto started = std::make_shared<Event>();
  Node marker;
  marker.what = what;
  if (const int bad = submit(nullptr, marker, std::move(begin), started); bad != 0) return bad;

  const std::size_t count = nodes_.size();
  std::vector<std::shared_ptr<Event>> done(count);  // of nodes that another lane waits for
  std::vector<std::size_t> last(lanes_.size() + 1, count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t earlier : nodes_[i].after) {
      if (lane_[earlier] != lane_[i]) done[earlier] = std::make_shared<Event>();
    }
    last[lane_[i]] = i;
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) done[last[lane]] = std::make_shared<Event>();
  std::vector<bool> begun(last.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t lane = lane_[i];
    std::vector<std::shared_ptr<Event>> waits;
    for (const std::size_t earlier : nodes_[i].after) {
      if (lane_[earlier] != lane) waits.push_back(done[earlier]);
    }
    if (lane > 0 && !begun[lane]) waits.push_back(started);
    begun[lane] = true;
    Stream* target = lane == 0 ? nullptr : lanes_[lane - 1].get();
    if (const int bad = submit(target, nodes_[i], std::move(waits), done[i]); bad != 0) return bad;
  }
  std::vector<std::shared_ptr<Event>> ends;
  for (std::size_t lane = 1; lane < last.size(); ++lane) ends.push_back(done[last[lane]]);
  const auto end = std::make_shared<Event>();
  const int bad = submit(nullptr, marker, std::move(ends), end);
  if (bad == 0) last_ = end;  // what was refused is never set
  return bad;
}

}  // namespace sim
