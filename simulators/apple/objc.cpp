// Implements the simulated Objective-C runtime's state: classes, the look-up of methods, reference counts and pools.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "simulators/apple/metal.h"

namespace sim::apple {
namespace {

std::mutex state_mutex;
std::atomic<State*> the_state = nullptr;
std::atomic<bool> in_forked_child = false;
std::atomic<bool> metal_loaded = false;
pid_t reporting_process = 0;
thread_local const char* running = "";

void report_at_exit() {
  if (::getpid() != reporting_process || the_state == nullptr) return;
  settle();
  engine().write_report();
}

struct Classes {
  std::map<std::string, std::shared_ptr<Class>> by_name;
};
Classes& classes() {
  static auto* all = new Classes;
  return *all;
}

struct Selectors {
  std::mutex mutex;
  std::set<std::string> texts;
  std::set<Sel> known;
};
Selectors& selectors() {
  static auto* all = new Selectors;
  return *all;
}

// The objects in the pools of a thread. Without a pool objects live until the thread ends.
struct PoolStack {
  struct Pool {
    std::uint64_t token;
    std::size_t first;
  };
  std::vector<std::shared_ptr<Instance>> objects;
  std::vector<Pool> pools;

  void drain(std::size_t first) {
    while (objects.size() > first) {
      const auto last = std::move(objects.back());
      objects.pop_back();
      release(last);
    }
  }
  ~PoolStack() {
    if (the_state == nullptr) return;
    drain(0);
    pools.clear();
  }
};
PoolStack& pool_stack() {
  thread_local PoolStack* stack = nullptr;
  if (stack == nullptr) {
    if (::syscall(SYS_gettid) == ::getpid()) {
      // Never destroyed: static objects of the program, which end after the first thread's own objects, may still use it. What is
      // in it when the process ends is reported as a leak.
      stack = new PoolStack;
    } else {
      thread_local PoolStack of_thread;
      stack = &of_thread;
    }
  }
  return *stack;
}

std::atomic<std::uint64_t> next_pool{1};
constexpr std::uint64_t kPoolMark = std::uint64_t{0x5a5b} << 48;

bool visible(const Method& method, const std::string& name) {
  return method.since <= macos_version() && !settings().hidden(name);
}

const Method* find_method(const Class* from, const std::string& name, bool of_class) {
  for (const Class* at = from; at != nullptr; at = at->super) {
    const auto& table = of_class ? at->class_methods : at->methods;
    const auto found = table.find(name);
    if (found != table.end() && visible(found->second, name)) return &found->second;
  }
  return nullptr;
}

std::string describe(const Object& object) {
  if (const auto* the_class = dynamic_cast<const Class*>(&object)) return "class " + the_class->name;
  return "an instance of " + std::string(object.kind);
}

}  // namespace

const Settings& settings() {
  static const Settings* const settings = new Settings(Settings::from_environment());
  return *settings;
}

int macos_version() {
  static const int version = [] {
    const char* text = std::getenv("SIM_MACOS_VERSION");
    int major = 15, minor = 0;
    if (text != nullptr && std::sscanf(text, "%d.%d", &major, &minor) < 1) {
      std::fprintf(stderr, "simulator: SIM_MACOS_VERSION is '%s', not a version such as 13.3\n", text);
      std::_Exit(2);
    }
    return major * 100 + minor;
  }();
  return version;
}

State::State() : engine(settings()) {}

State& state() {
  if (State* known = the_state.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(state_mutex);
  if (the_state != nullptr) return *the_state;
  static const bool registered = [] {
    std::atexit(report_at_exit);
    // Neither Objective-C's threads nor Metal's survive a fork; a child may exec.
    ::pthread_atfork(nullptr, nullptr, [] { in_forked_child = the_state != nullptr; });
    return true;
  }();
  static_cast<void>(registered);
  reporting_process = ::getpid();
  auto* made = new State;  // never destroyed: workers may still run when the process ends
  for (const ClassEntry* entry : class_entries()) {
    auto one = std::make_shared<Class>(entry->name);
    one->of_metal = entry->of_metal;
    one->is_protocol = entry->since == kIsProtocol;
    one->since = std::max(entry->since, 0);
    one->make = entry->make;
    made->engine.handles().add(one, false);
    classes().by_name[entry->name] = std::move(one);
  }
  for (const ClassEntry* entry : class_entries()) {
    if (entry->super != nullptr) classes().by_name.at(entry->name)->super = classes().by_name.at(entry->super).get();
  }
  for (MethodEntry* entry : method_entries()) {
    Method method = entry->method;
    method.calls = &made->engine.report().calls(entry->name);
    for (const Fault& fault : settings().faults) {
      if (fault.name == "fail" && fault.words[0] == entry->name) method.fault = &fault;
    }
    Class& owner = *classes().by_name.at(entry->class_name);
    (entry->of_class ? owner.class_methods : owner.methods)[entry->name] = method;
  }
  the_state.store(made, std::memory_order_release);
  return *made;
}

bool forked() { return in_forked_child; }

void violation(const char* kind, const std::string& what) {
  engine().report().violation(kind, std::string(running) + ": " + what);
}
const char* current_method() { return running; }
Running::Running(const char* name) : outer_(running) { running = name; }
Running::~Running() { running = outer_; }

std::vector<MethodEntry*>& method_entries() {
  static auto* all = new std::vector<MethodEntry*>;
  return *all;
}
MethodEntry::MethodEntry(const char* owner, const char* method_name, bool is_of_class, int since, Imp imp, Imp failing,
                         bool big)
    : class_name(owner), name(method_name), of_class(is_of_class) {
  method.imp = imp;
  method.failing = failing;
  method.big = big;
  method.since = since;
  method_entries().push_back(this);
}

std::vector<ClassEntry*>& class_entries() {
  static auto* all = new std::vector<ClassEntry*>;
  return *all;
}
ClassEntry::ClassEntry(const char* class_name, const char* class_super, bool metal, int version,
                       std::shared_ptr<Instance> (*maker)())
    : name(class_name), super(class_super), of_metal(metal), since(version), make(maker) {
  class_entries().push_back(this);
}

Class* find_class(const std::string& name) {
  state();
  const auto found = classes().by_name.find(name);
  return found == classes().by_name.end() ? nullptr : found->second.get();
}

Class* visible_class(const std::string& name) {
  Class* found = find_class(name);
  if (found == nullptr || found->is_protocol || (found->of_metal && !metal_loaded)) return nullptr;
  return found->since > macos_version() || settings().hidden(name) ? nullptr : found;
}

void load_metal() { metal_loaded = true; }

Sel selector(const std::string& name) {
  Selectors& all = selectors();
  const std::lock_guard lock(all.mutex);
  const char* text = all.texts.insert(name).first->c_str();
  all.known.insert(text);
  return text;
}

bool is_selector(Sel name) {
  Selectors& all = selectors();
  const std::lock_guard lock(all.mutex);
  return all.known.count(name) != 0;
}

bool responds(const Object& object, Sel name) {
  if (const auto* the_class = dynamic_cast<const Class*>(&object)) return find_method(the_class, name, true) != nullptr;
  return find_method(static_cast<const Instance&>(object).isa, name, false) != nullptr;
}
bool instances_respond(const Class& the_class, Sel name) { return find_method(&the_class, name, false) != nullptr; }

// ---- objects -----------------------------------------------------------------------------------------------------------

Instance::Instance(const char* name) : Object(name), isa(find_class(name)) {}

Id add(const std::shared_ptr<Instance>& object) { return reinterpret_cast<Id>(engine().handles().add(object, true)); }

void retain(Instance& object) {
  if (object.references.fetch_add(1) > 0) return;
  --object.references;
  violation("use-after-free", std::string("a deallocated ") + object.kind + " is retained");
}

void release(const std::shared_ptr<Instance>& object) {
  const long before = object->references.fetch_sub(1);
  if (before > 1) return;
  if (before < 1) {
    ++object->references;
    violation("double-free", std::string("a deallocated ") + object->kind + " is released");
    return;
  }
  object->dealloc();
  engine().handles().remove(*object);
}

Id autorelease(const std::shared_ptr<Instance>& object) {
  PoolStack& stack = pool_stack();
  if (stack.pools.empty()) {
    violation("no-pool", std::string("a ") + object->kind +
                             " is autoreleased with no pool in place: it stays until the thread ends");
  }
  stack.objects.push_back(object);
  return object->id();
}

Id autoreleased(const std::shared_ptr<Instance>& object) {
  if (object == nullptr) return nullptr;
  retain(*object);
  return autorelease(object);
}

Id push_pool() {
  PoolStack& stack = pool_stack();
  stack.pools.push_back({kPoolMark | next_pool++, stack.objects.size()});
  return reinterpret_cast<Id>(stack.pools.back().token);
}

void pop_pool(Id token) {
  PoolStack& stack = pool_stack();
  const auto found = std::find_if(stack.pools.begin(), stack.pools.end(), [&](const PoolStack::Pool& pool) {
    return pool.token == reinterpret_cast<std::uint64_t>(token);
  });
  if (found == stack.pools.end()) {
    violation("pool-state", "the autorelease pool is none of this thread's, or was popped already");
    return;
  }
  const std::size_t first = found->first;
  // Pools inside of it end too. The outermost one takes in what was autoreleased without any.
  stack.drain(first);
  stack.pools.erase(
      std::find_if(stack.pools.begin(), stack.pools.end(),
                   [&](const PoolStack::Pool& pool) { return pool.token == reinterpret_cast<std::uint64_t>(token); }),
      stack.pools.end());
}

std::shared_ptr<Object> find_object(Id id, const char* what) {
  if (id == nullptr) {
    violation("bad-argument", std::string(what) + " is nil");
    return nullptr;
  }
  std::string problem;
  auto object = engine().handles().get<Object>(id, &problem);
  if (object == nullptr) {
    const bool was_one = problem.find("destroyed") != std::string::npos;
    violation(was_one ? "use-after-free" : "bad-handle",
              std::string(what) + " is no object: " + (was_one ? "it was deallocated" + problem.substr(16) : problem));
  }
  return object;
}

// ---- messages ----------------------------------------------------------------------------------------------------------

extern "C" void sim_objc_nothing();  // messages.cpp

// Called by the trampolines of messages.cpp. `by_stret`: by objc_msgSend_stret.
extern "C" __attribute__((visibility("hidden"))) Imp sim_objc_lookup(Id self, Sel name, int by_stret) {
  const Imp none = &sim_objc_nothing;
  state();
  if (!is_selector(name)) {
    const Running here("objc_msgSend");
    violation("bad-argument", "the selector was not made by sel_registerName");
    return none;
  }
  const Running here(name);
  if (forked()) {
    violation("not-initialized", "a message in a child of a process that had used Metal before it forked");
    return none;
  }
  std::string problem;
  const auto object = engine().handles().get<Object>(self, &problem);
  if (object == nullptr) {
    const bool again = std::strcmp(name, "release") == 0;
    const bool was_one = problem.find("destroyed") != std::string::npos;
    const std::size_t at = problem.find('(');
    violation(!was_one ? "bad-handle"
              : again  ? "double-free"
                       : "use-after-free",
              !was_one
                  ? "a message to something that is no object"
                  : "a message to a deallocated object" + (at == std::string::npos ? "" : " " + problem.substr(at)));
    return none;
  }
  const auto* the_class = dynamic_cast<const Class*>(object.get());
  const Method* method = find_method(the_class != nullptr ? the_class : static_cast<const Instance&>(*object).isa, name,
                                     the_class != nullptr);
  if (method == nullptr) {
    violation("unrecognized-selector", "unrecognized selector sent to " + describe(*object));
    return none;
  }
  if (method->big != (by_stret != 0)) {
    violation("bad-argument", method->big ? "the result is in memory: it is sent by objc_msgSend_stret"
                                          : "the result is in registers: it is not sent by objc_msgSend_stret");
    return none;
  }
  const std::uint64_t number = ++*method->calls;
  return method->fault != nullptr && *method->fault->call == number ? method->failing : method->imp;
}

// ---- blocks ------------------------------------------------------------------------------------------------------------

extern "C" {
__attribute__((visibility("default"))) void* _NSConcreteStackBlock[32];
__attribute__((visibility("default"))) void* _NSConcreteGlobalBlock[32];
__attribute__((visibility("default"))) void* _NSConcreteMallocBlock[32];
}

namespace {
constexpr int kReferences = 0xffff, kHasHelpers = 1 << 25, kIsGlobal = 1 << 28;
struct BlockHelpers {
  void (*copy)(void* to, const void* from);
  void (*dispose)(const void* block);
};
const BlockHelpers& helpers(const Block& block) { return *reinterpret_cast<const BlockHelpers*>(block.descriptor + 1); }
std::mutex block_mutex;  // guards the counts of copies
}  // namespace

Block* copy_block(Id id) {
  auto* block = static_cast<Block*>(id);
  if (block == nullptr) return nullptr;
  const bool on_stack = block->isa == static_cast<void*>(_NSConcreteStackBlock);
  const bool global = block->isa == static_cast<void*>(_NSConcreteGlobalBlock);
  const bool copied = block->isa == static_cast<void*>(_NSConcreteMallocBlock);
  APPLE_REQUIRE(on_stack || global || copied, nullptr, "bad-handle", "the block's class is none of the runtime's");
  APPLE_REQUIRE(block->invoke != nullptr && block->descriptor != nullptr && block->descriptor->size >= sizeof(Block),
                nullptr, "bad-argument",
                "the block has no function, no descriptor, or a size below that of its header");
  APPLE_REQUIRE(global == ((block->flags & kIsGlobal) != 0), nullptr, "bad-argument",
                "a global block has the flag for it, and no other one");
  if (global) return block;
  const std::lock_guard lock(block_mutex);
  if (copied) {
    ++block->flags;
    return block;
  }
  auto* made = static_cast<Block*>(std::malloc(block->descriptor->size));
  std::memcpy(static_cast<void*>(made), block, block->descriptor->size);
  made->isa = _NSConcreteMallocBlock;
  made->flags = (made->flags & ~kReferences) | 1;
  if (made->flags & kHasHelpers) helpers(*made).copy(made, block);
  return made;
}

void release_block(Block* block) {
  if (block == nullptr || block->isa != static_cast<void*>(_NSConcreteMallocBlock)) return;
  {
    const std::lock_guard lock(block_mutex);
    if ((--block->flags & kReferences) != 0) return;
  }
  if (block->flags & kHasHelpers) helpers(*block).dispose(block);
  std::memset(static_cast<void*>(block), kFreed, block->descriptor->size);
  std::free(block);
}

}  // namespace sim::apple
