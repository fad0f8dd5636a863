// Tokens: 0x5a5a in the upper 16 bits (no address of a process looks so), generation, slot number.
#include "simulators/engine/handles.h"

#include <utility>

namespace sim {
namespace {

constexpr std::uint64_t kMark = std::uint64_t{0x5a5a} << 48;
constexpr std::uint64_t kMarkMask = std::uint64_t{0xffff} << 48;

std::uint64_t token_of(std::uint32_t slot, std::uint16_t generation) {
  return kMark | (static_cast<std::uint64_t>(generation) << 32) | slot;
}

}  // namespace

std::uint64_t HandleTable::add(std::shared_ptr<Object> object, bool leaks) {
  const std::lock_guard lock(mutex_);
  std::uint32_t index = static_cast<std::uint32_t>(slots_.size());
  if (vacant_.empty()) {
    slots_.emplace_back();
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  Slot& slot = slots_[index];
  const std::uint64_t token = token_of(index, slot.generation);
  object->token = token;
  slot.leaks = leaks;
  slot.object = std::move(object);
  return token;
}

std::shared_ptr<Object> HandleTable::find(const void* handle, std::string* problem) const {
  const std::uint64_t token = reinterpret_cast<std::uintptr_t>(handle);
  const auto index = static_cast<std::uint32_t>(token);
  const std::lock_guard lock(mutex_);
  if ((token & kMarkMask) != kMark || index >= slots_.size()) {
    *problem = "it is not a handle";
    return nullptr;
  }
  const Slot& slot = slots_[index];
  const auto generation = static_cast<std::uint16_t>(token >> 32);
  if (slot.object != nullptr && slot.generation == generation) return slot.object;
  *problem = generation == static_cast<std::uint16_t>(slot.generation - 1)
                 ? "it was destroyed (" + std::string(slot.last_kind) + ")"
                 : "it was destroyed long ago";
  return nullptr;
}

void HandleTable::remove(const Object& object) {
  std::shared_ptr<Object> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::uint32_t>(object.token);
  Slot& slot = slots_[index];
  if (slot.object.get() != &object) return;
  slot.last_kind = object.kind;
  last = std::move(slot.object);
  slot.object = nullptr;
  ++slot.generation;
  vacant_.insert(vacant_.begin(), index);
}

void HandleTable::forgive(const Object& object) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[static_cast<std::uint32_t>(object.token)];
  if (slot.object.get() == &object) slot.leaks = false;
}

std::vector<std::string> HandleTable::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> live;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].object == nullptr || !slots_[i].leaks) continue;
    live.push_back(std::string(slots_[i].object->kind) + " #" + std::to_string(i));
  }
  return live;
}

std::vector<std::shared_ptr<Object>> HandleTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Object>> all;
  for (const Slot& slot : slots_) {
    if (slot.object != nullptr) all.push_back(slot.object);
  }
  return all;
}

}  // namespace sim
