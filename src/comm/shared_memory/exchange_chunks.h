// Moves a message through the slots in chunks, which implements most collectives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/shared_memory/chunk_port.h"
#include "comm/shared_memory/pipeline.h"
#include "comm/shared_memory/slices.h"

namespace anyaccel::comm::shm {

// Divides `bytes` into pieces of `each`. An empty message is one empty chunk, so that its members still synchronize.
struct Chunks {
  Chunks(size_t message, size_t piece) noexcept : bytes(message), each(piece) {}
  uint64_t count() const noexcept { return bytes == 0 ? 1 : (bytes + each - 1) / each; }
  size_t begin(uint64_t chunk) const noexcept { return chunk * each; }
  size_t length(uint64_t chunk) const noexcept { return std::min(each, bytes - begin(chunk)); }

  size_t bytes;
  size_t each;
};

// Returns the number of bytes of a slot for each member.
inline size_t part_bytes(int size) noexcept { return kSlotBytes / static_cast<size_t>(size) / kLine * kLine; }

// fill(slot, begin, length) writes a chunk of the message, which begins at byte `begin`, into this member's slot;
// take(slot_of, begin, length) takes it from the slots of others, slot_of(member).
template <class Fill, class Take>
void exchange_chunks(SharedMemoryGroup& group, const Operation& operation, const Chunks& chunks, const Fill& fill,
                     const Take& take) {
  struct Port : ChunkPort {
    Port(SharedMemoryGroup& g, const Operation& o, const Chunks& c, const Fill& f, const Take& t)
        : ChunkPort(g, o, c.count()), rank(g.rank()), chunks(c), fill_slot(f), take_slots(t) {}
    void fill(uint64_t c) { fill_slot(slot(rank, c), chunks.begin(c), chunks.length(c)); }
    void take(uint64_t c) {
      take_slots([this, c](int member) { return slot(member, c); }, chunks.begin(c), chunks.length(c));
    }
    int rank;
    const Chunks& chunks;
    const Fill& fill_slot;
    const Take& take_slots;
  };
  Port port(group, operation, chunks, fill, take);
  one_phase(port, chunks.count());
}

}  // namespace anyaccel::comm::shm
