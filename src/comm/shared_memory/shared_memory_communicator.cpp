// Implements operations that move data without combining it, blocks, and the checks of arguments. Reductions are in
// reductions.cpp.
#include "comm/shared_memory/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>

#include "anyaccel/error.h"
#include "base/process/shareable_memory.h"
#include "comm/shared_memory/chunk_port.h"
#include "comm/shared_memory/exchange_chunks.h"
#include "comm/shared_memory/pipeline.h"
#include "comm/shared_memory/reduction.h"

namespace anyaccel::comm::shm {

SharedMemoryCommunicator::SharedMemoryCommunicator(const Membership& membership)
    : group_(membership),
      pairs_(group_),
      rank_(group_.rank()),
      size_(group_.size()),
      sources_(static_cast<size_t>(size_)),
      targets_(static_cast<size_t>(size_)),
      places_(static_cast<size_t>(size_)) {}

const std::string& SharedMemoryCommunicator::name() const noexcept {
  static const std::string name = "shm";
  return name;
}

void SharedMemoryCommunicator::barrier() {
  group_.open({}, nullptr, 0);
  group_.await_open();
}

void SharedMemoryCommunicator::broadcast(void* data, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  check_member("broadcast", root);
  const Operation operation{
      .kind = Kind::Broadcast, .dtype = amount.dtype, .root = root, .count = checked_bytes(bytes, 1)};
  if (bytes <= kInlineBytes) {
    group_.open(operation, data, rank_ == root ? bytes : 0);
    group_.await_open();
    if (rank_ != root) copy_bytes(data, group_.payload(root), bytes);
    return;
  }
  if (size_ == 1) return;
  auto* const own = static_cast<char*>(data);
  const Chunks chunks(bytes, kSlotBytes);
  exchange_chunks(
      group_, operation, chunks,
      [&](char* slot, size_t at, size_t n) {
        if (rank_ == root) copy_bytes(slot, own + at, n);
      },
      [&](const auto& slot_of, size_t at, size_t n) {
        if (rank_ != root) copy_bytes(own + at, slot_of(root), n);
      });
}

void SharedMemoryCommunicator::all_gather(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  const Operation operation{
      .kind = Kind::AllGather, .dtype = amount.dtype, .count = checked_bytes(bytes, static_cast<size_t>(size_))};
  auto* const to = static_cast<char*>(recv);
  const auto* const from = static_cast<const char*>(send);
  const auto place = [&](int member) { return to + static_cast<size_t>(member) * bytes; };
  if (bytes > 0 && place(rank_) != from) copy_bytes(place(rank_), from, bytes);
  if (bytes <= kInlineBytes) {
    group_.open(operation, send, bytes);
    group_.await_open();
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) copy_bytes(place(r), group_.payload(r), bytes);
    }
    return;
  }
  exchange_chunks(
      group_, operation, Chunks(bytes, kSlotBytes),
      [&](char* slot, size_t at, size_t n) { copy_bytes(slot, from + at, n); },
      [&](const auto& slot_of, size_t at, size_t n) {
        for (int r = 0; r < size_; ++r) {
          if (r != rank_) copy_bytes(place(r) + at, slot_of(r), n);
        }
      });
}

void SharedMemoryCommunicator::gather_columns(void* data, int64_t rows, const size_t* begins) {
  if (size_ == 1) return;
  const size_t row_bytes = begins[size_];
  const size_t bytes = static_cast<size_t>(rows) * row_bytes;
  struct Opening {
    BlockPlace place;
    uint64_t columns = 14695981039346656037u;  // FNV-1a of begins
  } own;
  own.place = places_[static_cast<size_t>(rank_)] = place_of(data, bytes);
  for (int r = 0; r <= size_; ++r) own.columns = (own.columns ^ begins[r]) * 1099511628211u;
  group_.open({.kind = Kind::GatherColumns, .count = checked_bytes(bytes, 1)}, &own, sizeof(own));
  group_.await_open();
  bool all_mapped = own.place.block != 0;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    Opening theirs;
    std::memcpy(&theirs, group_.payload(r), sizeof(theirs));
    if (theirs.columns != own.columns) {
      group_.fail("gather_columns: " + group_.name_of(std::min(r, rank_)) + " and " +
                      group_.name_of(std::max(r, rank_)) +
                      " divide rows into different columns; expected the same borders on every rank",
                  AA_INVALID_ARGUMENT);
    }
    places_[static_cast<size_t>(r)] = theirs.place;
    all_mapped = all_mapped && theirs.place.goes_with(own.place);
  }
  if (!all_mapped) return HostCommunicator::gather_columns(data, rows, begins);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const size_t begin = begins[r], width = begins[r + 1] - begin;
    const char* from = mapped(r, places_[static_cast<size_t>(r)]) + begin;
    char* to = static_cast<char*>(data) + begin;
    for (int64_t row = 0; row < rows; ++row, from += row_bytes, to += row_bytes) copy_bytes(to, from, width);
  }
  // Until then the others may still read what this member has.
  group_.await(group_.publish());
}

void SharedMemoryCommunicator::gather(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  check_member("gather", root);
  const Operation operation{.kind = Kind::Gather,
                            .dtype = amount.dtype,
                            .root = root,
                            .count = checked_bytes(bytes, static_cast<size_t>(size_))};
  auto* const to = static_cast<char*>(recv);
  const auto* const from = static_cast<const char*>(send);
  const auto place = [&](int member) { return to + static_cast<size_t>(member) * bytes; };
  if (rank_ == root && bytes > 0 && place(rank_) != from) copy_bytes(place(rank_), from, bytes);
  exchange_chunks(
      group_, operation, Chunks(bytes, kSlotBytes),
      [&](char* slot, size_t at, size_t n) {
        if (rank_ != root) copy_bytes(slot, from + at, n);
      },
      [&](const auto& slot_of, size_t at, size_t n) {
        for (int r = 0; rank_ == root && r < size_; ++r) {
          if (r != rank_) copy_bytes(place(r) + at, slot_of(r), n);
        }
      });
}

void SharedMemoryCommunicator::scatter(void* recv, const void* send, Amount amount, int root) {
  const size_t bytes = amount.bytes;
  check_member("scatter", root);
  const Operation operation{.kind = Kind::Scatter,
                            .dtype = amount.dtype,
                            .root = root,
                            .count = checked_bytes(bytes, static_cast<size_t>(size_))};
  const auto* const from = static_cast<const char*>(send);
  const auto place = [&](int member) { return from + static_cast<size_t>(member) * bytes; };
  if (rank_ == root && bytes > 0 && place(rank_) != recv) copy_bytes(recv, place(rank_), bytes);
  const Chunks chunks(bytes, part_bytes(size_));
  exchange_chunks(
      group_, operation, chunks,
      [&](char* slot, size_t at, size_t n) {
        for (int r = 0; rank_ == root && r < size_; ++r) {
          if (r != rank_) copy_bytes(slot + static_cast<size_t>(r) * chunks.each, place(r) + at, n);
        }
      },
      [&](const auto& slot_of, size_t at, size_t n) {
        if (rank_ == root) return;
        copy_bytes(static_cast<char*>(recv) + at, slot_of(root) + static_cast<size_t>(rank_) * chunks.each, n);
      });
}

void SharedMemoryCommunicator::all_to_all(void* recv, const void* send, Amount amount) {
  const size_t bytes = amount.bytes;
  const Operation operation{
      .kind = Kind::AllToAll, .dtype = amount.dtype, .count = checked_bytes(bytes, static_cast<size_t>(size_))};
  auto* const to = static_cast<char*>(recv);
  const auto* const from = static_cast<const char*>(send);
  const auto place = [&](int member) { return static_cast<size_t>(member) * bytes; };
  if (bytes > 0) copy_bytes(to + place(rank_), from + place(rank_), bytes);
  const Chunks chunks(bytes, part_bytes(size_));
  exchange_chunks(
      group_, operation, chunks,
      [&](char* slot, size_t at, size_t n) {
        for (int r = 0; r < size_; ++r) {
          if (r != rank_) copy_bytes(slot + static_cast<size_t>(r) * chunks.each, from + place(r) + at, n);
        }
      },
      [&](const auto& slot_of, size_t at, size_t n) {
        for (int r = 0; r < size_; ++r) {
          if (r == rank_) continue;
          copy_bytes(to + place(r) + at, slot_of(r) + static_cast<size_t>(rank_) * chunks.each, n);
        }
      });
}

void SharedMemoryCommunicator::send(const void* data, Amount amount, int peer, int tag) {
  check_member("send", peer);
  pairs_.send(data, amount, peer, tag);
}

void SharedMemoryCommunicator::recv(void* data, Amount amount, int peer, int tag) {
  check_member("recv", peer);
  pairs_.recv(data, amount, peer, tag);
}

SharedBlock SharedMemoryCommunicator::share(size_t bytes) {
  if (bytes == 0) return {};
  checked_bytes(bytes, 1);
  SharedMemoryGroup::Blocks blocks = group_.share(bytes);
  if (blocks.members.empty()) return {};
  std::erase_if(blocks_, [](const Block& block) { return block.owner.expired(); });
  // The mappings of all members are released with this member's block.
  auto owner = std::make_shared<SharedMemoryGroup::Blocks>(std::move(blocks));
  Block block{.number = ++blocks_made_, .owner = owner, .members = {}, .bytes = bytes};
  for (const auto& mapping : owner->members) block.members.push_back(mapping->data());
  blocks_.push_back(block);
  return {.owner = owner, .data = block.members[static_cast<size_t>(rank_)], .bytes = bytes};
}

BlockPlace SharedMemoryCommunicator::place_of(const void* data, size_t bytes) const noexcept {
  const auto* const at = static_cast<const char*>(data);
  if (const std::vector<char*>& tensors = group_.tensors();
      !tensors.empty() && ShareableMemory::instance().contains(data, bytes)) {
    return {BlockPlace::kTensors, static_cast<uint64_t>(at - tensors[static_cast<size_t>(rank_)])};
  }
  for (const Block& block : blocks_) {
    const char* const begin = block.members[static_cast<size_t>(rank_)];
    if (at < begin || at >= begin + block.bytes || block.bytes - static_cast<size_t>(at - begin) < bytes) continue;
    if (block.owner.expired()) continue;
    return {block.number, static_cast<uint64_t>(at - begin)};
  }
  return {};
}

char* SharedMemoryCommunicator::mapped(int member, const BlockPlace& place) const noexcept {
  const auto index = static_cast<size_t>(member);
  if (place.block == BlockPlace::kTensors) return group_.tensors()[index] + place.offset;
  const auto block =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.number == place.block; });
  return block->members[index] + place.offset;
}

uint64_t SharedMemoryCommunicator::checked_bytes(size_t bytes, size_t parts) const {
  constexpr uint64_t most = (uint64_t{1} << Operation::kCountBits) - 1;
  if (bytes > most || bytes * parts > most) {
    throw InvalidArgument("a message of " + std::to_string(bytes) + " bytes for each of " + std::to_string(parts) +
                          " ranks: shared memory carries at most " + std::to_string(most));
  }
  return bytes;
}

uint64_t SharedMemoryCommunicator::checked_count(int64_t count, DType dtype, ReduceOp op) const {
  if (!reduction_exists(dtype, op)) {
    throw InvalidArgument("a reduction by " + std::string(reduce_op_name(op)) + " does not exist for " +
                          std::string(dtype_name(dtype)));
  }
  if (count < 0) throw InvalidArgument("a reduction of " + std::to_string(count) + " elements");
  checked_bytes(static_cast<size_t>(count), dtype_size(dtype));
  return static_cast<uint64_t>(count);
}

void SharedMemoryCommunicator::check_member(const char* what, int member) const {
  if (member >= 0 && member < size_) return;
  throw InvalidArgument(std::string(what) + ": there is no rank " + std::to_string(member) + " in a group of " +
                        std::to_string(size_));
}

}  // namespace anyaccel::comm::shm

namespace anyaccel::comm {

std::unique_ptr<HostCommunicator> make_shared_memory_communicator(const Membership& membership) {
  return std::make_unique<shm::SharedMemoryCommunicator>(membership);
}

}  // namespace anyaccel::comm
