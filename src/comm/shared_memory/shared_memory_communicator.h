// Declares the communicator of this folder, which selects how each operation uses the group's memory.
#pragma once

#include <vector>

#include "comm/host_communicator.h"
#include "comm/shared_memory/pairs.h"
#include "comm/shared_memory/shared_memory_group.h"

namespace anyaccel::comm::shm {

// The position of memory in a block of share(); sent when an operation is opened. Blocks are numbered from 1, in the
// same way on every member.
struct BlockPlace {
  uint64_t block = 0;  // 0: in none
  uint64_t offset = 0;
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
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
  void broadcast(void* data, size_t bytes, int root) override;
  void all_gather(void* recv, const void* send, size_t bytes) override;
  void gather(void* recv, const void* send, size_t bytes, int root) override;
  void scatter(void* recv, const void* send, size_t bytes, int root) override;
  void all_to_all(void* recv, const void* send, size_t bytes) override;
  void send(const void* data, size_t bytes, int peer, int tag) override;
  void recv(void* data, size_t bytes, int peer, int tag) override;

  SharedBlock share(size_t bytes) override;
  void abort(const std::string& why) noexcept override { group_.abort(why); }

 private:
  // A block that is still in use here.
  struct Block {
    uint64_t number;
    std::weak_ptr<void> owner;
    std::vector<char*> members;  // by rank
    size_t bytes;
  };

  BlockPlace place_of(const void* data, size_t bytes) const noexcept;
  void reduce_in_blocks(const BlockPlace& place, const Operation& operation);

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
  std::vector<Block> blocks_;
  uint64_t blocks_made_ = 0;
};

}  // namespace anyaccel::comm::shm
