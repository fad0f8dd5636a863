// Shared parts of the simulated libraries other than the driver: their settings, faults and call counts, access to the
// process's simulated driver, and handles.
//
// Every exported function is called through an Entry, which counts the call and injects "fail" faults. The symbol is an
// indirect one, whose address is computed when it is looked up: SIM_FAULT=hide:NAME lets dlsym() find nothing, as in a
// library that is too old to have the function.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "simulators/engine/settings.h"
#include "simulators/libraries/hooks.h"

namespace sim_library {

const sim::Settings& settings();
const sim::Fault* fail_fault(const char* function);  // null: none for this function

// The functions of the vendor's simulated driver (SIM_DRIVER, its file's name) that the process has loaded.
struct Driver {
  decltype(&sim_hooks::sim_hook_enqueue) enqueue;
  decltype(&sim_hooks::sim_hook_current_device) current_device;
  decltype(&sim_hooks::sim_hook_current_context) current_context;
  decltype(&sim_hooks::sim_hook_set_context) set_context;
  decltype(&sim_hooks::sim_hook_stream_device) stream_device;
  decltype(&sim_hooks::sim_hook_pointer) pointer;
  decltype(&sim_hooks::sim_hook_used) used;
  decltype(&sim_hooks::sim_hook_violation) violation;
  decltype(&sim_hooks::sim_hook_count_call) count_call;
  decltype(&sim_hooks::sim_hook_add_object) add_object;
  decltype(&sim_hooks::sim_hook_remove_object) remove_object;
};
const Driver* driver();  // null while the process has not loaded it

void count_call(const char* function);
// To the driver's report; without a driver to standard error, which ends the process under SIM_STRICT=abort.
void violation(const char* kind, const std::string& message);

// The objects of one kind behind their handles. One that is left over at the end is a leak in the driver's report.
template <typename T>
class Handles {
 public:
  explicit Handles(const char* kind) : kind_(kind) {}

  void* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    // Without a driver: numbers that are no addresses.
    const std::uint64_t token =
        driver() != nullptr ? driver()->add_object(kind_) : (std::uint64_t{0xE5} << 56) + ++next_;
    objects_[token] = std::move(object);
    return reinterpret_cast<void*>(token);
  }
  // Null and a violation by `function` when the handle stands for nothing.
  std::shared_ptr<T> get(const void* handle, const char* function) const {
    {
      const std::lock_guard lock(mutex_);
      const auto found = objects_.find(reinterpret_cast<std::uint64_t>(handle));
      if (found != objects_.end()) return found->second;
    }
    violation("bad-handle", std::string(function) + ": the handle is that of no " + kind_);
    return nullptr;
  }
  void remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto token = reinterpret_cast<std::uint64_t>(handle);
    objects_.erase(token);
    if (driver() != nullptr && token >> 56 != 0xE5) driver()->remove_object(token);
  }

 private:
  const char* const kind_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<T>> objects_;
  std::uint64_t next_ = 0;
};

template <auto kFunction, auto kFailure>
struct Entry;
template <typename Return, typename... Args, Return (*kFunction)(Args...), auto kFailure>
struct Entry<kFunction, kFailure> {
  static inline const char* name = nullptr;
  static inline const sim::Fault* fault = nullptr;
  static inline std::atomic<std::uint64_t> calls = 0;

  static Return call(Args... args) {
    sim_library::count_call(name);
    if (fault != nullptr && ++calls == *fault->call) return static_cast<Return>(kFailure);
    return kFunction(args...);
  }
  // The address that dlsym() returns.
  static auto resolve(const char* symbol) -> Return (*)(Args...) {
    if (settings().hidden(symbol)) return nullptr;
    fault = fail_fault(symbol);
    name = symbol;
    return &call;
  }
};

}  // namespace sim_library

// Exports `function` of the namespace sim_library under its own name; an injected fault makes it return `failure`.
#define SIM_EXPORT(function, failure)                                                                           \
  extern "C" {                                                                                                  \
  [[maybe_unused]] static auto resolve_##function() -> decltype(&sim_library::function) {                       \
    return sim_library::Entry<&sim_library::function, (failure)>::resolve(#function);                           \
  }                                                                                                             \
  __attribute__((visibility("default"), ifunc("resolve_" #function))) decltype(sim_library::function) function; \
  }
