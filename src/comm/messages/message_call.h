// Describes one call of a communicator, so that members can compare theirs before or while they exchange data.
#pragma once

#include <cstdint>
#include <string>

namespace anyaccel::comm {

struct MessageCall {
  enum Kind : int32_t {
    kBarrier,
    kAllReduce,
    kReduce,
    kReduceScatter,
    kBroadcast,
    kAllGather,
    kGather,
    kScatter,
    kAllToAll,
    kPair
  };
  int32_t kind = kBarrier;
  int32_t dtype = 0;
  int32_t op = -1;
  int32_t root = -1;
  uint64_t sequence = 0;  // of this group's collectives; 0 between two members
  uint64_t amount = 0;    // elements of a reduction, else bytes, of elements of `dtype` (0: just bytes)

  bool operator==(const MessageCall&) const = default;
  // "all_reduce of 12 float32 (sum), number 7 of the group", "broadcast of 3 int32 with root 1, number 8 of the group"
  std::string text() const;
};

}  // namespace anyaccel::comm
