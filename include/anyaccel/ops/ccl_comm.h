// Collectives of oneCCL on host memory, for programs that distribute its addresses themselves: the library that
// "CCLCommBuilder" loads. Other programs use a process group with the backend "ccl" (docs/multi_process.md).
//
//   auto comm = get_accelerator()->create_op_builder("CCLCommBuilder")->load_as<ops::CCLComm>();
//   std::vector<uint8_t> address = comm->get_kvs_addr(rank);
//   ...                                                        // rank 0's address to all others
//   comm->initialize(world_size, rank, address);
//   comm->all_reduce(tensor);
//
// Every member must make the same calls in the same order with the same shapes and dtypes; this is not checked. Calls
// block until the result is complete. Tensors must be contiguous and in memory that the host can access (of the host,
// or of an accelerator whose work is complete when its calls return); else InvalidArgument. A call throws
// CommunicationError if the library fails, if the job that this process has joined (comm::init_process_group()) fails,
// or after the time limit (DEEPSPEED_TIMEOUT minutes, else 30), and the communicator must not be used afterwards. Only
// the last two detect a dead member. An object may be used by one thread at a time.
//
// `ranks` names the communicator: the list with which initialize_sub_comm() made it, or empty for that of initialize().
// InvalidArgument if there is none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel {
class Accelerator;
}
namespace anyaccel::comm {
class CclMember;
}

namespace anyaccel::ops {

class CCLComm : public OpLibrary {
 public:
  using Ranks = std::vector<int>;

  // Throws UnavailableError, which says what to install or to set, if oneCCL cannot be used.
  explicit CCLComm(Accelerator& accelerator);
  ~CCLComm() override;

  // Returns the 4096 bytes by which the members of a communicator find each other: rank 0 creates them; other ranks get
  // zeros, to be overwritten by rank 0's bytes.
  std::vector<uint8_t> get_kvs_addr(int rank) const;
  // Joins the communicator of all ranks. Blocks until every rank has joined. Throws InvalidArgument for a second call,
  // for a rank that is not in 0 ... size - 1, and for an address of another length.
  void initialize(int size, int rank, const std::vector<uint8_t>& kvs_addr);

  // The same for a communicator of some ranks: `first` is true on one of them, which creates the address. `ranks`: its
  // members' numbers; `size` must be their count, and `rank` is this process's place among them.
  std::vector<uint8_t> get_sub_kvs_addr(bool first) const;
  void initialize_sub_comm(int size, int rank, const std::vector<uint8_t>& kvs_addr, const Ranks& ranks);

  // Return this process's place in the communicator, and the number of its members.
  int get_rank(const Ranks& ranks = {}) const;
  int get_world_size(const Ranks& ranks = {}) const;

  // Any dtype. `src`: a place in the communicator.
  void broadcast(const Tensor& tensor, int src, const Ranks& ranks = {});
  // In place: Sum, Product, Min or Max of 8-, 32- and 64-bit integers and of 16-, 32- and 64-bit floats as oneCCL
  // combines them; bools are added and maximized by "or", multiplied and minimized by "and". Throws InvalidArgument for
  // others.
  void all_reduce(const Tensor& tensor, comm::ReduceOp op = comm::ReduceOp::Sum, const Ranks& ranks = {});
  // Sums over all ranks: by comm::world() if this process has joined it as the same rank of the same size and it works
  // through shared memory, which every rank or none must have done; else, and for other operations, as all_reduce().
  void inference_all_reduce(const Tensor& tensor, comm::ReduceOp op = comm::ReduceOp::Sum);
  // Like all_reduce(). A match_id stands for one count, dtype and operation of a communicator: it throws
  // InvalidArgument if it is used for another. oneCCL's C interface caches nothing between such calls.
  void all_reduce_caching(const Tensor& tensor, comm::ReduceOp op, const std::string& match_id,
                          const Ranks& ranks = {});
  void barrier(const Ranks& ranks = {});

  // Returns "broadcast", "all_reduce", "inference_all_reduce", "all_reduce_caching" and "barrier".
  std::vector<std::string> get_available_coll() const;

 private:
  struct Kept {
    int64_t count;
    DType dtype;
    comm::ReduceOp op;
    bool operator==(const Kept&) const = default;
  };

  void join(int size, int rank, const std::vector<uint8_t>& kvs_addr, const Ranks& ranks);
  comm::CclMember& member(const Ranks& ranks) const;
  void check_tensor(const Tensor& tensor, const char* call) const;

  Accelerator& accelerator_;
  std::map<Ranks, std::unique_ptr<comm::CclMember>> members_;
  std::map<std::pair<Ranks, std::string>, Kept> kept_;  // by communicator and match_id
};

}  // namespace anyaccel::ops
