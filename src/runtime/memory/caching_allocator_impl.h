// The private parts of CachingAllocator, shared by its source files.
//
// Memory comes from the source in segments. A segment is a row of blocks in address order; a block is live, pending
// (freed, but other streams may still use it) or free. A free block lies in the list of its size class in the bin of
// its stream and pool. Blocks and segments are described in host memory only; device memory is never touched.
//
// Freeing pushes a block on its list and allocating pops it, so a repeated pattern of sizes costs two list operations.
// Blocks are split when only a much larger one is free, and neighbours are merged again just before the allocator would
// have to ask the source for more: a steady pattern never pays for either.
//
// Two locks. `lock` guards the lists and counters and is held for nanoseconds (longer only while neighbours are
// merged). `slow` is taken first by everything that may call the source or wait, and keeps such calls one at a time.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "anyaccel/caching_allocator.h"
#include "base/spin_lock.h"
#include "runtime/memory/size_classes.h"

namespace anyaccel {

struct AllocatorBin;

struct AllocatorSegment {
  void* base;
  size_t bytes;
  uint64_t pool;  // 0: common
  bool small;
  CachingAllocator::Block* first;
  AllocatorSegment* previous;
  AllocatorSegment* next;
};

// One cache line, so that as many as possible stay in the caches: a program frees in any order, and each free reads the block's.
struct alignas(64) CachingAllocator::Block {
  enum class State : uint8_t { Free, Live, Pending, Leaving };

  struct Neighbours {  // in address order; null at the ends of a segment
    Block* before;
    Block* after;
  };

  char* pointer;
  size_t capacity;
  size_t requested;
  AllocatorBin* bin;
  Block* next;                                      // in the free list
  std::unique_ptr<std::vector<const void*>> users;  // other streams; null in the common case
  uint16_t size_class;
  State state;
  bool small;
  bool split;       // it has a neighbour
  Neighbours* row;  // elsewhere, because only splitting and merging need them
};
static_assert(sizeof(CachingAllocator::Block) == 64);

struct AllocatorSlab {
  static constexpr size_t kBlocks = 256;

  std::array<CachingAllocator::Block, kBlocks> blocks;
  std::array<CachingAllocator::Block::Neighbours, kBlocks> rows;
};

// The free blocks of one stream in one pool.
struct AllocatorBin {
  static constexpr size_t kWords = (size_classes::kCount + 63) / 64;

  const void* stream;
  uint64_t pool;
  std::array<uint64_t, 2> unmerged{};  // frees of split blocks since the last merge, [large, small]
  std::array<uint64_t, kWords> occupied{};
  std::array<CachingAllocator::Block*, size_classes::kCount> heads{};

  // First class in [from, end) that has a block; end when none has.
  size_t find(size_t from, size_t end) const noexcept;
};

struct CachingAllocator::Impl {
  using Block = CachingAllocator::Block;
  using Bin = AllocatorBin;
  using Segment = AllocatorSegment;

  struct Counter {
    int64_t current = 0;
    int64_t peak = 0;
    int64_t total = 0;  // all that was ever added

    void add(int64_t n) noexcept {
      current += n;
      total += n;
      if (current > peak) peak = current;
    }
    void remove(int64_t n) noexcept { current -= n; }
  };

  // Index 0: large, 1: small, 2: both.
  struct Statistics {
    struct alignas(64) Domain {
      int64_t bytes = 0;
      int64_t requested = 0;
      int64_t count = 0;
      int64_t total_bytes = 0;
      int64_t total_requested = 0;
      int64_t total_count = 0;
      int64_t idle_bytes = 0;  // free blocks that were split off
      int64_t idle_count = 0;
      int64_t total_idle_bytes = 0;
      int64_t total_idle_count = 0;
      int64_t pending_bytes = 0;
      int64_t pending_count = 0;
    };
    struct alignas(64) Peaks {
      int64_t bytes = 0;
      int64_t requested = 0;
      int64_t count = 0;
      int64_t idle_bytes = 0;
      int64_t idle_count = 0;
      // While blocks are pending only. The true peak is the larger of this and the peak of what is given out, since the
      // two are the same when nothing is pending.
      int64_t active_bytes = 0;
      int64_t active_count = 0;
    };
    std::array<Domain, 2> domains;
    std::array<Peaks, 3> peaks;
    int64_t pending = 0;  // blocks
    std::array<Counter, 3> reserved;
    std::array<Counter, 3> segments;
    int64_t retries = 0;
    int64_t out_of_memory = 0;
    int64_t source_allocations = 0;
    int64_t source_frees = 0;
    int64_t source_calls = 0;
    int64_t stream_waits = 0;
  };

  // A freed block that other streams may still use.
  struct PendingFree {
    Block* block;
    std::vector<void*> fences;
    std::vector<const void*> unrecorded;  // streams without a fence yet
    // In a graph's pool, capturing streams have no fences, so the block is not used again before the pool ends.
    bool parked;

    bool complete() const noexcept { return !parked && fences.empty() && unrecorded.empty(); }
  };

  struct BinKey {
    const void* stream;
    uint64_t pool;
    friend bool operator==(const BinKey&, const BinKey&) = default;
  };
  struct BinKeyHash {
    size_t operator()(const BinKey& key) const noexcept { return hash(key.stream, key.pool); }
  };

  Impl(MemorySource& m, FenceSource& f);
  ~Impl();

  static size_t hash(const void* stream, uint64_t pool) noexcept {
    return (reinterpret_cast<uintptr_t>(stream) + pool * 0x632be59bd9b4e019ull) * 0x9e3779b97f4a7c15ull;
  }
  // The bin of blocks whose stream is gone: their work is complete, so any stream may take them.
  static const void* nobody() noexcept;

  // -- caching_allocator_lists.h; `lock` is held --
  void push(Block* block) noexcept;
  Block* pop(Bin& bin, size_t size_class) noexcept;
  void give_out(Block* block, size_t requested) noexcept;
  void take_back(Block* block) noexcept;
  void count_idle(const Block* block, int64_t sign) noexcept;
  bool above_idle_peaks(bool small) const noexcept;
  void raise_idle_peaks(bool small) noexcept;
  bool above_peaks(bool small) const noexcept;
  void raise_peaks(bool small) noexcept;
  void raise_active_peaks(bool small) noexcept;

  // -- caching_allocator.cpp; `lock` is held --
  Block* fit(Bin& bin, size_classes::Rounded rounded, bool small);
  Block* split(Block* block, size_t bytes);
  Block* new_block();
  void reserve_block();
  void recycle(Block* block) noexcept;

  // -- caching_allocator_slow.cpp; `slow` is held, `lock` is not --
  Block* allocate_slow(size_t bytes, const void* stream, uint64_t pool);
  Block* take(Bin& bin, size_t bytes, bool small, size_classes::Rounded rounded);
  Block* adopt(Bin& bin, size_t most, bool small, size_classes::Rounded rounded);
  void* grow(size_t& bytes, size_t least);
  size_t with_slack(size_t bytes, bool small, uint64_t pool);
  void* call_source(size_t bytes);
  Block* add_segment(void* base, size_t bytes, Bin& bin, bool small);
  Bin& find_or_make_bin(const void* stream, uint64_t pool);
  static std::unique_ptr<Bin> make_bin(const void* stream, uint64_t pool);
  bool drain(bool wait);  // whether a pending block became free
  void give_back_idle(uint64_t capturing_pool = 0);
  bool wait_for_stream(const void* stream) noexcept;
  void merge(Bin& bin, bool small) noexcept;                  // `lock` is held
  Block* detach(Bin& bin, size_t from, size_t end) noexcept;  // `lock` is held
  void drop_leaving(Bin& bin) noexcept;                       // `lock` is held
  void record_fences(PendingFree& entry) noexcept;
  void move_bin(BinKey old_key, BinKey key) noexcept;
  template <class Wanted>
  Bin* bin_with(Wanted is_wanted) noexcept;
  void leave_idle_segments(Bin& bin) noexcept;
  bool is_idle(const void* stream) noexcept;
  void release_pool(uint64_t pool) noexcept;
  void forget_stream(const void* stream) noexcept;
  void free_with_users(Block* block) noexcept;          // takes `slow` itself
  [[noreturn]] void throw_out_of_memory(size_t bytes);  // caching_allocator_stats.cpp

  MemorySource& memory;
  FenceSource& fences;

  SpinLock lock;
  std::array<Bin*, 64> bin_cache{};  // by the top bits of the hash
  Block* unused_blocks = nullptr;
  Statistics statistics;

  std::mutex slow;
  std::unordered_map<BinKey, std::unique_ptr<Bin>, BinKeyHash> bins;  // changed under both locks
  Segment* segments = nullptr;                                        // under `lock`
  std::vector<PendingFree> pending;                                   // under `lock`
  std::vector<std::unique_ptr<AllocatorSlab>> slabs;                  // under `lock`
  std::unordered_map<uint64_t, int64_t> pools;                        // owners of each; under `slow`
  uint64_t next_pool = 1;
};

}  // namespace anyaccel
