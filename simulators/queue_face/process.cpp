// Implements the common part of every function, the process's state, and devices.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simulators/queue_face/queue_face.h"

namespace sim::queue_face {
namespace {

std::mutex state_mutex;
std::atomic<State*> the_state = nullptr;
std::atomic<bool> started = false;
std::atomic<bool> forked = false;  // a child of a process that had started the runtime
std::atomic<bool> ending = false;
pid_t reporting_process = 0;

thread_local const char* running = "";
thread_local int callbacks = 0;

// The context that an object belongs to; null: none.
const Context* owner_of(const Object& object) {
  if (const auto* stream = dynamic_cast<const StreamObject*>(&object)) return stream->context.get();
  if (const auto* event = dynamic_cast<const EventObject*>(&object)) return event->context.get();
  if (const auto* graph = dynamic_cast<const GraphObject*>(&object)) return graph->context.get();
  return nullptr;
}

void report_at_exit() {
  ending = true;
  if (::getpid() != reporting_process || the_state == nullptr) return;
  // A program need not give anything back on a device that is lost.
  for (const auto& object : engine().handles().all()) {
    const Context* owner = owner_of(*object);
    if (owner != nullptr && sticky_error(owner->device) != kSuccess) engine().handles().forgive(*object);
  }
  engine().write_report();
}

// A child of a process that had not started the runtime may do so itself; it gets memory of its own then.
void in_child() {
  if (started) {
    forked = true;
  } else {
    the_state = nullptr;
  }
}

std::vector<int> visible_devices() {
  const char* list = vendor().visible_variable == nullptr ? nullptr : std::getenv(vendor().visible_variable);
  if (list != nullptr) return vendor().visible(list, settings().devices);
  std::vector<int> all;
  for (int i = 0; i < settings().devices; ++i) all.push_back(i);
  return all;
}

// Wants face_lock held.
std::shared_ptr<Context> context_of(int device) {
  auto& context = state().contexts[static_cast<std::size_t>(device)];
  if (context == nullptr) {
    context = std::make_shared<Context>(device);
    context->direct = std::make_shared<Stream>(engine(), device, true);
    handle_of(context, false);
  }
  return context;
}

std::vector<std::shared_ptr<Stream>> busy_streams(const Context& context) {
  std::vector<std::shared_ptr<Stream>> busy = context.closing;
  for (const auto& weak : context.streams) {
    if (const auto object = weak.lock(); object != nullptr && object->stream != nullptr) busy.push_back(object->stream);
  }
  return busy;
}

Result wait_for_all(const std::vector<std::shared_ptr<Stream>>& streams) {
  Result result = kSuccess;
  for (const auto& stream : streams) {
    const Result one = result_of(stream->wait(kForever));
    if (result == kSuccess) result = one;
  }
  return result;
}

// Reports and destroys the objects that are left in it. The caller holds face_lock.
void destroy_context(Context& context) {
  context.destroyed = true;
  std::string left;
  const auto leave = [&](const std::string& text) { left += (left.empty() ? "" : ", ") + text; };
  for (const auto& object : engine().handles().all()) {
    if (owner_of(*object) != &context) continue;
    leave(object->kind);
    engine().handles().remove(*object);
  }
  const auto memory = engine().memory().live();
  for (const auto& allocation : memory) {
    if (allocation->owner == context.token) leave(allocation->text());
  }
  if (!left.empty() && engine().device_status(context.device) == Status::ok) {
    refuse(kSuccess, "destroyed-in-use", "the device is given back while it still has: " + left);
  }
  for (const auto& allocation : memory) {
    if (allocation->owner == context.token) engine().free(allocation->pointer, context.token);
  }
  for (int other = 0; other < settings().devices; ++other) engine().allow_peer(context.device, other, false);
  context.streams.clear();
  context.defaults.clear();
  context.closing.clear();
  context.direct = nullptr;
  engine().handles().remove(context);
}

}  // namespace

std::vector<int> visible_like_cuda(const std::string& list, int count) {
  std::vector<int> chosen;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string token = list.substr(begin, end - begin);
    begin = end + 1;
    char* rest = nullptr;
    const long number = std::strtol(token.c_str(), &rest, 10);
    if (rest == token.c_str() || number < 0 || number >= count) break;
    const int device = static_cast<int>(number);
    if (std::find(chosen.begin(), chosen.end(), device) != chosen.end()) return {};
    chosen.push_back(device);
  }
  return chosen;
}

const Settings& settings() {
  static const Settings* const settings = new Settings(Settings::from_environment());
  return *settings;
}

static std::vector<Entry*>& entries() {
  static auto* all = new std::vector<Entry*>;
  return *all;
}

State::State()
    : engine(settings(), vendor().error_scope),
      visible(visible_devices()),
      contexts(static_cast<std::size_t>(settings().devices)) {
  if (vendor().peers_are_enabled) engine.restrict_peers();
  for (Entry* entry : entries()) {
    entry->fault = nullptr;
    entry->calls = &engine.report().calls(entry->symbol);
    for (const Fault& fault : settings().faults) {
      if (fault.name == "fail" && fault.words[0] == entry->symbol) entry->fault = &fault;
    }
  }
}

// Never destroyed: workers may still run when the process ends.
State& state() {
  if (State* known = the_state.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(state_mutex);
  if (the_state == nullptr) {
    static const bool registered = [] {
      std::atexit(report_at_exit);
      ::pthread_atfork(nullptr, nullptr, in_child);
      return true;
    }();
    static_cast<void>(registered);
    reporting_process = ::getpid();
    the_state.store(new State, std::memory_order_release);
  }
  return *the_state;
}

std::mutex& face_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

Result start() {
  if (settings().fault("init") != nullptr) return codes().unknown;
  reporting_process = ::getpid();
  started = true;
  return kSuccess;
}

Result stop() {
  started = false;
  return kSuccess;
}

bool is_started() { return started; }

Result refuse(Result code, const char* kind, const std::string& what) {
  const std::string text = std::string(running) + ": " + what;
  engine().report().violation(kind, text);
  thread_state().message = text;
  return code;
}

const char* current_function() { return running; }

Result result_of(Status status) {
  switch (status) {
    case Status::ok: return kSuccess;
    case Status::not_ready: return codes().not_ready;
    case Status::out_of_memory: return codes().out_of_memory;
    case Status::refused: return codes().invalid_argument;
    case Status::failed: return codes().failed;
    case Status::bad_access: return codes().bad_access;
    case Status::device_lost: return codes().device_lost;
    case Status::launch_failed: return codes().launch_failed;
    case Status::uncorrectable: return codes().uncorrectable;
  }
  return codes().unknown;
}

Result sticky_error(int device) { return result_of(engine().device_status(device)); }

// The state of a thread until it ends. The main thread's outlives the destructors of static objects, which may still
// close devices.
ThreadState& thread_state() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    ::pthread_key_create(&made, [](void* state) { delete static_cast<ThreadState*>(state); });
    return made;
  }();
  auto* state = static_cast<ThreadState*>(::pthread_getspecific(key));
  if (state == nullptr) {
    state = new ThreadState;
    ::pthread_setspecific(key, state);
  }
  return *state;
}

CallbackScope::CallbackScope() { ++callbacks; }
CallbackScope::~CallbackScope() { --callbacks; }

// ---- entries
// -----------------------------------------------------------------------------------------------------------

Entry::Entry(const char* symbol_name) : symbol(symbol_name) { entries().push_back(this); }

bool Entry::available() const { return !settings().hidden(symbol); }

Call::Call(Entry& entry, Need need) : outer_(running), need_(need) {
  running = entry.symbol;
  refused_ = begin(entry);
}

Call::~Call() { running = outer_; }

Result Call::begin(Entry& entry) {
  if (forked) return codes().not_initialized;
  if (ending) return codes().not_initialized;
  state();
  const std::uint64_t number = ++*entry.calls;
  if (entry.fault != nullptr && *entry.fault->call == number) return codes().unknown;
  if (settings().fault("stub") != nullptr) return codes().stub;
  if (need_ == Need::nothing) return kSuccess;
  if (callbacks > 0) return refuse(codes().callback, "callback", "a host function calls the runtime");
  if (!started) {
    if (vendor().must_start) return refuse(codes().not_initialized, "not-initialized", "the runtime is not started");
    FACE_TRY(start());
  }
  if (need_ == Need::started) return kSuccess;
  Result bad = kSuccess;
  const auto context = current_context(&bad);
  if (context == nullptr) return bad;
  return need_ == Need::healthy ? sticky_error(context->device) : kSuccess;
}

Result Call::end(Result result) const {
  if (result == kSuccess || forked || ending) return result;
  ThreadState& mine = thread_state();
  mine.last_error = result;
  if (mine.message.empty()) mine.message = std::string(running) + ": " + vendor().text(result);
  return result;
}

// ---- devices
// -----------------------------------------------------------------------------------------------------------

int ordinal_of(int device) {
  const auto& visible = state().visible;
  const auto found = std::find(visible.begin(), visible.end(), device);
  return found == visible.end() ? -1 : static_cast<int>(found - visible.begin());
}

Result check_device(int ordinal, int* device) {
  const auto& visible = state().visible;
  if (visible.empty()) return codes().no_device;
  FACE_REQUIRE(ordinal >= 0 && static_cast<std::size_t>(ordinal) < visible.size(), codes().invalid_device,
               "bad-argument", "there is no device " + std::to_string(ordinal));
  *device = visible[static_cast<std::size_t>(ordinal)];
  return kSuccess;
}

std::shared_ptr<Context>& chosen_context() {
  auto& mine = thread_state().context;
  if (vendor().one_device) {
    const std::lock_guard lock(face_lock());
    mine = state().only;
  }
  return mine;
}

std::shared_ptr<Context> current_context(Result* bad) {
  auto& mine = chosen_context();
  *bad = kSuccess;
  if (mine != nullptr && !mine->destroyed) return mine;
  if (vendor().must_set_device) {
    *bad = refuse(codes().no_context, "no-context",
                  mine == nullptr ? "the thread has set no device" : "the thread's device was given back");
    return nullptr;
  }
  int device = 0;
  if (mine != nullptr) {
    device = mine->device;  // which was reset, and begins anew
  } else {
    *bad = check_device(0, &device);
    if (*bad != kSuccess) return nullptr;
  }
  const std::lock_guard lock(face_lock());
  mine = context_of(device);
  return mine;
}

Result set_device(int ordinal, bool counts) {
  int device = 0;
  FACE_TRY(check_device(ordinal, &device));
  if (settings().fault("busy") != nullptr) return codes().no_device;
  FACE_TRY(sticky_error(device));
  const std::lock_guard lock(face_lock());
  auto context = context_of(device);
  if (counts) ++context->uses;
  if (vendor().one_device) state().only = context;
  thread_state().context = std::move(context);
  return kSuccess;
}

Result get_device(int* ordinal) {
  FACE_REQUIRE(ordinal != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  Result bad = kSuccess;
  const auto context = current_context(&bad);
  if (context != nullptr) *ordinal = ordinal_of(context->device);
  return bad;
}

Result give_back_device(int ordinal, bool force) {
  int device = 0;
  FACE_TRY(check_device(ordinal, &device));
  std::shared_ptr<Context> context;
  std::vector<std::shared_ptr<Stream>> busy;
  {
    const std::lock_guard lock(face_lock());
    context = state().contexts[static_cast<std::size_t>(device)];
    FACE_REQUIRE(context != nullptr, codes().invalid_device, "bad-argument",
                 "device " + std::to_string(ordinal) + " is given back more often than it was set");
    if (!force && --context->uses > 0) return kSuccess;
    busy = busy_streams(*context);
  }
  wait_for_all(busy);
  const std::lock_guard lock(face_lock());
  destroy_context(*context);
  state().contexts[static_cast<std::size_t>(device)] = nullptr;
  state().only = nullptr;
  return kSuccess;
}

Result synchronize_device() {
  const auto context = thread_state().context;
  std::vector<std::shared_ptr<Stream>> busy;
  {
    const std::lock_guard lock(face_lock());
    for (const auto& weak : context->streams) {
      const auto stream = weak.lock();
      if (stream == nullptr || stream->capture == nullptr) continue;
      if (vendor().refusal_invalidates) stream->capture->invalidated = true;
      return refuse(codes().captured, "capture", "a wait for the whole device while a stream of it captures");
    }
    busy = busy_streams(*context);
  }
  return wait_for_all(busy);
}

Result device_properties(void* properties, int ordinal, const char* name) {
  int device = 0;
  FACE_TRY(check_device(ordinal, &device));
  FACE_REQUIRE(properties != nullptr, codes().invalid_argument, "bad-argument", "the result is null");
  std::memset(properties, kFresh, kPropertyBytes);
  std::snprintf(static_cast<char*>(properties), kNameBytes, "%s %d", name, device);
  return kSuccess;
}

Result enable_peer(int peer_ordinal) {
  int peer = 0;
  FACE_TRY(check_device(peer_ordinal, &peer));
  const auto context = thread_state().context;
  FACE_REQUIRE(peer != context->device, codes().invalid_device, "bad-argument",
               "the peer is the current device itself");
  if (settings().fault("no_peer") != nullptr) return codes().no_peer;
  engine().allow_peer(context->device, peer, true);
  return kSuccess;
}

}  // namespace sim::queue_face
