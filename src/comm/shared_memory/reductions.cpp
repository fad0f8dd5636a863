// Implements the operations that combine elements. all_reduce uses one of four methods:
//
//   up to kInlineBytes       beside the operation's number: two lines of the cache from every member to every other
//   up to one_phase_bytes()  everyone writes its slot, waits once, and reduces all slots into its own memory
//   beyond                   in chunks: everyone writes its slot, reduces its slice of all slots into all slots, and
//                            reads its slot
//   in memory that all map   everyone reduces its slice of all members' memory into all of it: blocks of share(), and
//                            tensors of the CPU accelerator, which are ShareableMemory
//
// Every element is combined in rank order, so that all methods give identical bits.
#include <algorithm>

#include "base/copy_bytes.h"
#include "comm/shared_memory/chunk_port.h"
#include "comm/shared_memory/exchange_chunks.h"
#include "comm/shared_memory/pipeline.h"
#include "comm/shared_memory/reduction.h"
#include "comm/shared_memory/shared_memory_communicator.h"
#include "comm/shared_memory/slices.h"

namespace anyaccel::comm::shm {
namespace {

// Measured with 2 ranks, each on a separate core: above this size the second wait costs less than it saves.
constexpr size_t kOnePhaseBytes = size_t{2} << 10;
constexpr size_t kLeastOnePhaseBytes = 512;
constexpr size_t kChunkBytes = size_t{256} << 10;
static_assert(kOnePhaseBytes <= kSlotBytes && kChunkBytes <= kSlotBytes);

// Every member reads all members' data: with more members it pays off for smaller messages only.
size_t one_phase_bytes(int size) noexcept {
  return std::max(kOnePhaseBytes * 2 / static_cast<size_t>(size), kLeastOnePhaseBytes);
}

// A fast path of reduce() for fp32, since choosing its loop takes longer than a small sum.
void add_few(float* data, const void* const* sources, int size, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = static_cast<const float*>(sources[0])[i];
    for (int r = 1; r < size; ++r) sum += static_cast<const float*>(sources[r])[i];
    data[i] = sum;
  }
}

// An array in chunks, each in slices that belong to the members.
struct ReducePort : ChunkPort {
  // The result goes to `root`, or everywhere for -1.
  ReducePort(SharedMemoryGroup& g, const Operation& o, void* d, BlockPlace* p, int r, const void** s, void** t)
      : ChunkPort(g, o, chunk_count(o)),
        rank(g.rank()),
        size(g.size()),
        root(r),
        item(dtype_size(o.dtype)),
        data(static_cast<char*>(d)),
        places(p),
        place(p[g.rank()]),
        sources(s),
        targets(t) {}

  static int64_t chunk_elements(const Operation& o) { return static_cast<int64_t>(kChunkBytes / dtype_size(o.dtype)); }
  static uint64_t chunk_count(const Operation& o) {
    const auto each = static_cast<uint64_t>(chunk_elements(o));
    return (o.count + each - 1) / each;
  }
  // A member's slice: its position in the array and in a slot, and its length.
  struct Piece {
    char* in_data;
    size_t in_slot;
    int64_t count;
  };
  Piece piece(uint64_t c, int member) const {
    const int64_t each = chunk_elements(operation_);
    const int64_t begin = static_cast<int64_t>(c) * each;
    const int64_t length = std::min(each, static_cast<int64_t>(operation_.count) - begin);
    const Slice slice = slice_of(length, member, size, item);
    return {data + static_cast<size_t>(begin + slice.begin) * item, static_cast<size_t>(slice.begin) * item,
            slice.count};
  }

  // Returns true if all members have their memory where the others have mapped it: then it has only opened the operation,
  // and knows their places.
  bool open_and_compare() {
    if (place.block == 0) fill(0);
    open(&place, sizeof(place));
    group_.await_open();
    bool same = true;
    bool none = place.block == 0;
    for (int member = 0; member < size; ++member) {
      if (member == rank) continue;
      BlockPlace& theirs = places[member];
      std::memcpy(&theirs, group_.payload(member), sizeof(theirs));
      same = same && theirs.goes_with(place);
      none = none && theirs.block == 0;
    }
    if (none) return false;
    if (same) return true;
    // A member whose memory the others have mapped skipped its slot because theirs might be mapped too; it fills the slot
    // now.
    if (place.block != 0) fill(0);
    await(publish());
    return false;
  }
  void start() {}  // open_and_compare() has done it
  void fill(uint64_t c) {
    for (int member = 0; member < size; ++member) {
      if (member == rank) continue;
      const Piece p = piece(c, member);
      copy_bytes(slot(rank, c) + p.in_slot, p.in_data, static_cast<size_t>(p.count) * item);
    }
  }
  void combine(uint64_t c) {
    const Piece p = piece(c, rank);
    if (p.count == 0) return;
    int count = 0;
    for (int member = 0; member < size; ++member) {
      char* const at = member == rank ? p.in_data : slot(member, c) + p.in_slot;
      sources[member] = at;
      if (root < 0 || member == root) targets[count++] = at;
    }
    reduce_to_all(targets, count, sources, size, p.count, operation_.dtype, operation_.op);
  }
  void drain(uint64_t c) {
    if (root >= 0 && rank != root) return;
    for (int member = 0; member < size; ++member) {
      if (member == rank) continue;
      const Piece p = piece(c, member);
      copy_bytes(p.in_data, slot(rank, c) + p.in_slot, static_cast<size_t>(p.count) * item);
    }
  }

  int rank, size, root;
  size_t item;
  char* data;
  BlockPlace* places;  // by rank
  const BlockPlace place;
  const void** sources;
  void** targets;
};

}  // namespace

void SharedMemoryCommunicator::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) {
  const Operation operation{Kind::AllReduce, dtype, op, 0, checked_count(count, dtype, op)};
  if (size_ == 1) return;
  const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
  if (bytes <= kInlineBytes) {
    group_.open(operation, data, bytes);
    group_.await_open();
    for (int r = 0; r < size_; ++r) sources()[r] = r == rank_ ? data : group_.payload(r);
    if (dtype == DType::F32 && op == ReduceOp::Sum) {
      add_few(static_cast<float*>(data), sources(), size_, count);
    } else if (bytes > 0) {
      anyaccel::comm::reduce(data, sources(), size_, count, dtype, op);
    }
    return;
  }
  if (bytes <= one_phase_bytes(size_)) {
    exchange_chunks(
        group_, operation, Chunks(bytes, kSlotBytes), [&](char* slot, size_t, size_t n) { copy_bytes(slot, data, n); },
        [&](const auto& slot_of, size_t, size_t) {
          for (int r = 0; r < size_; ++r) sources()[r] = r == rank_ ? data : slot_of(r);
          anyaccel::comm::reduce(data, sources(), size_, count, dtype, op);
        });
    return;
  }
  places_[static_cast<size_t>(rank_)] = place_of(data, bytes);
  ReducePort port(group_, operation, data, places_.data(), -1, sources(), targets());
  if (port.open_and_compare()) return reduce_in_place(operation);
  copied_bytes_ += bytes;
  two_phase(port, ReducePort::chunk_count(operation));
}

void SharedMemoryCommunicator::reduce_in_place(const Operation& operation) {
  const size_t item = dtype_size(operation.dtype);
  const Slice slice = slice_of(static_cast<int64_t>(operation.count), rank_, size_, item);
  for (int r = 0; r < size_; ++r) {
    char* const at = mapped(r, places_[static_cast<size_t>(r)]) + static_cast<size_t>(slice.begin) * item;
    sources()[r] = targets()[r] = at;
  }
  if (slice.count > 0) {
    reduce_to_all(targets(), size_, sources(), size_, slice.count, operation.dtype, operation.op);
  }
  group_.await(group_.publish());
}

void SharedMemoryCommunicator::reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) {
  check_member("reduce", root);
  const Operation operation{Kind::Reduce, dtype, op, root, checked_count(count, dtype, op)};
  if (size_ == 1) return;
  const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
  if (bytes > one_phase_bytes(size_)) {
    places_[static_cast<size_t>(rank_)] = {};
    ReducePort port(group_, operation, data, places_.data(), root, sources(), targets());
    port.open_and_compare();
    return two_phase(port, ReducePort::chunk_count(operation));
  }
  exchange_chunks(
      group_, operation, Chunks(bytes, kSlotBytes),
      [&](char* slot, size_t, size_t n) {
        if (rank_ != root) copy_bytes(slot, data, n);
      },
      [&](const auto& slot_of, size_t, size_t n) {
        if (rank_ != root || n == 0) return;
        for (int r = 0; r < size_; ++r) sources()[r] = r == rank_ ? data : slot_of(r);
        anyaccel::comm::reduce(data, sources(), size_, count, dtype, op);
      });
}

void SharedMemoryCommunicator::reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) {
  const Operation operation{Kind::ReduceScatter, dtype, op, 0, checked_count(count, dtype, op)};
  const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
  checked_bytes(bytes, static_cast<size_t>(size_));
  const auto* const from = static_cast<const char*>(send);
  const Chunks chunks(bytes, part_bytes(size_));
  exchange_chunks(
      group_, operation, chunks,
      [&](char* slot, size_t at, size_t n) {
        for (int r = 0; r < size_; ++r) {
          if (r == rank_) continue;
          copy_bytes(slot + static_cast<size_t>(r) * chunks.each, from + static_cast<size_t>(r) * bytes + at, n);
        }
      },
      [&](const auto& slot_of, size_t at, size_t n) {
        if (n == 0) return;
        const auto own = static_cast<size_t>(rank_);
        for (int r = 0; r < size_; ++r) {
          sources()[r] = r == rank_ ? from + own * bytes + at : slot_of(r) + own * chunks.each;
        }
        anyaccel::comm::reduce(static_cast<char*>(recv) + at, sources(), size_,
                               static_cast<int64_t>(n / dtype_size(dtype)), dtype, op);
      });
}

}  // namespace anyaccel::comm::shm
