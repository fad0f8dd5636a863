// Implements streams, host functions and events.
#include "simulators/queue_face/queue_face.h"

namespace sim::queue_face {
namespace {

std::shared_ptr<StreamObject> make_stream(const std::shared_ptr<Context>& context) {
  std::erase_if(context->closing, [](const auto& stream) { return stream->idle(); });
  std::erase_if(context->streams, [](const auto& stream) { return stream.expired(); });
  auto made = std::make_shared<StreamObject>();
  made->context = context;
  made->stream = std::make_shared<Stream>(engine(), context->device, true);
  context->streams.push_back(made);
  return made;
}

// A capturing stream is queried or waited for. The caller holds face_lock.
Result refuse_captured(StreamObject& stream, const char* what) {
  if (stream.capture == nullptr) return kSuccess;
  if (vendor().refusal_invalidates) stream.capture->invalidated = true;
  return refuse(codes().captured, "capture", std::string(what) + " a stream that captures");
}

Result check_context(const Context& context, const char* what) {
  if (!vendor().streams_are_tied || context.device == thread_state().context->device) return kSuccess;
  return refuse(codes().wrong_context, "wrong-owner",
                std::string("the ") + what + " is of device " + std::to_string(ordinal_of(context.device)) +
                    ", and the thread's current one is " + std::to_string(ordinal_of(thread_state().context->device)));
}

}  // namespace

std::shared_ptr<StreamObject> get_stream(Handle handle, Result* bad) {
  *bad = kSuccess;
  if (handle == nullptr && !vendor().no_default_stream) {
    const auto context = thread_state().context;
    auto& stream =
        context->defaults[vendor().default_stream_per_thread ? std::this_thread::get_id() : std::thread::id()];
    if (stream == nullptr) {
      stream = make_stream(context);
      stream->is_default = true;
    }
    return stream;
  }
  auto object = get<StreamObject>(handle, "stream");
  *bad = object == nullptr ? codes().invalid_handle : check_context(*object->context, "stream");
  return *bad == kSuccess ? object : nullptr;
}

Result submit(StreamObject& stream, Node node, std::vector<std::shared_ptr<Event>> waits,
              std::shared_ptr<Event> signal) {
  if (stream.capture != nullptr) {
    if (stream.capture->invalidated) return codes().invalidated;
    capture_node(stream, std::move(node));
    return kSuccess;
  }
  Command command;
  command.what = node.what;
  command.waits = std::move(waits);
  command.signal = std::move(signal);
  command.run = std::move(node.run);
  return result_of(stream.stream->submit({std::make_shared<const Command>(std::move(command))}));
}

Result create_stream(Handle* stream) {
  FACE_REQUIRE(stream != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  const std::lock_guard lock(face_lock());
  *stream = handle_of(make_stream(thread_state().context), true);
  return kSuccess;
}

Result destroy_stream(Handle stream, Ending ending) {
  std::shared_ptr<Stream> own;
  {
    const std::lock_guard lock(face_lock());
    const auto object = get<StreamObject>(stream, "stream");
    if (object == nullptr) return codes().invalid_handle;
    FACE_TRY(check_context(*object->context, "stream"));
    FACE_TRY(refuse_captured(*object, "the end of"));
    engine().handles().remove(*object);
    own = std::move(object->stream);
    if (ending == Ending::goes_on) object->context->closing.push_back(own);
  }
  // Work that has not run when a stream is destroyed is a violation that the engine reports.
  if (ending == Ending::waits) own->wait(kForever);
  return kSuccess;
}

Result wait_for_stream(Handle stream, std::uint64_t timeout_ns) {
  std::shared_ptr<Stream> target;
  {
    const std::lock_guard lock(face_lock());
    Result bad = kSuccess;
    const auto object = get_stream(stream, &bad);
    if (object == nullptr) return bad;
    FACE_TRY(refuse_captured(*object, timeout_ns == 0 ? "a question about" : "a wait for"));
    target = object->stream;
  }
  return result_of(target->wait(timeout_ns));
}

Result launch_host_function(Handle stream, HostFunction function, void* data) {
  FACE_REQUIRE(function != nullptr, codes().invalid_argument, "bad-argument", "the function is null");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto object = get_stream(stream, &bad);
  if (object == nullptr) return bad;
  Node node;
  node.what = current_function();
  node.run = [function, data](Execution& execution) {
    const CallbackScope scope;
    function(data);
    execution.ran_on_the_host();
  };
  return submit(*object, std::move(node));
}

// ---- events
// ------------------------------------------------------------------------------------------------------------

Result create_event(Handle* event, EventTraits traits) {
  FACE_REQUIRE(event != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  auto made = std::make_shared<EventObject>();
  made->context = thread_state().context;
  made->timing = traits.timing;
  made->waitable = traits.waitable;
  made->reusable = traits.reusable;
  *event = handle_of(made, true);
  return kSuccess;
}

// Work that waits for it or sets it continues.
Result destroy_event(Handle event) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return codes().invalid_handle;
  engine().handles().remove(*object);
  return kSuccess;
}

Result record_event(Handle event, Handle stream) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return codes().invalid_handle;
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto target = get_stream(stream, &bad);
  if (target == nullptr) return bad;
  FACE_REQUIRE(target->context == object->context, codes().wrong_context, "bad-handle",
               "event and stream belong to different devices");
  if (target->capture != nullptr) {
    if (target->capture->invalidated) return codes().invalidated;
    if (!object->reusable) return codes().not_supported;
    object->capture = target->capture;
    object->after = target->tail;
    return kSuccess;
  }
  if (!object->reusable && object->latest != nullptr) {
    refuse(kSuccess, "event-state", "the event is recorded again, and was not reset");
  }
  auto record = std::make_shared<Event>();
  Node node;
  node.what = current_function();
  FACE_TRY(submit(*target, std::move(node), {}, record));
  object->capture = nullptr;
  object->latest = std::move(record);
  return kSuccess;
}

Result reset_event(Handle event, Handle stream) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return codes().invalid_handle;
  FACE_REQUIRE(!object->reusable, codes().not_supported, "event-state", "events of this kind are not reset");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto target = get_stream(stream, &bad);
  if (target == nullptr) return bad;
  FACE_REQUIRE(target->capture == nullptr, codes().not_supported, "capture", "an event is reset in a capture");
  object->latest = nullptr;
  return kSuccess;
}

Result stream_wait_event(Handle stream, Handle event) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return codes().invalid_handle;
  FACE_REQUIRE(object->waitable, codes().invalid_argument, "event-state",
               "the event was made without the flag for streams that wait");
  const std::lock_guard lock(face_lock());
  Result bad = kSuccess;
  const auto target = get_stream(stream, &bad);
  if (target == nullptr) return bad;
  if (object->capture != nullptr) {
    const auto capture = object->capture;
    if (capture->ended) {
      if (target->capture != nullptr) target->capture->invalidated = true;
      return refuse(codes().captured_event, "capture", "the event was last recorded in a capture that has ended");
    }
    if (capture->invalidated) return codes().invalidated;
    if (target->is_default) {
      capture->invalidated = true;
      return refuse(codes().implicit, "capture", "a default stream cannot join a capture");
    }
    if (!join_capture(target, *object)) {
      capture->invalidated = target->capture->invalidated = true;
      return refuse(codes().merge, "capture", "the event belongs to another capture than the stream's");
    }
    return kSuccess;
  }
  if (object->latest == nullptr) {
    FACE_REQUIRE(object->reusable, codes().invalid_argument, "event-state",
                 "the event was never recorded, and a wait for a later record is not simulated");
    return kSuccess;
  }
  if (target->capture != nullptr) {
    if (target->capture->invalidated) return codes().invalidated;
    target->capture->invalidated = true;
    return refuse(codes().isolation, "capture", "the event was not recorded in the capture");
  }
  Node node;
  node.what = current_function();
  return submit(*target, std::move(node), {object->latest});
}

Result wait_for_event(Handle event, std::uint64_t timeout_ns) {
  const auto object = get<EventObject>(event, "event");
  if (object == nullptr) return codes().invalid_handle;
  std::shared_ptr<Event> record;
  {
    const std::lock_guard lock(face_lock());
    if (object->capture != nullptr) {
      if (!object->capture->ended && vendor().refusal_invalidates) object->capture->invalidated = true;
      return refuse(codes().captured_event, "capture", "the event was last recorded in a capture");
    }
    record = object->latest;
  }
  if (record == nullptr) {
    FACE_REQUIRE(codes().unrecorded == kSuccess, codes().unrecorded, "event-state", "the event was never recorded");
    return object->reusable ? kSuccess : codes().not_ready;
  }
  return result_of(engine().wait(*record, timeout_ns));
}

// Asking for the time between two events before they are set is an error for some vendors and an ordinary result for
// others; the vendors of this face have no code of their own for it but not_ready.
Result elapsed_nanoseconds(std::uint64_t* nanoseconds, Handle start, Handle end) {
  FACE_REQUIRE(nanoseconds != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  const auto first = get<EventObject>(start, "first event");
  if (first == nullptr) return codes().invalid_handle;
  const auto second = get<EventObject>(end, "second event");
  if (second == nullptr) return codes().invalid_handle;
  FACE_REQUIRE(first->timing && second->timing, codes().timing, "event-state", "an event was made without timing");
  const std::lock_guard lock(face_lock());
  FACE_REQUIRE(first->capture == nullptr && second->capture == nullptr, codes().captured_event, "capture",
               "an event was last recorded in a capture");
  FACE_REQUIRE(first->latest != nullptr && second->latest != nullptr,
               codes().unrecorded == kSuccess ? codes().timing : codes().unrecorded, "event-state",
               "an event was never recorded");
  const auto from = engine().times(*first->latest), to = engine().times(*second->latest);
  if (!from || !to) return codes().not_ready;
  *nanoseconds = to->second - from->second;
  return kSuccess;
}

Result elapsed_time(float* milliseconds, Handle start, Handle end) {
  FACE_REQUIRE(milliseconds != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  std::uint64_t nanoseconds = 0;
  FACE_TRY(elapsed_nanoseconds(&nanoseconds, start, end));
  // Negative when the first event is the later one.
  *milliseconds = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(nanoseconds)) * 1e-6);
  return kSuccess;
}

}  // namespace sim::queue_face
