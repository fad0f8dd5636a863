// Declares a queue of single transfers: io_uring, or a pool of threads that call pread and pwrite. It is used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/tensor.h"

namespace anyaccel::ops::aio {

// One transfer between memory and a file. The queue changes only `result`.
struct Transfer {
  int fd = -1;
  bool write = false;
  char* memory = nullptr;
  size_t length = 0;  // at most 1 GiB
  int64_t offset = 0;
  int registered = -1;  // number of the registered buffer that holds the memory; -1: none does
  int64_t result = 0;   // bytes, or a negative errno
};

class TransferQueue {
 public:
  virtual ~TransferQueue() = default;
  // Submits a transfer, which must not be moved until reap() returns it. At most as many may be between submit() and
  // reap() as the queue was made for.
  virtual void submit(Transfer* transfer) = 0;
  // Starts the submitted transfers.
  virtual void flush() {}
  // Does the same, then waits until at least one transfer is complete, and appends the complete ones to `done`. Only
  // called with transfers in flight.
  virtual void reap(std::vector<Transfer*>& done) = 0;

  // Memory that is used repeatedly is pinned for the ring once instead of for every transfer. use() announces
  // page-locked memory of a request; registered_buffer() then returns the number of the registered buffer that holds
  // all of [memory, memory + length), or -1 if none does, and the transfer works without.
  virtual void use(const std::shared_ptr<Storage>& storage) { (void)storage; }
  virtual int registered_buffer(const std::shared_ptr<Storage>& storage, const char* memory, size_t length) const {
    (void)storage, (void)memory, (void)length;
    return -1;
  }
};

// Returns null if the system refuses io_uring, with the reason in `why`. With `single_submit`, every transfer is
// started by a system call of its own.
std::unique_ptr<TransferQueue> make_uring_queue(unsigned depth, bool single_submit, std::string* why);

std::unique_ptr<TransferQueue> make_thread_queue(unsigned depth);

}  // namespace anyaccel::ops::aio
