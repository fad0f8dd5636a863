// Implements validate_threads.h: the rules about threads.
#include "runtime/layers/validate_threads.h"

#include <mutex>
#include <thread>

namespace anyaccel::layers {

int calls_inside(ValidateState& state, ObjectKind kind, const void* handle) {
  const TrackedObject* object = state.find(kind, handle);
  const int own = object ? object->inside : 0;
  return kind == ObjectKind::module ? own + state.calls_inside_children(ObjectKind::kernel, handle) : own;
}

Problem check_alone(ValidateState& state, Alone how, ObjectKind kind, const void* handle) {
  const TrackedObject* object = state.find(kind, handle);
  if (!object) return {};
  if (how == Alone::all) {
    const int others = calls_inside(state, kind, handle);
    if (others == 0) return {};
    return wrong_now("threads: " + std::to_string(others) + " other call" + (others == 1 ? " is" : "s are") +
                     " under way with this " + kind_name(kind) + ", which this function must have for itself");
  }
  if (how == Alone::siblings && object->alone > 0) {
    return wrong_now("threads: another thread is inside this " + std::string(kind_name(kind)) +
                     ", of which functions are called one at a time");
  }
  return {};
}

Problem check_stream_thread(ValidateState& state, const void* stream) {
  const TrackedObject* object = state.find(ObjectKind::stream, stream);
  if (!object || object->only_thread == std::thread::id() || object->only_thread == std::this_thread::get_id())
    return {};
  return wrong_now(std::string("threads: another thread ") +
                   (object->capturing ? "captures a graph" : "is inside a step") +
                   " on the stream, and only that one may enqueue meanwhile");
}

void Inside::enter(ObjectKind kind, const void* handle, bool is_alone) {
  TrackedObject* object = state_.find(kind, handle);
  if (!object) return;
  entered_.push_back({kind, handle, is_alone});
  ++object->inside;
  object->alone += is_alone;
}

Inside::~Inside() {
  if (entered_.empty()) return;
  const std::lock_guard lock(state_.mutex);
  for (const Entered& entered : entered_) {
    if (TrackedObject* object = state_.find(entered.kind, entered.handle)) {
      --object->inside;
      object->alone -= entered.alone;
    }
  }
}

// ---- steps ----

void after(Function<&aa_lazy_table::step_begin>, ValidateLayer& layer, bool ok, aa_stream* stream, const aa_step*) {
  const std::lock_guard lock(layer.state.mutex);
  if (TrackedObject* object = layer.state.find(ObjectKind::stream, stream); ok && object) {
    object->in_step = true;
    object->only_thread = std::this_thread::get_id();
  }
}

Problem before(Function<&aa_lazy_table::step_begin>, ValidateState& state, aa_stream* stream, const aa_step*) {
  return state.find(ObjectKind::stream, stream)->in_step ? wrong_now("the stream is inside a step; steps do not nest")
                                                         : Problem{};
}

Problem before(Function<&aa_lazy_table::step_end>, ValidateState& state, aa_stream* stream) {
  TrackedObject& object = *state.find(ObjectKind::stream, stream);
  if (!object.in_step) return wrong_now("the stream is in no step");
  object.in_step = false;
  if (!object.capturing) object.only_thread = {};
  return {};
}

}  // namespace anyaccel::layers
