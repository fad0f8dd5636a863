// Implements collectives with point-to-point messages, over any MessageTransport.
//
// Every message begins with a frame that identifies its call; small data is part of the frame, larger data follows in
// pieces. So if a peer is in another collective, or in the same one with another size or dtype, the call fails with a
// description of both calls, and does not hang or mix up data. Reductions send the members' values and combine them in
// rank order on the members that need the result, in fp32 for 16-bit floats, so all members get the same bits whatever
// the network does: small ones by sending everything to all members, large ones by reduce-scatter and all-gather.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/host_communicator.h"
#include "comm/messages/message_call.h"
#include "comm/messages/message_transport.h"

namespace anyaccel::comm {

class MessageCommunicator final : public HostCommunicator {
 public:
  MessageCommunicator(std::string name, Membership membership, std::unique_ptr<MessageTransport> transport);
  ~MessageCommunicator() override;

  int rank() const noexcept override { return members_.rank; }
  int size() const noexcept override { return members_.size; }
  const std::string& name() const noexcept override { return name_; }

  void barrier() override;
  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) override;
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) override;
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) override;
  void broadcast(void* data, Amount amount, int root) override;
  void all_gather(void* recv, const void* send, Amount amount) override;
  void gather(void* recv, const void* send, Amount amount, int root) override;
  void scatter(void* recv, const void* send, Amount amount, int root) override;
  void all_to_all(void* recv, const void* send, Amount amount) override;
  void send(const void* data, Amount amount, int peer, int tag) override;
  void recv(void* data, Amount amount, int peer, int tag) override;
  void set_caller(const MessageCall& call) override { caller_ = call; }
  void abort(const std::string& why) noexcept override;

 private:
  using Call = MessageCall;  // the call a message belongs to; members compare theirs
  struct Frame;
  struct Part {
    int peer;
    void* data;  // written by receives only
    size_t bytes;
  };

  // Sends and receives at the same time; at most one message a peer and direction.
  void exchange(const Call& call, std::span<const Part> sends, std::span<const Part> receives, int tag = -1);
  void expect(const Call& call, const Part& part, const Frame& frame) const;
  Frame& frame(std::vector<std::unique_ptr<Frame>>& frames, int peer);
  // Runs one operation, and records the first failure.
  void run(const Call& call, const std::function<void()>& body);
  // The same for a call with a root, after all members have compared it: in such a call some members only send, and would
  // be done before they could learn that others name another root.
  void run_rooted(const Call& call, const std::function<void()>& body);
  // Returns when every member has made this call.
  void meet(const Call& call);
  [[noreturn]] void fail(const std::string& why, aa_code code);
  std::string root_cause(const std::string& why) noexcept;
  const std::string& member(int rank) const { return members_.names[static_cast<size_t>(rank)]; }

  // All-reduce, or reduce where root is a rank (else -1).
  void reduce_any(const Call& call, void* data, int64_t count, DType dtype, ReduceOp op, int root);
  void reduce_directly(const Call& call, std::byte* data, int64_t count, DType dtype, ReduceOp op, int root);
  void reduce_in_parts(const Call& call, std::byte* data, int64_t count, DType dtype, ReduceOp op, int root);
  void scatter_reduced(const Call& call, void* recv, const void* send, int64_t count, DType dtype, ReduceOp op);
  std::byte* scratch(size_t bytes);
  void check_pair(int peer, int tag) const;

  const std::string name_;
  Membership members_;
  std::unique_ptr<MessageTransport> transport_;
  std::vector<std::unique_ptr<Frame>> outgoing_, incoming_;  // by peer, created when first needed
  std::vector<std::unique_ptr<MessageTransport::Pending>> pending_;
  std::vector<std::byte> scratch_;
  uint64_t sequence_ = 0;
  Call caller_;
  WaitLimit limit_;  // of the operation in progress

  std::mutex mutex_;  // guards the two below
  std::string failure_;
  bool failed_ = false;
};

}  // namespace anyaccel::comm
