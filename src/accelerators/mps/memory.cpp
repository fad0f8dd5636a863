// Implements memory.h: allocates and registers Metal's buffers, and maps addresses to them.
#include "accelerators/mps/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "accelerators/mps/metal.h"

namespace anyaccel::mps {
namespace {

constexpr int32_t registered_kind = -1;

}  // namespace

Place place_of(const aa_memory* memory, const void* pointer, size_t size, const char* what) {
  const auto* at = static_cast<const unsigned char*>(pointer);
  if (!memory) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       std::string(what) +
                           " lies in memory that Metal does not know; it takes memory of mem_alloc, "
                           "and host memory that is registered");
  }
  const auto offset = static_cast<size_t>(at - memory->base);
  if (at < memory->base || offset > memory->length || size > memory->length - offset) {
    throw abi::Failure(AA_INVALID_ARGUMENT, std::string(what) + " has " + std::to_string(size) +
                                                " bytes and leaves its allocation of " +
                                                std::to_string(memory->length) + " bytes");
  }
  return {memory->buffer.get(), offset};
}

// ---- what an address is ----------------------------------------------------------------------------------------------

void Allocations::add(void* pointer, Entry entry) {
  const std::unique_lock lock(mutex_);
  entries_.insert_or_assign(reinterpret_cast<uintptr_t>(pointer), std::move(entry));
}

void Allocations::check_not_registered(const void* pointer, size_t size) const {
  const std::shared_lock lock(mutex_);
  check_not_registered_locked(reinterpret_cast<uintptr_t>(pointer), size);
}

void Allocations::add_registered(void* pointer, Entry entry) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const std::unique_lock lock(mutex_);
  check_not_registered_locked(begin, entry.size);
  registered_.emplace(begin, std::move(entry));
}

void Allocations::check_not_registered_locked(uintptr_t begin, size_t size) const {
  const auto next = registered_.lower_bound(begin);
  const bool into_next = next != registered_.end() && next->first - begin < size;
  const bool into_previous =
      next != registered_.begin() && begin - std::prev(next)->first < std::prev(next)->second.size;
  if (into_next || into_previous) {
    throw abi::Failure(AA_ALREADY_EXISTS, "a part of this memory is registered already; unregister it first");
  }
}

std::unique_ptr<aa_memory> Allocations::remove(const void* pointer, int32_t kind, int32_t device, size_t& size) {
  const std::unique_lock lock(mutex_);
  Entries& entries = kind == registered_kind ? registered_ : entries_;
  const auto found = entries.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == entries.end() || found->second.device != device ||
      (kind != registered_kind && found->second.kind != kind)) {
    return nullptr;
  }
  std::unique_ptr<aa_memory> memory = std::move(found->second.memory);
  size = found->second.size;
  entries.erase(found);
  return memory;
}

const Allocations::Entry* Allocations::find_in(const Entries& entries, uintptr_t address, uintptr_t& base) const {
  auto next = entries.upper_bound(address);
  if (next == entries.begin()) return nullptr;
  --next;
  if (address - next->first >= next->second.size) return nullptr;
  base = next->first;
  return &next->second;
}

bool Allocations::find(const void* pointer, aa_memory_info& info) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::shared_lock lock(mutex_);
  uintptr_t base = 0;
  const Entry* entry = find_in(entries_, address, base);
  if (!entry) entry = find_in(registered_, address, base);
  if (!entry) return false;
  info.kind = entry->kind;
  info.device_index = entry->registered ? -1 : entry->device;
  info.base = reinterpret_cast<void*>(base);
  info.size = entry->size;
  info.device_address = const_cast<void*>(pointer);
  info.memory = entry->memory.get();
  return true;
}

// ---- a device's memory -----------------------------------------------------------------------------------------------

void DeviceMemory::exhausted(size_t size, const std::string& found) const {
  throw abi::Failure(AA_RESOURCE_EXHAUSTED,
                     std::to_string(size) + " bytes were asked for on " + facts_.name + "; " + found);
}

void DeviceMemory::info(int64_t& free, int64_t& total) const {
  total = facts_.memory;
  free = std::max<int64_t>(0, total - used_);
}

void DeviceMemory::allocate(const aa_alloc& what, aa_allocation& out) {
  if (what.kind != AA_MEMORY_DEVICE && what.kind != AA_MEMORY_PINNED) {
    abi::unimplemented("mem_alloc of this kind of memory");
  }
  const auto bytes = static_cast<int64_t>(std::min<size_t>(what.size, INT64_MAX));
  if (bytes > facts_.max_buffer) {
    exhausted(what.size, "one buffer may have " + std::to_string(facts_.max_buffer));
  }
  // Metal would allocate more than it recommends, at the cost of everything else on the machine.
  const int64_t before = used_.fetch_add(bytes);
  const auto give_back = [&] { used_ -= bytes; };
  if (before + bytes > facts_.memory) {
    give_back();
    exhausted(what.size, std::to_string(std::max<int64_t>(0, facts_.memory - before)) + " of " +
                             std::to_string(facts_.memory) + " are free");
  }
  try {
    const Pool pool;
    auto memory = std::make_unique<aa_memory>();
    memory->buffer = Owned::given(
        send<Id>(facts_.device.get(), sel.newBufferWithLength, static_cast<uint64_t>(what.size), storage_shared));
    if (!memory->buffer) {
      exhausted(what.size, "Metal gave no buffer, with " + std::to_string(facts_.memory - before) + " of " +
                               std::to_string(facts_.memory) + " not allocated by this process");
    }
    memory->base = send<unsigned char*>(memory->buffer.get(), sel.contents);
    memory->length = what.size;
    if (!memory->base || reinterpret_cast<uintptr_t>(memory->base) % alignment != 0) {
      throw abi::Failure(AA_INTERNAL, "a buffer's memory is not aligned to " + std::to_string(alignment) + " bytes");
    }
    out.pointer = memory->base;
    out.memory = memory.get();
    const Id buffer = memory->buffer.get();
    allocations_.add(out.pointer, {what.kind, index_, what.size, std::move(memory), false});
    residency_.add(buffer);
  } catch (...) {
    give_back();
    throw;
  }
}

void DeviceMemory::free(const aa_allocation& what) {
  size_t size = 0;
  const Pool pool;
  const std::unique_ptr<aa_memory> memory = allocations_.remove(what.pointer, what.kind, index_, size);
  if (!memory) {
    throw abi::Failure(AA_INVALID_ARGUMENT,
                       "mem_free of a pointer that mem_alloc did not give on this device, or was freed");
  }
  residency_.remove(memory->buffer.get());
  used_ -= static_cast<int64_t>(size);
}

// Metal takes whole pages. Those at the ends of the range may also hold other data, which is not affected.
void DeviceMemory::register_range(const aa_register& what, aa_registration& out) {
  if ((what.flags & ~AA_REGISTER_READ_ONLY) != 0) abi::unimplemented("register_range with an unknown flag");
  if (!what.pointer || what.size == 0) throw abi::Failure(AA_INVALID_ARGUMENT, "register_range of no memory");
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(what.pointer);
  const uintptr_t first = begin / page * page;
  const uintptr_t end = (begin + what.size + page - 1) / page * page;
  if (static_cast<int64_t>(end - first) > facts_.max_buffer) {
    throw abi::Failure(AA_UNIMPLEMENTED, "register_range of " + std::to_string(what.size) + " bytes; one buffer of " +
                                             facts_.name + " may have " + std::to_string(facts_.max_buffer));
  }
  allocations_.check_not_registered(what.pointer, what.size);  // two buffers of the same bytes would race
  const Pool pool;
  auto memory = std::make_unique<aa_memory>();
  memory->base = reinterpret_cast<unsigned char*>(first);
  memory->length = end - first;
  memory->buffer =
      Owned::given(send<Id>(facts_.device.get(), sel.newBufferWithBytesNoCopy, static_cast<void*>(memory->base),
                            static_cast<uint64_t>(memory->length), storage_shared, static_cast<void*>(nullptr)));
  if (!memory->buffer) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "Metal made no buffer of " + std::to_string(memory->length) +
                                                  " bytes of the caller's memory on " + facts_.name +
                                                  "; the memory must be a mapping of whole pages");
  }
  aa_memory* const buffer = memory.get();
  allocations_.add_registered(what.pointer, {AA_MEMORY_PINNED, index_, what.size, std::move(memory), true});
  residency_.add(buffer->buffer.get());
  out.device_address = what.pointer;
  out.memory = buffer;
}

void DeviceMemory::unregister_range(void* pointer) {
  size_t size = 0;
  const Pool pool;
  const std::unique_ptr<aa_memory> memory = allocations_.remove(pointer, registered_kind, index_, size);
  if (!memory) throw abi::Failure(AA_NOT_FOUND, "unregister_range of memory that is not registered");
  residency_.remove(memory->buffer.get());
}

}  // namespace anyaccel::mps
