// Implements the functions that the other simulated libraries call (libraries/hooks.h).
#include "simulators/cuda/cuda_face.h"
#include "simulators/libraries/hooks.h"

namespace {

using sim::cuda::engine;
using sim::cuda::face_lock;

struct LibraryObject : sim::Object {
  explicit LibraryObject(const char* kind_name) : Object(kind_name) {}
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int cuda_is_simulator() { return 1; }
}

namespace sim_hooks {

#define SIM_HOOK __attribute__((visibility("default")))

SIM_HOOK int sim_hook_enqueue(void* stream, const char* what, const std::vector<Range>& ranges, Body body) {
  using namespace sim::cuda;
  const auto context = current_context();
  if (context == nullptr) {
    engine().report().violation("no-context", std::string(what) + ": the thread has no current context");
    return kInvalidContext;
  }
  CUDA_TRY(sticky_error(context->device));
  const std::lock_guard lock(face_lock());
  const auto object = get_stream(stream);
  if (object == nullptr) return kInvalidHandle;
  if (object->context != context) {
    engine().report().violation("bad-handle", std::string(what) + ": the stream belongs to another context");
    return kInvalidHandle;
  }
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
  const auto context = sim::cuda::current_context();
  if (context == nullptr) return sim::cuda::kInvalidContext;
  *device = context->device;
  return 0;
}

SIM_HOOK void* sim_hook_current_context() {
  const auto context = sim::cuda::current_context();
  return context == nullptr ? nullptr : reinterpret_cast<void*>(context->token);
}

SIM_HOOK void sim_hook_set_context(void* context) {
  auto& stack = sim::cuda::context_stack();
  if (!stack.empty()) stack.pop_back();
  if (context == nullptr) return;
  if (auto object = sim::cuda::find_context(context)) stack.push_back(std::move(object));
}

SIM_HOOK int sim_hook_stream_device(void* stream, int* device) {
  if (sim::cuda::current_context() == nullptr) return sim::cuda::kInvalidContext;
  const std::lock_guard lock(face_lock());
  const auto object = sim::cuda::get_stream(stream);
  if (object == nullptr) return sim::cuda::kInvalidHandle;
  *device = object->context->device;
  return 0;
}

SIM_HOOK int sim_hook_pointer(std::uint64_t pointer, int* device, std::size_t* bytes) {
  const char* p = reinterpret_cast<const char*>(pointer);
  const auto allocation = engine().memory().find(p);
  if (allocation == nullptr || allocation->freed || allocation->kind == sim::MemoryKind::host) return 1;
  const sim::Extent extent = engine().memory().extent(*allocation, p, sim::kAnyDevice, false);
  if (p < extent.begin || p >= extent.end) return 1;
  *device = allocation->reservation()
                ? engine().memory().device_at(*allocation, static_cast<std::size_t>(p - allocation->pointer))
                : allocation->device;
  *bytes = static_cast<std::size_t>(extent.end - p);
  return 0;
}

SIM_HOOK std::uint64_t sim_hook_used(int device) {
  return device >= 0 && device < sim::cuda::settings().devices ? engine().used(device) : 0;
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
