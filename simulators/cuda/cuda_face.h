// The CUDA interface of the simulator: a driver library for programs that load libcuda.so.1 at run time. Declares the
// objects behind the handles, and the shared parts of the functions. Functions have the names that the real library
// exports and follow NVIDIA's documentation of the driver API.
//
// One lock (face_lock) guards contexts, streams, captures and graphs. It is never held while something is waited for.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "simulators/cuda/facts.h"
#include "simulators/cuda/types.h"
#include "simulators/engine/capture.h"
#include "simulators/engine/engine.h"

namespace sim::cuda {

// ---- objects
// -----------------------------------------------------------------------------------------------------------

struct StreamObject;

struct Context : Object {
  explicit Context(int i) : Object("context"), device(i) {}
  const int device;  // among all simulated ones
  int retained = 0;  // of the primary context
  bool destroyed = false;
  std::shared_ptr<StreamObject> legacy;                             // made when first used
  std::map<std::thread::id, std::shared_ptr<StreamObject>> thread;  // per-thread default streams
  std::vector<std::weak_ptr<StreamObject>> streams;                 // all, with those above
  std::vector<std::shared_ptr<Stream>> closing;                     // destroyed streams that still had work
  std::set<int> peers;                                              // devices whose memory it may use
  std::set<std::string> loaded;  // kernels, and executable graphs, that were launched
};

struct StreamObject : Object, CapturingStream {
  StreamObject() : Object("stream") {}
  std::shared_ptr<Context> context;
  bool blocking = true;  // waits for the legacy default stream, and that one for it
  bool is_legacy = false;
  int priority = 0;
  std::shared_ptr<Stream> stream;
  bool dirty = false;             // given work since `fence` was made
  std::shared_ptr<Event> fence;   // set when all work until then has run
  std::shared_ptr<Event> waited;  // the legacy stream's fence that it waits for already
};

struct EventObject : Object, CapturedRecord {
  EventObject() : Object("event") {}
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  std::shared_ptr<Event> latest;  // of the last record; null: never recorded
};

struct Module : Object {
  Module() : Object("module") {}
  std::shared_ptr<Context> context;
  std::vector<std::string> kernels;
  std::map<std::string, Handle> functions;
};
struct Function : Object {
  Function() : Object("function") {}
  std::weak_ptr<Module> module;
  const KernelInfo* info = nullptr;
  int dynamic_limit = kSharedBytes;
};

struct Graph : Object {
  Graph() : Object("graph") {}
  std::shared_ptr<Context> context;
  std::vector<Node> nodes;
};
struct GraphExec : Object {
  GraphExec(const std::shared_ptr<Context>& owner, std::vector<Node> nodes);
  const std::shared_ptr<Context> context;
  ExecutableGraph runs;
};

struct PhysicalMemory : Object {
  PhysicalMemory() : Object("memory handle") {}
  int device = 0;
  std::shared_ptr<const Allocation> allocation;
};

// ---- the process
// -------------------------------------------------------------------------------------------------------

struct Entry;

const Settings& settings();

struct State {
  State();
  Engine engine;
  const int version;
  const int arch;
  std::vector<int> visible;  // ordinal -> device
  std::vector<std::shared_ptr<Context>> primary;
};
State& state();
inline Engine& engine() { return state().engine; }
std::mutex& face_lock();

// Reports a violation by the running function and returns `code`.
Result refuse(Result code, const char* kind, const std::string& what);
const char* current_function();

// The calling thread's current contexts; the last one is current.
std::vector<std::shared_ptr<Context>>& context_stack();
std::shared_ptr<Context> current_context();
std::shared_ptr<Context> find_context(Handle handle);  // null: a bad handle, which is reported

// The sticky error of a context's device, which every call repeats; success: there is none.
Result sticky_error(int device);
Result result_of(Status status);  // of a command, an allocation or a wait

// The ordinal that a program knows a device by, and the other way round (-1: none).
int ordinal_of(int device);
int device_of(Ordinal ordinal);

// While one exists, calls of this thread are refused: a host function runs.
struct CallbackScope {
  CallbackScope();
  ~CallbackScope();
};

// ---- handles
// -----------------------------------------------------------------------------------------------------------

// The object of a handle; null (and a violation) if there is none.
template <typename T>
std::shared_ptr<T> get(Handle handle, const char* what) {
  std::string problem;
  if (handle == nullptr) {
    refuse(kInvalidHandle, "bad-handle", std::string("the ") + what + " is null");
    return nullptr;
  }
  auto object = engine().handles().get<T>(handle, &problem);
  if (object == nullptr) refuse(kInvalidHandle, "bad-handle", std::string("the ") + what + " is bad: " + problem);
  return object;
}
// A stream's handle, default streams included. Wants face_lock held and a current context.
std::shared_ptr<StreamObject> get_stream(Handle handle);

inline Handle handle_of(const std::shared_ptr<Object>& object, bool leaks) {
  return reinterpret_cast<Handle>(engine().handles().add(object, leaks));
}

// ---- work on streams (stream.cpp, capture.cpp); all want face_lock held
// --------------------------------------------------

// Puts one piece of work on a stream, or captures it.
Result submit(StreamObject& stream, Node node, std::vector<std::shared_ptr<Event>> waits = {},
              std::shared_ptr<Event> signal = nullptr);
// For work that cannot be captured: returns an error and invalidates the capture if the stream captures.
Result refuse_capture(StreamObject& stream, const char* what);
// Before a call that CUDA calls potentially unsafe in a capture.
Result refuse_unsafe();
// Legacy default stream or a call that waits for the whole context, while a stream captures.
Result refuse_implicit(Context& context);
std::vector<std::shared_ptr<StreamObject>> streams_of(const Context& context);
const Context* owner_of(const Object& object);  // null: objects of its kind belong to none
void destroy_context(Context& context);         // what it holds
std::shared_ptr<StreamObject> make_stream(const std::shared_ptr<Context>& context, bool blocking, int priority);

// Waits for the work of all streams of a context. Wants face_lock not held.
Result wait_for_context(Context& context);
// Loads the code of a kernel or of an executable graph when it is first launched: waits for the work of all streams of
// the context, unless CUDA_MODULE_LOADING is EAGER. Wants face_lock not held.
void load_code(Context& context, const std::string& name);

// Returns what is wrong with the bytes that a call names, if they are memory that the driver knows: freed, or too few.
// `*found` is the allocation; null for the program's own memory.
Result check_range(const char* what, DevicePointer pointer, std::size_t bytes,
                   std::shared_ptr<const Allocation>* found);

// ---- entries
// -----------------------------------------------------------------------------------------------------------

// The checks at the beginning of a function.
enum class Need {
  nothing,
  started,         // cuInit
  context,         // a current context
  healthy,         // and a device that is not broken
  healthy_at_end,  // frees and destroys even when it is broken, and then returns that error
};

// An exported function. `base` and `since` are what cuGetProcAddress knows it by.
struct Entry {
  Entry(const char* symbol, const char* base, int since, void* address, bool legacy);
  const char* const symbol;
  const char* const base;
  const int since;
  void* const address;
  const bool legacy;       // the old form of a function, which no program should get
  bool available() const;  // not hidden by a fault, and not newer than the driver
  std::atomic<std::uint64_t>* calls = nullptr;
  const Fault* fault = nullptr;
};
std::vector<Entry*>& entries();

class Call {
 public:
  Call(Entry& entry, Need need);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Result refused() const { return refused_; }
  Result end(Result result) const;

 private:
  Result begin(Entry& entry);
  const char* const outer_;
  const Need need_;
  Result refused_;
};

// CUDA_FUNCTION(symbol, base name, version, need, (parameters), (arguments)) { body } The exported symbol is an
// indirect one, whose address is computed when it is looked up: dlsym() finds nothing when the function is hidden or
// newer than the driver.
#define CUDA_FUNCTION(symbol, base, since, need, parameters, arguments)                               \
  static Result body_##symbol parameters;                                                             \
  static Result enter_##symbol parameters;                                                            \
  static Entry entry_##symbol(#symbol, base, since, reinterpret_cast<void*>(&enter_##symbol), false); \
  static Result enter_##symbol parameters {                                                           \
    const Call call(entry_##symbol, need);                                                            \
    return call.refused() != kSuccess ? call.refused() : call.end(body_##symbol arguments);           \
  }                                                                                                   \
  CUDA_EXPORT(symbol, parameters)                                                                     \
  static Result body_##symbol parameters
// The form of a function from before CUDA 4 or 11, which dlsym() finds under the plain name.
#define CUDA_LEGACY_FUNCTION(symbol, since)                                                             \
  static Result enter_##symbol();                                                                       \
  static Entry entry_##symbol(#symbol, #symbol, since, reinterpret_cast<void*>(&enter_##symbol), true); \
  static Result enter_##symbol() {                                                                      \
    const Call call(entry_##symbol, Need::nothing);                                                     \
    return refuse(kNotSupported, "legacy-function",                                                     \
                  "this is an old form; a program must bind the name with its suffix");                 \
  }                                                                                                     \
  CUDA_EXPORT(symbol, ())
#define CUDA_EXPORT(symbol, parameters)                                                       \
  extern "C" {                                                                                \
  [[maybe_unused]] static auto resolve_##symbol() -> decltype(&enter_##symbol) {              \
    return entry_##symbol.available() ? &enter_##symbol : nullptr;                            \
  }                                                                                           \
  __attribute__((visibility("default"), ifunc("resolve_" #symbol))) Result symbol parameters; \
  }

#define CUDA_REQUIRE(condition, code, kind, what)      \
  do {                                                 \
    if (!(condition)) return refuse(code, kind, what); \
  } while (false)
#define CUDA_TRY(expression)                                          \
  do {                                                                \
    if (const Result bad = (expression); bad != kSuccess) return bad; \
  } while (false)

}  // namespace sim::cuda
