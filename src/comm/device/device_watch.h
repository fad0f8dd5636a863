// Watches a communicator of devices: a thread checks for failures of the job, errors of the library, and operations
// that exceed the time limit (except those of captured graphs). Code that waits on the device would not notice any of
// these: the watch aborts the communicator, so that streams and calls are released.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "anyaccel/abi/table_calls.hpp"
#include "anyaccel/stream.h"
#include "comm/group/group_failure.h"
#include "comm/host_communicator.h"
#include "comm/wait_limit.h"

namespace anyaccel::comm {

class DeviceWatch {
 public:
  struct Subject {
    std::string label;  // "nccl, rank 3 on node2", for messages
    const abi::Calls<aa_collectives_table>* table = nullptr;
    aa_comm* comm = nullptr;
    Event marks[2];  // of the communicator's device
    std::shared_ptr<FailureWatch> job;
    std::chrono::milliseconds timeout{};
    std::function<void(const std::string&)> on_failure;  // may destroy the owner of this object
    bool alone = false;                                  // a group of one never waits and has no thread
  };
  explicit DeviceWatch(Subject subject);
  // Ends the thread.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Call after enqueuing an operation on the stream.
  void mark(const Stream& stream);

  bool failed() const noexcept { return failure_.failed(); }
  void check() const { failure_.check(); }
  // Checks the library now.
  void check_library();
  // Ends the group with an error from the library, unless it has ended. Never returns.
  [[noreturn]] void fail_of_library(const std::string& text, aa_code code);
  // Ends the group, unless it has ended; any thread.
  void fail(const std::string& why, aa_code code) noexcept;
  // Blocks until the marked work is complete, or the group has failed. Never throws.
  void drain() noexcept;
  // Blocks until the event is reached; throws the failure of the group.
  void wait_for(const Event& event) const;

 private:
  void run();
  void look() noexcept;
  void look_at_job() const;
  void look_at_operations();

  Subject subject_;
  GroupFailure failure_;

  // The two events alternate: operations record one while the thread waits for the other.
  std::mutex marks_mutex_;
  int marking_ = 0;
  uint64_t marked_ = 0;  // operations
  // State of the thread.
  uint64_t awaited_ = 0;  // number of operations that were marked when it began to wait
  bool waits_ = false;
  WaitLimit limit_;          // of the operation that it waits for
  bool found_here_ = false;  // the failure

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::comm
