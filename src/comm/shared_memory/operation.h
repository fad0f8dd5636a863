// Describes a collective: every member writes it next to the operation's number, and the others compare it with theirs.
#pragma once

#include <cstdint>
#include <string>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/dtype.h"

namespace anyaccel::comm::shm {

enum class Kind : uint8_t {
  Barrier,
  AllReduce,
  Reduce,
  ReduceScatter,
  Broadcast,
  AllGather,
  Gather,
  Scatter,
  AllToAll,
  Share,
  GatherColumns,
};

struct Operation {
  Kind kind = Kind::Barrier;
  DType dtype = DType::None;  // None: of bytes
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
  uint64_t count = 0;  // elements of a reduction, else bytes

  // All fields packed into one word: equal words mean equal operations.
  static constexpr int kRootBits = 12;
  static constexpr int kCountBits = 40;
  uint64_t packed() const noexcept {
    return count | (static_cast<uint64_t>(root) << kCountBits) |
           (static_cast<uint64_t>(kind) << (kCountBits + kRootBits)) |
           (static_cast<uint64_t>(dtype) << (kCountBits + kRootBits + 4)) |
           (static_cast<uint64_t>(op) << (kCountBits + kRootBits + 9));
  }
  static Operation unpacked(uint64_t word) noexcept;
  // "all_reduce of 4096 float32 (sum)", "broadcast of 4 int32 from rank 0".
  std::string text() const;
};

}  // namespace anyaccel::comm::shm
