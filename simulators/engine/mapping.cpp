// Implements address reservations, and memory mapped to them: the same pages of the device memory file, mapped a second
// time.
#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>

#include "simulators/engine/memory.h"

namespace sim {
namespace {

// Maps the file's pages from `offset` on at [alias, alias + bytes), where the engine sees them.
void remap(char* alias, std::size_t bytes, int file, std::ptrdiff_t offset) {
  if (::mmap(alias, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, offset) ==
      MAP_FAILED) {
    throw std::runtime_error("the simulator cannot map memory of a device");
  }
}

}  // namespace

std::shared_ptr<const Allocation> Memory::reserve(std::uint64_t owner, std::size_t size, std::size_t alignment) {
  char* const pointer = take_device_range(size, alignment);
  if (pointer == nullptr) return nullptr;
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = MemoryKind::device;
  allocation->device = -1;
  allocation->owner = owner;
  allocation->pointer = pointer;
  allocation->alias = alias_window_ + (pointer - device_window_);
  allocation->size = size;
  allocation->is_reserved = true;
  const std::lock_guard lock(mutex_);
  allocation->id = next_id_++;
  allocations_[allocation->pointer] = allocation;
  mappings_[allocation->id];
  return allocation;
}

bool Memory::map(const Allocation& reservation, std::size_t offset, std::shared_ptr<const Allocation> memory) {
  const std::lock_guard lock(mutex_);
  auto& mappings = mappings_.at(reservation.id);
  const std::size_t end = offset + memory->size;
  const auto next = mappings.lower_bound(offset);
  if (next != mappings.end() && next->first < end) return false;
  if (next != mappings.begin() && std::prev(next)->second.end > offset) return false;
  remap(reservation.alias + offset, memory->size, file_, memory->alias - alias_window_);
  mappings.emplace(offset, Mapping{end, std::move(memory), {}});
  return true;
}

std::vector<std::shared_ptr<const Allocation>> Memory::mapped(const Allocation& reservation, std::size_t offset,
                                                              std::size_t size) const {
  const std::lock_guard lock(mutex_);
  const auto& mappings = mappings_.at(reservation.id);
  std::vector<std::shared_ptr<const Allocation>> found;
  std::size_t at = offset;
  for (auto it = mappings.find(offset); it != mappings.end() && it->first == at && it->second.end <= offset + size;
       ++it) {
    found.push_back(it->second.memory);
    at = it->second.end;
  }
  if (at != offset + size) found.clear();
  return found;
}

void Memory::unmap(const Allocation& reservation, std::size_t offset, std::size_t size) {
  std::vector<std::shared_ptr<const Allocation>> last;  // released after the lock
  const std::lock_guard lock(mutex_);
  auto& mappings = mappings_.at(reservation.id);
  for (auto it = mappings.lower_bound(offset); it != mappings.end() && it->first < offset + size;) {
    last.push_back(std::move(it->second.memory));
    it = mappings.erase(it);
  }
  remap(reservation.alias + offset, size, file_, reservation.alias + offset - alias_window_);
}

void Memory::set_access(const Allocation& reservation, std::size_t offset, std::size_t size, int device, bool read,
                        bool write) {
  const std::lock_guard lock(mutex_);
  auto& mappings = mappings_.at(reservation.id);
  for (auto it = mappings.lower_bound(offset); it != mappings.end() && it->first < offset + size; ++it) {
    if (read) {
      it->second.access[device] = write;
    } else {
      it->second.access.erase(device);
    }
  }
}

int Memory::device_at(const Allocation& reservation, std::size_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto& mappings = mappings_.at(reservation.id);
  const auto next = mappings.upper_bound(offset);
  if (next == mappings.begin() || std::prev(next)->second.end <= offset) return -1;
  return std::prev(next)->second.memory->device;
}

bool Memory::has_mappings(const Allocation& reservation) const {
  const std::lock_guard lock(mutex_);
  return !mappings_.at(reservation.id).empty();
}

void Memory::release_reservation(const Allocation& reservation) {
  const std::lock_guard lock(mutex_);
  allocations_.at(reservation.pointer)->freed = true;
  mappings_.erase(reservation.id);
}

Extent Memory::extent(const Allocation& allocation, const char* pointer, int device, bool write) const {
  if (!allocation.reservation()) {
    const char* end = allocation.pointer + allocation.size;
    return {allocation.pointer, end, ""};
  }
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(allocation.id);
  if (found == mappings_.end() || pointer < allocation.pointer) return {pointer, pointer, " (freed)"};
  const auto& mappings = found->second;
  const auto usable = [&](const Mapping& mapping) {
    if (device == kAnyDevice) return !mapping.access.empty();
    const auto access = mapping.access.find(device);
    return access != mapping.access.end() && (access->second || !write);
  };
  const auto offset = static_cast<std::size_t>(pointer - allocation.pointer);
  auto here = mappings.upper_bound(offset);
  if (here == mappings.begin() || std::prev(here)->second.end <= offset) {
    return {pointer, pointer, " (nothing is mapped there)"};
  }
  --here;
  if (!usable(here->second)) return {pointer, pointer, " (no access was given to the device)"};
  auto first = here, last = here;
  while (first != mappings.begin() && std::prev(first)->second.end == first->first &&
         usable(std::prev(first)->second)) {
    --first;
  }
  while (std::next(last) != mappings.end() && std::next(last)->first == last->second.end &&
         usable(std::next(last)->second)) {
    ++last;
  }
  return {allocation.pointer + first->first, allocation.pointer + last->second.end,
          " (of which only a part can be used)"};
}

}  // namespace sim
