// The list operations and the counting of the caching allocator: a few instructions each, inlined into its hot path.
// The allocator's lock is held around all of them.
#pragma once

#include "runtime/memory/caching_allocator_impl.h"

namespace anyaccel {

// Adds a free block to (sign 1) or takes it from (sign -1) what is counted as split off. No branch: whether a block is
// split is as good as random.
inline void CachingAllocator::Impl::count_idle(const Block* block, int64_t sign) noexcept {
  const int64_t count = sign * static_cast<int64_t>(block->split);
  const int64_t bytes = count * static_cast<int64_t>(block->capacity);
  Statistics::Domain& d = statistics.domains[block->small];
  d.idle_bytes += bytes;
  d.idle_count += count;
}

inline void CachingAllocator::Impl::push(Block* block) noexcept {
  Bin& bin = *block->bin;
  const size_t c = block->size_class;
  block->state = Block::State::Free;
  block->next = bin.heads[c];
  bin.heads[c] = block;
  bin.occupied[c / 64] |= uint64_t{1} << (c % 64);
  bin.unmerged[block->small] += block->split;
  count_idle(block, 1);
  Statistics::Domain& d = statistics.domains[block->small];
  d.total_idle_bytes += static_cast<int64_t>(block->split) * static_cast<int64_t>(block->capacity);
  d.total_idle_count += block->split;
  if (above_idle_peaks(block->small)) [[unlikely]]
    raise_idle_peaks(block->small);
}

inline CachingAllocator::Block* CachingAllocator::Impl::pop(Bin& bin, size_t size_class) noexcept {
  Block* block = bin.heads[size_class];
  bin.heads[size_class] = block->next;
  __builtin_prefetch(block->next);  // the block that is popped next was freed long ago, so it is in no near cache
  bin.occupied[size_class / 64] ^= static_cast<uint64_t>(block->next == nullptr) << (size_class % 64);
  count_idle(block, -1);
  return block;
}

inline bool CachingAllocator::Impl::above_idle_peaks(bool small) const noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  const Statistics::Peaks& mine = statistics.peaks[small];
  const Statistics::Peaks& both = statistics.peaks[2];
  return (d.idle_bytes > mine.idle_bytes) | (d.idle_count > mine.idle_count) |
         (d.idle_bytes + o.idle_bytes > both.idle_bytes) | (d.idle_count + o.idle_count > both.idle_count);
}

inline bool CachingAllocator::Impl::above_peaks(bool small) const noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  const Statistics::Peaks& mine = statistics.peaks[small];
  const Statistics::Peaks& both = statistics.peaks[2];
  return (d.bytes > mine.bytes) | (d.requested > mine.requested) | (d.count > mine.count) |
         (d.bytes + o.bytes > both.bytes) | (d.requested + o.requested > both.requested) |
         (d.count + o.count > both.count) | (statistics.pending != 0);
}

inline void CachingAllocator::Impl::give_out(Block* block, size_t requested) noexcept {
  block->state = Block::State::Live;
  block->requested = requested;
  Statistics::Domain& d = statistics.domains[block->small];
  d.bytes += static_cast<int64_t>(block->capacity);
  d.requested += static_cast<int64_t>(requested);
  ++d.count;
  d.total_bytes += static_cast<int64_t>(block->capacity);
  d.total_requested += static_cast<int64_t>(requested);
  ++d.total_count;
  if (above_peaks(block->small)) [[unlikely]] {
    raise_peaks(block->small);
  }
}

inline void CachingAllocator::Impl::take_back(Block* block) noexcept {
  Statistics::Domain& d = statistics.domains[block->small];
  d.bytes -= static_cast<int64_t>(block->capacity);
  d.requested -= static_cast<int64_t>(block->requested);
  --d.count;
}

}  // namespace anyaccel
