// Implements the collectives of "CCLCommBuilder", and its builder.
#include "anyaccel/ops/ccl_comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/error.h"
#include "comm/builders.h"
#include "comm/ccl/ccl_library.h"
#include "comm/ccl/ccl_member.h"
#include "comm/job/discovery.h"
#include "comm/job/job_watch.h"

namespace anyaccel::ops {
namespace {

std::string text_of(const CCLComm::Ranks& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::vector<uint8_t> new_address(bool makes) {
  const comm::CclId id = makes ? comm::CclMember::make_id(comm::CclLibrary::get()) : comm::CclId{};
  return {id.bytes, id.bytes + sizeof(id.bytes)};
}

class CCLCommBuilder final : public OpBuilder {
 public:
  explicit CCLCommBuilder(Accelerator& accelerator) : accelerator_(accelerator) {}
  const std::string& name() const noexcept override { return name_; }
  bool is_compatible(std::string* reason) const override {
    const std::string problem = comm::ccl_problem();
    if (!problem.empty() && reason) *reason = name_ + " needs oneCCL: " + problem;
    return problem.empty();
  }
  std::shared_ptr<OpLibrary> load() override { return std::make_shared<CCLComm>(accelerator_); }

 private:
  const std::string name_ = "CCLCommBuilder";
  Accelerator& accelerator_;
};

}  // namespace

CCLComm::CCLComm(Accelerator& accelerator) : accelerator_(accelerator) { comm::CclLibrary::get(); }
CCLComm::~CCLComm() = default;

std::vector<uint8_t> CCLComm::get_kvs_addr(int rank) const { return new_address(rank == 0); }
std::vector<uint8_t> CCLComm::get_sub_kvs_addr(bool first) const { return new_address(first); }

void CCLComm::initialize(int size, int rank, const std::vector<uint8_t>& kvs_addr) { join(size, rank, kvs_addr, {}); }

void CCLComm::initialize_sub_comm(int size, int rank, const std::vector<uint8_t>& kvs_addr, const Ranks& ranks) {
  if (ranks.empty() || ranks.size() != static_cast<size_t>(size)) {
    throw InvalidArgument("CCLComm::initialize_sub_comm was called for " + std::to_string(size) +
                          " members with the ranks (" + text_of(ranks) + "): pass the number of each member");
  }
  join(size, rank, kvs_addr, ranks);
}

void CCLComm::join(int size, int rank, const std::vector<uint8_t>& kvs_addr, const Ranks& ranks) {
  if (members_.count(ranks)) {
    throw InvalidArgument(ranks.empty()
                              ? "CCLComm::initialize was called twice"
                              : "CCLComm::initialize_sub_comm was called twice for the ranks " + text_of(ranks),
                          AA_FAILED_PRECONDITION);
  }
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("CCLComm: there is no rank " + std::to_string(rank) + " among " + std::to_string(size));
  }
  comm::CclId id{};
  if (kvs_addr.size() != sizeof(id.bytes)) {
    throw InvalidArgument("CCLComm: the address has " + std::to_string(kvs_addr.size()) + " bytes, and must have the " +
                          std::to_string(sizeof(id.bytes)) + " of get_kvs_addr() or get_sub_kvs_addr()");
  }
  std::memcpy(id.bytes, kvs_addr.data(), sizeof(id.bytes));
  if (std::all_of(kvs_addr.begin(), kvs_addr.end(), [](uint8_t byte) { return byte == 0; })) {
    throw InvalidArgument("CCLComm: the address is empty; send the one of the rank that made it to the others");
  }
  members_[ranks] =
      std::make_unique<comm::CclMember>(comm::CclLibrary::get(), id, rank, size, comm::job_failure_watch(),
                                        comm::discover(comm::process_environment(), {}).timeout);
}

comm::CclMember& CCLComm::member(const Ranks& ranks) const {
  const auto found = members_.find(ranks);
  if (found != members_.end()) return *found->second;
  throw InvalidArgument(ranks.empty() ? "CCLComm: a call before initialize(size, rank, address)"
                                      : "CCLComm: initialize_sub_comm was not called for the ranks " + text_of(ranks),
                        AA_FAILED_PRECONDITION);
}

void CCLComm::check_tensor(const Tensor& tensor, const char* call) const {
  if (!tensor) throw InvalidArgument("CCLComm::" + std::string(call) + ": the tensor is an empty handle");
  if (!tensor.is_contiguous()) {
    throw InvalidArgument("CCLComm::" + std::string(call) + ": the tensor " + tensor.shape().to_string() +
                          " is not contiguous; pass contiguous() and copy the result back");
  }
  const bool own = tensor.device().accelerator == &accelerator_;
  if (tensor.device().is_host() || (own && accelerator_.is_host_coherent() && accelerator_.is_synchronized_device())) {
    return;
  }
  throw InvalidArgument(
      "CCLComm::" + std::string(call) + ": the tensor is on " + tensor.device().name() +
      ", and these collectives work on host memory: copy it there, or use a process group, which does");
}

int CCLComm::get_rank(const Ranks& ranks) const { return member(ranks).rank(); }
int CCLComm::get_world_size(const Ranks& ranks) const { return member(ranks).size(); }

void CCLComm::broadcast(const Tensor& tensor, int src, const Ranks& ranks) {
  comm::CclMember& all = member(ranks);
  check_tensor(tensor, "broadcast");
  if (src < 0 || src >= all.size()) {
    throw InvalidArgument("CCLComm::broadcast: there is no rank " + std::to_string(src) + " among " +
                          std::to_string(all.size()));
  }
  all.broadcast(tensor.data(), tensor.nbytes(), src);
}

void CCLComm::all_reduce(const Tensor& tensor, comm::ReduceOp op, const Ranks& ranks) {
  comm::CclMember& all = member(ranks);
  check_tensor(tensor, "all_reduce");
  DType dtype = tensor.dtype();
  comm::ReduceOp how = op;
  if (dtype == DType::Bool) {
    dtype = DType::U8;
    if (op == comm::ReduceOp::Sum) how = comm::ReduceOp::Max;
    if (op == comm::ReduceOp::Product) how = comm::ReduceOp::Min;
  }
  if (!comm::CclMember::has(dtype, how)) {
    throw InvalidArgument("CCLComm::all_reduce: oneCCL does not combine " + std::string(dtype_name(tensor.dtype())) +
                          " by " + comm::reduce_op_name(op) + " on the CPU; a process group does");
  }
  all.all_reduce(tensor.data(), tensor.numel(), dtype, how);
}

void CCLComm::inference_all_reduce(const Tensor& tensor, comm::ReduceOp op) {
  const comm::CclMember& all = member({});
  const auto world = comm::world();
  if (op == comm::ReduceOp::Sum && world && world->size() == all.size() && world->rank() == all.rank() &&
      world->backend() == "shm") {
    return world->inference_all_reduce(tensor);
  }
  all_reduce(tensor, op);
}

void CCLComm::all_reduce_caching(const Tensor& tensor, comm::ReduceOp op, const std::string& match_id,
                                 const Ranks& ranks) {
  member(ranks);
  check_tensor(tensor, "all_reduce_caching");
  const Kept kept{tensor.numel(), tensor.dtype(), op};
  const Kept& before = kept_.try_emplace({ranks, match_id}, kept).first->second;
  if (before != kept) {
    const auto words = [](const Kept& k) {
      return std::to_string(k.count) + " " + std::string(dtype_name(k.dtype)) + " (" + comm::reduce_op_name(k.op) + ")";
    };
    throw InvalidArgument("CCLComm::all_reduce_caching: the match_id \"" + match_id + "\" stands for " + words(before) +
                          ", and was used for " + words(kept) + "; each needs an id of its own");
  }
  all_reduce(tensor, op, ranks);
}

void CCLComm::barrier(const Ranks& ranks) {
  uint8_t byte = 0;
  member(ranks).all_reduce(&byte, 1, DType::U8, comm::ReduceOp::Max);
}

std::vector<std::string> CCLComm::get_available_coll() const {
  return {"broadcast", "all_reduce", "inference_all_reduce", "all_reduce_caching", "barrier"};
}

std::unique_ptr<OpBuilder> make_ccl_comm_builder(Accelerator& accelerator) {
  return std::make_unique<CCLCommBuilder>(accelerator);
}

}  // namespace anyaccel::ops
