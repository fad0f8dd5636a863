// Implements the shared parts of the simulated libraries.
#include "simulators/libraries/library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace sim_library {
namespace {

template <typename Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

const sim::Settings& settings() {
  static const sim::Settings* settings = new sim::Settings(sim::Settings::from_environment());
  return *settings;
}

const sim::Fault* fail_fault(const char* function) {
  for (const sim::Fault& fault : settings().faults) {
    if (fault.name == "fail" && fault.words[0] == function) return &fault;
  }
  return nullptr;
}

const Driver* driver() {
  static std::atomic<const Driver*> found = nullptr;
  static std::mutex mutex;
  if (const Driver* known = found.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex);
  void* library = ::dlopen(SIM_DRIVER, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* made = new Driver{};
  if (bind(library, "sim_hook_enqueue", made->enqueue) &&
      bind(library, "sim_hook_current_device", made->current_device) &&
      bind(library, "sim_hook_current_context", made->current_context) &&
      bind(library, "sim_hook_set_context", made->set_context) &&
      bind(library, "sim_hook_stream_device", made->stream_device) &&
      bind(library, "sim_hook_pointer", made->pointer) && bind(library, "sim_hook_used", made->used) &&
      bind(library, "sim_hook_violation", made->violation) && bind(library, "sim_hook_count_call", made->count_call) &&
      bind(library, "sim_hook_add_object", made->add_object) &&
      bind(library, "sim_hook_remove_object", made->remove_object)) {
    found.store(made, std::memory_order_release);
    return made;
  }
  delete made;
  ::dlclose(library);
  return nullptr;
}

void count_call(const char* function) {
  if (const Driver* loaded = driver()) loaded->count_call(function);
}

void violation(const char* kind, const std::string& message) {
  if (const Driver* loaded = driver()) return loaded->violation(kind, message.c_str());
  std::fprintf(stderr, "simulator: %s: %s\n", kind, message.c_str());
  if (settings().abort_on_violation) std::abort();
}

}  // namespace sim_library
