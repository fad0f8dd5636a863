// Passes messages between two members, through a ring buffer for each direction.
//
// A message is a header of 16 bytes and the bytes, padded to 16; a message larger than the ring is sent piece by piece.
// Messages that arrive before they are requested are stored: also while send() waits for room, so that members that
// send to each other first and receive afterwards do not deadlock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "comm/shared_memory/shared_memory_group.h"

namespace anyaccel::comm::shm {

class Pairs {
 public:
  explicit Pairs(SharedMemoryGroup& group) : group_(group), incoming_(static_cast<size_t>(group.size())) {}

  void send(const void* data, Amount amount, int peer, int tag);
  void recv(void* data, Amount amount, int peer, int tag);

 private:
  struct MessageHeader {
    uint64_t bytes;
    int32_t tag;
    DType dtype;
  };
  static_assert(sizeof(MessageHeader) == 16);
  struct Message {
    int32_t tag = 0;
    DType dtype = DType::None;
    size_t bytes = 0;
    size_t have = 0;  // of bytes and padding
    std::unique_ptr<char[]> data;
    bool complete() const noexcept { return have >= bytes; }
  };
  // Messages of a peer that were not requested yet, in order; only the last may be incomplete.
  using Kept = std::deque<Message>;

  void write(const void* data, size_t bytes, int peer);
  size_t available(int peer) const noexcept;
  void wait_for_bytes(int peer, size_t bytes);
  // Reads up to `bytes` available bytes and returns their number; with null data they are dropped.
  size_t read_some(void* data, size_t bytes, int peer);
  void read(void* data, size_t bytes, int peer);
  // Stores arrived messages of all members; returns whether there were any.
  bool keep_arrived();
  bool anything_arrived() const noexcept;
  void keep_header(int peer);
  void keep_more(int peer);
  void check_amount(const Amount& expected, const Amount& sent, int peer, int tag);

  SharedMemoryGroup& group_;
  std::vector<Kept> incoming_;
};

}  // namespace anyaccel::comm::shm
