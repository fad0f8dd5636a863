// Process groups: collectives on tensors between the processes of a job.
//
//   auto world = comm::init_process_group();      // from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or from MPI or Slurm
//   world->all_reduce(tensor);                    // in place, on every rank
//
// Every member of a group calls the same operations in the same order with the same shapes and dtypes; what a rank finds
// to differ is a CommunicationError on every rank. Results are bit-identical on all ranks, and do not depend on timing.
// Tensors are contiguous (else InvalidArgument) and on the host, on the accelerator of the process, or empty (numel 0).
//
// An operation without async_op is in order with the tensor's stream, as an op is: on an accelerator whose work is
// complete when a call returns it blocks; on others it is enqueued on the current stream, and failures come from the
// group's next operation or check(). With async_op it returns at once on every accelerator, and the tensors must stay as
// they are until wait(). An object may be used by one thread at a time.
//
// Failures: a peer that died, a time limit that passed, or a disagreement ends the group with a CommunicationError that
// names the rank and its host; every later operation throws the same error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/tensor.h"

namespace anyaccel::comm {

// Avg is Sum divided by the group's size. The three of bits take integers only. 16-bit floats are reduced in fp32 and
// rounded once; integers wrap.
enum class ReduceOp { Sum, Product, Min, Max, Avg, BitAnd, BitOr, BitXor };
const char* reduce_op_name(ReduceOp op) noexcept;

// An operation on its way. An empty handle is complete.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    virtual void wait() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Whether it is complete or has failed. Does not block.
  bool done() const { return !state_ || state_->done(); }
  // Blocks until it is; on a device: makes the current stream wait. Throws its failure.
  void wait() const {
    if (state_) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

struct InitOptions {
  // "shm", "gloo", "mpi", or the library of the accelerator ("nccl", ...): what is named runs, or is an error that lists what
  // could; the same on every rank. Empty: communication_backend_name() of the accelerator where its library can be used, else
  // gloo between hosts and shared memory inside one; a warning of rank 0 says why the library cannot.
  std::string backend;
  // What is left at its default comes from the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, MASTER_ADDR,
  // MASTER_PORT, or what MPI, PMI and Slurm set.
  int rank = -1;
  int world_size = -1;
  std::string master_addr;
  int master_port = -1;
  // Most time that one operation waits for its peers; DEEPSPEED_TIMEOUT (minutes) where zero, else 30 minutes.
  std::chrono::milliseconds timeout{0};
  // Most time until all ranks have joined; ANYACCEL_JOIN_TIMEOUT (seconds) where zero, else 5 minutes, or `timeout` where that
  // is less.
  std::chrono::milliseconds join_timeout{0};
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual int rank() const noexcept = 0;  // in this group
  virtual int size() const noexcept = 0;
  // World ranks of the members, in the group's order.
  virtual const std::vector<int>& ranks() const noexcept = 0;
  // "shm", "gloo", "mpi", "nccl", ...: what carries messages between the group's members.
  virtual const std::string& backend() const noexcept = 0;

  // A group of the members `members` (ranks of this group, in the order of their new ranks). Every member of this group
  // calls it with the same list, in the same order; those not in the list get null.
  virtual std::shared_ptr<ProcessGroup> new_group(std::span<const int> members) = 0;

  // -- in place on `tensor` --
  virtual Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::Sum, bool async_op = false) = 0;
  // The result is on rank `root`; the others' tensors are left undefined.
  virtual Work reduce(const Tensor& tensor, int root, ReduceOp op = ReduceOp::Sum, bool async_op = false) = 0;
  virtual Work broadcast(const Tensor& tensor, int root, bool async_op = false) = 0;

  // -- from `input` to `output`, which do not overlap unless a line says so; n is size() --
  // output [n * input.numel()], rank r's input at place r. input may be its own place of output.
  virtual Work all_gather(const Tensor& output, const Tensor& input, bool async_op = false) = 0;
  // input [n * output.numel()]: every place is reduced, and rank r gets place r.
  virtual Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::Sum,
                              bool async_op = false) = 0;
  // As all_gather, but for `root` alone; the others may pass an empty handle as output.
  virtual Work gather(const Tensor& output, const Tensor& input, int root, bool async_op = false) = 0;
  // Rank r gets place r of root's input; the others may pass an empty handle as input.
  virtual Work scatter(const Tensor& output, const Tensor& input, int root, bool async_op = false) = 0;
  // Place p of input goes to rank p; place p of output comes from rank p. All places are of equal length.
  virtual Work all_to_all(const Tensor& output, const Tensor& input, bool async_op = false) = 0;

  // -- between two members; messages of one pair and tag arrive in order --
  virtual Work send(const Tensor& tensor, int peer, int tag = 0, bool async_op = false) = 0;
  virtual Work recv(const Tensor& tensor, int peer, int tag = 0, bool async_op = false) = 0;

  // Returns when every member has called it and this rank's earlier operations are complete.
  virtual void barrier() = 0;

  // -- for decoding --
  // all_reduce with ReduceOp::Sum on the fast path: may be captured in a graph, and then runs again at each replay. With
  // tensors of shared_tensor() nothing is copied.
  virtual void inference_all_reduce(const Tensor& tensor) = 0;
  // A tensor in memory that all members can reach, for operations without copies on host-coherent accelerators of one
  // host; elsewhere an ordinary tensor of the device. Every member calls it with the same shape and dtype.
  virtual Tensor shared_tensor(const Shape& shape, DType dtype, Device device = {}) = 0;

  // Throws the group's failure, if there is one: also of what was enqueued and of captured operations.
  virtual void check() = 0;

 protected:
  ProcessGroup() = default;
};

// Joins the job: every process of it calls it once. Blocks until all are there, for join_timeout at most, and no longer than
// until a rank that `anyaccel launch` started has ended without joining. The group becomes world(). Without any sign of a job
// in environment or options it is a group of this process alone. CommunicationError names what is missing, which ranks did not
// come, or who was refused; InvalidArgument for contradictory options.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
// This process's place among those of its host, by the same signs; 0 where nothing says it. Called before init_process_group()
// by a program that gives each of them a device of its own: set_device(local_rank() % device_count()). InvalidArgument for
// contradictory signs.
int local_rank();
// Null before init_process_group() and after destroy_process_group().
std::shared_ptr<ProcessGroup> world() noexcept;
// Leaves the job; groups that are still held go on to exist and fail at their next use. Every rank calls it when it is
// done: a process that ends without it has failed in the eyes of the others. Rank 0, which the others find each other by,
// returns last.
void destroy_process_group();
// Leaves the job because of an error of this process: the other ranks' operations throw a CommunicationError that quotes
// `why`. For a program's outermost catch. Nothing to do outside of a job.
void abort_process_group(const std::string& why) noexcept;

}  // namespace anyaccel::comm
