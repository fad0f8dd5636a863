// Implements the port that pipeline.h drives: it transfers an operation's chunks through a group's slots and flags.
#pragma once

#include "base/copy_bytes.h"
#include "comm/shared_memory/shared_memory_group.h"

namespace anyaccel::comm::shm {

// fill(c), take(c) and so on are called with the operation's own chunks 0, 1, ...; slot(member, c) finds the memory.
// The first publish() opens the operation.
class ChunkPort {
 public:
  ChunkPort(SharedMemoryGroup& group, const Operation& operation, uint64_t chunks)
      : group_(group), operation_(operation), first_(group.take_chunks(chunks)) {}

  char* slot(int member, uint64_t chunk) const noexcept { return group_.slot(member, first_ + chunk); }
  uint64_t publish() {
    if (opened_) return group_.publish();
    open(nullptr, 0);
    return kOpening;
  }
  void await(uint64_t token) {
    if (token == kOpening) {
      group_.await_open();
    } else {
      group_.await(token);
    }
  }

 protected:
  static constexpr uint64_t kOpening = 0;  // no step has this number
  void open(const void* payload, size_t bytes) {
    opened_ = true;
    group_.open(operation_, payload, bytes);
  }

  SharedMemoryGroup& group_;
  const Operation& operation_;

 private:
  uint64_t first_;
  bool opened_ = false;
};

}  // namespace anyaccel::comm::shm
