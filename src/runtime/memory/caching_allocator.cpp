// The caching allocator: the paths that every allocation takes. The rare ones are in caching_allocator_slow.cpp.
#include "anyaccel/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "anyaccel/error.h"
#include "runtime/memory/caching_allocator_lists.h"

namespace anyaccel {

using size_classes::Rounded;

size_t AllocatorBin::find(size_t from, size_t end) const noexcept {
  size_t word = from / 64;
  uint64_t bits = occupied[word] & (~uint64_t{0} << (from % 64));
  const size_t last = (end - 1) / 64;
  while (bits == 0 && word < last) bits = occupied[++word];
  if (bits == 0) return end;
  return std::min(end, word * 64 + static_cast<size_t>(std::countr_zero(bits)));
}

CachingAllocator::Block* CachingAllocator::Impl::new_block() {
  reserve_block();
  Block* block = unused_blocks;
  unused_blocks = block->next;
  __builtin_prefetch(unused_blocks, 1);  // as in pop()
  return block;
}

void CachingAllocator::Impl::reserve_block() {
  if (unused_blocks) return;
  slabs.push_back(std::make_unique<AllocatorSlab>());
  AllocatorSlab& slab = *slabs.back();
  for (size_t i = AllocatorSlab::kBlocks; i-- > 0;) {
    slab.blocks[i].row = &slab.rows[i];
    recycle(&slab.blocks[i]);
  }
}

void CachingAllocator::Impl::recycle(Block* block) noexcept {
  block->next = unused_blocks;
  unused_blocks = block;
}

// Cuts a block that is in no list, and puts the rest on its list.
CachingAllocator::Block* CachingAllocator::Impl::split(Block* block, size_t bytes) {
  Block* rest = new_block();
  rest->pointer = block->pointer + bytes;
  rest->capacity = block->capacity - bytes;
  rest->requested = 0;
  rest->bin = block->bin;
  rest->small = block->small;
  rest->size_class = static_cast<uint16_t>(size_classes::class_of_block(rest->capacity, rest->small));
  rest->split = true;
  rest->row->before = block;
  rest->row->after = block->row->after;
  if (rest->row->after) rest->row->after->row->before = rest;
  block->row->after = rest;
  block->capacity = bytes;
  block->size_class = static_cast<uint16_t>(size_classes::class_of_block(bytes, block->small));
  block->split = true;
  push(rest);
  return block;
}

// Takes a free block of the bin that is large enough: one of the request's class, a slightly larger one as a whole, or
// a piece of a much larger one. The block is removed from its list; null if there is none.
CachingAllocator::Block* CachingAllocator::Impl::fit(Bin& bin, Rounded rounded, bool small) {
  const size_t end = size_classes::domain_end(small);
  const size_t c = bin.find(rounded.index, end);
  if (c == end) return nullptr;
  reserve_block();
  Block* block = pop(bin, c);
  const size_t rest = block->capacity - rounded.bytes;
  const size_t least_rest = small ? size_classes::kMinBlock : size_classes::kMaxSmall + 1;
  if (rest <= rounded.bytes / 8 || rest < least_rest) return block;
  return split(block, rounded.bytes);
}

CachingAllocator::CachingAllocator(MemorySource& memory, FenceSource& fences)
    : impl_(std::make_unique<Impl>(memory, fences)) {}

CachingAllocator::~CachingAllocator() = default;

std::string CachingAllocator::name() const { return impl_->memory.name(); }

Allocation CachingAllocator::allocate(size_t bytes, const void* stream, uint64_t pool) {
  Impl& a = *impl_;
  bytes = std::max<size_t>(bytes, 1);
  if (bytes <= size_classes::kMaxRequest) [[likely]] {
    const bool small = size_classes::is_small(bytes);
    const Rounded rounded = size_classes::class_of_request(bytes);
    std::lock_guard guard(a.lock);
    Impl::Bin* bin = a.bin_cache[Impl::hash(stream, pool) >> 58];
    if (bin && bin->stream == stream && bin->pool == pool) [[likely]] {
      Block* block = bin->heads[rounded.index] ? a.pop(*bin, rounded.index) : a.fit(*bin, rounded, small);
      if (block) [[likely]] {
        a.give_out(block, bytes);
        return {block->pointer, block};
      }
    }
  }
  std::lock_guard slow(a.slow);
  Block* block = a.allocate_slow(bytes, stream, pool);
  return {block->pointer, block};
}

void CachingAllocator::deallocate(Allocation allocation, size_t, const void*) noexcept {
  auto* block = static_cast<Block*>(allocation.handle);
  if (!block) return;
  Impl& a = *impl_;
  if (block->users) [[unlikely]] {
    a.free_with_users(block);
    return;
  }
  std::lock_guard guard(a.lock);
  a.take_back(block);
  a.push(block);
}

void CachingAllocator::record_stream(Allocation allocation, const void* stream) {
  auto* block = static_cast<Block*>(allocation.handle);
  std::lock_guard guard(impl_->lock);
  if (stream == block->bin->stream) return;
  if (!block->users) block->users = std::make_unique<std::vector<const void*>>();
  auto& users = *block->users;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

size_t CachingAllocator::size(Allocation allocation) noexcept {
  return static_cast<const Block*>(allocation.handle)->requested;
}
size_t CachingAllocator::capacity(Allocation allocation) noexcept {
  return static_cast<const Block*>(allocation.handle)->capacity;
}

uint64_t CachingAllocator::begin_pool() {
  std::lock_guard slow(impl_->slow);
  const uint64_t pool = impl_->next_pool++;
  impl_->pools[pool] = 1;
  return pool;
}

void CachingAllocator::retain_pool(uint64_t pool) {
  std::lock_guard slow(impl_->slow);
  const auto found = impl_->pools.find(pool);
  if (found == impl_->pools.end()) {
    throw InvalidArgument("memory pool " + std::to_string(pool) + " does not exist on " + impl_->memory.name() +
                          " (any more): its last graph is gone");
  }
  ++found->second;
}

void CachingAllocator::release_pool(uint64_t pool) noexcept {
  std::lock_guard slow(impl_->slow);
  impl_->release_pool(pool);
}

void CachingAllocator::empty_cache() {
  std::lock_guard slow(impl_->slow);
  impl_->drain(true);
  impl_->give_back_idle();
}

void CachingAllocator::forget_stream(const void* stream) noexcept {
  std::lock_guard slow(impl_->slow);
  impl_->forget_stream(stream);
}

}  // namespace anyaccel
