// Runs collectives on host memory with oneCCL, together with a communicator of another kind that has what oneCCL lacks.
//
// Before each call that oneCCL makes, the members compare their calls through the other communicator: there, a member
// that died, is late or is in another call is detected and described, whereas the library would wait forever or mix up
// data. The other communicator also does what oneCCL cannot do on the CPU: barriers, messages with tags (its send and
// recv crash without a stream), gather, scatter, and the reductions for which CclMember::reduces() returns false.
//
// The results of oneCCL's reductions are the same bits on all members, but the library determines the order of sums,
// and 16-bit floats of three or more members are rounded more than once.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "comm/ccl/ccl_member.h"
#include "comm/host_communicator.h"
#include "comm/messages/message_call.h"

namespace anyaccel::comm {
namespace {

class CclCommunicator final : public HostCommunicator {
 public:
  CclCommunicator(const Membership& membership, std::unique_ptr<HostCommunicator> base)
      : members_(membership), base_(std::move(base)), calls_(static_cast<size_t>(members_.size)) {
    for (int i = static_cast<int>(members_.names.size()); i < members_.size; ++i) {
      members_.names.push_back("rank " + std::to_string(i));
    }
    const CclId id = prepare();
    member_ = std::make_unique<CclMember>(CclLibrary::get(), id, members_.rank, members_.size, members_.watch,
                                          members_.timeout);
  }

  int rank() const noexcept override { return members_.rank; }
  int size() const noexcept override { return members_.size; }
  const std::string& name() const noexcept override { return name_; }

  void barrier() override {
    run({.kind = MessageCall::kBarrier}, [&] { base_->barrier(); });
  }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) override {
    const MessageCall call = reduction(MessageCall::kAllReduce, count, dtype, op);
    run(call, [&] {
      if (!CclMember::reduces(dtype, op)) return base_->all_reduce(data, count, dtype, op);
      agree(call);
      member_->all_reduce(data, count, dtype, op);
    });
  }

  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) override {
    const MessageCall call = reduction(MessageCall::kReduce, count, dtype, op, root);
    run(call, [&] {
      if (!CclMember::reduces(dtype, op)) return base_->reduce(data, count, dtype, op, root);
      agree(call);
      member_->reduce(data, count, dtype, op, root);
    });
  }

  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) override {
    const MessageCall call = reduction(MessageCall::kReduceScatter, count, dtype, op);
    run(call, [&] {
      if (!CclMember::reduces(dtype, op)) return base_->reduce_scatter(recv, send, count, dtype, op);
      agree(call);
      member_->reduce_scatter(recv, send, count, dtype, op);
    });
  }

  void broadcast(void* data, Amount amount, int root) override {
    const MessageCall call{.kind = MessageCall::kBroadcast,
                           .dtype = static_cast<int32_t>(amount.dtype),
                           .root = root,
                           .sequence = ++sequence_,
                           .amount = amount.bytes};
    run(call, [&] {
      agree(call);
      member_->broadcast(data, amount.bytes, root);
    });
  }

  void all_gather(void* recv, const void* send, Amount amount) override {
    const MessageCall call{.kind = MessageCall::kAllGather,
                           .dtype = static_cast<int32_t>(amount.dtype),
                           .sequence = ++sequence_,
                           .amount = amount.bytes};
    run(call, [&] {
      agree(call);
      member_->all_gather(recv, send, amount.bytes);
    });
  }

  void all_to_all(void* recv, const void* send, Amount amount) override {
    const MessageCall call{.kind = MessageCall::kAllToAll,
                           .dtype = static_cast<int32_t>(amount.dtype),
                           .sequence = ++sequence_,
                           .amount = amount.bytes};
    run(call, [&] {
      agree(call);
      member_->all_to_all(recv, send, amount.bytes);
    });
  }

  void gather(void* recv, const void* send, Amount amount, int root) override {
    run({.kind = MessageCall::kGather}, [&] { base_->gather(recv, send, amount, root); });
  }
  void scatter(void* recv, const void* send, Amount amount, int root) override {
    run({.kind = MessageCall::kScatter}, [&] { base_->scatter(recv, send, amount, root); });
  }
  void send(const void* data, Amount amount, int peer, int tag) override {
    run({.kind = MessageCall::kPair}, [&] { base_->send(data, amount, peer, tag); });
  }
  void recv(void* data, Amount amount, int peer, int tag) override {
    run({.kind = MessageCall::kPair}, [&] { base_->recv(data, amount, peer, tag); });
  }

  void abort(const std::string& why) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (failed_) return;
      failed_ = true;
      failure_ = why;
    }
    member_->interrupt();
    base_->abort(why);
  }

 private:
  // Opens the library on every member, so that all of them fail where one cannot, and returns the id of the communicator.
  CclId prepare() {
    struct Opening {
      char problem[480];
    };
    Opening own{};
    CclId id{};
    try {
      const CclLibrary& library = CclLibrary::get();
      if (members_.rank == 0) id = CclMember::make_id(library);
    } catch (const Error& error) {
      std::snprintf(own.problem, sizeof(own.problem), "%s", error.what());
    }
    std::vector<Opening> all(static_cast<size_t>(members_.size));
    base_->all_gather(all.data(), &own, sizeof(own));
    if (own.problem[0]) throw UnavailableError(own.problem);
    for (int peer = 0; peer < members_.size; ++peer) {
      const char* problem = all[static_cast<size_t>(peer)].problem;
      if (problem[0]) throw UnavailableError(member(peer) + ": " + problem);
    }
    base_->broadcast(&id, sizeof(id), 0);
    return id;
  }

  MessageCall reduction(MessageCall::Kind kind, int64_t count, DType dtype, ReduceOp op, int root = -1) {
    return {.kind = kind,
            .dtype = static_cast<int32_t>(dtype),
            .op = static_cast<int32_t>(op),
            .root = root,
            .sequence = ++sequence_,
            .amount = static_cast<uint64_t>(count)};
  }

  const std::string& member(int rank) const { return members_.names[static_cast<size_t>(rank)]; }

  void agree(const MessageCall& call) {
    base_->all_gather(calls_.data(), &call, sizeof(call));
    for (int peer = 0; peer < members_.size; ++peer) {
      const MessageCall& other = calls_[static_cast<size_t>(peer)];
      if (other == call) continue;
      throw CommunicationError("the members disagree: " + member(peer) + " calls " + other.text() + ", " +
                                   member(members_.rank) + " calls " + call.text(),
                               AA_FAILED_PRECONDITION);
    }
  }

  // Runs one operation, and records the first failure.
  template <class Body>
  void run(const MessageCall& call, const Body& body) {
    {
      const std::lock_guard lock(mutex_);
      if (failed_) throw CommunicationError(failure_);
    }
    try {
      body();
    } catch (const CommunicationError& error) {
      std::string why = "ccl, " + call.text() + ", " + member(members_.rank) + ": " + error.what();
      {
        const std::lock_guard lock(mutex_);
        if (!failed_ && members_.watch && members_.watch->failed()) why = error.what();
        if (!failed_) failure_ = std::move(why);
        failed_ = true;
        why = failure_;
      }
      member_->interrupt();
      base_->abort(why);
      throw CommunicationError(why, error.code());
    }
  }

  const std::string name_ = "ccl";
  Membership members_;
  const std::unique_ptr<HostCommunicator> base_;
  std::unique_ptr<CclMember> member_;
  std::vector<MessageCall> calls_;  // calls of all members, in agree()
  uint64_t sequence_ = 0;

  std::mutex mutex_;  // guards the two below
  std::string failure_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_ccl_communicator(const Membership& membership,
                                                        std::unique_ptr<HostCommunicator> base) {
  return std::make_unique<CclCommunicator>(membership, std::move(base));
}

}  // namespace anyaccel::comm
