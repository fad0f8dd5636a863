// Manages memory: Metal's buffers, and the addresses inside them.
//
// An address of this accelerator's memory is a host address (MTLBuffer's `contents`): host and GPU share the memory, so
// the host may use the same pointer (AA_CAP_HOST_COHERENT), and a mapped file that is registered keeps its address.
// Metal's calls take a buffer and an offset; the host passes the buffer along with every address
// (AA_DRIVER_WANTS_MEMORY), and the offset is the difference of two addresses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>

#include "accelerators/mps/library.h"
#include "accelerators/mps/residency.h"

// The object behind the host's aa_memory: one MTLBuffer.
struct aa_memory {
  anyaccel::mps::Owned buffer;
  unsigned char* base = nullptr;  // the buffer's first byte; a registered range begins behind it, at any byte of a page
  size_t length = 0;              // length of the buffer
};

namespace anyaccel::mps {

// The location of bytes in Metal's terms.
struct Place {
  Id buffer = nullptr;
  uint64_t offset = 0;
};
// Throws AA_INVALID_ARGUMENT, naming `what`, unless `memory` contains all of the bytes.
Place place_of(const aa_memory* memory, const void* pointer, size_t size, const char* what);

// The memory of all devices. Thread-safe.
class Allocations {
 public:
  struct Entry {
    int32_t kind;    // aa_memory_kind
    int32_t device;  // index
    size_t size;     // the requested size
    std::unique_ptr<aa_memory> memory;
    bool registered;  // the memory belongs to the caller
  };
  void add(void* pointer, Entry entry);
  // Both throw AA_ALREADY_EXISTS if a part of the range is registered already.
  void check_not_registered(const void* pointer, size_t size) const;
  void add_registered(void* pointer, Entry entry);
  // Returns null if no memory of this kind and device begins there. Registered memory has kind -1 here.
  std::unique_ptr<aa_memory> remove(const void* pointer, int32_t kind, int32_t device, size_t& size);
  bool find(const void* pointer, aa_memory_info& info) const;

 private:
  using Entries = std::map<uintptr_t, Entry>;
  void check_not_registered_locked(uintptr_t begin, size_t size) const;
  const Entry* find_in(const Entries& entries, uintptr_t address, uintptr_t& base) const;

  mutable std::shared_mutex mutex_;
  Entries entries_;  // memory from mem_alloc, by its first byte
  Entries registered_;
};

// Allocates, frees and registers memory of one device.
class DeviceMemory {
 public:
  DeviceMemory(const DeviceFacts& facts, int32_t index, Allocations& allocations)
      : facts_(facts), index_(index), allocations_(allocations), residency_(facts.device.get()) {}

  void allocate(const aa_alloc& what, aa_allocation& out);
  void free(const aa_allocation& what);
  void register_range(const aa_register& what, aa_registration& out);
  void unregister_range(void* pointer);
  // Metal reports what this process uses, not what other processes use: `free` is the total minus what was allocated
  // here.
  void info(int64_t& free, int64_t& total) const;
  // All memory of the device, which its queues keep resident.
  const Residency& residency() const noexcept { return residency_; }

  // In bytes. Every allocation is at least a page; the driver checks that it is aligned.
  static constexpr int32_t alignment = 64;

 private:
  [[noreturn]] void exhausted(size_t size, const std::string& found) const;

  const DeviceFacts& facts_;
  const int32_t index_;
  Allocations& allocations_;
  Residency residency_;
  std::atomic<int64_t> used_{0};  // bytes
};

}  // namespace anyaccel::mps
