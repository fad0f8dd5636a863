// Implements address windows, poison, guards and quarantine of simulated memory.
#include "simulators/engine/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace sim {
namespace {

// The thread sanitizer leaves programs 1.5 TiB of addresses for all mappings together.
constexpr std::size_t kWindow = std::size_t{256} << 30;
// Little enough that a program which allocates and frees in a loop soon stops growing.
constexpr std::size_t kQuarantine = std::size_t{16} << 20;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

char* reserve_window(int protection, int flags, int file) {
  void* window = ::mmap(nullptr, kWindow, protection, flags | MAP_NORESERVE, file, 0);
  if (window == MAP_FAILED) throw std::runtime_error("the simulator cannot reserve an address window of 256 GiB");
  return static_cast<char*>(window);
}

}  // namespace

const char* name_of(MemoryKind kind) {
  return kind == MemoryKind::device ? "device" : kind == MemoryKind::host ? "host" : "shared";
}

std::string Allocation::text() const {
  char text[160];
  if (is_reserved) {
    std::snprintf(text, sizeof text, "address reservation #%llu (%zu bytes at %p)", static_cast<unsigned long long>(id),
                  size, static_cast<void*>(pointer));
    return text;
  }
  std::snprintf(text, sizeof text, "%s%s memory #%llu (%zu bytes at %p, device %d)", registered ? "registered " : "",
                name_of(kind), static_cast<unsigned long long>(id), size, static_cast<void*>(pointer), device);
  return text;
}

Memory::Memory() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
  file_ = ::memfd_create("simulated-device-memory", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(kWindow)) != 0) {
    throw std::runtime_error("the simulator cannot make the file that holds device memory");
  }
  device_window_ = reserve_window(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  alias_window_ = reserve_window(PROT_READ | PROT_WRITE, MAP_SHARED, file_);
  host_window_ = reserve_window(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

Memory::~Memory() {
  for (char* window : {device_window_, alias_window_, host_window_}) ::munmap(window, kWindow);
  ::close(file_);
}

char* Memory::take_range(bool on_device, std::size_t size, std::size_t alignment) {
  std::size_t& used = on_device ? device_used_ : host_used_;
  char* window = on_device ? device_window_ : host_window_;
  alignment = std::max(alignment, page_);
  if (alignment > kWindow || size > kWindow) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(window);
  const std::size_t offset = round_up(address + used + page_, alignment) - address;
  const std::size_t bytes = round_up(size, page_);
  if (offset + bytes + page_ > kWindow) return nullptr;
  used = offset + bytes;
  return window + offset;
}

char* Memory::take_device_range(std::size_t size, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  return take_range(true, size, alignment);
}

std::shared_ptr<const Allocation> Memory::allocate(MemoryKind kind, int device, std::uint64_t owner, std::size_t size,
                                                   std::size_t alignment) {
  const bool on_device = kind == MemoryKind::device;
  const std::size_t bytes = round_up(size, page_);
  const std::lock_guard lock(mutex_);
  char* const pointer = take_range(on_device, size, alignment);
  if (pointer == nullptr) return nullptr;
  if (!on_device && ::mprotect(pointer, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  auto allocation = std::make_shared<Allocation>();
  allocation->id = next_id_++;
  allocation->kind = kind;
  allocation->device = device;
  allocation->owner = owner;
  allocation->pointer = pointer;
  allocation->alias = on_device ? alias_window_ + (pointer - device_window_) : pointer;
  allocation->size = size;
  std::memset(allocation->alias, kFresh, size);
  std::memset(allocation->alias + size, kGuard, bytes - size);
  allocations_[pointer] = allocation;
  return allocation;
}

std::string Memory::free(const Allocation& allocation) {
  std::string damage;
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = round_up(allocation.size, page_);
  for (std::size_t i = allocation.size; i < bytes; ++i) {
    if (static_cast<unsigned char>(allocation.alias[i]) == kGuard) continue;
    damage = "byte " + std::to_string(i) + " behind " + allocation.text() + " was overwritten";
    break;
  }
  allocations_.at(allocation.pointer)->freed = true;
  std::memset(allocation.alias, kFreed, allocation.size);
  quarantine_.push_back({allocation.pointer, allocation.alias, bytes, allocation.kind == MemoryKind::device});
  quarantine_bytes_ += bytes;
  while (quarantine_bytes_ > kQuarantine) {
    release(quarantine_.front());
    quarantine_bytes_ -= quarantine_.front().bytes;
    quarantine_.pop_front();
  }
  return damage;
}

void Memory::release(const Quarantined& range) {
  if (range.on_device) {
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range.alias - alias_window_,
                static_cast<off_t>(range.bytes));
  } else {
    ::madvise(range.pointer, range.bytes, MADV_DONTNEED);
    ::mprotect(range.pointer, range.bytes, PROT_NONE);
  }
}

std::shared_ptr<const Allocation> Memory::find(const void* pointer) const {
  const char* p = static_cast<const char*>(pointer);
  const std::lock_guard lock(mutex_);
  const auto next = allocations_.upper_bound(p);
  if (next != allocations_.begin()) {
    const Allocation& before = *std::prev(next)->second;
    if (before.registered) return p < before.pointer + before.size ? std::prev(next)->second : nullptr;
    if (p < before.pointer + round_up(before.size, page_) + page_) return std::prev(next)->second;
  }
  return next != allocations_.end() && !next->second->registered && p >= next->first - page_ ? next->second : nullptr;
}

std::vector<std::shared_ptr<const Allocation>> Memory::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Allocation>> live;
  for (const auto& [pointer, allocation] : allocations_) {
    if (!allocation->freed) live.push_back(allocation);
  }
  return live;
}

std::shared_ptr<const Allocation> Memory::adopt(void* pointer, std::size_t size) {
  auto allocation = std::make_shared<Allocation>();
  allocation->kind = MemoryKind::host;
  allocation->device = -1;
  allocation->owner = 0;
  allocation->pointer = allocation->alias = static_cast<char*>(pointer);
  allocation->size = size;
  allocation->registered = true;
  const std::lock_guard lock(mutex_);
  const auto next = allocations_.lower_bound(allocation->pointer);
  if (next != allocations_.end() && next->first < allocation->pointer + size) return nullptr;
  if (next != allocations_.begin()) {
    const Allocation& before = *std::prev(next)->second;
    if (before.pointer + before.size > allocation->pointer) return nullptr;
  }
  allocation->id = next_id_++;
  allocations_[allocation->pointer] = allocation;
  return allocation;
}

void Memory::disown(const Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  allocations_.erase(allocation.pointer);
}

bool Memory::owns(const void* pointer) const {
  const char* p = static_cast<const char*>(pointer);
  return (p >= device_window_ && p < device_window_ + kWindow) || (p >= host_window_ && p < host_window_ + kWindow);
}

}  // namespace sim
