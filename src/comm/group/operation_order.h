// Keeps the order of a group's operations: each takes a ticket when it is issued and runs when all earlier ones are
// complete, whichever thread runs it (the caller, the group's thread for asynchronous operations, a stream's for host
// calls).
//
// Tickets are issued by one thread at a time. Every issued ticket must be completed, even if its operation failed.
#pragma once

#include <atomic>
#include <cstdint>

namespace anyaccel::comm {

class OperationOrder {
 public:
  using Ticket = uint32_t;  // wraps around; waits compare for equality

  Ticket issue() noexcept { return issued_++; }

  // Blocks until every earlier ticket is complete.
  void wait_turn(Ticket ticket) const noexcept {
    for (Ticket now = completed_.load(std::memory_order_acquire); now != ticket;
         now = completed_.load(std::memory_order_acquire)) {
      completed_.wait(now, std::memory_order_acquire);
    }
  }

  // Blocks until everything issued so far is complete.
  void wait_all() const noexcept { wait_turn(issued_); }

  void complete(Ticket ticket) noexcept {
    completed_.store(ticket + 1, std::memory_order_seq_cst);  // before notify_all checks for waiting threads
    completed_.notify_all();
  }

 private:
  Ticket issued_ = 0;
  std::atomic<Ticket> completed_{0};
};

}  // namespace anyaccel::comm
