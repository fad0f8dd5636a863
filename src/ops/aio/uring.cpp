// Implements a queue of transfers by io_uring.
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <system_error>

#include "anyaccel/log.h"
#include "ops/aio/queue.h"

namespace anyaccel::ops::aio {
namespace {

constexpr size_t largest_buffer = size_t{1} << 30;   // the kernel's limit for one registered buffer
constexpr size_t largest_storage = size_t{8} << 30;  // pinning more takes long
constexpr unsigned table_size = 64;

class UringQueue final : public TransferQueue {
 public:
  explicit UringQueue(bool single_submit) : single_submit_(single_submit) {}
  ~UringQueue() override {
    if (ready_) io_uring_queue_exit(&ring_);
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  // Returns 0 or an errno.
  int init(unsigned depth) {
    // Completions are processed only during system calls of this thread, so it need not be interrupted for them.
    int result = io_uring_queue_init(depth, &ring_, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP);
    if (result == -EINVAL) result = io_uring_queue_init(depth, &ring_, 0);  // Linux before 5.19
    if (result < 0) return -result;
    ready_ = true;
    return 0;
  }

  void submit(Transfer* transfer) override {
    if (dead_) {
      refused_.push_back(transfer);
      transfer->result = -dead_;
      return;
    }
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (!entry) {  // impossible: the ring has room for every transfer in flight
      transfer->result = -EBUSY;
      refused_.push_back(transfer);
      return;
    }
    const auto length = static_cast<unsigned>(transfer->length);
    const auto offset = static_cast<uint64_t>(transfer->offset);
    if (transfer->registered >= 0) {
      if (transfer->write) {
        io_uring_prep_write_fixed(entry, transfer->fd, transfer->memory, length, offset, transfer->registered);
      } else {
        io_uring_prep_read_fixed(entry, transfer->fd, transfer->memory, length, offset, transfer->registered);
      }
    } else if (transfer->write) {
      io_uring_prep_write(entry, transfer->fd, transfer->memory, length, offset);
    } else {
      io_uring_prep_read(entry, transfer->fd, transfer->memory, length, offset);
    }
    io_uring_sqe_set_data(entry, transfer);
    waiting_.push_back(transfer);
    if (single_submit_) enter(0);
  }

  void flush() override {
    if (!waiting_.empty()) enter(0);
  }

  void reap(std::vector<Transfer*>& done) override {
    if (!refused_.empty()) {
      done.insert(done.end(), refused_.begin(), refused_.end());
      refused_.clear();
      return;
    }
    const size_t before = done.size();
    while (done.size() == before) {
      if (!dead_) {
        // No system call is needed if nothing is new and something is complete already.
        if (!waiting_.empty() || io_uring_cq_ready(&ring_) == 0) enter(1);
      } else if (io_uring_cq_ready(&ring_) == 0) {
        usleep(1000);  // the kernel still finishes the transfers that it has accepted
      }
      done.insert(done.end(), refused_.begin(), refused_.end());
      refused_.clear();
      io_uring_cqe* completion = nullptr;
      unsigned head = 0;
      unsigned seen = 0;
      io_uring_for_each_cqe(&ring_, head, completion) {
        auto* transfer = static_cast<Transfer*>(io_uring_cqe_get_data(completion));
        transfer->result = completion->res;
        done.push_back(transfer);
        ++seen;
      }
      io_uring_cq_advance(&ring_, seen);
    }
  }

  void use(const std::shared_ptr<Storage>& storage) override;
  int registered_buffer(const std::shared_ptr<Storage>& storage, const char* memory, size_t length) const override;

 private:
  // Makes one system call, which starts the waiting transfers and sleeps until `wanted` are complete.
  void enter(unsigned wanted) {
    const int result = wanted ? io_uring_submit_and_wait(&ring_, wanted) : io_uring_submit(&ring_);
    if (result >= 0) {
      waiting_.erase(waiting_.begin(), waiting_.begin() + std::min<long>(result, static_cast<long>(waiting_.size())));
      return;
    }
    if (result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ETIME) return;
    // A security policy allowed the creation of the ring but refuses its use. The transfers that the kernel has not
    // accepted fail; none is lost.
    dead_ = -result;
    for (Transfer* transfer : waiting_) {
      transfer->result = result;
      refused_.push_back(transfer);
    }
    waiting_.clear();
  }

  struct Slot {
    std::weak_ptr<Storage> storage;
    char* begin = nullptr;
    size_t bytes = 0;
  };
  // Compares the storage instead of its address: memory that was freed and mapped again has other pages.
  static bool same(const std::weak_ptr<Storage>& a, const std::shared_ptr<Storage>& b) {
    return !a.owner_before(b) && !b.owner_before(a);
  }
  bool register_storage(const std::shared_ptr<Storage>& storage);
  bool update(unsigned slot, void* begin, size_t bytes);

  io_uring ring_{};
  bool ready_ = false;
  const bool single_submit_;
  int dead_ = 0;                    // errno with which the kernel refused the ring's use
  std::deque<Transfer*> waiting_;   // in the ring, not accepted by the kernel yet
  std::vector<Transfer*> refused_;  // completed (with an error) without the kernel
  bool table_tried_ = false;
  std::vector<Slot> slots_;                       // the kernel's table of buffers for this ring; empty: it has none
  std::vector<std::weak_ptr<Storage>> seen_;      // used before, and then registered or refused
  std::deque<std::weak_ptr<Storage>> seen_once_;  // the most recent ones of those that were used once
};

bool UringQueue::update(unsigned slot, void* begin, size_t bytes) {
  const iovec range{begin, bytes};
  const __u64 tag = 0;
  const int result = io_uring_register_buffers_update_tag(&ring_, slot, &range, &tag, 1);
  if (result >= 0) return true;
  if (begin && log_enabled(LogLevel::debug)) {
    log_debug("async I/O: a buffer of " + std::to_string(bytes) +
              " bytes is not registered with io_uring: " + std::generic_category().message(-result) +
              (result == -ENOMEM ? " (limit on locked memory, `ulimit -l`)" : "") + "; going on without");
  }
  return false;
}

bool UringQueue::register_storage(const std::shared_ptr<Storage>& storage) {
  if (storage->bytes() == 0 || storage->bytes() > largest_storage) return false;
  if (!table_tried_) {
    table_tried_ = true;
    if (io_uring_register_buffers_sparse(&ring_, table_size) == 0) slots_.resize(table_size);
  }
  // The pages of a destroyed storage stay pinned until its slot is emptied.
  std::vector<unsigned> free_slots;
  for (unsigned i = 0; i < slots_.size(); ++i) {
    if (slots_[i].begin && slots_[i].storage.expired()) {
      update(i, nullptr, 0);
      slots_[i] = {};
    }
    if (!slots_[i].begin) free_slots.push_back(i);
  }
  const size_t pieces = (storage->bytes() + largest_buffer - 1) / largest_buffer;
  if (pieces > free_slots.size()) return false;
  for (size_t piece = 0; piece < pieces; ++piece) {
    char* begin = static_cast<char*>(storage->data()) + piece * largest_buffer;
    const size_t bytes = std::min(largest_buffer, storage->bytes() - piece * largest_buffer);
    if (!update(free_slots[piece], begin, bytes)) return false;
    slots_[free_slots[piece]] = {storage, begin, bytes};
  }
  return true;
}

void UringQueue::use(const std::shared_ptr<Storage>& storage) {
  const auto is_it = [&](const std::weak_ptr<Storage>& other) { return same(other, storage); };
  if (dead_ || std::any_of(seen_.begin(), seen_.end(), is_it)) return;
  // Pinning costs as much as one use, so it is only done for memory that is used a second time.
  if (std::none_of(seen_once_.begin(), seen_once_.end(), is_it)) {
    seen_once_.push_back(storage);
    if (seen_once_.size() > table_size) seen_once_.pop_front();
    return;
  }
  std::erase_if(seen_, [](const std::weak_ptr<Storage>& other) { return other.expired(); });
  seen_.push_back(storage);
  register_storage(storage);
}

int UringQueue::registered_buffer(const std::shared_ptr<Storage>& storage, const char* memory, size_t length) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.begin && memory >= slot.begin && memory + length <= slot.begin + slot.bytes &&
        same(slot.storage, storage)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

std::unique_ptr<TransferQueue> make_uring_queue(unsigned depth, bool single_submit, std::string* why) {
  auto queue = std::make_unique<UringQueue>(single_submit);
  const int error = queue->init(depth);
  if (error == 0) return queue;
  *why = std::generic_category().message(error) + " (errno " + std::to_string(error) + ')';
  return nullptr;
}

}  // namespace anyaccel::ops::aio
