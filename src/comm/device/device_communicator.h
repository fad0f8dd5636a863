// Collectives of one group between memory of devices, by the accelerator's own library (abi/collectives.h): what
// ProcessGroup uses for tensors on a device, beside a HostCommunicator for the host's.
//
// Functions have the names and arguments of HostCommunicator, but take device memory, and are enqueued on the calling thread's
// current stream of the device: the host does not wait for the work, except where a line says so. They may be captured in a
// graph. Every member makes the same calls in the same order; one call at a time, except abort() and failed(). Counts are
// in elements, and may be 0. Results are the same bits on all members, but sums of floats may be rounded otherwise than a
// HostCommunicator's.
//
// A group that fails (see device_watch.h) ends: streams and calls that wait go on, and every call from then on throws the
// same CommunicationError. Results of work that was under way are undefined: check() tells after a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "anyaccel/abi/collectives.h"
#include "anyaccel/accelerator.h"
#include "comm/device/device_watch.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

class DeviceCommunicator {
 public:
  // Joins with the device `device_index`. Every member of the group calls it at the same place; blocks until all have. Null,
  // on every member alike, where the library cannot serve the group (it is missing on one of them, it refuses two members on
  // one device, ...); `why` then says so. CommunicationError when a member does not come. `on_failure` is told once of the
  // failure that ended the group, on any thread; it must not throw, and may be empty.
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

  // Whether the library combines elements of this type in this way. When not, reductions of it throw NotImplementedError:
  // the tensor has to go through the host.
  bool reduces(DType dtype, ReduceOp op) const noexcept;
  // Whether it has messages between two members: gather, scatter, all_to_all, send, recv. NotImplementedError without.
  bool exchanges() const noexcept { return exchanges_; }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op);
  // Only root's memory holds the result; the others' is unchanged.
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root);
  // recv: `count` elements; send: size() * count. recv may be this rank's place in send.
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op);
  void broadcast(void* data, size_t bytes, int root);
  // recv: size() * bytes. send may be this rank's place in recv.
  void all_gather(void* recv, const void* send, size_t bytes);
  // recv counts on root only, may be null elsewhere; send the same for scatter. root's own place may be in place.
  void gather(void* recv, const void* send, size_t bytes, int root);
  void scatter(void* recv, const void* send, size_t bytes, int root);
  // bytes: of each pair.
  void all_to_all(void* recv, const void* send, size_t bytes);
  // To and from another member. Messages of a pair arrive in order; there are no tags.
  void send(const void* data, size_t bytes, int peer);
  void recv(void* data, size_t bytes, int peer);

  // Blocks until every member has called it and the current stream's earlier work is complete.
  void barrier();
  // Blocks until the work on the current stream is complete; throws when the group failed meanwhile.
  void synchronize();
  // Throws the group's failure, if there is one, that of work enqueued earlier included. Does not block.
  void check();
  bool failed() const noexcept { return watch_->failed(); }
  // Makes what waits go on with an error; any thread.
  void abort(const std::string& why) noexcept;

 private:
  DeviceCommunicator(Accelerator& accelerator, int device_index, const Membership& membership);

  // Makes a call of the table on the current stream, and marks the stream for the watch.
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
  const aa_collectives_table* table_ = nullptr;
  aa_instance* instance_ = nullptr;
  aa_comm* comm_ = nullptr;
  std::unique_ptr<DeviceWatch> watch_;
};

}  // namespace anyaccel::comm
