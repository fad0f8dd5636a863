// The C functions of libobjc, and those of the blocks runtime, which on macOS a library of the system brings. dlsym() does not
// find what SIM_FAULT hides.
#include "simulators/apple/exported.h"
#include "simulators/apple/objc.h"

using sim::apple::Class;
using sim::apple::Id;
using sim::apple::Instance;
using sim::apple::Sel;
using sim::apple::UInteger;

namespace {

Id class_id(const Class* one) { return one == nullptr ? nullptr : reinterpret_cast<Id>(one->token); }

std::shared_ptr<Instance> instance(Id id) {
  const auto object = sim::apple::find_object(id, "the object");
  return std::dynamic_pointer_cast<Instance>(object);  // of a class: null, and nothing is to be done
}

Id look_up(const char* name) { return name == nullptr ? nullptr : class_id(sim::apple::visible_class(name)); }

}  // namespace

APPLE_FUNCTION(Id, objc_getClass, (const char* name), (name)) { return look_up(name); }
APPLE_FUNCTION(Id, objc_lookUpClass, (const char* name), (name)) { return look_up(name); }

APPLE_FUNCTION(Id, object_getClass, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  const auto object = instance(id);
  return object == nullptr ? nullptr : class_id(object->isa);
}
APPLE_FUNCTION(const char*, object_getClassName, (Id id), (id)) {
  if (id == nullptr) return "nil";
  const auto object = instance(id);
  return object == nullptr ? "nil" : object->isa->name.c_str();
}
APPLE_FUNCTION(const char*, class_getName, (Id id), (id)) {
  if (id == nullptr) return "nil";
  const auto one = sim::apple::get<Class>(id, "the class");
  return one == nullptr ? "nil" : one->name.c_str();
}
APPLE_FUNCTION(Id, class_getSuperclass, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  const auto one = sim::apple::get<Class>(id, "the class");
  return one == nullptr ? nullptr : class_id(one->super);
}
APPLE_FUNCTION(bool, class_respondsToSelector, (Id id, Sel name), (id, name)) {
  if (id == nullptr || name == nullptr) return false;
  const auto one = sim::apple::get<Class>(id, "the class");
  return one != nullptr && sim::apple::instances_respond(*one, name);
}

APPLE_FUNCTION(Sel, sel_registerName, (const char* name), (name)) {
  if (name != nullptr) return sim::apple::selector(name);
  sim::apple::violation("bad-argument", "the name is null");
  return nullptr;
}
APPLE_FUNCTION(Sel, sel_getUid, (const char* name), (name)) {
  return name == nullptr ? nullptr : sim::apple::selector(name);
}
APPLE_FUNCTION(const char*, sel_getName, (Sel name), (name)) { return name == nullptr ? "<null selector>" : name; }

APPLE_FUNCTION(Id, objc_retain, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  if (const auto object = instance(id)) sim::apple::retain(*object);
  return id;
}
APPLE_FUNCTION(void, objc_release, (Id id), (id)) {
  if (id == nullptr) return;
  if (const auto object = instance(id)) sim::apple::release(object);
}
APPLE_FUNCTION(Id, objc_autorelease, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  if (const auto object = instance(id)) sim::apple::autorelease(object);
  return id;
}
APPLE_FUNCTION(Id, objc_retainAutorelease, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  if (const auto object = instance(id)) sim::apple::autoreleased(object);
  return id;
}
// The short cut between caller and method that these make on macOS changes no count.
APPLE_FUNCTION(Id, objc_retainAutoreleasedReturnValue, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  if (const auto object = instance(id)) sim::apple::retain(*object);
  return id;
}
APPLE_FUNCTION(Id, objc_autoreleaseReturnValue, (Id id), (id)) {
  if (id == nullptr) return nullptr;
  if (const auto object = instance(id)) sim::apple::autorelease(object);
  return id;
}

APPLE_FUNCTION(Id, objc_autoreleasePoolPush, (), ()) { return sim::apple::push_pool(); }
APPLE_FUNCTION(void, objc_autoreleasePoolPop, (Id token), (token)) { sim::apple::pop_pool(token); }

APPLE_FUNCTION(Id, _Block_copy, (Id block), (block)) { return sim::apple::copy_block(block); }
APPLE_FUNCTION(void, _Block_release, (Id block), (block)) {
  sim::apple::release_block(static_cast<sim::apple::Block*>(block));
}
