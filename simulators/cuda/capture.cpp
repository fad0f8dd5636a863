// Implements capture of streams into graphs, and graphs. The rules are those of the programming guide's section on
// stream capture.
#include <algorithm>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {

static thread_local CaptureMode thread_mode = CaptureMode::global;

Result refuse_capture(StreamObject& stream, const char* what) {
  if (stream.capture == nullptr) return kSuccess;
  if (stream.capture->invalidated) return kCaptureInvalidated;
  stream.capture->invalidated = true;
  return refuse(kCaptureUnsupported, "capture", std::string(what) + " on a stream that captures");
}

Result refuse_unsafe() {
  const auto against = captures_against(thread_mode);
  for (const auto& capture : against) capture->invalidated = true;
  if (against.empty()) return kSuccess;
  return refuse(kCaptureUnsupported, "capture",
                "a potentially unsafe call while a stream captures; see cuThreadExchangeStreamCaptureMode");
}

Result refuse_implicit(Context& context) {
  bool conflict = false;
  for (const auto& stream : streams_of(context)) {
    if (stream->capture == nullptr || !stream->blocking) continue;
    stream->capture->invalidated = true;
    conflict = true;
  }
  if (!conflict) return kSuccess;
  return refuse(kCaptureImplicit, "capture", "the legacy default stream is used while a blocking stream captures");
}

CUDA_FUNCTION(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, Need::started, (int* mode),
              (mode)) {
  CUDA_REQUIRE(mode != nullptr && *mode >= 0 && *mode <= 2, kInvalidValue, "bad-argument", "unknown mode");
  const auto before = static_cast<int>(thread_mode);
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
  begin_capture(object, static_cast<CaptureMode>(mode));
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
  CUDA_REQUIRE(capture->mode == CaptureMode::relaxed || capture->thread == std::this_thread::get_id(),
               kCaptureWrongThread, "capture", "the capture began on another thread");
  const bool unjoined = has_unjoined_work(*capture);
  auto made = std::make_shared<Graph>();
  made->context = object->context;
  made->nodes = std::move(capture->nodes);
  end_capture(capture);
  if (capture->invalidated) return kCaptureInvalidated;
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

GraphExec::GraphExec(const std::shared_ptr<Context>& owner, std::vector<Node> nodes)
    : Object("executable graph"), context(owner), runs(engine(), owner->device, std::move(nodes)) {}

CUDA_FUNCTION(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, Need::healthy,
              (Handle * exec, Handle graph, std::uint64_t flags), (exec, graph, flags)) {
  CUDA_REQUIRE(exec != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const auto object = get<Graph>(graph, "graph");
  if (object == nullptr) return kInvalidValue;
  CUDA_REQUIRE(flags <= 15, kInvalidValue, "bad-argument", "unknown flags");
  if ((flags & 4) != 0) return kNotSupported;  // launches from the device
  *exec = handle_of(std::make_shared<GraphExec>(object->context, object->nodes), true);
  return kSuccess;
}

// One that is running continues to its end.
CUDA_FUNCTION(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, Need::started, (Handle exec), (exec)) {
  const auto object = get<GraphExec>(exec, "executable graph");
  if (object == nullptr) return kInvalidValue;
  const std::lock_guard lock(face_lock());
  auto& closing = object->context->closing;
  closing.insert(closing.end(), object->runs.lanes().begin(), object->runs.lanes().end());
  engine().handles().remove(*object);
  return kSuccess;
}

// The graph's nodes in a capture.
static Result capture_launch(StreamObject& stream, const std::vector<Node>& nodes) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return kCaptureInvalidated;
  const std::size_t first = capture.nodes.size();
  std::set<std::size_t> ends;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node node = nodes[i];
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
  bool captures = false;
  {
    const std::lock_guard lock(face_lock());
    const auto target = get_stream(stream);
    if (target == nullptr) return kInvalidHandle;
    captures = target->capture != nullptr;
  }
  if (!captures) load_code(*object->context, "graph " + std::to_string(object->token));
  const std::lock_guard lock(face_lock());
  const auto target = get_stream(stream);
  if (target == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(target->context == object->context, kInvalidHandle, "bad-handle",
               "graph and stream belong to different contexts");
  if (target->capture != nullptr) return capture_launch(*target, object->runs.nodes());
  return object->runs.launch(current_function(), [&](Stream* lane, const Node& node, auto waits, auto signal) {
    if (lane == nullptr) return submit(*target, node, std::move(waits), std::move(signal));
    Command command;
    command.what = node.what;
    command.run = node.run;
    command.waits = std::move(waits);
    command.signal = std::move(signal);
    return result_of(lane->submit({std::make_shared<const Command>(std::move(command))}));
  });
}

}  // namespace sim::cuda
