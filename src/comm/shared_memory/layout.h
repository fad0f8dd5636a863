// Defines the layout of the memory that a member owns and all others map:
//
//   Header | ToPeer[size] | rings[size] | slots[kSlots]
//
// A member writes its own segment, its slices of the others' slots while it combines them, and the word that wakes
// another (Header::bell). Flags (atomics with release and acquire) synchronize the accesses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/shared_memory/peer_process.h"

namespace anyaccel::comm::shm {

inline constexpr uint64_t kMagic = 0x6d656d736c636361;  // "accl", "smem"
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr int kMostRanks = 4096;

// Bytes of data stored next to an operation's number: together they fill two cache lines, which processors fetch
// together.
inline constexpr size_t kInlineBytes = 112;
// Larger data uses slots, in chunks. pipeline.h explains why two are enough.
inline constexpr int kSlots = 2;
inline constexpr size_t kSlotBytes = size_t{256} << 10;
// The ring from one member to another, for send and recv.
inline constexpr size_t kRingBytes = size_t{128} << 10;

// Opens an operation. There are two, used alternately: a member that opens operation n + 2 has seen every other open n
// + 1, and so finish reading n.
struct alignas(128) Opening {
  std::atomic<uint64_t> number;  // written last
  uint64_t operation;            // Operation::packed()
  char payload[kInlineBytes];
};
static_assert(sizeof(Opening) == 128);

struct alignas(64) Counter {
  std::atomic<uint64_t> value;
};

// The flags from one member to another.
struct alignas(128) ToPeer {
  Opening openings[2];
  Counter progress;  // steps that this member has published, counted over all operations
  Counter sent;      // bytes ever written into the ring to the peer
  Counter taken;     // bytes ever read from the peer's ring to this member
};

enum class State : uint32_t { Absent, Member, Left, Failed };

struct Header {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t size;
  uint64_t bytes;  // of the segment
  char secret[32];
  ProcessIdentity process;
  uint64_t cores[16];  // the cores on which the member may run, as bits
  uint64_t tensors;    // bytes of its ShareableMemory; 0: it has none

  alignas(64) std::atomic<State> state;
  char reason[1024];  // the reason, once state is Failed

  // `sleeping` is not 0 while the member waits for `bell` to change.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleeping;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<State>::is_always_lock_free);

struct Layout {
  explicit constexpr Layout(int size) noexcept : size(static_cast<size_t>(size)) {}
  static constexpr size_t round_up(size_t n, size_t to) noexcept { return (n + to - 1) / to * to; }

  constexpr size_t to_peer(int peer) const noexcept {
    return round_up(sizeof(Header), 4096) + static_cast<size_t>(peer) * sizeof(ToPeer);
  }
  constexpr size_t ring(int peer) const noexcept {
    return round_up(to_peer(0) + size * sizeof(ToPeer), 4096) + static_cast<size_t>(peer) * kRingBytes;
  }
  constexpr size_t slot(uint64_t index) const noexcept { return ring(static_cast<int>(size)) + index * kSlotBytes; }
  constexpr size_t bytes() const noexcept { return slot(kSlots); }

  size_t size;
};

}  // namespace anyaccel::comm::shm
