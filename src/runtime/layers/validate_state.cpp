// The state of the validate layer: living objects and allocations.
#include "runtime/layers/validate_state.h"

#include <cstdio>

#include "anyaccel/dtype.h"

namespace anyaccel::layers {
namespace {

std::string range_text(const void* pointer, size_t size) {
  char text[64];
  std::snprintf(text, sizeof(text), "%p + %zu", pointer, size);
  return text;
}

std::string allocation_text(const Allocation& allocation) {
  return range_text(reinterpret_cast<const void*>(allocation.base), allocation.size);
}

// The entry that holds the first byte of a range, or else the first one that the range runs into; or null.
const Allocation* touching(const std::map<uintptr_t, Allocation>& entries, uintptr_t begin, size_t size) {
  const auto next = entries.upper_bound(begin);
  if (next != entries.begin()) {
    const Allocation& before = std::prev(next)->second;
    if (begin - before.base < before.size) return &before;
  }
  return next != entries.end() && next->first - begin < size ? &next->second : nullptr;
}

bool holds(const Allocation& allocation, uintptr_t begin, size_t size) {
  return begin >= allocation.base && size <= allocation.size && begin - allocation.base <= allocation.size - size;
}

std::string counted(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

const char* kind_name(ObjectKind kind) noexcept {
  constexpr const char* names[object_kinds] = {"instance", "device", "stream",       "event",         "module",
                                               "kernel",   "graph",  "communicator", "packed weight", "file"};
  return names[static_cast<int>(kind)];
}

TrackedObject* ValidateState::find(ObjectKind kind, const void* handle) {
  auto& objects = living_[static_cast<int>(kind)];
  const auto found = objects.find(handle);
  return found == objects.end() ? nullptr : &found->second;
}

bool ValidateState::was_destroyed(ObjectKind kind, const void* handle) const {
  return destroyed_[static_cast<int>(kind)].contains(handle);
}

TrackedObject& ValidateState::add(ObjectKind kind, const void* handle, const void* parent, const void* device) {
  destroyed_[static_cast<int>(kind)].erase(handle);
  TrackedObject& object = living_[static_cast<int>(kind)][handle];
  object = TrackedObject{};
  object.parent = parent;
  object.device = device;
  return object;
}

void ValidateState::remove(ObjectKind kind, const void* handle) {
  living_[static_cast<int>(kind)].erase(handle);
  // The set only improves a message, so entries may be dropped: it must not grow without bound.
  auto& destroyed = destroyed_[static_cast<int>(kind)];
  if (destroyed.size() > 65536) destroyed.clear();
  destroyed.insert(handle);
}

int ValidateState::calls_inside_children(ObjectKind kind, const void* parent) const {
  int calls = 0;
  for (const auto& [handle, object] : living_[static_cast<int>(kind)]) {
    if (object.parent == parent) calls += object.inside;
  }
  return calls;
}

void ValidateState::remove_children(ObjectKind kind, const void* parent) {
  std::erase_if(living_[static_cast<int>(kind)], [&](const auto& entry) { return entry.second.parent == parent; });
}

std::string ValidateState::living_children(ObjectKind kind, const void* parent) const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (int i = 0; i < object_kinds; ++i) {
    const auto child = static_cast<ObjectKind>(i);
    if (child == ObjectKind::kernel || child == kind) continue;
    size_t count = 0;
    for (const auto& [handle, object] : living_[i]) count += object.parent == parent;
    if (count > 0) add(counted(count, kind_name(child)));
  }
  if (kind != ObjectKind::device) return text;
  size_t count = 0;
  size_t bytes = 0;
  size_t registered = 0;
  for (const auto& [base, allocation] : allocations_) {
    if (allocation.device != parent) continue;
    ++count;
    bytes += allocation.size;
  }
  for (const auto& [base, range] : registered_) registered += range.device == parent;
  if (count > 0) add(counted(count, "allocation") + " (" + std::to_string(bytes) + " bytes)");
  if (registered > 0) add(counted(registered, "registered range"));
  return text;
}

void ValidateState::add_allocation(const Allocation& allocation) { allocations_[allocation.base] = allocation; }

const Allocation* ValidateState::allocation_at(const void* pointer) const {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  return found == allocations_.end() ? nullptr : &found->second;
}

void ValidateState::remove_allocation(const void* pointer) { allocations_.erase(reinterpret_cast<uintptr_t>(pointer)); }

void ValidateState::add_registered(const Allocation& range) { registered_[range.base] = range; }

bool ValidateState::remove_registered(const void* device, const void* pointer) {
  const auto found = registered_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == registered_.end() || found->second.device != device) return false;
  registered_.erase(found);
  return true;
}

std::string ValidateState::device_range_error(const void* device, const void* pointer, size_t size) {
  if (size == 0) return "";
  if (!pointer) return "the pointer is null";
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const Allocation* allocation = touching(allocations_, begin, size);
  const TrackedObject* owner = find(ObjectKind::device, device);
  if (!allocation) {
    if (owner && owner->host_coherent) return "";
    const Allocation* range = touching(registered_, begin, size);
    if (range && holds(*range, begin, size)) return "";
    return range_text(pointer, size) + " lies in no allocation of this driver";
  }
  if (!holds(*allocation, begin, size)) {
    return range_text(pointer, size) + " runs over an end of the allocation " + allocation_text(*allocation);
  }
  const bool of_one_device = allocation->kind == AA_MEMORY_DEVICE || allocation->kind >= AA_FIRST_NAMED_MEMORY_KIND;
  if (allocation->device != device && of_one_device) {
    return range_text(pointer, size) + " is memory of another device than the stream's";
  }
  return "";
}

std::string ValidateState::host_range_error(const void* device, const void* pointer, size_t size) {
  if (size == 0) return "";
  if (!pointer) return "the pointer is null";
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const Allocation* allocation = touching(allocations_, begin, size);
  if (!allocation) return "";
  if (!holds(*allocation, begin, size)) {
    return range_text(pointer, size) + " runs over an end of the allocation " + allocation_text(*allocation);
  }
  const TrackedObject* owner = find(ObjectKind::device, device);
  const bool of_a_device = allocation->kind == AA_MEMORY_DEVICE || allocation->kind >= AA_FIRST_NAMED_MEMORY_KIND;
  if (of_a_device && owner && !owner->host_coherent) {
    return range_text(pointer, size) + " is device memory, where memory of the host is wanted";
  }
  return "";
}

bool tensor_span(const aa_tensor& tensor, int64_t& first, int64_t& end) noexcept {
  first = 0;
  end = 0;
  int64_t low = 0;
  int64_t high = 0;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return true;
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
  }
  const auto bytes = static_cast<int64_t>(dtype_size(static_cast<DType>(tensor.dtype)));
  return !__builtin_mul_overflow(low, bytes, &first) && !__builtin_add_overflow(high, 1, &high) &&
         !__builtin_mul_overflow(high, bytes, &end);
}

}  // namespace anyaccel::layers
