// The handles that programs get: tokens that are not addresses (accessing one faults) and contain a generation, so that
// destroyed handles, handles of another kind and invented numbers are distinguished.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

// Base of everything a handle can stand for.
struct Object {
  explicit Object(const char* kind_name) : kind(kind_name) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const char* const kind;  // "event", "command list", ...
  std::uint64_t token = 0;
};

class HandleTable {
 public:
  // Sets object->token. `leaks`: an object that is alive at the end is a leak.
  std::uint64_t add(std::shared_ptr<Object> object, bool leaks);

  // Null with a sentence in `problem` when the token stands for nothing, or for another type than T.
  template <typename T>
  std::shared_ptr<T> get(const void* handle, std::string* problem) const {
    const std::shared_ptr<Object> object = find(handle, problem);
    if (object == nullptr) return nullptr;
    auto typed = std::dynamic_pointer_cast<T>(object);
    if (typed == nullptr) *problem = "it is the handle of another kind of object: " + std::string(object->kind);
    return typed;
  }
  void remove(const Object& object);
  void forgive(const Object& object);     // it is no leak
  std::vector<std::string> live() const;  // one text an object that leaks
  std::vector<std::shared_ptr<Object>> all() const;

 private:
  std::shared_ptr<Object> find(const void* handle, std::string* problem) const;

  struct Slot {
    std::uint16_t generation = 1;
    bool leaks = false;
    std::shared_ptr<Object> object;
    const char* last_kind = "";
  };
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> vacant_;
};

}  // namespace sim
