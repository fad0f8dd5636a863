// Runs the operations of one group on host memory in order, with logging, on the caller's thread, in a stream, or on
// the group's own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "comm/comms_log.h"
#include "comm/group/group_failure.h"
#include "comm/group/operation_order.h"
#include "comm/host_communicator.h"

namespace anyaccel::comm {

// The name and message size of an operation in the log.
struct OperationLabel {
  CommOp op;
  size_t bytes;
};

class OperationRunner {
 public:
  // `on_failure`: see GroupSetup.
  OperationRunner(std::unique_ptr<HostCommunicator> communicator, std::shared_ptr<CommsLog> log,
                  std::function<void(const std::string&)> on_failure);
  // Ends the thread after the queued tasks.
  ~OperationRunner();

  HostCommunicator& communicator() noexcept { return *communicator_; }
  OperationOrder& order() noexcept { return order_; }
  void check() const { failure_.check(); }
  bool failed() const noexcept { return failure_.failed(); }

  // Runs `body` on this thread when it is the ticket's turn. Rethrows exceptions of `body`; a CommunicationError ends
  // the group.
  template <class Body>
  void run(OperationOrder::Ticket ticket, OperationLabel label, Body&& body) {
    order_.wait_turn(ticket);
    const Completion completion{order_, ticket};
    run_now(label, body);
  }

  // The same without a ticket: for captured work, which is ordered by the replay of its graph.
  template <class Body>
  void run_now(OperationLabel label, Body&& body) {
    failure_.check();
    try {
      if (!log_) [[likely]] {
        body();
        return;
      }
      const auto start = std::chrono::steady_clock::now();
      body();
      log_->record(label.op, label.bytes, communicator_->size(), std::chrono::steady_clock::now() - start);
    } catch (const CommunicationError& error) {
      fail(error.what(), error.code());
      throw;
    }
  }

  // Sets a callback of `fail`: called once, with the reason, on any thread; must not throw. Set it before the first
  // operation.
  void set_abort(std::function<void(const std::string&)> abort) { abort_ = std::move(abort); }

  // Starts the group's thread unless it runs. Throws UnavailableError if the system refuses it: call this before the ticket
  // of the operation is issued, as nothing would complete that ticket.
  void start();
  // Runs `task` on the group's thread, which was started, after earlier tasks. It must not throw.
  void queue(std::function<void()> task);

  // Ends the group: waiting operations soon return with an error, later ones throw it. Any thread.
  void fail(const std::string& message, aa_code code) noexcept;
  // The same for a failure that the job already knows.
  void fail_silently(const std::string& message, aa_code code) noexcept;

 private:
  struct Completion {
    OperationOrder& order;
    OperationOrder::Ticket ticket;
    ~Completion() { order.complete(ticket); }
  };

  void work();
  void stop_waiting(const std::string& message) noexcept;

  std::unique_ptr<HostCommunicator> communicator_;
  std::shared_ptr<CommsLog> log_;
  std::function<void(const std::string&)> on_failure_;
  std::function<void(const std::string&)> abort_;
  GroupFailure failure_;
  OperationOrder order_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;  // once started
};

}  // namespace anyaccel::comm
