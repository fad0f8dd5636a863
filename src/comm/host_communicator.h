// Declares the interface for collectives of one group on host memory, which is implemented by shared memory, Gloo, MPI,
// oneCCL and combinations, and used by ProcessGroup, which adds tensors, streams, handles and logging.
//
// Calls block until the caller's part is done: its result is complete and its memory may be used again. One call at a
// time; every member makes the same calls in the same order. Memory is contiguous; counts are in elements and may be 0;
// sizes go beyond 2 GiB. Results are bit-identical on all members: elements are combined in the order of ranks.
// Throws CommunicationError, after which the object must not be used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/comm/process_group.h"
#include "anyaccel/dtype.h"
#include "comm/store/store.h"

namespace anyaccel::comm {

// Reports whether the job has failed elsewhere: a host went silent, a rank left early. Waits poll it at least every few
// milliseconds. failed() is one relaxed atomic load.
class FailureWatch {
 public:
  virtual ~FailureWatch() = default;
  virtual bool failed() const noexcept = 0;
  // Throws the CommunicationError that names the failed rank; returns if nothing failed.
  virtual void check() const = 0;
};

// The data from which a communicator is created.
struct Membership {
  int rank = 0;
  int size = 1;
  // Names of the members, in the group's order: "rank 3 on node2", for messages.
  std::vector<std::string> names;
  // Name or address of the job's rank 0, as its members reach it; empty: they are on one host.
  std::string master_addr;
  std::shared_ptr<Store> store;         // keys of this group alone
  std::shared_ptr<FailureWatch> watch;  // may be null
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
};

// Memory that every member of a communicator has mapped; this member's part of it.
struct SharedBlock {
  std::shared_ptr<void> owner;  // keeps the mapping
  void* data = nullptr;         // this member's block, page-aligned, zeros
  size_t bytes = 0;
};

struct MessageCall;

// The bytes that a call moves for each member, and the dtype of their elements, which the members compare as they do
// the number of bytes. None: just bytes.
struct Amount {
  Amount(size_t count, DType type = DType::None) : bytes(count), dtype(type) {}
  size_t bytes;
  DType dtype;
};

class HostCommunicator {
 public:
  virtual ~HostCommunicator() = default;
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const std::string& name() const noexcept = 0;  // "shm", "gloo", "mpi", "ccl"

  virtual void barrier() = 0;
  virtual void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op) = 0;
  // Only root's memory gets the result; the others' is unchanged or undefined.
  virtual void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root) = 0;
  // recv: `count` elements; send: size() * count.
  virtual void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op) = 0;
  virtual void broadcast(void* data, Amount amount, int root) = 0;
  // recv: size() * amount. send may be this rank's slice of recv.
  virtual void all_gather(void* recv, const void* send, Amount amount) = 0;
  // data: `rows` rows of begins[size()] bytes. Member m has bytes [begins[m], begins[m + 1]) of each row; afterwards all
  // members have all of them. Every member passes the same `begins`, which rise from 0.
  virtual void gather_columns(void* data, int64_t rows, const size_t* begins);
  // recv is used on root only, and may be null elsewhere; likewise send for scatter.
  virtual void gather(void* recv, const void* send, Amount amount, int root) = 0;
  virtual void scatter(void* recv, const void* send, Amount amount, int root) = 0;
  // amount: of each pair.
  virtual void all_to_all(void* recv, const void* send, Amount amount) = 0;
  virtual void send(const void* data, Amount amount, int peer, int tag) = 0;
  virtual void recv(void* data, Amount amount, int peer, int tag) = 0;

  // Collective: every member requests the same size. data == nullptr if there is no such memory. all_reduce() on memory
  // inside a block, at the same offset on every member, copies nothing.
  virtual SharedBlock share(size_t) { return {}; }
  // The following calls are parts of `call`, which the members compare with them. For a communicator that consists of
  // others, and gives them other arguments than it got. Only the communicators between hosts do so.
  virtual void set_caller(const MessageCall&) {}
  // Makes waiting calls return with a CommunicationError soon; any thread.
  virtual void abort(const std::string& why) noexcept = 0;

 protected:
  HostCommunicator() = default;
};

// Connects processes (or threads) of one host. src/comm/shared_memory/
std::unique_ptr<HostCommunicator> make_shared_memory_communicator(const Membership& membership);
// Connects hosts over TCP with the library Gloo. UnavailableError names the package if it is missing. src/comm/gloo/
std::unique_ptr<HostCommunicator> make_gloo_communicator(const Membership& membership);
bool gloo_is_built();
// Connects hosts with the machine's MPI. UnavailableError as above. src/comm/mpi/
std::unique_ptr<HostCommunicator> make_mpi_communicator(const Membership& membership);
// Connects members on any hosts with oneCCL; `base`, which has the same members, does what oneCCL lacks. Collective.
// UnavailableError, on every member, if one cannot use the library. src/comm/ccl/
std::unique_ptr<HostCommunicator> make_ccl_communicator(const Membership& membership,
                                                        std::unique_ptr<HostCommunicator> base);
// Shared memory inside a host, and `between` (one of the two above) among one member of each host. hosts: of each
// member, a number; members with the same number share a host. src/comm/hierarchical/
std::unique_ptr<HostCommunicator> make_hierarchical_communicator(
    const Membership& membership, const std::vector<int>& hosts,
    const std::function<std::unique_ptr<HostCommunicator>(const Membership&)>& between);

}  // namespace anyaccel::comm
