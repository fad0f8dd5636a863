// The list operations and the counting of the caching allocator: a few instructions each, inlined into its hot path.
// The allocator's lock is held around all of them.
#pragma once

#include "runtime/caching_allocator_impl.h"

namespace anyaccel {

namespace detail {

inline void raise_to(int64_t& peak, int64_t value) noexcept {
  if (value > peak) [[unlikely]] peak = value;
}

}  // namespace detail

inline void CachingAllocator::Impl::count_idle(Block* block) noexcept {
  const auto bytes = static_cast<int64_t>(block->capacity);
  Statistics::Domain& d = statistics.domains[block->small];
  const Statistics::Domain& o = statistics.domains[!block->small];
  d.idle_bytes += bytes;
  ++d.idle_count;
  d.total_idle_bytes += bytes;
  ++d.total_idle_count;
  Statistics::Peaks& mine = statistics.peaks[block->small];
  Statistics::Peaks& both = statistics.peaks[2];
  detail::raise_to(mine.idle_bytes, d.idle_bytes);
  detail::raise_to(mine.idle_count, d.idle_count);
  detail::raise_to(both.idle_bytes, d.idle_bytes + o.idle_bytes);
  detail::raise_to(both.idle_count, d.idle_count + o.idle_count);
}

inline void CachingAllocator::Impl::uncount_idle(Block* block) noexcept {
  Statistics::Domain& d = statistics.domains[block->small];
  d.idle_bytes -= static_cast<int64_t>(block->capacity);
  --d.idle_count;
}

inline void CachingAllocator::Impl::push(Block* block) noexcept {
  Bin& bin = *block->bin;
  const size_t c = block->size_class;
  block->state = Block::State::Free;
  block->next = bin.heads[c];
  bin.heads[c] = block;
  bin.occupied[c / 64] |= uint64_t{1} << (c % 64);
  if (block->split) {
    ++bin.unmerged[block->small];
    count_idle(block);
  }
}

inline CachingAllocator::Block* CachingAllocator::Impl::pop(Bin& bin, size_t size_class) noexcept {
  Block* block = bin.heads[size_class];
  bin.heads[size_class] = block->next;
  if (!block->next) bin.occupied[size_class / 64] &= ~(uint64_t{1} << (size_class % 64));
  if (block->split) uncount_idle(block);
  return block;
}

inline void CachingAllocator::Impl::raise_peaks(bool small) noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  Statistics::Peaks& mine = statistics.peaks[small];
  Statistics::Peaks& both = statistics.peaks[2];
  detail::raise_to(mine.bytes, d.bytes);
  detail::raise_to(mine.requested, d.requested);
  detail::raise_to(mine.count, d.count);
  detail::raise_to(both.bytes, d.bytes + o.bytes);
  detail::raise_to(both.requested, d.requested + o.requested);
  detail::raise_to(both.count, d.count + o.count);
  if (statistics.pending != 0) [[unlikely]] raise_active_peaks(small);
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
  raise_peaks(block->small);
}

inline void CachingAllocator::Impl::take_back(Block* block) noexcept {
  Statistics::Domain& d = statistics.domains[block->small];
  d.bytes -= static_cast<int64_t>(block->capacity);
  d.requested -= static_cast<int64_t>(block->requested);
  --d.count;
}

}  // namespace anyaccel
