// Defines the order of copying, publishing and waiting in which data passes through the members' slots in chunks.
//
// Each member owns kSlots slots; chunk c, counted over all operations, uses slot c % kSlots. A Port does the work:
//
//   fill(c)       writes this member's part of chunk c into its own slot
//   publish()     tells the others, and returns what to wait for
//   await(token)  waits until every member has published that
//   take(c)       reads the others' slots, writes user memory
//   combine(c)    reads its slice of all slots, and writes the result into that slice of all slots
//   drain(c)      reads its own slot, writes user memory
//   start()       fill(0), and returns when every member has filled it
//
// The cost is moving cache lines from the member that wrote them last to the one that needs them. combine() leaves a
// slot's lines in the caches of other members, drain() fetches them back, and the next fill() finds them in its own
// cache.
//
// Two slots are enough. one_phase(): a member fills chunk c + 1 when it saw everyone publish chunk c, so everyone has
// taken chunk c - 1. two_phase(): only the owner accesses its slot between the publishing of "combined c" and its next
// fill; and all accesses of one operation are complete when start() of the next returns, before a second slot is
// filled. tests/comm/shared_memory_protocol_test.cpp runs these very functions and tries every interleaving.
#pragma once

#include <cstdint>

namespace anyaccel::comm::shm {

// Every member writes to its slot and reads from the others'.
template <class Port>
void one_phase(Port& port, uint64_t chunks) {
  for (uint64_t c = 0; c < chunks; ++c) {
    port.fill(c);
    port.await(port.publish());
    port.take(c);
  }
}

// Reduce-scatter, then all-gather. While others still combine a chunk, the next is filled.
template <class Port>
void two_phase(Port& port, uint64_t chunks) {
  port.start();
  for (uint64_t c = 0; c < chunks; ++c) {
    port.combine(c);
    const auto combined = port.publish();
    auto filled = combined;
    if (c + 1 < chunks) {
      port.fill(c + 1);
      filled = port.publish();
    }
    port.await(combined);
    port.drain(c);
    port.await(filled);
  }
}

}  // namespace anyaccel::comm::shm
