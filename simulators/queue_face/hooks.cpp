// Implements the functions that the vendor's other simulated libraries call (libraries/hooks.h).
#include "simulators/libraries/hooks.h"

#include "simulators/queue_face/queue_face.h"

namespace {

using sim::queue_face::engine;

struct LibraryObject : sim::Object {
  explicit LibraryObject(const char* kind_name) : Object(kind_name) {}
};

}  // namespace

namespace sim_hooks {

#define SIM_HOOK __attribute__((visibility("default")))

SIM_HOOK int sim_hook_enqueue(void* stream, const char* what, const std::vector<Range>& ranges, Body body) {
  using namespace sim::queue_face;  // NOLINT: all of it is theirs
  Result bad = kSuccess;
  const auto context = current_context(&bad);
  if (context == nullptr) return bad;
  FACE_TRY(sticky_error(context->device));
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream, &bad);
  if (object == nullptr) return bad;
  sim::Node node;
  node.what = what;
  node.run = [what, ranges, body = std::move(body)](sim::Execution& execution) {
    std::vector<char*> bytes;
    for (const Range& range : ranges) {
      auto* pointer = reinterpret_cast<char*>(range.pointer);
      if (engine().memory().find(pointer) == nullptr) {
        engine().report().violation("bad-pointer", std::string(what) + ": an operand is no memory of a device");
        execution.fail(sim::Status::bad_access);
        return;
      }
      bytes.push_back(range.write ? execution.write(pointer, range.bytes)
                                  : const_cast<char*>(execution.read(pointer, range.bytes)));
      if (bytes.back() == nullptr) return;
    }
    const CallbackScope scope;
    body(bytes.data());
  };
  return submit(*object, std::move(node));
}

SIM_HOOK int sim_hook_current_device(int* device) {
  sim::queue_face::Result bad = sim::queue_face::kSuccess;
  const auto context = sim::queue_face::current_context(&bad);
  if (context != nullptr) *device = context->device;
  return bad;
}

SIM_HOOK void* sim_hook_current_context() {
  const auto& context = sim::queue_face::chosen_context();
  return context == nullptr ? nullptr : reinterpret_cast<void*>(context->token);
}

SIM_HOOK void sim_hook_set_context(void* context) {
  sim::queue_face::thread_state().context =
      context == nullptr ? nullptr : sim::queue_face::get<sim::queue_face::Context>(context, "context");
}

SIM_HOOK int sim_hook_stream_device(void* stream, int* device) {
  using namespace sim::queue_face;  // NOLINT: all of it is theirs
  Result bad = kSuccess;
  if (current_context(&bad) == nullptr) return bad;
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream, &bad);
  if (object != nullptr) *device = object->context->device;
  return bad;
}

SIM_HOOK int sim_hook_pointer(std::uint64_t pointer, int* device, std::size_t* bytes) {
  const char* p = reinterpret_cast<const char*>(pointer);
  const auto allocation = engine().memory().find(p);
  if (allocation == nullptr || allocation->freed || allocation->kind != sim::MemoryKind::device) return 1;
  if (p < allocation->pointer || p >= allocation->pointer + allocation->size) return 1;
  *device = allocation->device;
  *bytes = static_cast<std::size_t>(allocation->pointer + allocation->size - p);
  return 0;
}

SIM_HOOK std::uint64_t sim_hook_used(int device) {
  return device >= 0 && device < sim::queue_face::settings().devices ? engine().used(device) : 0;
}

SIM_HOOK void sim_hook_violation(const char* kind, const char* message) { engine().report().violation(kind, message); }

SIM_HOOK void sim_hook_count_call(const char* function) { ++engine().report().calls(function); }

SIM_HOOK std::uint64_t sim_hook_add_object(const char* kind) {
  return engine().handles().add(std::make_shared<LibraryObject>(kind), true);
}

SIM_HOOK void sim_hook_remove_object(std::uint64_t token) {
  std::string problem;
  const auto object = engine().handles().get<LibraryObject>(reinterpret_cast<void*>(token), &problem);
  if (object != nullptr) engine().handles().remove(*object);
}

}  // namespace sim_hooks
