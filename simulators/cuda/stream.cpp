// Implements streams, the commands on them, and events.
#include <algorithm>

#include "simulators/cuda/cuda_face.h"

namespace sim::cuda {

std::vector<std::shared_ptr<StreamObject>> streams_of(const Context& context) {
  std::vector<std::shared_ptr<StreamObject>> live;
  for (const auto& weak : context.streams) {
    if (auto stream = weak.lock(); stream != nullptr && stream->stream != nullptr) live.push_back(std::move(stream));
  }
  return live;
}

namespace {

// Lets go of destroyed streams whose work has ended.
void reap(Context& context) {
  std::erase_if(context.closing, [](const auto& stream) { return stream->idle(); });
  std::erase_if(context.streams, [](const auto& stream) { return stream.expired(); });
}

void give(Stream& stream, Node node, std::vector<std::shared_ptr<Event>> waits, std::shared_ptr<Event> signal,
          bool counted, Status* status) {
  Command command;
  command.what = node.what;
  command.waits = std::move(waits);
  command.signal = std::move(signal);
  command.run = std::move(node.run);
  command.counted = counted;
  *status = stream.submit({std::make_shared<const Command>(std::move(command))});
}

// An event that is set when everything given to the stream so far has run; null: there was nothing.
std::shared_ptr<Event> fence_of(StreamObject& stream) {
  if (stream.dirty) {
    auto fence = std::make_shared<Event>();
    Status status = Status::ok;
    Node marker;
    marker.what = "default stream";
    give(*stream.stream, std::move(marker), {}, fence, false, &status);
    stream.fence = status == Status::ok ? fence : nullptr;
    stream.dirty = false;
  }
  return stream.fence;
}

// The work of other streams that work on this stream waits for: the legacy default stream and the blocking ones wait
// for each other.
void add_implicit_waits(StreamObject& stream, std::vector<std::shared_ptr<Event>>* waits) {
  if (!stream.blocking) return;
  const auto legacy = stream.context->legacy;
  if (stream.is_legacy) {
    for (const auto& other : streams_of(*stream.context)) {
      if (other.get() == &stream || !other->blocking) continue;
      if (const auto fence = fence_of(*other)) waits->push_back(fence);
      other->fence = nullptr;  // later work on this stream comes after it anyway
    }
    return;
  }
  if (legacy == nullptr) return;
  const auto fence = fence_of(*legacy);
  if (fence == nullptr || fence == stream.waited) return;
  waits->push_back(fence);
  stream.waited = fence;
}

bool is_default(Handle handle) { return reinterpret_cast<std::uintptr_t>(handle) <= kPerThreadStream; }

}  // namespace

std::shared_ptr<StreamObject> make_stream(const std::shared_ptr<Context>& context, bool blocking, int priority) {
  reap(*context);
  auto made = std::make_shared<StreamObject>();
  made->context = context;
  made->blocking = blocking;
  made->priority = priority;
  made->stream = std::make_shared<Stream>(engine(), context->device, true);
  context->streams.push_back(made);
  return made;
}

static std::shared_ptr<StreamObject> get_legacy(const std::shared_ptr<Context>& context) {
  if (context->legacy == nullptr) {
    context->legacy = make_stream(context, true, 0);
    context->legacy->is_legacy = true;
  }
  return context->legacy;
}

std::shared_ptr<StreamObject> get_stream(Handle handle) {
  const auto context = current_context();
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= kLegacyStream) return get_legacy(context);
  if (number == kPerThreadStream) {
    auto& stream = context->thread[std::this_thread::get_id()];
    if (stream == nullptr) stream = make_stream(context, true, 0);
    return stream;
  }
  return get<StreamObject>(handle, "stream");
}

Result submit(StreamObject& stream, Node node, std::vector<std::shared_ptr<Event>> waits,
              std::shared_ptr<Event> signal) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return kCaptureInvalidated;
    capture_node(stream, std::move(node));
    return kSuccess;
  }
  if (stream.is_legacy) CUDA_TRY(refuse_implicit(*stream.context));
  const int device = stream.context->device;
  CUDA_TRY(sticky_error(device));
  add_implicit_waits(stream, &waits);
  stream.dirty = true;
  Status status = Status::ok;
  give(*stream.stream, std::move(node), std::move(waits), std::move(signal), true, &status);
  return result_of(status);
}

const Context* owner_of(const Object& object) {
  if (const auto* stream = dynamic_cast<const StreamObject*>(&object)) return stream->context.get();
  if (const auto* event = dynamic_cast<const EventObject*>(&object)) return event->context.get();
  if (const auto* module = dynamic_cast<const Module*>(&object)) return module->context.get();
  if (const auto* graph = dynamic_cast<const Graph*>(&object)) return graph->context.get();
  if (const auto* exec = dynamic_cast<const GraphExec*>(&object)) return exec->context.get();
  return nullptr;
}

void destroy_context(Context& context) {
  context.destroyed = true;
  for (int other = 0; other < settings().devices; ++other) {
    if (other == context.device) continue;
    engine().allow_peer(context.device, other, false);
    engine().allow_peer(other, context.device, false);
    const auto& peer = state().primary[static_cast<std::size_t>(other)];
    if (peer != nullptr) peer->peers.erase(context.device);
  }
  std::string left;
  const auto leave = [&](const std::string& text) { left += (left.empty() ? "" : ", ") + text; };
  for (const auto& object : engine().handles().all()) {
    if (owner_of(*object) != &context) continue;
    leave(object->kind);
    engine().handles().remove(*object);
  }
  for (const auto& allocation : engine().memory().live()) {
    if (allocation->owner == context.token) leave(allocation->text());
  }
  if (!left.empty() && engine().device_status(context.device) == Status::ok) {
    refuse(kSuccess, "destroyed-in-use", "the context is destroyed while it still has: " + left);
  }
  for (const auto& allocation : engine().memory().live()) {
    if (allocation->owner == context.token) engine().free(allocation->pointer, context.token);
  }
  context.streams.clear();
  context.thread.clear();
  context.legacy = nullptr;
  context.closing.clear();
  engine().handles().remove(context);
}

// ---- streams
// -----------------------------------------------------------------------------------------------------------

static Result create_stream(Handle* stream, unsigned flags, int priority) {
  CUDA_REQUIRE(stream != nullptr, kInvalidValue, "bad-argument", "the result is null");
  CUDA_REQUIRE(flags <= kStreamNonBlocking, kInvalidValue, "bad-argument", "unknown flags");
  const std::lock_guard lock(face_lock());
  // A priority outside of the range is taken as the nearest one.
  *stream = handle_of(make_stream(current_context(), flags == 0, std::clamp(priority, -5, 0)), true);
  return kSuccess;
}

CUDA_FUNCTION(cuStreamCreate, "cuStreamCreate", 2000, Need::healthy, (Handle * stream, unsigned flags),
              (stream, flags)) {
  return create_stream(stream, flags, 0);
}

CUDA_FUNCTION(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, Need::healthy,
              (Handle * stream, unsigned flags, int priority), (stream, flags, priority)) {
  return create_stream(stream, flags, priority);
}

CUDA_FUNCTION(cuStreamGetPriority, "cuStreamGetPriority", 5050, Need::healthy, (Handle stream, int* priority),
              (stream, priority)) {
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  *priority = object->priority;
  return kSuccess;
}

CUDA_FUNCTION(cuStreamGetCtx, "cuStreamGetCtx", 9020, Need::healthy, (Handle stream, Handle* context),
              (stream, context)) {
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  *context = reinterpret_cast<Handle>(object->context->token);
  return kSuccess;
}

// Returns at once; what the stream still has to do runs to its end.
CUDA_FUNCTION(cuStreamDestroy_v2, "cuStreamDestroy", 4000, Need::healthy_at_end, (Handle stream), (stream)) {
  const std::lock_guard lock(face_lock());
  CUDA_REQUIRE(!is_default(stream), kInvalidHandle, "bad-handle", "a default stream cannot be destroyed");
  const auto object = get<StreamObject>(stream, "stream");
  if (object == nullptr) return kInvalidHandle;
  if (object->capture != nullptr) {
    object->capture->invalidated = true;
    return refuse(kCaptureUnsupported, "capture", "the stream captures");
  }
  // The legacy default stream still waits for it.
  if (object->blocking && !object->stream->idle()) {
    if (const auto fence = fence_of(*object)) {
      get_legacy(object->context);
      std::vector<std::shared_ptr<Event>> waits = {fence};
      Status status = Status::ok;
      Node marker;
      marker.what = "default stream";
      give(*object->context->legacy->stream, std::move(marker), std::move(waits), nullptr, false, &status);
      object->context->legacy->dirty = true;
    }
  }
  engine().handles().remove(*object);
  object->context->closing.push_back(std::move(object->stream));
  reap(*object->context);
  return kSuccess;
}

// The stream to wait for, in `*stream`; the legacy one is first made to wait for the others.
static Result stream_to_wait_for(Handle handle, std::shared_ptr<Stream>* stream, int* device) {
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(handle);
  if (object == nullptr) return kInvalidHandle;
  CUDA_TRY(refuse_capture(*object, "a question or a wait"));
  CUDA_TRY(refuse_unsafe());
  *device = object->context->device;
  CUDA_TRY(sticky_error(*device));
  if (object->is_legacy) {
    CUDA_TRY(refuse_implicit(*object->context));
    std::vector<std::shared_ptr<Event>> waits;
    add_implicit_waits(*object, &waits);
    Status status = Status::ok;
    Node marker;
    marker.what = "default stream";
    if (!waits.empty()) give(*object->stream, std::move(marker), std::move(waits), nullptr, false, &status);
  }
  *stream = object->stream;
  return kSuccess;
}

CUDA_FUNCTION(cuStreamQuery, "cuStreamQuery", 2000, Need::healthy, (Handle stream), (stream)) {
  std::shared_ptr<Stream> target;
  int device = 0;
  CUDA_TRY(stream_to_wait_for(stream, &target, &device));
  return result_of(target->wait(0));
}

CUDA_FUNCTION(cuStreamSynchronize, "cuStreamSynchronize", 2000, Need::healthy, (Handle stream), (stream)) {
  std::shared_ptr<Stream> target;
  int device = 0;
  CUDA_TRY(stream_to_wait_for(stream, &target, &device));
  return result_of(target->wait(kForever));
}

// ---- events
// ------------------------------------------------------------------------------------------------------------

CUDA_FUNCTION(cuEventCreate, "cuEventCreate", 2000, Need::healthy, (Handle * event, unsigned flags), (event, flags)) {
  CUDA_REQUIRE(event != nullptr, kInvalidValue, "bad-argument", "the result is null");
  CUDA_REQUIRE(flags <= 3, flags < 8 ? kNotSupported : kInvalidValue, "bad-argument",
               "unknown flags, or sharing between processes");
  auto made = std::make_shared<EventObject>();
  made->context = current_context();
  made->flags = flags;
  *event = handle_of(made, true);
  return kSuccess;
}

// Work that waits for it or sets it continues.
CUDA_FUNCTION(cuEventDestroy_v2, "cuEventDestroy", 4000, Need::healthy_at_end, (Handle event), (event)) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return kInvalidHandle;
  engine().handles().remove(*object);
  return kSuccess;
}

CUDA_FUNCTION(cuEventRecord, "cuEventRecord", 2000, Need::healthy, (Handle event, Handle stream), (event, stream)) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return kInvalidHandle;
  const std::lock_guard lock(face_lock());
  const auto target = get_stream(stream);
  if (target == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(target->context == object->context, kInvalidHandle, "bad-handle",
               "event and stream belong to different contexts");
  if (target->capture != nullptr) {
    if (target->capture->invalidated) return kCaptureInvalidated;
    object->capture = target->capture;
    object->after = target->tail;
    return kSuccess;
  }
  auto record = std::make_shared<Event>();
  Node node;
  node.what = current_function();
  CUDA_TRY(submit(*target, std::move(node), {}, record));
  object->capture = nullptr;
  object->latest = std::move(record);
  return kSuccess;
}

CUDA_FUNCTION(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, Need::healthy,
              (Handle stream, Handle event, unsigned flags), (stream, event, flags)) {
  CUDA_REQUIRE(flags == 0, kInvalidValue, "bad-argument", "the flags must be 0");
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return kInvalidHandle;
  const std::lock_guard lock(face_lock());
  const auto target = get_stream(stream);
  if (target == nullptr) return kInvalidHandle;
  if (object->capture != nullptr) {
    const auto& capture = object->capture;
    if (capture->ended) {
      if (target->capture != nullptr) target->capture->invalidated = true;
      return refuse(kCapturedEvent, "capture", "the event was last recorded in a capture that has ended");
    }
    if (capture->invalidated) return kCaptureInvalidated;
    if (target->is_legacy) {
      capture->invalidated = true;
      return refuse(kCaptureImplicit, "capture", "the legacy default stream cannot join a capture");
    }
    if (!join_capture(target, *object)) {
      capture->invalidated = target->capture->invalidated = true;
      return refuse(kCaptureMerge, "capture", "the event belongs to another capture than the stream's");
    }
    return kSuccess;
  }
  if (object->latest == nullptr) return kSuccess;
  if (target->capture != nullptr) {
    if (target->capture->invalidated) return kCaptureInvalidated;
    target->capture->invalidated = true;
    return refuse(kCaptureIsolation, "capture", "the event was not recorded in the capture");
  }
  Node node;
  node.what = current_function();
  return submit(*target, std::move(node), {object->latest});
}

// The record to ask or wait for; null when there was none.
static Result record_of(Handle event, std::shared_ptr<Event>* record, int* device) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return kInvalidHandle;
  const std::lock_guard lock(face_lock());
  *device = object->context->device;
  if (object->capture != nullptr) {
    if (!object->capture->ended) object->capture->invalidated = true;
    return refuse(kCapturedEvent, "capture", "the event was last recorded in a capture");
  }
  CUDA_TRY(refuse_unsafe());
  *record = object->latest;
  return sticky_error(*device);
}

CUDA_FUNCTION(cuEventQuery, "cuEventQuery", 2000, Need::healthy, (Handle event), (event)) {
  std::shared_ptr<Event> record;
  int device = 0;
  CUDA_TRY(record_of(event, &record, &device));
  return record == nullptr ? kSuccess : result_of(engine().wait(*record, 0));
}

CUDA_FUNCTION(cuEventSynchronize, "cuEventSynchronize", 2000, Need::healthy, (Handle event), (event)) {
  std::shared_ptr<Event> record;
  int device = 0;
  CUDA_TRY(record_of(event, &record, &device));
  return record == nullptr ? kSuccess : result_of(engine().wait(*record, kForever));
}

static Result elapsed(float* milliseconds, Handle start, Handle end) {
  CUDA_REQUIRE(milliseconds != nullptr, kInvalidValue, "bad-argument", "the result is null");
  const auto first = get<EventObject>(start, "first event");
  if (first == nullptr) return kInvalidHandle;
  const auto second = get<EventObject>(end, "second event");
  if (second == nullptr) return kInvalidHandle;
  CUDA_REQUIRE(first->context == second->context, kInvalidHandle, "bad-handle", "the events are of two contexts");
  CUDA_REQUIRE(((first->flags | second->flags) & kEventDisableTiming) == 0, kInvalidHandle, "event-state",
               "an event was made without timing");
  const std::lock_guard lock(face_lock());
  CUDA_REQUIRE(first->capture == nullptr && second->capture == nullptr, kCapturedEvent, "capture",
               "an event was last recorded in a capture");
  CUDA_REQUIRE(first->latest != nullptr && second->latest != nullptr, kInvalidHandle, "event-state",
               "an event was never recorded");
  const auto from = engine().times(*first->latest), to = engine().times(*second->latest);
  if (!from || !to) return kNotReady;
  const auto begin = static_cast<double>(from->second), stop = static_cast<double>(to->second);
  *milliseconds = static_cast<float>((stop - begin) * 1e-6);
  return kSuccess;
}

CUDA_FUNCTION(cuEventElapsedTime, "cuEventElapsedTime", 2000, Need::healthy,
              (float* milliseconds, Handle start, Handle end), (milliseconds, start, end)) {
  return elapsed(milliseconds, start, end);
}
CUDA_FUNCTION(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080, Need::healthy,
              (float* milliseconds, Handle start, Handle end), (milliseconds, start, end)) {
  return elapsed(milliseconds, start, end);
}

}  // namespace sim::cuda
