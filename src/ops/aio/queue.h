// A queue of single transfers: io_uring, or a pool of threads that call pread and pwrite. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anyaccel/tensor.h"

namespace anyaccel::ops::aio {

// One transfer between memory and a file. The queue changes nothing but `result`.
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
  // At most as many between submit() and reap() as the queue was made for; the transfer must stay where it is until then.
  virtual void submit(Transfer* transfer) = 0;
  // Starts what was submitted.
  virtual void flush() {}
  // The same; then waits until one transfer at least is complete, and appends the complete ones to `done`. Only called
  // with transfers under way.
  virtual void reap(std::vector<Transfer*>& done) = 0;

  // Memory that comes back is pinned for the ring once instead of for every transfer. use() announces page-locked memory
  // of a request; the number of the registered buffer that holds all of [memory, memory + length) is then
  // registered_buffer(). -1: none does, go on without.
  virtual void use(const std::shared_ptr<Storage>& storage) { (void)storage; }
  virtual int registered_buffer(const std::shared_ptr<Storage>& storage, const char* memory, size_t length) const {
    (void)storage, (void)memory, (void)length;
    return -1;
  }
};

// Null when the system refuses io_uring, with the reason in `why`. `single_submit`: every transfer is started by a system
// call of its own.
std::unique_ptr<TransferQueue> make_uring_queue(unsigned depth, bool single_submit, std::string* why);

std::unique_ptr<TransferQueue> make_thread_queue(unsigned depth);

}  // namespace anyaccel::ops::aio
