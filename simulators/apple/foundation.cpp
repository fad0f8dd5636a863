// Implements NSObject and the classes of Foundation.
#include "simulators/apple/foundation.h"

#include <cstring>

namespace sim::apple {

// ---- NSObject ----------------------------------------------------------------------------------------------------------

namespace {

Id allocate(Class& self) {
  const bool possible = self.make != nullptr;
  APPLE_REQUIRE(possible, nullptr, "bad-argument", "a program cannot make an instance of " + self.name);
  return add(self.make());
}
Id itself(Instance& self) { return self.id(); }
// Only +new owns what -init of these classes returns.
Id retained(Instance& self) {
  retain(self);
  return self.id();
}
void released(Instance& self) { release(std::static_pointer_cast<Instance>(find_object(self.id(), "the receiver"))); }
Id autoreleased_itself(Instance& self) {
  return autorelease(std::static_pointer_cast<Instance>(find_object(self.id(), "the receiver")));
}
UInteger retain_count(Instance& self) { return static_cast<UInteger>(self.references.load()); }
void deallocated(Instance&) { violation("bad-free", "dealloc is sent by a program, which only releases"); }
Id class_of(Instance& self) { return reinterpret_cast<Id>(self.isa->token); }
Boolean responds_to(Instance& self, Sel name) { return is_selector(name) && responds(self, name); }
Boolean is_kind_of(Instance& self, Id id) {
  const auto other = get<Class>(id, "the class");
  for (const Class* at = self.isa; at != nullptr; at = at->super) {
    if (at == other.get()) return true;
  }
  return false;
}
Boolean is_same(Instance& self, Id other) { return self.id() == other; }
UInteger hash_of(Instance& self) { return self.token; }
Id description_of(Instance& self) { return string_autoreleased("<" + self.isa->name + ">"); }

Id class_itself(Class& self) { return reinterpret_cast<Id>(self.token); }
void class_released(Class&) {}
Boolean class_responds(Class& self, Sel name) { return is_selector(name) && responds(self, name); }
Boolean class_instances_respond(Class& self, Sel name) { return is_selector(name) && instances_respond(self, name); }
Id class_description(Class& self) { return string_autoreleased(self.name); }

struct PlainObject : Instance {
  PlainObject() : Instance("NSObject") {}
};

static ClassEntry object_class("NSObject", nullptr, false, 0, &make_instance<PlainObject>);
CLASS_METHOD("NSObject", "alloc", allocate)
CLASS_METHOD("NSObject", "new", allocate)
CLASS_METHOD("NSObject", "class", class_itself)
CLASS_METHOD("NSObject", "self", class_itself)
CLASS_METHOD("NSObject", "retain", class_itself)
CLASS_METHOD("NSObject", "autorelease", class_itself)
CLASS_METHOD("NSObject", "release", class_released)
CLASS_METHOD("NSObject", "description", class_description)
CLASS_METHOD("NSObject", "respondsToSelector:", class_responds)
CLASS_METHOD("NSObject", "instancesRespondToSelector:", class_instances_respond)
SURE_METHOD("NSObject", "init", itself)
SURE_METHOD("NSObject", "self", itself)
SURE_METHOD("NSObject", "retain", retained)
METHOD("NSObject", "release", released)
SURE_METHOD("NSObject", "autorelease", autoreleased_itself)
METHOD("NSObject", "retainCount", retain_count)
METHOD("NSObject", "dealloc", deallocated)
SURE_METHOD("NSObject", "class", class_of)
METHOD("NSObject", "respondsToSelector:", responds_to)
METHOD("NSObject", "isKindOfClass:", is_kind_of)
METHOD("NSObject", "isEqual:", is_same)
METHOD("NSObject", "hash", hash_of)
SURE_METHOD("NSObject", "description", description_of)

// ---- NSString ----------------------------------------------------------------------------------------------------------

constexpr UInteger kAscii = 1, kUtf8 = 4;  // NSStringEncoding

bool valid_utf8(const char* text, std::size_t size) {
  for (std::size_t i = 0; i < size;) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t more = c < 0x80                ? 0
                             : c >= 0xc2 && c < 0xe0 ? 1
                             : (c & 0xf0) == 0xe0    ? 2
                             : c >= 0xf0 && c < 0xf5 ? 3
                                                     : 4;
    if (more == 4 || i + more >= size) return false;
    for (std::size_t k = 1; k <= more; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += more + 1;
  }
  return true;
}
// Numbers of UTF-16 units.
UInteger units(const std::string& text) {
  UInteger count = 0;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((u & 0xc0) != 0x80) count += u >= 0xf0 ? 2 : 1;
  }
  return count;
}

Id string_with_utf8(Class&, const char* text) {
  APPLE_REQUIRE(text != nullptr, nullptr, "bad-argument", "the text is null (an exception on macOS)");
  const std::string characters = text;
  return valid_utf8(characters.data(), characters.size()) ? string_autoreleased(characters) : nullptr;
}
// -init methods that fail release the object.
Id fail_init(String& self) {
  released(self);
  return nullptr;
}
Id init_with_utf8(String& self, const char* text) {
  if (text == nullptr) {
    violation("bad-argument", "the text is null (an exception on macOS)");
    return fail_init(self);
  }
  if (!valid_utf8(text, std::strlen(text))) return fail_init(self);
  self.text = text;
  return self.id();
}
Id init_with_bytes(String& self, const void* bytes, UInteger size, UInteger encoding) {
  const auto* text = static_cast<const char*>(bytes);
  if ((encoding != kUtf8 && encoding != kAscii) || (text == nullptr && size > 0)) {
    violation("bad-argument", "no bytes, or an encoding that is not simulated: " + std::to_string(encoding));
    return fail_init(self);
  }
  if (!valid_utf8(text, size)) return fail_init(self);
  self.text.assign(text, size);
  return self.id();
}
Id empty_string(Class&) { return string_autoreleased(""); }
const char* utf8_of(String& self) { return self.text.c_str(); }
const char* c_string_of(String& self, UInteger encoding) {
  return encoding == kUtf8 || encoding == kAscii ? self.text.c_str() : nullptr;
}
UInteger length_of_string(String& self) { return units(self.text); }
UInteger bytes_of(String& self, UInteger encoding) {
  return encoding == kUtf8 || encoding == kAscii ? self.text.size() : 0;
}
Boolean equal_strings(String& self, Id other) {
  const auto string = get<String>(other, "the string");
  return string != nullptr && string->text == self.text;
}

CLASS("NSString", "NSObject", &make_instance<String>)
CLASS_METHOD("NSString", "stringWithUTF8String:", string_with_utf8)
CLASS_METHOD("NSString", "string", empty_string)
SURE_METHOD("NSString", "initWithUTF8String:", init_with_utf8)
SURE_METHOD("NSString", "initWithBytes:length:encoding:", init_with_bytes)
METHOD("NSString", "UTF8String", utf8_of)
METHOD("NSString", "cStringUsingEncoding:", c_string_of)
METHOD("NSString", "length", length_of_string)
METHOD("NSString", "lengthOfBytesUsingEncoding:", bytes_of)
METHOD("NSString", "isEqualToString:", equal_strings)
SURE_METHOD("NSString", "copy", retained)
SURE_METHOD("NSString", "description", itself)

// ---- NSError, NSArray, NSNumber, NSDictionary --------------------------------------------------------------------------

Id error_domain(Error& self) { return string_autoreleased(self.domain); }
Id error_description(Error& self) { return string_autoreleased(self.description); }
Integer error_code(Error& self) { return self.code; }
Id error_info(Error&) { return autorelease(create<Dictionary>()); }
Id error_nothing(Error&) { return nullptr; }
CLASS("NSError", "NSObject", &make_instance<Error>)
SURE_METHOD("NSError", "domain", error_domain)
METHOD("NSError", "code", error_code)
SURE_METHOD("NSError", "localizedDescription", error_description)
METHOD("NSError", "localizedFailureReason", error_nothing)
SURE_METHOD("NSError", "userInfo", error_info)
SURE_METHOD("NSError", "description", error_description)

UInteger array_count(Array& self) { return self.elements.size(); }
// The array keeps its elements: the pointer is no reference of the caller's.
Id array_element(Array& self, UInteger index) {
  APPLE_REQUIRE(
      index < self.elements.size(), nullptr, "out-of-bounds",
      "element " + std::to_string(index) + " of " + std::to_string(self.elements.size()) + " (an exception on macOS)");
  return self.elements[index]->id();
}
Id array_first(Array& self) { return self.elements.empty() ? nullptr : self.elements.front()->id(); }
Id array_last(Array& self) { return self.elements.empty() ? nullptr : self.elements.back()->id(); }
CLASS("NSArray", "NSObject", &make_instance<Array>)
METHOD("NSArray", "count", array_count)
METHOD("NSArray", "objectAtIndex:", array_element)
METHOD("NSArray", "objectAtIndexedSubscript:", array_element)
METHOD("NSArray", "firstObject", array_first)
METHOD("NSArray", "lastObject", array_last)

template <typename T>
Id number_with(Class&, T value) {
  const auto number = create<Number>();
  number->integer = static_cast<long long>(value);
  number->real = static_cast<double>(value);
  return autorelease(number);
}
int int_of(Number& self) { return static_cast<int>(self.integer); }
Integer integer_of(Number& self) { return static_cast<Integer>(self.integer); }
UInteger unsigned_of(Number& self) { return static_cast<UInteger>(self.integer); }
double real_of(Number& self) { return self.real; }
Boolean truth_of(Number& self) { return self.real != 0; }
CLASS("NSNumber", "NSObject", nullptr)
CLASS_METHOD("NSNumber", "numberWithInt:", number_with<int>)
CLASS_METHOD("NSNumber", "numberWithInteger:", number_with<Integer>)
CLASS_METHOD("NSNumber", "numberWithUnsignedInteger:", number_with<UInteger>)
CLASS_METHOD("NSNumber", "numberWithLongLong:", number_with<long long>)
CLASS_METHOD("NSNumber", "numberWithBool:", number_with<bool>)
CLASS_METHOD("NSNumber", "numberWithDouble:", number_with<double>)
METHOD("NSNumber", "intValue", int_of)
METHOD("NSNumber", "integerValue", integer_of)
METHOD("NSNumber", "unsignedIntegerValue", unsigned_of)
METHOD("NSNumber", "doubleValue", real_of)
METHOD("NSNumber", "boolValue", truth_of)

bool equal_keys(const Instance& a, const Instance& b) {
  const auto *left = dynamic_cast<const String*>(&a), *right = dynamic_cast<const String*>(&b);
  return left != nullptr && right != nullptr ? left->text == right->text : &a == &b;
}
void set_entry(Dictionary& self, Id value, Id key) {
  const auto object = get<Instance>(value, "the object"), name = get<Instance>(key, "the key");
  if (object == nullptr || name == nullptr) return;
  for (auto& [known, old] : self.entries) {
    if (equal_keys(*known, *name)) {
      old = Ref<Instance>(object);
      return;
    }
  }
  self.entries.emplace_back(name, object);
}
Id dictionary_with_entry(Class& self, Id value, Id key) {
  const auto dictionary = create<Dictionary>(self.name.c_str());
  set_entry(*dictionary, value, key);
  return autorelease(dictionary);
}
Id dictionary_with_entries(Class& self, const Id* values, const Id* keys, UInteger count) {
  APPLE_REQUIRE(count == 0 || (values != nullptr && keys != nullptr), nullptr, "bad-argument", "an array is null");
  const auto dictionary = create<Dictionary>(self.name.c_str());
  for (UInteger i = 0; i < count; ++i) set_entry(*dictionary, values[i], keys[i]);
  return autorelease(dictionary);
}
Id empty_dictionary(Class& self) { return autorelease(create<Dictionary>(self.name.c_str())); }
UInteger dictionary_count(Dictionary& self) { return self.entries.size(); }
Id dictionary_value(Dictionary& self, Id key) {
  const auto name = get<Instance>(key, "the key");
  for (const auto& [known, value] : self.entries) {
    if (name != nullptr && equal_keys(*known, *name)) return value->id();
  }
  return nullptr;
}
std::shared_ptr<Instance> make_mutable_dictionary() { return std::make_shared<Dictionary>("NSMutableDictionary"); }
CLASS("NSDictionary", "NSObject", &make_instance<Dictionary>)
CLASS("NSMutableDictionary", "NSDictionary", &make_mutable_dictionary)
CLASS_METHOD("NSDictionary", "dictionary", empty_dictionary)
CLASS_METHOD("NSDictionary", "dictionaryWithObject:forKey:", dictionary_with_entry)
CLASS_METHOD("NSDictionary", "dictionaryWithObjects:forKeys:count:", dictionary_with_entries)
METHOD("NSDictionary", "count", dictionary_count)
METHOD("NSDictionary", "objectForKey:", dictionary_value)
METHOD("NSMutableDictionary", "setObject:forKey:", set_entry)

// ---- NSAutoreleasePool, NSProcessInfo ----------------------------------------------------------------------------------

struct AutoreleasePool : Instance {
  AutoreleasePool() : Instance("NSAutoreleasePool") {}
  void dealloc() override {
    if (token != nullptr) pop_pool(token);
  }
  Id token = nullptr;
};
Id init_pool(AutoreleasePool& self) {
  self.token = push_pool();
  return self.id();
}
void drain_pool(AutoreleasePool& self) { released(self); }
Id refuse_retain(AutoreleasePool& self) {
  violation("bad-argument", "an autorelease pool is neither retained nor autoreleased (an exception on macOS)");
  return self.id();
}
CLASS("NSAutoreleasePool", "NSObject", &make_instance<AutoreleasePool>)
SURE_METHOD("NSAutoreleasePool", "init", init_pool)
METHOD("NSAutoreleasePool", "drain", drain_pool)
SURE_METHOD("NSAutoreleasePool", "retain", refuse_retain)
SURE_METHOD("NSAutoreleasePool", "autorelease", refuse_retain)
Id new_pool(Class& self) {
  const Id made = allocate(self);
  init_pool(*get<AutoreleasePool>(made, "the pool"));
  return made;
}
CLASS_METHOD("NSAutoreleasePool", "new", new_pool)

struct ProcessInfo : Instance {
  ProcessInfo() : Instance("NSProcessInfo") {}
};
struct SystemVersion {
  Integer major, minor, patch;
};
Id process_info(Class&) {
  static const auto* const one = [] {
    auto* made = new std::shared_ptr<ProcessInfo>(std::make_shared<ProcessInfo>());
    engine().handles().add(*made, false);
    return made;
  }();
  return (*one)->id();
}
SystemVersion system_version(ProcessInfo&) { return {macos_version() / 100, macos_version() % 100, 0}; }
Id system_version_text(ProcessInfo&) {
  return string_autoreleased("Version " + std::to_string(macos_version() / 100) + "." +
                             std::to_string(macos_version() % 100) + " (Build simulated)");
}
Boolean at_least(ProcessInfo&, SystemVersion wanted) {
  return wanted.major * 100 + wanted.minor <= macos_version() &&
         (wanted.patch == 0 || wanted.major * 100 + wanted.minor < macos_version());
}
CLASS("NSProcessInfo", "NSObject", nullptr)
CLASS_METHOD("NSProcessInfo", "processInfo", process_info)
METHOD("NSProcessInfo", "operatingSystemVersion", system_version)
METHOD("NSProcessInfo", "operatingSystemVersionString", system_version_text)
METHOD("NSProcessInfo", "isOperatingSystemAtLeastVersion:", at_least)

}  // namespace

void String::dealloc() {
  std::fill(text.begin(), text.end(), static_cast<char>(kFreed));
  std::string().swap(text);
}

Id string_autoreleased(const std::string& text) { return autorelease(create<String>(text)); }

std::shared_ptr<Error> make_error(const std::string& domain, Integer code, const std::string& description) {
  auto error = create<Error>();
  error->domain = domain;
  error->code = code;
  error->description = description;
  return error;
}

void set_error(Id* place, const std::string& domain, Integer code, const std::string& description) {
  if (place != nullptr) *place = autorelease(make_error(domain, code, description));
}

Id injected_error() { return autorelease(make_error("SimulatedErrorDomain", 1, "a failure that SIM_FAULT asked for")); }

bool text_of(Id string, const char* what, std::string* text) {
  const auto object = get<String>(string, what);
  if (object != nullptr) *text = object->text;
  return object != nullptr;
}

}  // namespace sim::apple
