// Runs collectives of one group on device memory with the accelerator's own library (abi/collectives.h): ProcessGroup
// uses it for tensors on a device, and a HostCommunicator for those of the host.
//
// Functions have the names and arguments of HostCommunicator, but take device memory, and are enqueued on the calling
// thread's current stream of the device: the host does not wait for the work, unless stated otherwise. They may be
// captured in a graph. Every member makes the same calls in the same order; one call at a time, except abort() and
// failed(). Counts are in elements, and may be 0. Results are the same bits on all members, but sums of floats may be
// rounded differently than by a HostCommunicator.
//
// A group that fails (see device_watch.h) ends: streams and calls that wait are released, and every later call throws
// the same CommunicationError. Results of unfinished work are undefined: call check() after a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/accelerator.h"
#include "comm/device/device_watch.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

class DeviceCommunicator {
 public:
  // Joins with the device `device_index`. Every member of the group calls it at the same point; blocks until all have.
  // Returns null on every member if the library cannot serve the group (it is missing on one of them, it rejects two
  // members on one device, ...), with the reason in `why`. CommunicationError if a member does not join. `on_failure`
  // is called once with the failure that ended the group, on any thread; it must not throw, and may be empty.
  static std::unique_ptr<DeviceCommunicator> create(Accelerator& accelerator, int device_index,
                                                    const Membership& membership, std::string& why,
                                                    std::function<void(const std::string&)> on_failure = {});
  // Waits until the work is complete or has failed.
  ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int device_index() const noexcept { return device_; }
  const std::string& name() const noexcept { return name_; }        // "nccl"
  const std::string& version() const noexcept { return version_; }  // "2.28.9"

  // Returns whether the library reduces elements of this type with this operation. If not, such reductions throw
  // NotImplementedError, and the tensor must be copied through the host.
  bool reduces(DType dtype, ReduceOp op) const noexcept;
  // Returns whether it supports point-to-point messages: gather, scatter, all_to_all, send, recv. If not, these throw
  // NotImplementedError.
  bool exchanges() const noexcept { return exchanges_; }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op);
  // Only root's memory gets the result; the others' is unchanged.
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root);
  // recv: `count` elements; send: size() * count. recv may be this rank's place in send.
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op);
  void broadcast(void* data, Amount amount, int root);
  // recv: size() * amount. send may be this rank's place in recv.
  void all_gather(void* recv, const void* send, Amount amount);
  // recv is used on root only, and may be null elsewhere; likewise send for scatter. root's own slice may be in place.
  void gather(void* recv, const void* send, Amount amount, int root);
  void scatter(void* recv, const void* send, Amount amount, int root);
  // amount: of each pair.
  void all_to_all(void* recv, const void* send, Amount amount);
  // Sends to and receives from another member. Messages of a pair arrive in order; there are no tags.
  void send(const void* data, Amount amount, int peer);
  void recv(void* data, Amount amount, int peer);

  // Blocks until every member has called it and the current stream's earlier work is complete.
  void barrier();
  // Blocks until the work on the current stream is complete; throws when the group failed meanwhile.
  void synchronize();
  // Throws the group's failure, if there is one, including a failure of work that was enqueued earlier. Does not block.
  void check();
  bool failed() const noexcept { return watch_->failed(); }
  // Releases waiting calls with an error; any thread.
  void abort(const std::string& why) noexcept;

 private:
  DeviceCommunicator(Accelerator& accelerator, int device_index, const Membership& membership);

  // Calls a function of the table on the current stream, and marks the stream for the watch.
  template <class Call>
  void enqueue(const char* function, Call&& call);
  // The same for sends and receives that start together.
  template <class Call>
  void exchange(const char* function, Call&& call);
  void copy_own(void* to, const void* from, size_t bytes);
  void need(const char* function, DType dtype, ReduceOp op) const;
  void find_abilities(const CollectivesAccess& access);
  [[noreturn]] void take(aa_status* status, const char* function);

  Accelerator& accelerator_;
  const int device_;
  const int rank_;
  const int size_;
  const std::string member_;  // "rank 3 on node2", for messages
  std::string name_;
  std::string version_;
  uint32_t reductions_[16] = {};  // by dtype: bits of aa_reduce_op
  bool exchanges_ = false;

  std::shared_ptr<Storage> token_;  // of barrier(); keeps the device open
  const abi::Calls<aa_collectives_table>* table_ = nullptr;
  aa_instance* instance_ = nullptr;
  aa_comm* comm_ = nullptr;
  std::unique_ptr<DeviceWatch> watch_;
};

}  // namespace anyaccel::comm
