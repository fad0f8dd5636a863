// Declares the communicator of this folder, which selects how each operation uses the group's memory.
#pragma once

#include <vector>

#include "comm/host_communicator.h"
#include "comm/shared_memory/pairs.h"
#include "comm/shared_memory/shared_memory_group.h"

namespace anyaccel::comm::shm {

// The position of memory that all members have mapped; sent when an operation is opened.
struct BlockPlace {
  // In the member's ShareableMemory.
  static constexpr uint64_t kTensors = ~uint64_t{0};

  uint64_t block = 0;  // 0: in none; kTensors; or the number of a block of share(), from 1, the same on every member
  uint64_t offset = 0;
  // Returns whether members with these places can combine them in place. Those of a block lie at one offset.
  bool goes_with(const BlockPlace& other) const noexcept {
    return block == other.block && (block == kTensors || offset == other.offset);
  }
};

class SharedMemoryCommunicator final : public HostCommunicator {
 public:
  explicit SharedMemoryCommunicator(const Membership& membership);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const std::string& name() const noexcept override;

  void barrier() override;
  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) override;
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) override;
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) override;
  void broadcast(void* data, Amount amount, int root) override;
  void all_gather(void* recv, const void* send, Amount amount) override;
  void gather_columns(void* data, int64_t rows, const size_t* begins) override;
  void gather(void* recv, const void* send, Amount amount, int root) override;
  void scatter(void* recv, const void* send, Amount amount, int root) override;
  void all_to_all(void* recv, const void* send, Amount amount) override;
  void send(const void* data, Amount amount, int peer, int tag) override;
  void recv(void* data, Amount amount, int peer, int tag) override;

  SharedBlock share(size_t bytes) override;
  void abort(const std::string& why) noexcept override { group_.abort(why); }
  // Bytes of this member's all_reduce() calls that were copied through the slots, since they could not be combined in
  // place.
  uint64_t copied_bytes() const noexcept { return copied_bytes_; }

 private:
  // A block that is still in use here.
  struct Block {
    uint64_t number;
    std::weak_ptr<void> owner;
    std::vector<char*> members;  // by rank
    size_t bytes;
  };

  BlockPlace place_of(const void* data, size_t bytes) const noexcept;
  // Returns where the memory that a member has at `place` is mapped here.
  char* mapped(int member, const BlockPlace& place) const noexcept;
  // Combines the members' memory where it is. `places_` has its places.
  void reduce_in_place(const Operation& operation);

  uint64_t checked_bytes(size_t bytes, size_t parts) const;
  uint64_t checked_count(int64_t count, DType dtype, ReduceOp op) const;
  void check_member(const char* what, int member) const;
  // Room for the sources and targets of a reduction, one per rank.
  const void** sources() noexcept { return sources_.data(); }
  void** targets() noexcept { return targets_.data(); }

  SharedMemoryGroup group_;
  Pairs pairs_;
  const int rank_;
  const int size_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  std::vector<BlockPlace> places_;  // of the operation, by rank
  std::vector<Block> blocks_;
  uint64_t blocks_made_ = 0;
  uint64_t copied_bytes_ = 0;
};

}  // namespace anyaccel::comm::shm
