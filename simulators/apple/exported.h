// APPLE_FUNCTION(result, name, (parameters), (arguments)) { body }: a C function that the simulated libraries export. The symbol is
// an indirect one, whose address is asked for when it is looked up: dlsym() does not find what SIM_FAULT hides.
#pragma once

#include <type_traits>

#include "simulators/apple/objc.h"

namespace sim::apple {

template <typename T>
T zero() {
  return T();
}

class Counted {
 public:
  explicit Counted(const char* name) : running_(name) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const std::uint64_t number = ++engine().report().calls(name);
    for (const Fault& fault : settings().faults) {
      if (fault.name == "fail" && fault.words[0] == name && *fault.call == number) fails_ = true;
    }
  }
  bool fails() const { return fails_; }

 private:
  const Running running_;
  bool fails_ = false;
};

}  // namespace sim::apple

// A function that fails gives 0; one without a result cannot fail.
#define APPLE_FUNCTION(Result, name, parameters, arguments)                               \
  static Result body_##name parameters;                                                   \
  extern "C" {                                                                            \
  static Result enter_##name parameters {                                                 \
    const sim::apple::Counted call(#name);                                                \
    if constexpr (!std::is_void_v<Result>) {                                              \
      if (call.fails()) return sim::apple::zero<Result>();                                \
    }                                                                                     \
    return body_##name arguments;                                                         \
  }                                                                                       \
  static auto resolve_##name() -> decltype(&enter_##name) {                               \
    return sim::apple::settings().hidden(#name) ? nullptr : &enter_##name;                \
  }                                                                                       \
  __attribute__((visibility("default"), ifunc("resolve_" #name))) Result name parameters; \
  }                                                                                       \
  static Result body_##name parameters
