// The Level Zero interface of the simulator: a driver for spec 1.4, the version of Debian's loader 1.8.12. Declares the
// objects behind the handles, and the shared parts of the functions. Functions have the names of the specification and
// follow it: https://oneapi-src.github.io/level-zero-spec/level-zero/1.4.8/
#pragma once

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simulators/engine/engine.h"

namespace sim::level_zero {

// Commands, not wall time, of a real device tick in its own unit: 52 ns a cycle catches who takes it for nanoseconds.
inline constexpr std::uint64_t kTimerFrequency = 19200000;  // cycles a second
inline constexpr std::uint64_t kTimerNanoseconds = 52;      // as the older property tells it, rounded
inline constexpr std::uint32_t kTimestampBits = 32;
std::uint64_t device_cycles(std::uint64_t nanoseconds);

struct Driver : Object {
  Driver() : Object("driver") {}
};
struct Device : Object {
  explicit Device(int i) : Object("device"), index(i) {}
  const int index;
};
struct Context : Object {
  Context() : Object("context") {}
};
struct CommandQueue : Object {
  CommandQueue() : Object("command queue") {}
  std::shared_ptr<Context> context;
  std::shared_ptr<Device> device;
  std::uint32_t ordinal = 0;
  bool synchronous = false;
  std::unique_ptr<Stream> stream;
};
struct CommandList : Object {
  CommandList() : Object("command list") {}
  std::shared_ptr<Context> context;
  std::shared_ptr<Device> device;
  std::uint32_t ordinal = 0;
  std::unique_ptr<Stream> stream;  // of an immediate list
  bool synchronous = false;
  bool closed = false;
  std::vector<std::shared_ptr<const Command>> commands;  // of a regular list
  std::vector<std::shared_ptr<Event>> runs;              // set when an execution of the list ends
};
struct EventPool : Object {
  EventPool() : Object("event pool") {}
  std::shared_ptr<Context> context;
  ze_event_pool_flags_t flags = 0;
  std::mutex mutex;
  std::vector<bool> taken;
};
struct EventObject : Object {
  EventObject() : Object("event") {}
  ~EventObject() override;
  std::shared_ptr<EventPool> pool;
  std::uint32_t index = 0;
  std::shared_ptr<Event> event = std::make_shared<Event>();
};
struct Fence : Object {
  Fence() : Object("fence") {}
  std::shared_ptr<CommandQueue> queue;
  std::shared_ptr<Event> event = std::make_shared<Event>();
};
struct Module : Object {
  Module() : Object("module") {}
  std::shared_ptr<Context> context;
  std::shared_ptr<Device> device;
  std::vector<const KernelInfo*> kernels;
};
struct BuildLog : Object {
  BuildLog() : Object("build log") {}
  std::string text;
};
struct Kernel : Object {
  Kernel() : Object("kernel") {}
  std::shared_ptr<Module> module;
  const KernelInfo* info = nullptr;
  bool group_size_set = false;
  std::vector<std::vector<char>> arguments;  // empty: not set
};

// Everything of the process; made by zeInit.
struct State {
  State();
  Engine engine;
  std::uint64_t version;  // spec version reported
  std::shared_ptr<Driver> driver;
  std::vector<std::shared_ptr<Device>> devices;  // after ZE_AFFINITY_MASK
};
State& state();
inline Engine& engine() { return state().engine; }
bool initialized();

ze_result_t result_of(Status status);
// Reports a violation by `function` and returns `code`.
ze_result_t refuse(const char* function, ze_result_t code, const char* kind, const std::string& what);

// The object of a handle; null (and a violation, with the code in `result`) if there is none.
template <typename T>
std::shared_ptr<T> get(const void* handle, const char* function, ze_result_t* result) {
  std::string problem;
  if (handle == nullptr) {
    *result = refuse(function, ZE_RESULT_ERROR_INVALID_NULL_HANDLE, "bad-handle", "a handle is null");
    return nullptr;
  }
  auto object = engine().handles().get<T>(handle, &problem);
  if (object == nullptr) {
    *result = refuse(function, ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-handle", "a handle is bad: " + problem);
  }
  return object;
}

template <typename Handle>
Handle handle_of(const std::shared_ptr<Object>& object, bool leaks) {
  return reinterpret_cast<Handle>(engine().handles().add(object, leaks));
}
template <typename Handle>
Handle handle_of(const Object& object) {
  return reinterpret_cast<Handle>(object.token);
}

// Destroys an object that nothing else of the interface refers to.
template <typename T>
ze_result_t destroy(const void* handle, const char* function) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  const auto object = get<T>(handle, function, &result);
  if (object == nullptr) return result;
  if (object.use_count() > 2) {  // the table's and this one
    return refuse(function, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, "destroyed-in-use",
                  std::string("the ") + object->kind + " still has objects made from it");
  }
  engine().handles().remove(*object);
  return ZE_RESULT_SUCCESS;
}

// Two-call enumeration: how many go into the caller's array, after writing the count it gets.
inline std::uint32_t enumerate(std::uint32_t* count, std::uint32_t have, const void* array) {
  if (*count == 0 || array == nullptr) {
    *count = have;
    return 0;
  }
  *count = std::min(*count, have);
  return *count;
}

#define SIM_REQUIRE(condition, code, kind, what) \
  if (!(condition)) return refuse(__func__, code, kind, what)
// `variable` becomes the object of `handle`, or the function returns.
#define SIM_GET(type, variable, handle)                                  \
  ze_result_t variable##_result = ZE_RESULT_SUCCESS;                     \
  const auto variable = get<type>(handle, __func__, &variable##_result); \
  if (variable == nullptr) return variable##_result
#define SIM_STRUCTURE(pointer, type)                                                                              \
  SIM_REQUIRE((pointer) != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER, "bad-argument", "a structure is null"); \
  SIM_REQUIRE((pointer)->stype == (type), ZE_RESULT_ERROR_INVALID_ARGUMENT, "bad-argument",                       \
              "a structure has a wrong stype")

// The entries of the driver's tables: each counts the call and injects "fail" faults, then calls the function.
template <auto kFunction>
struct Entry;
template <typename... Args, ze_result_t (*kFunction)(Args...)>
struct Entry<kFunction> {
  static inline std::atomic<std::uint64_t>* calls = nullptr;
  static inline std::set<std::uint64_t> failing;  // numbers of calls

  static ze_result_t ZE_APICALL call(Args... args) {
    const std::uint64_t number = ++*calls;
    if (failing.contains(number)) return ZE_RESULT_ERROR_UNKNOWN;
    return kFunction(args...);
  }
};

// The entry for a table; null when SIM_FAULT hides the function.
template <auto kFunction>
auto bind(const char* name) -> decltype(&Entry<kFunction>::call) {
  const Settings& settings = engine().settings();
  if (settings.hidden(name)) return nullptr;
  Entry<kFunction>::calls = &engine().report().calls(name);
  for (const Fault& fault : settings.faults) {
    if (fault.name == "fail" && fault.words[0] == name) Entry<kFunction>::failing.insert(*fault.call);
  }
  return &Entry<kFunction>::call;
}
#define SIM_BIND(member, function) table->member = bind<&function>(#function)

// Every table is checked alike: made for this version of the specification or older.
template <typename Table>
ze_result_t check_table(ze_api_version_t version, Table* table) {
  if (table == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (ZE_MAJOR_VERSION(version) != 1 || ZE_MINOR_VERSION(version) < ZE_MINOR_VERSION(ZE_API_VERSION_CURRENT)) {
    return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
  }
  return ZE_RESULT_SUCCESS;
}
#define SIM_TABLE(name, type)                                                                  \
  extern "C" ZE_DLLEXPORT ze_result_t ZE_APICALL name(ze_api_version_t version, type* table) { \
    if (const ze_result_t bad = check_table(version, table)) return bad;
#define SIM_TABLE_END       \
  return ZE_RESULT_SUCCESS; \
  }

}  // namespace sim::level_zero
