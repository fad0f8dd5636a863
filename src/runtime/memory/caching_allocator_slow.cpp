// The caching allocator: what happens when no list has a block (fences, merging, the source, running out of memory),
// and the rare operations on pools and streams. All of it runs with the slow mutex held.
#include <algorithm>

#include "anyaccel/error.h"
#include "runtime/memory/caching_allocator_lists.h"

namespace anyaccel {

using size_classes::Rounded;

namespace {

void raise_to(int64_t& peak, int64_t value) noexcept { peak = std::max(peak, value); }

}  // namespace

const void* CachingAllocator::Impl::nobody() noexcept {
  static const char key = 0;
  return &key;
}

std::unique_ptr<CachingAllocator::Impl::Bin> CachingAllocator::Impl::make_bin(const void* stream, uint64_t pool) {
  auto bin = std::make_unique<Bin>();
  bin->stream = stream;
  bin->pool = pool;
  return bin;
}

CachingAllocator::Impl::Impl(MemorySource& m, FenceSource& f) : memory(m), fences(f) {
  // Here, because functions that must not fail put memory into it.
  bins.emplace(BinKey{nobody(), 0}, make_bin(nobody(), 0));
}

CachingAllocator::Impl::~Impl() {
  for (PendingFree& entry : pending) {
    for (void* fence : entry.fences) fences.destroy(fence);
  }
  while (segments) {
    Segment* next = segments->next;
    memory.free(segments->base, segments->bytes);
    delete segments;
    segments = next;
  }
}

CachingAllocator::Impl::Bin& CachingAllocator::Impl::find_or_make_bin(const void* stream, uint64_t pool) {
  if (pool != 0 && !pools.contains(pool)) {
    throw InvalidArgument("memory pool " + std::to_string(pool) + " does not exist on " + memory.name() +
                          " (any more): its last graph is gone");
  }
  const auto found = bins.find(BinKey{stream, pool});
  const auto slot = found != bins.end() ? found : bins.emplace(BinKey{stream, pool}, make_bin(stream, pool)).first;
  std::lock_guard guard(lock);
  bin_cache[hash(stream, pool) >> 58] = slot->second.get();
  return *slot->second;
}

void CachingAllocator::Impl::raise_idle_peaks(bool small) noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  raise_to(statistics.peaks[small].idle_bytes, d.idle_bytes);
  raise_to(statistics.peaks[small].idle_count, d.idle_count);
  raise_to(statistics.peaks[2].idle_bytes, d.idle_bytes + o.idle_bytes);
  raise_to(statistics.peaks[2].idle_count, d.idle_count + o.idle_count);
}

void CachingAllocator::Impl::raise_peaks(bool small) noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  Statistics::Peaks& mine = statistics.peaks[small];
  Statistics::Peaks& both = statistics.peaks[2];
  raise_to(mine.bytes, d.bytes);
  raise_to(mine.requested, d.requested);
  raise_to(mine.count, d.count);
  raise_to(both.bytes, d.bytes + o.bytes);
  raise_to(both.requested, d.requested + o.requested);
  raise_to(both.count, d.count + o.count);
  if (statistics.pending != 0) raise_active_peaks(small);
}

void CachingAllocator::Impl::raise_active_peaks(bool small) noexcept {
  const Statistics::Domain& d = statistics.domains[small];
  const Statistics::Domain& o = statistics.domains[!small];
  const int64_t bytes = d.bytes + d.pending_bytes;
  const int64_t count = d.count + d.pending_count;
  raise_to(statistics.peaks[small].active_bytes, bytes);
  raise_to(statistics.peaks[small].active_count, count);
  raise_to(statistics.peaks[2].active_bytes, bytes + o.bytes + o.pending_bytes);
  raise_to(statistics.peaks[2].active_count, count + o.count + o.pending_count);
}

// Takes the blocks of all lists of [from, end) out, as one list.
CachingAllocator::Block* CachingAllocator::Impl::detach(Bin& bin, size_t from, size_t end) noexcept {
  Block* all = nullptr;
  for (size_t c = bin.find(from, end); c < end; c = bin.find(c, end)) {
    while (bin.heads[c]) {
      Block* block = pop(bin, c);
      block->next = all;
      all = block;
    }
  }
  return all;
}

// Takes blocks whose state was set to Leaving out of their lists.
void CachingAllocator::Impl::drop_leaving(Bin& bin) noexcept {
  for (Block* block = detach(bin, 0, size_classes::kCount); block;) {
    Block* next = block->next;
    if (block->state == Block::State::Free) push(block);
    block = next;
  }
}

// Joins every run of free neighbours of the bin into one block.
void CachingAllocator::Impl::merge(Bin& bin, bool small) noexcept {
  Block* all = detach(bin, small ? 0 : size_classes::kSmallCount, size_classes::domain_end(small));
  const auto joins = [&bin](const Block* block) {
    return block && block->state == Block::State::Free && block->bin == &bin;
  };
  for (Block* block = all; block; block = block->next) {
    if (block->state != Block::State::Free || joins(block->row->before)) continue;
    while (joins(block->row->after)) {
      Block* absorbed = block->row->after;
      absorbed->state = Block::State::Leaving;
      block->capacity += absorbed->capacity;
      block->row->after = absorbed->row->after;
      if (block->row->after) block->row->after->row->before = block;
    }
    block->split = block->row->before || block->row->after;
    block->size_class = static_cast<uint16_t>(size_classes::class_of_block(block->capacity, small));
  }
  while (all) {
    Block* block = all;
    all = block->next;
    if (block->state == Block::State::Free) {
      push(block);
    } else {
      recycle(block);
    }
  }
  bin.unmerged[small] = 0;
}

// Tries everything that needs no more memory from the source.
CachingAllocator::Block* CachingAllocator::Impl::take(Bin& bin, size_t bytes, bool small, Rounded rounded) {
  std::lock_guard guard(lock);
  Block* block = fit(bin, rounded, small);
  if (!block && bin.unmerged[small] != 0) {
    merge(bin, small);
    block = fit(bin, rounded, small);
  }
  if (!block && bin.pool == 0) {
    Bin& orphans = *bins.find(BinKey{nobody(), 0})->second;
    if (orphans.unmerged[small] != 0) merge(orphans, small);
    block = fit(orphans, rounded, small);
    if (block) block->bin = &bin;
  }
  if (block) give_out(block, bytes);
  return block;
}

// Moves a whole free segment of at most `most` bytes, whose work is complete, from the common pool to a graph's. Without
// that, every capture would need new segments although those of earlier graphs lie idle. Returns its block, in no list;
// null if there is none.
CachingAllocator::Block* CachingAllocator::Impl::adopt(Bin& bin, size_t most, bool small, Rounded rounded) {
  std::lock_guard guard(lock);
  Bin& orphans = *bins.find(BinKey{nobody(), 0})->second;
  if (orphans.unmerged[small] != 0) merge(orphans, small);
  reserve_block();  // for the split that follows
  const size_t end = size_classes::domain_end(small);
  for (size_t c = orphans.find(rounded.index, end); c < end; c = c + 1 < end ? orphans.find(c + 1, end) : end) {
    for (Block** link = &orphans.heads[c]; *link; link = &(*link)->next) {
      Block* block = *link;
      if (block->split || block->capacity < rounded.bytes || block->capacity > most) continue;
      Segment* segment = segments;
      while (segment->first != block) segment = segment->next;
      *link = block->next;
      if (!orphans.heads[c]) orphans.occupied[c / 64] &= ~(uint64_t{1} << (c % 64));
      segment->pool = bin.pool;
      block->bin = &bin;
      block->state = Block::State::Leaving;
      return block;
    }
  }
  return nullptr;
}

CachingAllocator::Block* CachingAllocator::Impl::allocate_slow(size_t bytes, const void* stream, uint64_t pool) {
  if (bytes > size_classes::kMaxRequest) throw_out_of_memory(bytes);
  const bool small = size_classes::is_small(bytes);
  const Rounded rounded = size_classes::class_of_request(bytes);
  Bin& bin = find_or_make_bin(stream, pool);
  if (Block* block = take(bin, bytes, small, rounded)) return block;
  // Capturing streams allow no questions about events; in a graph's pool nothing would become free anyway.
  if (pool == 0 && drain(false)) {
    if (Block* block = take(bin, bytes, small, rounded)) return block;
  }
  size_t segment_bytes = small                                   ? size_classes::kSmallSegment
                         : rounded.bytes < size_classes::kMaxMid ? size_classes::kMidSegment
                                                                 : rounded.bytes;
  const auto give = [&](Block* block) {  // of a whole segment; `lock` is held
    const size_t least_rest = small ? size_classes::kMinBlock : size_classes::kMaxSmall + 1;
    if (block->capacity - rounded.bytes >= least_rest) split(block, rounded.bytes);
    give_out(block, bytes);
    return block;
  };
  if (pool != 0) {
    if (Block* block = adopt(bin, 2 * segment_bytes, small, rounded)) {
      std::lock_guard guard(lock);
      return give(block);
    }
  }
  const size_t generous = with_slack(segment_bytes, small, pool);
  void* base = call_source(generous);
  if (base) {
    segment_bytes = generous;
  } else if (generous != segment_bytes) {
    base = call_source(segment_bytes);
  }
  if (!base) {
    {
      std::lock_guard guard(lock);
      ++statistics.retries;
    }
    drain(true);
    if (Block* block = take(bin, bytes, small, rounded)) return block;
    give_back_idle(pool);
    base = call_source(segment_bytes);
    if (!base && segment_bytes > rounded.bytes) {
      segment_bytes = rounded.bytes;
      base = call_source(segment_bytes);
    }
    if (!base) throw_out_of_memory(bytes);
  }
  Block* block = add_segment(base, segment_bytes, bin, small);
  std::lock_guard guard(lock);
  return give(block);
}

// The bytes to ask the source for when a segment of `bytes` is needed. Where much memory is free but fragmented, a
// pattern of many sizes keeps needing new segments for a long time, and each is a call to the source if segments are
// small compared with the memory held: the next segment is then a fraction of the memory held. Where little is free,
// the program is growing, and gets what it needs. Small blocks are so little of the memory that their share may be
// larger.
size_t CachingAllocator::Impl::with_slack(size_t bytes, bool small, uint64_t pool) {
  constexpr int64_t kSmallShare = 8, kLargeShare = 32, kPlenty = 4;
  constexpr size_t kUnit = size_t{2} << 20;
  if (pool != 0) return bytes;  // what a graph uses does not change
  std::lock_guard guard(lock);
  const Statistics::Domain& d = statistics.domains[small];
  const int64_t held = statistics.reserved[small].current;
  if (held - d.bytes - d.pending_bytes <= kPlenty * static_cast<int64_t>(bytes)) return bytes;
  size_t share = static_cast<size_t>(held / (small ? kSmallShare : kLargeShare)) / kUnit * kUnit;
  if (small) share = std::min(share, size_classes::kMostSmallSegment);
  return std::max(bytes, share);
}

void* CachingAllocator::Impl::call_source(size_t bytes) {
  void* base = memory.allocate(bytes);
  std::lock_guard guard(lock);
  ++statistics.source_calls;
  if (base) ++statistics.source_allocations;
  return base;
}

// One block that spans the new segment, in no list.
CachingAllocator::Block* CachingAllocator::Impl::add_segment(void* base, size_t bytes, Bin& bin, bool small) {
  std::lock_guard guard(lock);
  try {
    auto segment = std::make_unique<Segment>();
    Block* block = new_block();
    try {
      reserve_block();  // for the split that follows
    } catch (...) {
      recycle(block);
      throw;
    }
    block->pointer = static_cast<char*>(base);
    block->capacity = bytes;
    block->bin = &bin;
    block->small = small;
    block->size_class = static_cast<uint16_t>(size_classes::class_of_block(bytes, small));
    block->split = false;
    block->state = Block::State::Leaving;
    block->row->before = nullptr;
    block->row->after = nullptr;
    *segment = Segment{base, bytes, bin.pool, small, block, nullptr, segments};
    if (segments) segments->previous = segment.get();
    segments = segment.release();
    for (const size_t i : {static_cast<size_t>(small), size_t{2}}) {
      statistics.reserved[i].add(static_cast<int64_t>(bytes));
      statistics.segments[i].add(1);
    }
    return block;
  } catch (...) {
    memory.free(base, bytes);
    ++statistics.source_calls;
    ++statistics.source_frees;
    throw;
  }
}

// ---- blocks that other streams use ---------------------------------------------------------------------------------

void CachingAllocator::Impl::record_fences(PendingFree& entry) noexcept {
  std::erase_if(entry.unrecorded, [&](const void* stream) {
    try {
      if (void* fence = fences.record(stream)) entry.fences.push_back(fence);
      return true;
    } catch (...) {
      return false;  // tried again later; until then the block waits
    }
  });
}

void CachingAllocator::Impl::free_with_users(Block* block) noexcept {
  // Keeps forget_stream from ending while a fence is being recorded on its stream.
  std::lock_guard slow_guard(slow);
  PendingFree entry{block, {}, {}, false};
  {
    std::lock_guard guard(lock);
    entry.unrecorded = std::move(*block->users);
    block->users.reset();
    entry.parked = block->bin->pool != 0;
  }
  if (!entry.parked) record_fences(entry);
  std::lock_guard guard(lock);
  take_back(block);
  if (entry.complete()) {
    push(block);
    return;
  }
  block->state = Block::State::Pending;
  Statistics::Domain& d = statistics.domains[block->small];
  d.pending_bytes += static_cast<int64_t>(block->capacity);
  ++d.pending_count;
  ++statistics.pending;
  raise_active_peaks(block->small);
  pending.push_back(std::move(entry));
}

bool CachingAllocator::Impl::drain(bool wait) {
  std::vector<PendingFree> entries;
  {
    std::lock_guard guard(lock);
    if (pending.empty()) return false;
    entries.swap(pending);
    if (wait) ++statistics.stream_waits;
  }
  bool any = false;
  std::vector<PendingFree> rest;
  for (PendingFree& entry : entries) {
    if (!entry.parked) record_fences(entry);
    std::erase_if(entry.fences, [&](void* fence) {
      try {
        if (wait) {
          fences.wait(fence);
        } else if (!fences.done(fence)) {
          return false;
        }
      } catch (...) {
        return false;  // the stream has failed: its memory stays out of use
      }
      fences.destroy(fence);
      return true;
    });
    if (!entry.complete()) {
      rest.push_back(std::move(entry));
      continue;
    }
    any = true;
    std::lock_guard guard(lock);
    Statistics::Domain& d = statistics.domains[entry.block->small];
    d.pending_bytes -= static_cast<int64_t>(entry.block->capacity);
    --d.pending_count;
    --statistics.pending;
    push(entry.block);
  }
  std::lock_guard guard(lock);
  pending.insert(pending.begin(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  return any;
}

// ---- giving memory back --------------------------------------------------------------------------------------------

// Whether all work of the stream is complete, without waiting; false where that cannot be asked (it captures, or failed).
bool CachingAllocator::Impl::is_idle(const void* stream) noexcept {
  if (stream == nobody()) return true;
  void* fence = nullptr;
  bool idle = false;
  try {
    fence = fences.record(stream);
    idle = !fence || fences.done(fence);
  } catch (...) {
    idle = false;
  }
  if (fence) fences.destroy(fence);
  return idle;
}

bool CachingAllocator::Impl::wait_for_stream(const void* stream) noexcept {
  void* fence = nullptr;
  try {
    fence = fences.record(stream);
    if (fence) fences.wait(fence);
  } catch (...) {
    if (fence) fences.destroy(fence);
    return false;
  }
  if (fence) fences.destroy(fence);
  return true;
}

// Segments without live and pending blocks go back to the source. The blocks leave their lists first, so that no new
// work can get them; then the work that used them is waited for. Streams that are capturing into a pool (0: none)
// cannot be waited for, and keep theirs.
void CachingAllocator::Impl::give_back_idle(uint64_t capturing_pool) {
  Segment* leaving = nullptr;
  std::unordered_map<const void*, bool> streams;  // whether its work is complete
  {
    std::lock_guard guard(lock);
    for (Segment* segment = segments; segment;) {
      Segment* next = segment->next;
      bool idle = segment->pool == 0;
      for (const Block* b = segment->first; b && idle; b = b->row->after) idle = b->state == Block::State::Free;
      if (idle) {
        for (Block* b = segment->first; b; b = b->row->after) {
          b->state = Block::State::Leaving;
          streams.emplace(b->bin->stream, b->bin->stream == nobody());
        }
        (segment->previous ? segment->previous->next : segments) = next;
        if (next) next->previous = segment->previous;
        segment->next = leaving;
        leaving = segment;
      }
      segment = next;
    }
    if (leaving) {
      ++statistics.stream_waits;
      for (const auto& [key, bin] : bins) drop_leaving(*bin);
    }
  }
  for (auto& [stream, complete] : streams) {
    const bool capturing = capturing_pool != 0 && bins.contains(BinKey{stream, capturing_pool});
    complete = complete || (!capturing && wait_for_stream(stream));
  }
  while (leaving) {
    Segment* segment = leaving;
    leaving = segment->next;
    bool complete = true;
    for (const Block* b = segment->first; b; b = b->row->after) complete = complete && streams.at(b->bin->stream);
    if (complete) memory.free(segment->base, segment->bytes);
    std::lock_guard guard(lock);
    if (!complete) {  // a failed or capturing stream: keep it
      segment->previous = nullptr;
      segment->next = segments;
      if (segments) segments->previous = segment;
      segments = segment;
      for (Block* b = segment->first; b; b = b->row->after) push(b);
      continue;
    }
    for (const size_t i : {static_cast<size_t>(segment->small), size_t{2}}) {
      statistics.reserved[i].remove(static_cast<int64_t>(segment->bytes));
      statistics.segments[i].remove(1);
    }
    ++statistics.source_calls;
    ++statistics.source_frees;
    for (Block* b = segment->first; b;) {
      Block* after = b->row->after;
      recycle(b);
      b = after;
    }
    delete segment;
  }
}

// ---- pools and streams ---------------------------------------------------------------------------------------------

// Gives everything of a bin another stream or pool; the bin ends, or becomes that of the new key. When the pool changes,
// its segments change with it. Allocates nothing: it must succeed where memory is short.
void CachingAllocator::Impl::move_bin(BinKey old_key, BinKey key) noexcept {
  std::lock_guard guard(lock);
  auto node = bins.extract(old_key);
  Bin& from = *node.mapped();
  bin_cache.fill(nullptr);
  const auto found = bins.find(key);
  if (found == bins.end()) {
    for (Segment* segment = segments; segment; segment = segment->next) {
      if (segment->pool == from.pool) segment->pool = key.pool;
    }
    from.stream = key.stream;
    from.pool = key.pool;
    node.key() = key;
    bins.insert(std::move(node));
    return;
  }
  Bin& to = *found->second;
  Block* free_blocks = detach(from, 0, size_classes::kCount);
  for (Segment* segment = segments; segment; segment = segment->next) {
    if (segment->pool == from.pool) segment->pool = to.pool;
    for (Block* b = segment->first; b; b = b->row->after) {
      if (b->bin == &from) b->bin = &to;
    }
  }
  while (free_blocks) {
    Block* block = free_blocks;
    free_blocks = block->next;
    push(block);
  }
}

// Returns a bin whose key is_wanted() accepts; null if there is none.
template <class Wanted>
CachingAllocator::Impl::Bin* CachingAllocator::Impl::bin_with(Wanted is_wanted) noexcept {
  const auto found = std::find_if(bins.begin(), bins.end(), [&](const auto& entry) { return is_wanted(entry.first); });
  return found == bins.end() ? nullptr : found->second.get();
}

// Segments of a graph's pool that are free as a whole become available to all streams and pools. The stream of the bin is
// idle.
void CachingAllocator::Impl::leave_idle_segments(Bin& bin) noexcept {
  Bin& orphans = *bins.find(BinKey{nobody(), 0})->second;
  std::lock_guard guard(lock);
  const auto leaves = [&bin](const Segment* segment) {
    if (segment->pool != bin.pool) return false;
    for (const Block* b = segment->first; b; b = b->row->after) {
      if (b->state != Block::State::Free || b->bin != &bin) return false;
    }
    return true;
  };
  Segment* leaving = nullptr;
  for (Segment* segment = segments; segment;) {
    Segment* next = segment->next;
    if (leaves(segment)) {
      for (Block* b = segment->first; b; b = b->row->after) b->state = Block::State::Leaving;
      (segment->previous ? segment->previous->next : segments) = next;
      if (next) next->previous = segment->previous;
      segment->next = leaving;
      leaving = segment;
    }
    segment = next;
  }
  if (!leaving) return;
  drop_leaving(bin);
  while (leaving) {
    Segment* segment = leaving;
    leaving = segment->next;
    segment->pool = 0;
    for (Block* b = segment->first; b; b = b->row->after) {
      b->bin = &orphans;
      push(b);
    }
    segment->previous = nullptr;
    segment->next = segments;
    if (segments) segments->previous = segment;
    segments = segment;
  }
}

void CachingAllocator::Impl::release_pool(uint64_t pool) noexcept {
  const auto found = pools.find(pool);
  if (found == pools.end() || --found->second > 0) return;
  pools.erase(found);
  // Of all bins first: the first one that moves takes the segments of the whole pool out of it.
  for (const auto& [key, bin] : bins) {
    if (key.pool == pool && is_idle(key.stream)) leave_idle_segments(*bin);
  }
  while (Bin* bin = bin_with([pool](const BinKey& key) { return key.pool == pool; })) {
    move_bin({bin->stream, pool}, {bin->stream, 0});
  }
  {
    std::lock_guard guard(lock);
    for (PendingFree& entry : pending) entry.parked = entry.block->bin->pool != 0;
  }
  drain(false);
}

void CachingAllocator::Impl::forget_stream(const void* stream) noexcept {
  wait_for_stream(stream);  // when it fails, the stream has failed and runs nothing any more
  {
    std::lock_guard guard(lock);
    for (PendingFree& entry : pending) std::erase(entry.unrecorded, stream);
    for (Segment* segment = segments; segment; segment = segment->next) {
      for (Block* b = segment->first; b; b = b->row->after) {
        if (b->users) std::erase(*b->users, stream);
      }
    }
  }
  while (Bin* bin = bin_with([stream](const BinKey& key) { return key.stream == stream; })) {
    move_bin({stream, bin->pool}, {nobody(), bin->pool});
  }
  drain(false);
}

}  // namespace anyaccel
