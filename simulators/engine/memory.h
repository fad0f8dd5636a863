// Memory of simulated devices. Device memory is one file mapped twice: the addresses that a program gets allow no
// access, so that the host faults when it uses them, and the engine reads and writes through the second mapping (the
// alias). Host and shared memory are ordinary pages. Every allocation stands between unmapped guard pages; addresses
// are never given out twice.
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

struct Allocation;

// A part of a reservation behind which there is memory.
struct Mapping {
  std::size_t end;  // offset in the reservation
  std::shared_ptr<const Allocation> memory;
  std::map<int, bool> access;  // of each device that may use it: may it write?
};

struct Allocation {
  std::uint64_t id;
  MemoryKind kind;
  int device;           // -1: host memory, reservations
  std::uint64_t owner;  // token of the context it was made in
  char* pointer;        // what the program sees
  char* alias;          // what the engine reads and writes; equal to pointer for host and shared memory
  std::size_t size;
  std::atomic<bool> freed = false;
  bool registered = false;   // host memory that the program allocated itself: no guard around it
  bool is_reserved = false;  // addresses without memory of their own

  bool reservation() const { return is_reserved; }
  std::string text() const;  // "device memory #3 (4096 bytes at 0x..., device 0)"
};

// The bytes around an address that can be used without a gap, as the program sees them. Empty at the address when there
// are none; `why` says so then (" (nothing is mapped there)").
struct Extent {
  const char* begin = nullptr;
  const char* end = nullptr;
  const char* why = "";
};
inline constexpr int kAnyDevice = -1;

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

  // Host memory of the program, from now on known by exactly its bytes. Null when some of it is known already.
  std::shared_ptr<const Allocation> adopt(void* pointer, std::size_t size);
  void disown(const Allocation& allocation);
  // Returns whether an address is in one of the windows, allocated or not: then it is no memory of the program's own.
  bool owns(const void* pointer) const;

  // Addresses of device memory without memory; find() knows them. `size` and `alignment` are multiples of a page.
  std::shared_ptr<const Allocation> reserve(std::uint64_t owner, std::size_t size, std::size_t alignment);
  // Puts memory at an offset of a reservation, where nothing is mapped; no device may use it yet.
  bool map(const Allocation& reservation, std::size_t offset, std::shared_ptr<const Allocation> memory);
  // The mappings that lie wholly in [offset, offset + size), which must fill it; empty when they do not.
  std::vector<std::shared_ptr<const Allocation>> mapped(const Allocation& reservation, std::size_t offset,
                                                        std::size_t size) const;
  void unmap(const Allocation& reservation, std::size_t offset, std::size_t size);
  void set_access(const Allocation& reservation, std::size_t offset, std::size_t size, int device, bool read,
                  bool write);
  int device_at(const Allocation& reservation, std::size_t offset) const;  // of the memory there; -1: nothing is
  bool has_mappings(const Allocation& reservation) const;
  void release_reservation(const Allocation& reservation);
  // Returns the usable range around `pointer`, which find() has attributed to `allocation`, by a device (kAnyDevice: by
  // any that may). The whole allocation, or mappings of a reservation side by side.
  Extent extent(const Allocation& allocation, const char* pointer, int device, bool write) const;

 private:
  struct Quarantined {
    char* pointer;
    char* alias;
    std::size_t bytes;  // whole pages
    bool on_device;
  };
  void release(const Quarantined& range);
  // Addresses of a window, given out once; null when it is spent. take_range() wants the lock held.
  char* take_range(bool on_device, std::size_t size, std::size_t alignment);
  char* take_device_range(std::size_t size, std::size_t alignment);

  const std::size_t page_;
  int file_ = -1;
  char* device_window_ = nullptr;  // no access
  char* alias_window_ = nullptr;
  char* host_window_ = nullptr;
  std::size_t device_used_ = 0, host_used_ = 0;
  std::uint64_t next_id_ = 1;
  mutable std::mutex mutex_;
  std::map<const char*, std::shared_ptr<Allocation>> allocations_;
  std::map<std::uint64_t, std::map<std::size_t, Mapping>> mappings_;  // by reservation's id, then by offset
  std::deque<Quarantined> quarantine_;
  std::size_t quarantine_bytes_ = 0;
};

}  // namespace sim
