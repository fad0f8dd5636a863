// Implements captures of streams, and graphs.
#include <algorithm>

#include "simulators/queue_face/queue_face.h"

namespace sim::queue_face {

Result refuse_unsafe() {
  const auto against = captures_against(thread_state().capture_mode);
  if (against.empty()) return kSuccess;
  if (vendor().refusal_invalidates) {
    for (const auto& capture : against) capture->invalidated = true;
  }
  return refuse(codes().capture_unsafe, "capture", "a potentially unsafe call while a stream captures");
}

Result exchange_capture_mode(int* mode) {
  FACE_REQUIRE(mode != nullptr && *mode >= 0 && *mode <= 2, codes().invalid_argument, "bad-argument", "unknown mode");
  const auto before = static_cast<int>(thread_state().capture_mode);
  thread_state().capture_mode = static_cast<CaptureMode>(*mode);
  *mode = before;
  return kSuccess;
}

Result begin_capture(Handle stream, int mode) {
  FACE_REQUIRE(mode >= 0 && mode <= 2, codes().invalid_argument, "bad-argument", "unknown mode");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto object = get_stream(stream, &bad);
  if (object == nullptr) return bad;
  FACE_REQUIRE(!object->is_default, codes().implicit, "capture", "a default stream cannot capture");
  FACE_REQUIRE(object->capture == nullptr, codes().already_capturing, "capture", "the stream captures already");
  sim::begin_capture(object, static_cast<CaptureMode>(mode));
  return kSuccess;
}

Result capture_status(Handle stream, CaptureStatus* status) {
  FACE_REQUIRE(status != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto object = get_stream(stream, &bad);
  if (object == nullptr) return bad;
  *status = object->capture == nullptr     ? CaptureStatus::none
            : object->capture->invalidated ? CaptureStatus::invalidated
                                           : CaptureStatus::active;
  return kSuccess;
}

Result end_capture(Handle stream, Handle* graph) {
  FACE_REQUIRE(graph != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  *graph = nullptr;
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto object = get_stream(stream, &bad);
  if (object == nullptr) return bad;
  const auto capture = object->capture;
  FACE_REQUIRE(capture != nullptr, codes().not_capturing, "capture", "the stream does not capture");
  FACE_REQUIRE(capture->origin.lock() == object, codes().unmatched, "capture", "the capture began on another stream");
  const bool wrong_thread = capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id();
  const bool unjoined = has_unjoined_work(*capture);
  sim::end_capture(capture);
  FACE_REQUIRE(!wrong_thread, codes().wrong_thread, "capture", "the capture began on another thread");
  if (capture->invalidated) return codes().invalidated;
  FACE_REQUIRE(!unjoined, codes().unjoined, "capture",
               "another stream joined the capture, and the stream it began on does not wait for its last work");
  auto made = std::make_shared<GraphObject>("graph");
  made->context = object->context;
  made->nodes = std::move(capture->nodes);
  *graph = handle_of(made, true);
  return kSuccess;
}

Result instantiate(Handle* executable, Handle graph) {
  FACE_REQUIRE(executable != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  const auto object = get<GraphObject>(graph, "graph");
  if (object == nullptr) return codes().invalid_handle;
  auto made = std::make_shared<GraphObject>("executable graph");
  made->context = object->context;
  made->runs = std::make_shared<ExecutableGraph>(engine(), object->context->device, object->nodes);
  *executable = handle_of(made, true);
  return kSuccess;
}

Result launch_graph(Handle executable, Handle stream) {
  const auto object = get<GraphObject>(executable, "executable graph");
  if (object == nullptr) return codes().invalid_handle;
  FACE_REQUIRE(object->runs != nullptr, codes().invalid_handle, "bad-handle", "the graph is not instantiated");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto target = get_stream(stream, &bad);
  if (target == nullptr) return bad;
  FACE_REQUIRE(target->context == object->context, codes().wrong_context, "bad-handle",
               "graph and stream belong to different devices");
  FACE_REQUIRE(target->capture == nullptr, codes().captured, "capture",
               "a graph is launched on a stream that captures, which is not simulated");
  return object->runs->launch(current_function(), [&](Stream* lane, const Node& node, auto waits, auto signal) {
    if (lane == nullptr) return submit(*target, node, std::move(waits), std::move(signal));
    Command command;
    command.what = node.what;
    command.run = node.run;
    command.waits = std::move(waits);
    command.signal = std::move(signal);
    return result_of(lane->submit({std::make_shared<const Command>(std::move(command))}));
  });
}

// One that is running continues to its end.
Result destroy_graph(Handle graph) {
  const auto object = get<GraphObject>(graph, "graph");
  if (object == nullptr) return codes().invalid_handle;
  const std::lock_guard lock(face_lock());
  if (object->runs != nullptr) {
    auto& closing = object->context->closing;
    closing.insert(closing.end(), object->runs->lanes().begin(), object->runs->lanes().end());
  }
  engine().handles().remove(*object);
  return kSuccess;
}

}  // namespace sim::queue_face
