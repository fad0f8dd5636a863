// Implements one member of a communicator of oneCCL on host memory.
//
// A call of the library returns only when all members have made it: it cannot be interrupted, and when a member has
// died it never returns. Therefore a thread of this object makes the calls, on separate memory to and from which data
// is copied in pieces, while the caller waits for the thread, the failure watch and the time limit. When the caller
// stops waiting, thread and memory are abandoned: they stay until the process ends, and no longer access the caller's
// memory.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "comm/ccl/ccl_library.h"
#include "comm/host_communicator.h"
#include "comm/wait_limit.h"

namespace anyaccel::comm {

// Used by one thread at a time, except interrupt(). Members make the same calls in the same order; ranks and roots are those
// of the communicator, counts are in elements, and sizes go beyond 2 GiB. Each call throws CommunicationError: when the
// library fails, the watch reports a failure, the time limit passes (AA_DEADLINE_EXCEEDED), or after interrupt(). Then only
// the destructor may be called.
class CclMember {
 public:
  // Joins; blocks until every member has joined. `id` was created by one of the members. `watch` may be null.
  CclMember(const CclLibrary& library, const CclId& id, int rank, int size, std::shared_ptr<FailureWatch> watch,
            std::chrono::milliseconds timeout);
  // Leaves the library's communicator untouched until the process ends, with a thread and some file descriptors: its
  // destruction ends the process if the member that created the id has ended.
  ~CclMember();
  CclMember(const CclMember&) = delete;
  CclMember& operator=(const CclMember&) = delete;

  static CclId make_id(const CclLibrary& library);
  // Returns whether the library reduces this type with this operation on the CPU. It lacks bitwise operations and
  // averages.
  static bool has(DType dtype, ReduceOp op) noexcept;
  // Returns whether it does so as ProcessGroup demands: not for minimum and maximum of floats, where a NaN must win.
  static bool reduces(DType dtype, ReduceOp op) noexcept;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  // The three reductions require has(dtype, op).
  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op);
  void reduce(void* data, int64_t count, DType dtype, ReduceOp op, int root);
  void reduce_scatter(void* recv, const void* send, int64_t count, DType dtype, ReduceOp op);
  void broadcast(void* data, size_t bytes, int root);
  void all_gather(void* recv, const void* send, size_t bytes);
  void all_to_all(void* recv, const void* send, size_t bytes);

  // Makes the current call, and every later one, fail soon; any thread.
  void interrupt() noexcept { interrupted_.store(true, std::memory_order_relaxed); }

 private:
  struct Worker;

  // Begins an operation: its time limit, and memory for its calls.
  void begin(size_t in_bytes, size_t out_bytes);
  // Runs `body` on the thread and waits for it. `function` is for the error message.
  void call(const char* function, std::function<int(Worker&)> body);

  const CclLibrary& library_;
  const int rank_, size_;
  const std::shared_ptr<FailureWatch> watch_;
  const std::chrono::milliseconds timeout_;
  WaitLimit limit_;  // of the operation in progress
  std::atomic<bool> interrupted_ = false;
  bool abandoned_ = false;
  std::shared_ptr<Worker> worker_;  // shared with its thread
};

}  // namespace anyaccel::comm
