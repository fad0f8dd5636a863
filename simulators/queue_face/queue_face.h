// The part that the interfaces of vendors with a current device per thread, streams, events and copies with directions
// have in common: Ascend (streams, events), Cambricon (queues, notifiers) and Tecorigin; and Habana, whose current
// device is that of the process. An interface states its error codes and its rules as one Vendor, and its functions are
// thin wrappers of those below.
//
// All functions return the vendor's error code, 0 being success. One lock (face_lock) guards contexts, streams, captures
// and graphs. It is never held while something is waited for.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "simulators/engine/capture.h"
#include "simulators/engine/engine.h"

namespace sim::queue_face {

using Result = int;
using Handle = void*;  // every opaque pointer type
using HostFunction = void (*)(void*);
inline constexpr Result kSuccess = 0;

// ---- the vendor
// --------------------------------------------------------------------------------------------------------

// The numbers of the vendor's errors.
struct Codes {
  Result invalid_argument, invalid_handle, invalid_device;
  Result not_initialized;
  Result no_device;
  Result no_context;     // the thread has chosen no device
  Result wrong_context;  // a stream or event of another device than the current one
  Result bad_direction;  // a copy's kind that does not fit its pointers
  Result host_to_host;   // an asynchronous copy from host memory to host memory
  Result not_supported;
  Result out_of_memory;
  Result not_ready;   // of a query, or a wait that took too long
  Result unrecorded;  // a question about an event that was never recorded
  Result not_mapped;  // an asynchronous copy of host memory that the device does not reach
  Result no_peer;
  Result timing;  // the time between events that have none
  Result already_registered, not_registered;
  Result callback;  // a host function calls the runtime
  Result stub;      // SIM_FAULT=stub
  Result unknown;   // SIM_FAULT=fail
  // The result of a command.
  Result device_lost, failed, bad_access, launch_failed, uncorrectable;
  // Captures.
  Result captured;        // a wait, question or end of a stream that captures
  Result capture_unsafe;  // a call that the mode of a capture forbids
  Result capture_pageable;
  Result not_capturing, already_capturing;
  Result invalidated, merge, unmatched, unjoined, isolation, implicit, captured_event, wrong_thread;
};

enum class Pageable {
  synchronous,  // the call waits for the stream and copies then
  when_run,     // read and written when the copy runs: nothing is promised
  refused,      // the device reaches only host memory that the runtime knows
};

struct Vendor {
  Codes codes;
  ErrorScope error_scope;
  const char* visible_variable;  // null: there is none
  // The devices that the variable names, in their order, out of `count`.
  std::vector<int> (*visible)(const std::string& list, int count);
  bool must_start;        // by a call (aclInit); else the first call starts the runtime
  bool must_set_device;   // else a thread begins with device 0
  bool one_device;        // at a time, the same for all threads of a process
  bool streams_are_tied;  // used only while their device is the current one
  bool default_stream_per_thread;
  bool no_default_stream;  // a null handle stands for nothing
  Pageable pageable;
  bool refusal_invalidates;  // a call that a capture forbids makes the capture invalid
  bool peers_are_enabled;    // copies between devices want access enabled between them
  bool peers_exist;          // devices reach each other at all
  std::string (*text)(Result code);
};
const Vendor& vendor();  // defined by the interface
// A list read as CUDA reads its own: numbers up to the first that names no device; one of them twice: no devices.
std::vector<int> visible_like_cuda(const std::string& list, int count);
inline const Codes& codes() { return vendor().codes; }

// ---- objects
// -----------------------------------------------------------------------------------------------------------

struct StreamObject;

// The state of a device while it is used.
struct Context : Object {
  explicit Context(int i) : Object("context"), device(i) {}
  const int device;  // among all simulated ones
  int uses = 0;      // calls that set the device, less those that gave it back
  bool destroyed = false;
  std::shared_ptr<Stream> direct;                                     // runs copies and fills that wait for no stream
  std::map<std::thread::id, std::shared_ptr<StreamObject>> defaults;  // by thread, or the one of no thread
  std::vector<std::weak_ptr<StreamObject>> streams;                   // all, with those above
  std::vector<std::shared_ptr<Stream>> closing;                       // destroyed streams that still had work
};

struct StreamObject : Object, CapturingStream {
  StreamObject() : Object("stream") {}
  std::shared_ptr<Context> context;
  bool is_default = false;
  std::shared_ptr<Stream> stream;
};

struct EventObject : Object, CapturedRecord {
  EventObject() : Object("event") {}
  std::shared_ptr<Context> context;
  bool timing = true;
  bool waitable = true;           // streams can wait for it
  bool reusable = true;           // recorded again without a reset
  std::shared_ptr<Event> latest;  // of the last record; null: never recorded
};

struct GraphObject : Object {
  explicit GraphObject(const char* kind_name) : Object(kind_name) {}
  std::shared_ptr<Context> context;
  std::vector<Node> nodes;                // of a graph
  std::shared_ptr<ExecutableGraph> runs;  // of an executable one
};

// ---- the process
// -------------------------------------------------------------------------------------------------------

const Settings& settings();

struct State {
  State();
  Engine engine;
  std::vector<int> visible;  // ordinal -> device
  std::vector<std::shared_ptr<Context>> contexts;
  std::shared_ptr<Context> only;  // of vendors with one device; face_lock guards it
};
State& state();
inline Engine& engine() { return state().engine; }
std::mutex& face_lock();

// Functions may be called between the two. stop() does not release devices.
Result start();
Result stop();
bool is_started();

// Reports a violation by the running function and returns `code`.
Result refuse(Result code, const char* kind, const std::string& what);
const char* current_function();
Result result_of(Status status);  // of a command, an allocation or a wait
Result sticky_error(int device);

// The calling thread's.
struct ThreadState {
  std::shared_ptr<Context> context;
  CaptureMode capture_mode = CaptureMode::global;
  Result last_error = kSuccess;
  std::string message;   // of the last failure that was not queried yet
  std::string returned;  // lives until the next question
};
ThreadState& thread_state();

// While one exists, calls of this thread are refused: a host function runs.
struct CallbackScope {
  CallbackScope();
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

// ---- devices
// -----------------------------------------------------------------------------------------------------------

// `counts`: one more use of the device, to be released.
Result set_device(int ordinal, bool counts);
Result get_device(int* ordinal);
// One use less; the last one (or `force`) waits for the device and destroys its context.
Result give_back_device(int ordinal, bool force);
Result synchronize_device();
Result check_device(int ordinal, int* device);
int ordinal_of(int device);
// The calling thread's, as it was chosen last; null: none was.
std::shared_ptr<Context>& chosen_context();
// Null, with the vendor's error in `*bad`, when the thread has none.
std::shared_ptr<Context> current_context(Result* bad);
// Writes the name at the beginning of a structure of 2048 bytes, and what no program should read over the rest of it:
// what else is in it, and how large it is, changes between releases.
inline constexpr std::size_t kPropertyBytes = 2048, kNameBytes = 256;
Result device_properties(void* properties, int ordinal, const char* name);
// The current device may copy from and to `peer`'s memory from now on.
Result enable_peer(int peer_ordinal);

// ---- memory
// ------------------------------------------------------------------------------------------------------------

enum class Direction { host_to_host, host_to_device, device_to_host, device_to_device, any };

Result allocate(MemoryKind kind, void** pointer, std::size_t bytes, std::size_t alignment);
Result release(MemoryKind kind, void* pointer);
Result register_host(void* pointer, std::size_t bytes);
Result unregister_host(void* pointer);
Result memory_info(std::size_t* free, std::size_t* total);
// In the order of no stream; ended when it returns.
Result copy_now(void* to, const void* from, std::size_t bytes, Direction direction);
Result copy_async(void* to, const void* from, std::size_t bytes, Direction direction, Handle stream);
Result fill_now(void* to, int value, std::size_t bytes);
Result fill_async(void* to, int value, std::size_t bytes, Handle stream);
// `count` elements of `width` bytes (1, 2 or 4), each the lower bytes of `value`.
Result fill_elements_async(void* to, std::uint32_t value, std::size_t width, std::size_t count, Handle stream);

// ---- streams, events, host functions
// -----------------------------------------------------------------------------------

// The handle of a default stream is null. Wants face_lock held. Null, with the error in `*bad`, when the handle stands
// for nothing that the thread may use now.
std::shared_ptr<StreamObject> get_stream(Handle handle, Result* bad);

Result create_stream(Handle* stream);
enum class Ending { waits, goes_on, drops };  // for its work, it goes on and is not waited for, or is dropped
Result destroy_stream(Handle stream, Ending ending);
Result wait_for_stream(Handle stream, std::uint64_t timeout_ns);  // 0: a question
Result stream_wait_event(Handle stream, Handle event);
// Puts one piece of work on a stream, or captures it. Wants face_lock held.
Result submit(StreamObject& stream, Node node, std::vector<std::shared_ptr<Event>> waits = {},
              std::shared_ptr<Event> signal = nullptr);
Result launch_host_function(Handle stream, HostFunction function, void* data);

struct EventTraits {
  bool timing = true, waitable = true, reusable = true;
};
Result create_event(Handle* event, EventTraits traits);
Result destroy_event(Handle event);
Result record_event(Handle event, Handle stream);
Result reset_event(Handle event, Handle stream);
Result wait_for_event(Handle event, std::uint64_t timeout_ns);  // 0: a question
Result elapsed_time(float* milliseconds, Handle start, Handle end);
Result elapsed_nanoseconds(std::uint64_t* nanoseconds, Handle start, Handle end);

// ---- captures and graphs
// -----------------------------------------------------------------------------------------------

Result begin_capture(Handle stream, int mode);
enum class CaptureStatus { none = 0, active = 1, invalidated = 2 };
Result capture_status(Handle stream, CaptureStatus* status);
Result end_capture(Handle stream, Handle* graph);
Result exchange_capture_mode(int* mode);
Result instantiate(Handle* executable, Handle graph);
Result launch_graph(Handle executable, Handle stream);
Result destroy_graph(Handle graph);
// A call that may not be made while a stream captures, by the modes of the captures and the thread. Wants face_lock.
Result refuse_unsafe();

// ---- handles and entries
// -----------------------------------------------------------------------------------------------

// The object of a handle; null (and a violation) if there is none.
template <typename T>
std::shared_ptr<T> get(Handle handle, const char* what) {
  std::string problem;
  if (handle == nullptr) {
    refuse(codes().invalid_handle, "bad-handle", std::string("the ") + what + " is null");
    return nullptr;
  }
  auto object = engine().handles().get<T>(handle, &problem);
  if (object == nullptr) {
    refuse(codes().invalid_handle, "bad-handle", std::string("the ") + what + " is bad: " + problem);
  }
  return object;
}
inline Handle handle_of(const std::shared_ptr<Object>& object, bool leaks) {
  return reinterpret_cast<Handle>(engine().handles().add(object, leaks));
}

// The checks at the beginning of a function.
enum class Need {
  nothing,
  started,
  context,  // a current device
  healthy,  // that is not lost
};

struct Entry {
  explicit Entry(const char* symbol);
  const char* const symbol;
  bool available() const;  // not hidden by a fault
  std::atomic<std::uint64_t>* calls = nullptr;
  const Fault* fault = nullptr;
};

class Call {
 public:
  Call(Entry& entry, Need need);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool refused() const { return refused_ != kSuccess; }
  // Records the error for the functions that return the last one.
  Result end(Result result) const;
  Result refusal() const { return end(refused_); }

 private:
  Result begin(Entry& entry);
  const char* const outer_;
  const Need need_;
  Result refused_;
};

// FACE_FUNCTION(symbol, need, (parameters), (arguments)) { body } The exported symbol is an indirect one, whose address
// is computed when it is looked up: dlsym() finds nothing when the function is hidden.
#define FACE_FUNCTION(symbol, need, parameters, arguments)                      \
  static ::sim::queue_face::Result body_##symbol parameters;                    \
  static ::sim::queue_face::Entry entry_##symbol(#symbol);                      \
  static ::sim::queue_face::Result enter_##symbol parameters {                  \
    const ::sim::queue_face::Call call(entry_##symbol, need);                   \
    return call.refused() ? call.refusal() : call.end(body_##symbol arguments); \
  }                                                                             \
  FACE_EXPORT(::sim::queue_face::Result, symbol, parameters)                    \
  static ::sim::queue_face::Result body_##symbol parameters
// One that returns a text, or the last error: it is counted, and cannot fail.
#define FACE_QUESTION(type, symbol, parameters, arguments)        \
  static type body_##symbol parameters;                           \
  static ::sim::queue_face::Entry entry_##symbol(#symbol);        \
  static type enter_##symbol parameters {                         \
    if (entry_##symbol.calls != nullptr) ++*entry_##symbol.calls; \
    return body_##symbol arguments;                               \
  }                                                               \
  FACE_EXPORT(type, symbol, parameters)                           \
  static type body_##symbol parameters
#define FACE_EXPORT(type, symbol, parameters)                                               \
  extern "C" {                                                                              \
  [[maybe_unused]] static auto resolve_##symbol() -> decltype(&enter_##symbol) {            \
    return entry_##symbol.available() ? &enter_##symbol : nullptr;                          \
  }                                                                                         \
  __attribute__((visibility("default"), ifunc("resolve_" #symbol))) type symbol parameters; \
  }

#define FACE_REQUIRE(condition, code, kind, what)                         \
  do {                                                                    \
    if (!(condition)) return ::sim::queue_face::refuse(code, kind, what); \
  } while (false)
#define FACE_TRY(expression)                                                         \
  do {                                                                               \
    if (const ::sim::queue_face::Result bad_ = (expression); bad_ != 0) return bad_; \
  } while (false)

}  // namespace sim::queue_face
