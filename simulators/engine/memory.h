// Memory of simulated devices. Device memory is one file mapped twice: at the addresses a program gets no access is
// allowed, so that the host faults when it touches them, and the engine reads and writes through the second mapping (the
// alias). Host and shared memory are ordinary pages. Every allocation stands between unmapped guard pages; addresses are
// never given out twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sim {

enum class MemoryKind { device, host, shared };
const char* name_of(MemoryKind kind);

inline constexpr unsigned char kFresh = 0xA5;  // what new memory is filled with
inline constexpr unsigned char kFreed = 0xDD;
inline constexpr unsigned char kGuard = 0xFB;  // the bytes between the end of host memory and its guard page

struct Allocation {
  std::uint64_t id;
  MemoryKind kind;
  int device;           // -1: host memory
  std::uint64_t owner;  // token of the context it was made in
  char* pointer;        // what the program sees
  char* alias;          // what the engine reads and writes; equal to pointer for host and shared memory
  std::size_t size;
  std::atomic<bool> freed = false;

  std::string text() const;  // "device memory #3 (4096 bytes at 0x..., device 0)"
};

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // `alignment` is 0 or a power of two. Null when the address window is spent or the system has no memory. Poisoned.
  std::shared_ptr<const Allocation> allocate(MemoryKind kind, int device, std::uint64_t owner, std::size_t size,
                                             std::size_t alignment);
  // Poisons and puts into quarantine. Returns what is wrong with the guard bytes, empty if nothing is.
  std::string free(const Allocation& allocation);

  // The allocation, live or freed, whose bytes or guard zone hold `pointer`; null: none of ours.
  std::shared_ptr<const Allocation> find(const void* pointer) const;
  std::vector<std::shared_ptr<const Allocation>> live() const;

 private:
  struct Quarantined {
    char* pointer;
    char* alias;
    std::size_t bytes;  // whole pages
    bool on_device;
  };
  void release(const Quarantined& range);

  const std::size_t page_;
  int file_ = -1;
  char* device_window_ = nullptr;  // no access
  char* alias_window_ = nullptr;
  char* host_window_ = nullptr;
  std::size_t device_used_ = 0, host_used_ = 0;
  std::uint64_t next_id_ = 1;
  mutable std::mutex mutex_;
  std::map<const char*, std::shared_ptr<Allocation>> allocations_;
  std::deque<Quarantined> quarantine_;
  std::size_t quarantine_bytes_ = 0;
};

}  // namespace sim
