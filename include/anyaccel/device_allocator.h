// The source of tensors' device memory: one small interface, and adaptors that add a limit, statistics or a log to any
// implementation of it. The caching allocator (caching_allocator.h) is the default.
//
// A DriverAccelerator accepts another allocator until its first device is opened:
//
//     accelerator.set_allocator([](MemorySource& memory, FenceSource& fences) {
//       return std::make_unique<LimitingAllocator>(std::make_unique<CachingAllocator>(memory, fences), 8'000'000'000);
//     });
//
// The first argument allocates memory of one device directly from the driver, which is slow; the second reports when a
// stream's work is complete. Adaptors can be nested in any order: each owns the allocator below it. To write your own,
// derive from AllocatorAdaptor and override the functions to change, usually allocate() and deallocate().
//
// A stream is named by a key that the accelerator chooses (the driver's stream handle). Its work is in order: memory
// that is deallocated may be reused at once for the same stream, and for another one when that work is complete. Any
// threads may call any functions at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace anyaccel {

class MemorySource;
class FenceSource;

// Allocated memory. The value does not own it.
struct Allocation {
  void* pointer = nullptr;
  void* handle = nullptr;  // for the allocator's own use; adaptors pass it on unchanged
};

// Bytes that are allocated now and their maximum so far, the same for the bytes that the allocator holds, and the bytes
// that remain below its own limit.
struct AllocatorFigures {
  int64_t allocated = 0;
  int64_t max_allocated = 0;
  int64_t reserved = 0;
  int64_t max_reserved = 0;
  int64_t available = std::numeric_limits<int64_t>::max();
};

class DeviceAllocator {
 public:
  enum class Peak { Both, Allocated, Reserved };

  virtual ~DeviceAllocator() = default;

  // Returns the device's name, for messages: "cuda:0".
  virtual std::string name() const = 0;
  // Allocates at least `bytes` (0 counts as 1) for work on `stream`, aligned as the driver aligns its memory
  // (aa_device_props::alignment). `pool` is 0, or the graph's pool that a capture allocates from. Throws
  // OutOfMemoryError.
  virtual Allocation allocate(size_t bytes, const void* stream, uint64_t pool) = 0;
  // Frees memory; the arguments are those of allocate(). Work on `stream` and on the streams of record_stream() may
  // still use it. `stream` may have been destroyed: see forget_stream().
  virtual void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept = 0;
  // Declares that a stream other than that of the allocation uses the memory too.
  virtual void record_stream(Allocation allocation, const void* stream) = 0;

  // Called when a stream is about to be destroyed: waits for its work as far as necessary. The default does nothing.
  virtual void forget_stream(const void* stream) noexcept;
  // Returns memory that is held but not allocated to the device. The default holds none.
  virtual void empty_cache();

  // -- pools of graphs: memory of a pool is reused only within it, until its last owner has released it. The default
  // has none: begin_pool() throws NotImplementedError, so that no graph can be captured.
  virtual uint64_t begin_pool();                      // returns its number, never 0; the caller is its first owner
  virtual void retain_pool(uint64_t pool);            // adds an owner; InvalidArgument if there is no such pool
  virtual void release_pool(uint64_t pool) noexcept;  // removes an owner

  // -- statistics: no bytes, no limit and no names by default
  virtual AllocatorFigures figures() const;
  virtual std::map<std::string, int64_t> stats() const;  // under PyTorch's names
  virtual void reset_peaks(Peak which);                  // sets the maxima to the current values
};

// Creates the allocator of a device when the device is opened; both sources outlive it. Must not use the accelerator.
using MakeAllocator = std::function<std::unique_ptr<DeviceAllocator>(MemorySource& memory, FenceSource& fences)>;

// Passes every call on to the allocator below.
class AllocatorAdaptor : public DeviceAllocator {
 public:
  // Throws InvalidArgument for null.
  explicit AllocatorAdaptor(std::unique_ptr<DeviceAllocator> upstream);

  std::string name() const override;
  Allocation allocate(size_t bytes, const void* stream, uint64_t pool) override;
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override;
  void record_stream(Allocation allocation, const void* stream) override;
  void forget_stream(const void* stream) noexcept override;
  void empty_cache() override;
  uint64_t begin_pool() override;
  void retain_pool(uint64_t pool) override;
  void release_pool(uint64_t pool) noexcept override;
  AllocatorFigures figures() const override;
  std::map<std::string, int64_t> stats() const override;
  void reset_peaks(Peak which) override;

 protected:
  DeviceAllocator& upstream() const noexcept { return *upstream_; }

 private:
  std::unique_ptr<DeviceAllocator> upstream_;
};

// Refuses an allocation that would bring the requested bytes above a limit, with an OutOfMemoryError that names the
// limit. Further memory that a caching allocator below holds does not count.
class LimitingAllocator final : public AllocatorAdaptor {
 public:
  // Throws InvalidArgument for a negative limit.
  LimitingAllocator(std::unique_ptr<DeviceAllocator> upstream, int64_t limit_bytes);

  Allocation allocate(size_t bytes, const void* stream, uint64_t pool) override;
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override;
  AllocatorFigures figures() const override;

 private:
  const int64_t limit_;
  std::atomic<int64_t> asked_{0};
};

// Counts the requested bytes, for an allocator that does not count itself. The counts of the allocator below do not
// change.
class StatisticsAllocator final : public AllocatorAdaptor {
 public:
  using AllocatorAdaptor::AllocatorAdaptor;

  Allocation allocate(size_t bytes, const void* stream, uint64_t pool) override;
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override;
  // allocated and max_allocated are counted here.
  AllocatorFigures figures() const override;
  // "requested_bytes.all" and "allocation.all", each with ".current", ".peak", ".allocated" and ".freed".
  std::map<std::string, int64_t> stats() const override;
  void reset_peaks(Peak which) override;

 private:
  struct Counter {
    int64_t current = 0;
    int64_t peak = 0;
    int64_t total = 0;
    void add(int64_t amount) noexcept;
  };

  mutable std::mutex mutex_;
  Counter bytes_;
  Counter count_;
};

// Writes a line for every allocation and deallocation.
class LoggingAllocator final : public AllocatorAdaptor {
 public:
  // `write` gets lines like "cuda:0: allocate 4096 bytes for stream 0x55..: 0x7f..", from any thread. Its errors in a
  // deallocation are ignored. If empty, lines go to the log of the process (log.h), at level debug.
  explicit LoggingAllocator(std::unique_ptr<DeviceAllocator> upstream,
                            std::function<void(std::string_view)> write = {});

  Allocation allocate(size_t bytes, const void* stream, uint64_t pool) override;
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override;

 private:
  std::function<void(std::string_view)> write_;
};

}  // namespace anyaccel
