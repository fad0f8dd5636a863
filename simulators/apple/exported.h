// APPLE_FUNCTION(result, name, (parameters), (arguments)) { body }: a C function that the simulated libraries export. The symbol is
// an indirect one, whose address is asked for when it is looked up: dlsym() does not find what SIM_FAULT hides.
#pragma once

#include <string>

#include "simulators/apple/objc.h"

namespace sim::apple {

template <typename T>
T zero() {
  return T();
}

// Counts and pools cannot fail, nor can names be refused.
inline bool can_fail(const std::string& name) { return name == "objc_getClass" || name == "objc_lookUpClass"; }

// Counts a call; whether SIM_FAULT lets this one fail.
inline bool counted_call_fails(const char* name) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::uint64_t number = ++engine().report().calls(name);
  for (const Fault& fault : settings().faults) {
    if (fault.name == "fail" && fault.words[0] == name && *fault.call == number) return true;
  }
  return false;
}

}  // namespace sim::apple

// A function that fails gives 0.
#define APPLE_FUNCTION(Result, name, parameters, arguments)                               \
  static Result body_##name parameters;                                                   \
  extern "C" {                                                                            \
  static Result enter_##name parameters {                                                 \
    const sim::apple::Running running(#name);                                             \
    if (sim::apple::counted_call_fails(#name) && sim::apple::can_fail(#name)) {           \
      return sim::apple::zero<Result>();                                                  \
    }                                                                                     \
    return body_##name arguments;                                                         \
  }                                                                                       \
  [[maybe_unused]] static auto resolve_##name() -> decltype(&enter_##name) {              \
    return sim::apple::settings().hidden(#name) ? nullptr : &enter_##name;                \
  }                                                                                       \
  __attribute__((visibility("default"), ifunc("resolve_" #name))) Result name parameters; \
  }                                                                                       \
  static Result body_##name parameters
