// Process groups: collective operations on tensors between the processes of a job.
//
//   // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or from MPI or Slurm.
//   auto world = comm::init_process_group();
//   world->all_reduce(tensor);  // in place, on every rank
//
// Every member of a group calls the same operations in the same order with the same numbers of elements, dtypes,
// reductions and roots; a difference is a CommunicationError on every rank, at the latest in its next operation
// (an accelerator's own library, for tensors on a device, compares nothing). Results are bit-identical on all ranks, and
// do not depend on timing. Tensors are contiguous (else InvalidArgument) and on the host, on the accelerator of the
// process, or empty (numel 0).
//
// An operation without async_op is in order with the tensor's stream, as an op is: on an accelerator whose work is
// complete when a call returns it blocks; on others it is enqueued on the current stream, and failures are reported by
// the group's next operation or check(). With async_op it returns at once on every accelerator, and the tensors must
// not be changed or freed until wait(). An object may be used by one thread at a time.
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

// Avg is Sum divided by the group's size, of numbers only; the three bitwise operations accept integers and bool only
// (else InvalidArgument). 16-bit floats are reduced in fp32 and rounded once; integers wrap. Libraries round sums and
// products in their own way: oneCCL with the backend ccl, and the accelerator's own library for tensors on a device.
enum class ReduceOp { Sum, Product, Min, Max, Avg, BitAnd, BitOr, BitXor };
const char* reduce_op_name(ReduceOp op) noexcept;

// An operation in progress. An empty handle is complete.
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

  // Returns whether it is complete or has failed. Does not block.
  bool done() const { return !state_ || state_->done(); }
  // Blocks until it is complete; on a device, makes the current stream wait instead. Throws its failure.
  void wait() const {
    if (state_) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

struct InitOptions {
  // "shm", "gloo", "mpi", "ccl", or the library of the accelerator ("nccl", ...): the named backend is used, or an
  // error lists the available ones; the same on every rank. Empty: the one that ANYACCEL_COMM_BACKEND names; without
  // it, communication_backend_name() of the accelerator if its library can be used, else gloo between hosts and shared
  // memory inside one; rank 0 logs a warning with the reason why the library cannot be used.
  std::string backend;
  // Options left at their defaults are taken from the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE,
  // MASTER_ADDR, MASTER_PORT, or the variables of MPI, PMI and Slurm.
  int rank = -1;
  int world_size = -1;
  std::string master_addr;
  int master_port = -1;
  // Maximum time that one operation waits for its peers; if zero, DEEPSPEED_TIMEOUT (minutes), else 30 minutes.
  std::chrono::milliseconds timeout{0};
  // Maximum time until all ranks have joined; if zero, ANYACCEL_JOIN_TIMEOUT (seconds), else 5 minutes, or `timeout` if
  // that is less.
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
  // "shm", "gloo", "mpi", "ccl", "nccl", ...: the transport between the group's members.
  virtual const std::string& backend() const noexcept = 0;

  // Creates a group of the members `members` (ranks of this group, in the order of their new ranks). Every member of
  // this group calls it with the same list, in the same order; those not in the list get null.
  virtual std::shared_ptr<ProcessGroup> new_group(std::span<const int> members) = 0;

  // -- in place on `tensor` --
  virtual Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::Sum, bool async_op = false) = 0;
  // The result is on rank `root`; the others' tensors have undefined contents.
  virtual Work reduce(const Tensor& tensor, int root, ReduceOp op = ReduceOp::Sum, bool async_op = false) = 0;
  virtual Work broadcast(const Tensor& tensor, int root, bool async_op = false) = 0;

  // -- from `input` to `output`, which do not overlap unless stated otherwise; n is size() --
  // output [n * input.numel()], rank r's input at place r. input may be its own place of output.
  virtual Work all_gather(const Tensor& output, const Tensor& input, bool async_op = false) = 0;
  // input [n * output.numel()]: every slice is reduced, and rank r gets slice r.
  virtual Work reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::Sum,
                              bool async_op = false) = 0;
  // Like all_gather, but only rank `root` gets the result; the others may pass an empty handle as output.
  virtual Work gather(const Tensor& output, const Tensor& input, int root, bool async_op = false) = 0;
  // Rank r gets slice r of root's input; the others may pass an empty handle as input.
  virtual Work scatter(const Tensor& output, const Tensor& input, int root, bool async_op = false) = 0;
  // Slice p of input goes to rank p; slice p of output comes from rank p. All slices have the same length.
  virtual Work all_to_all(const Tensor& output, const Tensor& input, bool async_op = false) = 0;

  // -- between this rank and rank `peer` of the group; messages of one pair and tag arrive in order. Tags are 0 or
  // more. A send may last until the peer calls recv, and later operations of the group wait for it, with async_op too:
  // of two ranks that exchange messages one has to receive first. --
  virtual Work send(const Tensor& tensor, int peer, int tag = 0, bool async_op = false) = 0;
  virtual Work recv(const Tensor& tensor, int peer, int tag = 0, bool async_op = false) = 0;

  // Returns when every member has called it and this rank's earlier operations are complete.
  virtual void barrier() = 0;

  // -- for decoding --
  // all_reduce with ReduceOp::Sum and low latency. It may be captured in a graph and then runs again at each replay;
  // the capture throws NotImplementedError if the accelerator has no collectives library for it and its driver lacks
  // host calls or page-locked memory. With tensors of shared_tensor() nothing is copied.
  virtual void inference_all_reduce(const Tensor& tensor) = 0;
  // Gathers columns: member m has elements [begins[m], begins[m + 1]) of the tensor's last dimension, and afterwards every
  // member has all of them. begins: size() + 1 numbers that rise from 0 to that dimension, the same on every member, which
  // only members that share memory compare. Made for those: others sum bytes, and a device's tensor goes through the host,
  // so that a capture needs its driver's host calls and page-locked memory.
  virtual void inference_gather_columns(const Tensor& tensor, std::span<const int64_t> begins) = 0;
  // Allocates a tensor in memory that all members can access, for operations without copies on host-coherent
  // accelerators of one host; elsewhere an ordinary tensor of the device. Every member calls it with the same shape and
  // dtype.
  virtual Tensor shared_tensor(const Shape& shape, DType dtype, Device device = {}) = 0;

  // Throws the group's failure, if there is one, including failures of enqueued and captured operations.
  virtual void check() = 0;

 protected:
  ProcessGroup() = default;
};

// Joins the job: every process of it calls this once. Blocks until all have joined, for at most join_timeout, or until
// a rank that `anyaccel launch` started has ended without joining. The group becomes world(). If neither environment
// nor options describe a job, it is a group of this process only. Throws CommunicationError, which says what is
// missing, which ranks did not join, or which were rejected, and InvalidArgument for contradictory options and for a
// second call without destroy_process_group() in between.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
// Returns this process's index among those of its host, from the same sources; 0 if unknown. For a program that gives
// each process its own device, before init_process_group(): set_device(local_rank() % device_count()). Throws
// InvalidArgument for contradictory variables.
int local_rank();
// Returns how many ranks the job of this process has, from the same sources; 1 if there is no job. Throws
// InvalidArgument for contradictory variables.
int job_size();
// Returns the group of all processes; null before init_process_group() and after destroy_process_group().
std::shared_ptr<ProcessGroup> world() noexcept;
// Leaves the job; groups that are still held remain valid objects but fail at their next use. Every rank calls it when
// it is done: the others treat a process that ends without it as failed. Rank 0, which runs the store, returns last.
void destroy_process_group();
// Leaves the job because of an error of this process: the other ranks' operations throw a CommunicationError that
// quotes `why`. For a program's outermost catch. Does nothing outside of a job.
void abort_process_group(const std::string& why) noexcept;

}  // namespace anyaccel::comm
