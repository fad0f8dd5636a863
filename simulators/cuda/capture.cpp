// Implements capture of streams into graphs, and graphs. The rules are those of the programming guide's section on
// stream capture.
#include <algorithm>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {
namespace {

std::vector<std::shared_ptr<Capture>>& running_captures() {
  static auto* captures = new std::vector<std::shared_ptr<Capture>>;
  return *captures;
}

thread_local CaptureMode thread_mode = kCaptureGlobal;

// The capture ends: its streams run work again.
void end(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& weak : capture->streams) {
    const auto stream = weak.lock();
    if (stream == nullptr || stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->tail.clear();
  }
  std::erase(running_captures(), capture);
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

void invalidate(Capture& capture) { capture.invalidated = true; }

Result refuse_capture(StreamObject& stream, const char* what) {
  if (stream.capture == nullptr) return kSuccess;
  if (stream.capture->invalidated) return kCaptureInvalidated;
  invalidate(*stream.capture);
  return refuse(kCaptureUnsupported, "capture", std::string(what) + " on a stream that captures");
}

Result refuse_unsafe() {
  if (thread_mode == kCaptureRelaxed) return kSuccess;
  const auto me = std::this_thread::get_id();
  bool conflict = false;
  for (const auto& capture : running_captures()) {
    const bool mine = capture->thread == me && capture->mode != kCaptureRelaxed;
    const bool others = thread_mode == kCaptureGlobal && capture->thread != me && capture->mode == kCaptureGlobal;
    if (!mine && !others) continue;
    invalidate(*capture);
    conflict = true;
  }
  if (!conflict) return kSuccess;
  return refuse(kCaptureUnsupported, "capture",
                "a potentially unsafe call while a stream captures; see cuThreadExchangeStreamCaptureMode");
}

Result refuse_implicit(Context& context) {
  bool conflict = false;
  for (const auto& stream : streams_of(context)) {
    if (stream->capture == nullptr || !stream->blocking) continue;
    invalidate(*stream->capture);
    conflict = true;
  }
  if (!conflict) return kSuccess;
  return refuse(kCaptureImplicit, "capture", "the legacy default stream is used while a blocking stream captures");
}

CUDA_FUNCTION(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, Need::started, (int* mode),
              (mode)) {
  CUDA_REQUIRE(mode != nullptr && *mode >= 0 && *mode <= 2, kInvalidValue, "bad-argument", "unknown mode");
  const int before = thread_mode;
  thread_mode = static_cast<CaptureMode>(*mode);
  *mode = before;
  return kSuccess;
}

CUDA_FUNCTION(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, Need::healthy, (Handle stream, int mode),
              (stream, mode)) {
  CUDA_REQUIRE(mode >= 0 && mode <= 2, kInvalidValue, "bad-argument", "unknown mode");
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(!object->is_legacy, kCaptureUnsupported, "capture", "the legacy default stream cannot capture");
  CUDA_REQUIRE(object->capture == nullptr, kIllegalState, "capture", "the stream captures already");
  auto capture = std::make_shared<Capture>();
  capture->thread = std::this_thread::get_id();
  capture->mode = static_cast<CaptureMode>(mode);
  capture->origin = object;
  capture->streams.push_back(object);
  object->capture = capture;
  object->tail.clear();
  running_captures().push_back(std::move(capture));
  return kSuccess;
}

CUDA_FUNCTION(cuStreamIsCapturing, "cuStreamIsCapturing", 10000, Need::healthy, (Handle stream, int* status),
              (stream, status)) {
  CUDA_REQUIRE(status != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  if (object->is_legacy) CUDA_TRY(refuse_implicit(*object->context));
  *status = object->capture == nullptr     ? kCaptureNone
            : object->capture->invalidated ? kCaptureIsInvalidated
                                           : kCaptureActive;
  return kSuccess;
}

CUDA_FUNCTION(cuStreamEndCapture, "cuStreamEndCapture", 10000, Need::healthy, (Handle stream, Handle* graph),
              (stream, graph)) {
  CUDA_REQUIRE(graph != nullptr, kInvalidValue, "bad-argument", "the result is null");
  *graph = nullptr;
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  const auto capture = object->capture;
  CUDA_REQUIRE(capture != nullptr, kIllegalState, "capture", "the stream does not capture");
  CUDA_REQUIRE(capture->origin.lock() == object, kCaptureUnmatched, "capture", "the capture began on another stream");
  CUDA_REQUIRE(capture->mode == kCaptureRelaxed || capture->thread == std::this_thread::get_id(), kCaptureWrongThread,
               "capture", "the capture began on another thread");
  const std::set<std::size_t> joined = ancestors(capture->nodes, object->tail);
  bool unjoined = false;
  for (const auto& weak : capture->streams) {
    const auto other = weak.lock();
    if (other == nullptr || other == object || other->capture != capture) continue;
    unjoined |= !std::includes(joined.begin(), joined.end(), other->tail.begin(), other->tail.end());
  }
  const bool invalidated = capture->invalidated;
  auto made = std::make_shared<Graph>();
  made->context = object->context;
  made->nodes = std::move(capture->nodes);
  end(capture);
  if (invalidated) return kCaptureInvalidated;
  CUDA_REQUIRE(!unjoined, kCaptureUnjoined, "capture",
               "another stream joined the capture, and the stream it began on does not wait for its last work");
  *graph = handle_of(made, true);
  return kSuccess;
}

// ---- graphs
// ------------------------------------------------------------------------------------------------------------

CUDA_FUNCTION(cuGraphGetNodes, "cuGraphGetNodes", 10000, Need::started,
              (Handle graph, Handle* nodes, std::size_t* count), (graph, nodes, count)) {
  const auto object = get<Graph>(graph, "graph");
  if (object == nullptr) return kInvalidValue;
  CUDA_REQUIRE(count != nullptr, kInvalidValue, "bad-argument", "the count is null");
  const std::size_t have = object->nodes.size();
  if (nodes == nullptr) {
    *count = have;
    return kSuccess;
  }
  // Tokens that no function takes yet: the graph's with the node's number.
  for (std::size_t i = 0; i < *count; ++i) {
    nodes[i] = i < have ? reinterpret_cast<Handle>(object->token ^ (std::uint64_t{1} << 63) ^ (i << 16)) : nullptr;
  }
  *count = std::min(*count, have);
  return kSuccess;
}

CUDA_FUNCTION(cuGraphDestroy, "cuGraphDestroy", 10000, Need::started, (Handle graph), (graph)) {
  const auto object = get<Graph>(graph, "graph");
  if (object == nullptr) return kInvalidValue;
  engine().handles().remove(*object);
  return kSuccess;
}

CUDA_FUNCTION(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, Need::healthy,
              (Handle * exec, Handle graph, std::uint64_t flags), (exec, graph, flags)) {
  CUDA_REQUIRE(exec != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const auto object = get<Graph>(graph, "graph");
  if (object == nullptr) return kInvalidValue;
  CUDA_REQUIRE(flags <= 15, kInvalidValue, "bad-argument", "unknown flags");
  if ((flags & 4) != 0) return kNotSupported;  // launches from the device
  auto made = std::make_shared<GraphExec>();
  made->context = object->context;
  made->nodes = object->nodes;
  // A node goes on where one of those it waits for was the last; else on a stream of its own, like the branches of a
  // graph on a device.
  std::vector<std::size_t> last;  // node of each lane
  for (std::size_t i = 0; i < made->nodes.size(); ++i) {
    std::size_t lane = last.size();
    for (const std::size_t earlier : made->nodes[i].after) {
      if (last[made->lane[earlier]] == earlier) lane = std::min(lane, made->lane[earlier]);
    }
    if (lane == last.size()) last.push_back(i);
    last[lane] = i;
    made->lane.push_back(lane);
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) {
    made->lanes.push_back(std::make_shared<Stream>(engine(), made->context->device, true));
  }
  *exec = handle_of(made, true);
  return kSuccess;
}

// One that runs goes on to its end.
CUDA_FUNCTION(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, Need::started, (Handle exec), (exec)) {
  const auto object = get<GraphExec>(exec, "executable graph");
  if (object == nullptr) return kInvalidValue;
  const std::lock_guard lock(face_lock());
  auto& closing = object->context->closing;
  closing.insert(closing.end(), object->lanes.begin(), object->lanes.end());
  engine().handles().remove(*object);
  return kSuccess;
}

// The graph's nodes in a capture.
static Result capture_launch(StreamObject& stream, const GraphExec& exec) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return kCaptureInvalidated;
  const std::size_t first = capture.nodes.size();
  std::set<std::size_t> ends;
  for (std::size_t i = 0; i < exec.nodes.size(); ++i) {
    Node node = exec.nodes[i];
    for (std::size_t& earlier : node.after) {
      ends.erase(earlier + first);
      earlier += first;
    }
    if (node.after.empty()) node.after.assign(stream.tail.begin(), stream.tail.end());
    capture.nodes.push_back(std::move(node));
    ends.insert(first + i);
  }
  if (!ends.empty()) stream.tail = std::move(ends);
  return kSuccess;
}

CUDA_FUNCTION(cuGraphLaunch, "cuGraphLaunch", 10000, Need::healthy, (Handle exec, Handle stream), (exec, stream)) {
  const auto object = get<GraphExec>(exec, "executable graph");
  if (object == nullptr) return kInvalidHandle;
  const std::lock_guard lock(face_lock());
  const auto target = get_stream(stream);
  if (target == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(target->context == object->context, kInvalidHandle, "bad-handle",
               "graph and stream belong to different contexts");
  if (target->capture != nullptr) return capture_launch(*target, *object);

  // Launches of one executable graph run one after another, on whatever streams.
  std::vector<std::shared_ptr<Event>> begin;
  if (object->last != nullptr) begin.push_back(object->last);
  const auto started = std::make_shared<Event>();
  Node first;
  first.what = current_function();
  CUDA_TRY(submit(*target, std::move(first), std::move(begin), started));

  const std::size_t count = object->nodes.size();
  std::vector<std::shared_ptr<Event>> done(count);  // of nodes that another lane waits for
  std::vector<std::size_t> last(object->lanes.size() + 1, count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t earlier : object->nodes[i].after) {
      if (object->lane[earlier] != object->lane[i]) done[earlier] = std::make_shared<Event>();
    }
    last[object->lane[i]] = i;
  }
  for (std::size_t lane = 1; lane < last.size(); ++lane) done[last[lane]] = std::make_shared<Event>();
  std::vector<bool> begun(last.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t lane = object->lane[i];
    std::vector<std::shared_ptr<Event>> waits;
    for (const std::size_t earlier : object->nodes[i].after) {
      if (object->lane[earlier] != lane) waits.push_back(done[earlier]);
    }
    if (lane == 0) {
      CUDA_TRY(submit(*target, object->nodes[i], std::move(waits), done[i]));
      continue;
    }
    if (!begun[lane]) waits.push_back(started);
    begun[lane] = true;
    Command command;
    command.what = object->nodes[i].what;
    command.run = object->nodes[i].run;
    command.waits = std::move(waits);
    command.signal = done[i];
    CUDA_TRY(result_of(object->lanes[lane - 1]->submit({std::make_shared<const Command>(std::move(command))})));
  }
  std::vector<std::shared_ptr<Event>> ends;
  for (std::size_t lane = 1; lane < last.size(); ++lane) ends.push_back(done[last[lane]]);
  object->last = std::make_shared<Event>();
  Node end_node;
  end_node.what = current_function();
  return submit(*target, std::move(end_node), std::move(ends), object->last);
}

}  // namespace sim::cuda
