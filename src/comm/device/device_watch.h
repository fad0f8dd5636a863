// Watches a communicator of devices: a thread that looks for failures of the job, for errors of the library, and for
// operations that take longer than the time limit (those of captured graphs excepted). Whoever waits on the device would
// not notice any of them: what the watch finds aborts the communicator, so that streams and calls go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "anyaccel/abi/collectives.h"
#include "anyaccel/stream.h"
#include "comm/group/group_failure.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

class DeviceWatch {
 public:
  struct Subject {
    std::string label;  // "nccl, rank 3 on node2", for messages
    const aa_collectives_table* table = nullptr;
    aa_comm* comm = nullptr;
    Event marks[2];  // of the communicator's device
    std::shared_ptr<FailureWatch> job;
    std::chrono::milliseconds timeout{};
    std::function<void(const std::string&)> on_failure;  // may let the owner of this object go
    bool alone = false;                                  // a group of one waits for nobody: no thread
  };
  explicit DeviceWatch(Subject subject);
  // Ends the thread.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // After an operation was enqueued on the stream.
  void mark(const Stream& stream);

  bool failed() const noexcept { return failure_.failed(); }
  void check() const { failure_.check(); }
  // Asks the library now.
  void check_library();
  // Ends the group with an error that the library gave, unless it has ended. Never returns.
  [[noreturn]] void fail_of_library(const std::string& text, aa_code code);
  // Ends the group, unless it has ended; any thread.
  void fail(const std::string& why, aa_code code) noexcept;
  // Blocks until what was marked is complete, or the group has failed. Never throws.
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

  // The two events take turns: operations record one while the thread waits for what the other one marks.
  std::mutex marks_mutex_;
  int marking_ = 0;
  uint64_t marked_ = 0;  // operations
  // Of the thread.
  uint64_t awaited_ = 0;  // operations that were marked when it began to wait
  bool waits_ = false;
  std::chrono::steady_clock::time_point waiting_since_;
  bool found_here_ = false;  // the failure

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::comm
