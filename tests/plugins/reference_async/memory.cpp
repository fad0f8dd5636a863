// Implements memory.h: device memory that the host cannot touch.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "anyaccel/abi/driver_class.hpp"
#include "mutations.h"

namespace reference {

namespace abi = anyaccel::abi;

DeviceMemory::DeviceMemory(size_t bytes, int32_t device) : device_(device), bytes_(bytes) {
  const int file = memfd_create("memory of the reference device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) close(file);
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "memory of the device cannot be made: " + reason);
  }
  void* const seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* const addresses = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  close(file);
  if (seen == MAP_FAILED || addresses == MAP_FAILED) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "memory of the device cannot be mapped");
  }
  bytes_seen_ = static_cast<unsigned char*>(seen);
  addresses_ = static_cast<unsigned char*>(addresses);
}

DeviceMemory::~DeviceMemory() {
  munmap(bytes_seen_, bytes_);
  munmap(addresses_, bytes_);
}

void* DeviceMemory::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::exhaustion_is_for_ever) && spoiled_) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "no memory");
  if (mutated(Mutation::few_allocations) && ++allocations_ > 300) {
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, "too many allocations");
  }
  const size_t rounded = bytes <= bytes_ ? (bytes + alignment - 1) / alignment * alignment : bytes;
  // The first gap that is large enough.
  size_t place = 0;
  for (const auto& [offset, block] : blocks_) {
    if (offset - place >= rounded) break;
    place = offset + block.taken;
  }
  if (rounded > bytes_ || place > bytes_ - rounded) {
    spoiled_ = true;
    if (mutated(Mutation::no_memory_is_an_internal_error)) throw abi::Failure(AA_INTERNAL, "no memory");
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, std::to_string(bytes) + " bytes were asked for, and of " +
                                                  std::to_string(bytes_) + " are " + std::to_string(bytes_ - used_) +
                                                  " free on device " + std::to_string(device_));
  }
  size_t taken = rounded;
  if (mutated(Mutation::allocations_overlap) && bytes > 1000) taken = rounded / 2 / alignment * alignment;
  blocks_[place] = {bytes, taken};
  used_ += taken;
  const bool moved = (mutated(Mutation::allocations_are_not_aligned) && bytes == 63) ||
                     (mutated(Mutation::large_allocations_are_not_aligned) && bytes > size_t{1} << 23);
  return addresses_ + place + (moved ? 8 : 0);
}

void DeviceMemory::free(void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<unsigned char*>(pointer) - addresses_));
  const bool moved =
      mutated(Mutation::allocations_are_not_aligned) || mutated(Mutation::large_allocations_are_not_aligned);
  if (moved && found == blocks_.end()) return;
  if (found == blocks_.end() || found->second.asked != bytes) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "memory that was not allocated so is given back");
  }
  if (mutated(Mutation::free_forgets)) return;
  // Freed memory is returned to the system, and a later read of it fails.
  if (found->second.taken >= 4096) {
    const size_t begin = (found->first + 4095) / 4096 * 4096;
    const size_t end = (found->first + found->second.taken) / 4096 * 4096;
    if (end > begin) madvise(bytes_seen_ + begin, end - begin, MADV_REMOVE);
  }
  used_ -= found->second.taken;
  blocks_.erase(found);
  if (mutated(Mutation::free_reports_an_error)) throw abi::Failure(AA_INTERNAL, "it was free, somehow");
}

int64_t DeviceMemory::available() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(bytes_ - used_);
}

std::map<size_t, DeviceMemory::Block>::const_iterator DeviceMemory::around(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto first = reinterpret_cast<uintptr_t>(addresses_);
  if (address < first || address >= first + bytes_) return blocks_.end();
  auto found = blocks_.upper_bound(address - first);
  if (found == blocks_.begin()) return blocks_.end();
  --found;
  const size_t more = mutated(Mutation::a_query_finds_a_byte_more) ? 1 : 0;
  return address - first < found->first + found->second.asked + more ? found : blocks_.end();
}

unsigned char* DeviceMemory::view(const void* pointer, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = around(pointer);
  if (found == blocks_.end()) return nullptr;
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(pointer) - addresses_);
  return bytes <= found->first + found->second.asked - offset ? bytes_seen_ + offset : nullptr;
}

bool DeviceMemory::find(const void* pointer, void*& base, size_t& bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = around(pointer);
  if (mutated(Mutation::a_query_finds_freed_memory) && found == blocks_.end()) {
    base = const_cast<void*>(pointer);
    bytes = 1;
    return pointer >= addresses_ && pointer < addresses_ + bytes_;
  }
  if (found == blocks_.end()) return false;
  base = addresses_ + found->first;
  bytes = found->second.asked;
  return true;
}

void DeviceMemory::wipe() { std::memset(bytes_seen_, 0, std::min<size_t>(bytes_, size_t{1} << 22)); }

void* PinnedMemory::allocate(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED && mutated(Mutation::no_pinned_memory_is_an_internal_error)) {
    throw abi::Failure(AA_INTERNAL, "the host has no memory");
  }
  if (memory == MAP_FAILED) throw abi::Failure(AA_RESOURCE_EXHAUSTED, "the host has no memory");
  const std::lock_guard lock(mutex_);
  if (mutated(Mutation::pinned_memory_is_not_aligned)) {
    unsigned char* const moved = static_cast<unsigned char*>(memory) + 8;
    blocks_[reinterpret_cast<uintptr_t>(moved)] = bytes;
    return moved;
  }
  blocks_[reinterpret_cast<uintptr_t>(memory)] = bytes;
  return memory;
}

void PinnedMemory::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end())
    throw abi::Failure(AA_INVALID_ARGUMENT, "pinned memory that was not allocated is given back");
  if (!mutated(Mutation::pinned_memory_leaks) && !mutated(Mutation::pinned_memory_is_not_aligned)) {
    munmap(pointer, found->second);
  }
  blocks_.erase(found);
}

bool PinnedMemory::find(const void* pointer, void*& base, size_t& bytes) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return false;
  --found;
  if (address >= found->first + found->second) return false;
  base = reinterpret_cast<void*>(found->first);
  bytes = found->second;
  return true;
}

}  // namespace reference
