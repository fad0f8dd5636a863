// Memory of the reference driver: a device's own, whose addresses fault when the host touches them, and pinned memory
// of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace reference {

// Aligned to 256 bytes. Every function may be called from any thread.
class DeviceMemory {
 public:
  static constexpr size_t alignment = 256;

  // A range of addresses without access, and the same bytes where only workers look. Throws abi::Failure.
  DeviceMemory(size_t bytes, int32_t device);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* allocate(size_t bytes);  // AA_RESOURCE_EXHAUSTED
  void free(void* pointer, size_t bytes);
  int64_t total() const noexcept { return static_cast<int64_t>(bytes_); }
  int64_t available() const;

  // Returns where a worker finds the bytes from `pointer` on; null when they are not inside one allocation.
  unsigned char* view(const void* pointer, size_t bytes) const;
  // The allocation around `pointer`.
  bool find(const void* pointer, void*& base, size_t& bytes) const;
  // Zeros everywhere.
  void wipe();

 private:
  struct Block {
    size_t asked;
    size_t taken;
  };
  std::map<size_t, Block>::const_iterator around(const void* pointer) const;

  int32_t device_;
  size_t bytes_;
  unsigned char* addresses_ = nullptr;  // no access
  unsigned char* bytes_seen_ = nullptr;
  mutable std::mutex mutex_;
  std::map<size_t, Block> blocks_;  // by offset
  size_t used_ = 0;
  size_t allocations_ = 0;
  bool spoiled_ = false;
};

// Ordinary memory that the devices reach.
class PinnedMemory {
 public:
  void* allocate(size_t bytes);
  void free(void* pointer);
  bool find(const void* pointer, void*& base, size_t& bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;
};

}  // namespace reference
