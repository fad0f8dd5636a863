// The simulated Objective-C runtime: classes, selectors, objects with reference counts, autorelease pools and blocks, as far
// as a C++ program that sends messages by objc_msgSend needs them. The objects of Foundation and Metal are built on it.
//
// The pointers that a program holds are tokens of the engine's handle table, not addresses, like Apple's tagged
// pointers: a program that looks into an object faults, and a message to one that was deallocated is found. Sources:
// the documentation of the Objective-C runtime and of memory management (developer.apple.com), objc4, and the blocks
// ABI (clang.llvm.org/docs/Block-ABI-Apple.html).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "simulators/engine/engine.h"

namespace sim::apple {

using Id = void*;         // an object, a class or a block
using Sel = const char*;  // the one string of the runtime that has this text
using Imp = void (*)();   // cast to the method's own type
using Boolean = bool;     // BOOL of x86-64 is a signed char, of arm64 a bool: both in the low byte
using UInteger = unsigned long;
using Integer = long;

struct Instance;
struct Class;

struct Method {
  Imp imp = nullptr;
  Imp failing = nullptr;  // what SIM_FAULT "fail" calls instead
  bool big = false;       // returns more than 16 bytes, so that x86-64 calls it by objc_msgSend_stret
  int since = 0;          // macOS, a hundred times the major version and the minor one
  std::atomic<std::uint64_t>* calls = nullptr;
  const Fault* fault = nullptr;
};

struct Class : Object {
  explicit Class(std::string class_name) : Object("class"), name(std::move(class_name)) {}
  const std::string name;
  Class* super = nullptr;
  bool of_metal = true;      // not there before the library Metal is loaded
  bool is_protocol = false;  // stands for the classes of a protocol, whose names a program does not know
  int since = 0;
  std::shared_ptr<Instance> (*make)() = nullptr;  // +alloc; null: programs cannot make one
  std::map<std::string, Method> methods, class_methods;
};

// An object. Its memory may outlive its count of references, which is the program's.
struct Instance : Object {
  explicit Instance(const char* class_name);
  Class* const isa;
  std::atomic<long> references{1};

  // The last reference was released.
  virtual void dealloc() {}
  // SIM_FAULT lets a method without a result fail: the work that it belongs to does.
  virtual void inject() {}
  Id id() const { return reinterpret_cast<Id>(token); }
  bool alive() const { return references.load() > 0; }
};

// A reference that the simulator's own objects hold.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(std::shared_ptr<T> object);  // retains
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::move(other.object_)) { other.object_ = nullptr; }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref();
  T* operator->() const { return object_.get(); }
  T& operator*() const { return *object_; }
  T* get() const { return object_.get(); }
  const std::shared_ptr<T>& shared() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  std::shared_ptr<T> object_;
};

// ---- the process -------------------------------------------------------------------------------------------------------

const Settings& settings();
int macos_version();  // SIM_MACOS_VERSION
struct State {
  State();
  Engine engine;
};
State& state();
inline Engine& engine() { return state().engine; }
bool forked();  // a child of a process that had started it

// Reports a violation by the running method or function.
void violation(const char* kind, const std::string& what);
const char* current_method();
class Running {
 public:
  explicit Running(const char* name);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const char* const outer_;
};

Class* find_class(const std::string& name);     // null: there is none, whatever the program may see
Class* visible_class(const std::string& name);  // as the program sees it
void load_metal();                              // the classes of Metal and Foundation are there from now on
Sel selector(const std::string& name);
bool is_selector(Sel name);
bool responds(const Object& object, Sel name);
bool instances_respond(const Class& the_class, Sel name);

// ---- objects -----------------------------------------------------------------------------------------------------------

// Gives a new object its token; the caller owns the one reference.
Id add(const std::shared_ptr<Instance>& object);
template <typename T, typename... Args>
std::shared_ptr<T> create(Args&&... args) {
  auto object = std::make_shared<T>(std::forward<Args>(args)...);
  add(object);
  return object;
}
void retain(Instance& object);
void release(const std::shared_ptr<Instance>& object);
Id autorelease(const std::shared_ptr<Instance>& object);   // gives the reference to the innermost pool
Id autoreleased(const std::shared_ptr<Instance>& object);  // retains, then the same; nil for null
Id push_pool();
void pop_pool(Id token);
// An object's own reference count is told apart from use by others: this asks the table. Null with a violation when `id` is no
// live object of that type.
std::shared_ptr<Object> find_object(Id id, const char* what);
// The owner of an object that is there.
template <typename T>
std::shared_ptr<T> shared(T& object) {
  return std::static_pointer_cast<T>(find_object(object.id(), "the object"));
}
template <typename T>
std::shared_ptr<T> get(Id id, const char* what) {
  const auto object = find_object(id, what);
  if (object == nullptr) return nullptr;
  auto typed = std::dynamic_pointer_cast<T>(object);
  if (typed == nullptr) {
    const auto* instance = dynamic_cast<const Instance*>(object.get());
    violation("bad-handle", std::string(what) + " is of another class: " +
                                (instance == nullptr ? "a class" : instance->isa->name.c_str()));
  }
  return typed;
}

template <typename T>
Ref<T>::Ref(std::shared_ptr<T> object) : object_(std::move(object)) {
  if (object_ != nullptr) retain(*object_);
}
template <typename T>
Ref<T>::~Ref() {
  if (object_ != nullptr) release(object_);
}

// ---- blocks ------------------------------------------------------------------------------------------------------------

struct Block;
// A copy of the program's block, or itself where it needs none; null with a violation when it is no block.
Block* copy_block(Id block);
void release_block(Block* block);
template <typename... Args>
void call_block(const Block* block, Args... args);
struct BlockDescriptor {
  unsigned long reserved, size;
};
struct Block {
  void* isa;
  int flags, reserved;
  void (*invoke)(void);
  BlockDescriptor* descriptor;
};
template <typename... Args>
void call_block(const Block* block, Args... args) {
  reinterpret_cast<void (*)(const Block*, Args...)>(block->invoke)(block, args...);
}

// ---- methods -----------------------------------------------------------------------------------------------------------

struct MethodEntry {
  MethodEntry(const char* class_name, const char* name, bool of_class, int since, Imp imp, Imp failing, bool big);
  const char *const class_name, *const name;
  const bool of_class;
  Method method;
};
std::vector<MethodEntry*>& method_entries();

inline constexpr int kIsProtocol = -1;  // instead of a version
struct ClassEntry {
  ClassEntry(const char* name, const char* super, bool of_metal, int since, std::shared_ptr<Instance> (*make)());
  const char *const name, *const super;
  const bool of_metal;
  const int since;
  std::shared_ptr<Instance> (*const make)();
};
std::vector<ClassEntry*>& class_entries();

Id injected_error();  // an NSError, autoreleased

template <auto kFunction>
struct MethodOf;
template <typename Return, typename T, typename... Args, Return (*kFunction)(T&, Args...)>
struct MethodOf<kFunction> {
  static constexpr bool kBig = [] {
    if constexpr (std::is_void_v<Return>)
      return false;
    else
      return sizeof(Return) > 16;
  }();
  static std::shared_ptr<T> receiver(Id self) { return get<T>(self, "the receiver"); }
  static Return imp(Id self, Sel name, Args... args) {
    const Running running(name);
    const auto object = receiver(self);
    if (object == nullptr) return Return();
    return kFunction(*object, args...);
  }
  // Objects: none, and an error where there is a place for it; BOOL: no; without a result: the work fails later. What only
  // tells something cannot fail.
  static Return fail(Id self, Sel name, Args... args) {
    if constexpr (std::is_same_v<Return, Id> || std::is_same_v<Return, Boolean>) {
      (set_error(args), ...);
      return Return();
    } else {
      if constexpr (std::is_void_v<Return> && std::is_base_of_v<Instance, T>) {
        if (const auto object = receiver(self)) object->inject();
      }
      return imp(self, name, args...);
    }
  }

 private:
  template <typename Argument>
  static void set_error(Argument argument) {
    if constexpr (std::is_same_v<Argument, Id*>) {
      if (argument != nullptr) *argument = injected_error();
    }
  }
};

#define APPLE_JOIN_(a, b) a##b
#define APPLE_JOIN(a, b) APPLE_JOIN_(a, b)
// METHOD("NSString", "length", length_of): an instance method, whose function takes the object and the arguments.
#define APPLE_METHOD(class_name, name, of_class, since, function)                          \
  static MethodEntry APPLE_JOIN(method_entry_, __COUNTER__)(                               \
      class_name, name, of_class, since, reinterpret_cast<Imp>(&MethodOf<&function>::imp), \
      reinterpret_cast<Imp>(&MethodOf<&function>::fail), MethodOf<&function>::kBig);
#define METHOD(class_name, name, function) APPLE_METHOD(class_name, name, false, 0, function)
// One that cannot fail, although it returns an object.
#define SURE_METHOD(class_name, name, function)                                     \
  static MethodEntry APPLE_JOIN(method_entry_, __COUNTER__)(                        \
      class_name, name, false, 0, reinterpret_cast<Imp>(&MethodOf<&function>::imp), \
      reinterpret_cast<Imp>(&MethodOf<&function>::imp), MethodOf<&function>::kBig);
#define METHOD_SINCE(since, class_name, name, function) APPLE_METHOD(class_name, name, false, since, function)
#define CLASS_METHOD(class_name, name, function) APPLE_METHOD(class_name, name, true, 0, function)
#define CLASS(name, super, make) static ClassEntry APPLE_JOIN(class_entry_, __COUNTER__)(name, super, true, 0, make);
#define CLASS_SINCE(since, name, super, make) \
  static ClassEntry APPLE_JOIN(class_entry_, __COUNTER__)(name, super, true, since, make);
// Objects known by their protocol only: a program cannot look up their class.
#define PROTOCOL(name, super) \
  static ClassEntry APPLE_JOIN(class_entry_, __COUNTER__)(name, super, true, kIsProtocol, nullptr);

// For CLASS: what +alloc makes.
template <typename T>
std::shared_ptr<Instance> make_instance() {
  return std::make_shared<T>();
}

#define APPLE_REQUIRE(condition, result, kind, what) \
  do {                                               \
    if (!(condition)) {                              \
      violation(kind, what);                         \
      return result;                                 \
    }                                                \
  } while (false)

}  // namespace sim::apple
