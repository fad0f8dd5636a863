// The caching allocator of all accelerators, with one object per device, on top of small interfaces.
//
// Memory freed on a stream is reused on the same stream without calling the driver: work on a stream is ordered, so the
// new user runs after the old one. Memory that other streams also used waits until events recorded on those streams at
// the time of the free have completed. In steady state an allocation makes no driver call.
//
// Sizes are rounded up to classes: multiples of 512 bytes up to 4 KiB, then eight to a doubling (waste at most 12.5%),
// and 32 to a doubling from 64 MiB on (at most about 3%). Blocks up to 1 MiB are split from segments of at least 2 MiB,
// those below 10 MiB from segments of at least 20 MiB, and larger ones have their own; segments grow where much of the
// memory held is free but fragmented. A class keeps its free blocks in a list per stream. If a class has none, a
// slightly larger block is used or a much larger one is split. Before the source is called, fences are checked and free
// neighbours are merged again. If the source has no memory, everything cached and idle is released and the request is
// tried once more; if that fails, OutOfMemoryError says how much was requested, allocated, reserved and free, and what
// to try.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "anyaccel/device_allocator.h"

namespace anyaccel {

// Raw memory of one device. Implementations are thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns null when there is none left; throws for any other failure.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* pointer, size_t bytes) noexcept = 0;
  // Returns the bytes that are free now and in total, for error messages.
  virtual void info(int64_t& free_bytes, int64_t& total_bytes) noexcept = 0;
  // Returns a name such as "cuda:0", for error messages.
  virtual std::string name() const = 0;
  // Returns the source's error message of the latest allocate() of this thread that returned null; may be empty.
  virtual std::string refusal() const { return {}; }
};

// Points in streams. A stream is named by a key that the caller chooses (the driver's stream handle). Called from any
// thread, but never for a stream after forget_stream() of it has returned. An exception from any of them means that
// nothing is known about the stream: memory that waits for it stays out of use.
class FenceSource {
 public:
  virtual ~FenceSource() = default;
  // Marks the work enqueued on `stream` so far. May return null if the stream's work is always complete at once.
  virtual void* record(const void* stream) = 0;
  virtual bool done(void* fence) = 0;
  virtual void wait(void* fence) = 0;
  virtual void destroy(void* fence) noexcept = 0;
};

class CachingAllocator final : public DeviceAllocator {
 public:
  struct Block;  // behind Allocation::handle

  // The sources must outlive the allocator.
  CachingAllocator(MemorySource& memory, FenceSource& fences);
  // All blocks must have been freed.
  ~CachingAllocator() override;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  std::string name() const override;
  // `pool` 0 is the common pool; another number is a graph's private pool (see begin_pool).
  Allocation allocate(size_t bytes, const void* stream, uint64_t pool = 0) override;
  void deallocate(Allocation allocation, size_t bytes, const void* stream) noexcept override;
  // When the memory is deallocated, a fence on that stream guards it; in a private pool, whose streams may be
  // capturing, it is not reused until the pool is destroyed.
  void record_stream(Allocation allocation, const void* stream) override;

  static size_t size(Allocation allocation) noexcept;      // requested bytes
  static size_t capacity(Allocation allocation) noexcept;  // allocated bytes

  // Creates a private pool: its blocks are reused only inside it, and its memory is kept until the pool is destroyed;
  // then free memory goes back to the common pool, and the rest follows as it is freed. Returns its number, never 0;
  // the caller is its first owner.
  uint64_t begin_pool() override;
  // Adds an owner of the pool. Throws InvalidArgument if the pool does not exist.
  void retain_pool(uint64_t pool) override;
  // Removes an owner; without owners the pool is destroyed. No graph that uses its memory may be running then.
  void release_pool(uint64_t pool) noexcept override;

  // Waits for pending fences and returns every idle segment to the source, except those of pools in use.
  void empty_cache() override;
  // Called when a stream is about to be destroyed: waits for its work; its cached blocks become available to all
  // streams.
  void forget_stream(const void* stream) noexcept override;

  // Returns the bytes in allocated blocks (rounded sizes), and the bytes held from the source.
  AllocatorFigures figures() const override;
  // Returns statistics with PyTorch's keys, which are consistent for one instant. "inactive_split" counts free blocks
  // that were cut from a larger one and not joined again; max_split_size is -1 (any block may be cut), so nothing
  // counts as oversize.
  std::map<std::string, int64_t> stats() const override;
  void reset_peaks(Peak which) override;
  // Returns the number of calls to the memory source so far, for tests and benchmarks.
  int64_t source_calls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel
