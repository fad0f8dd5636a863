// Implements a queue of transfers by a pool of threads that call pread and pwrite, for systems that refuse io_uring.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "ops/aio/queue.h"

namespace anyaccel::ops::aio {
namespace {

// This is enough transfers in flight for today's disks; each thread costs a stack.
constexpr unsigned most_threads = 16;

class ThreadQueue final : public TransferQueue {
 public:
  explicit ThreadQueue(unsigned depth) : limit_(std::min(depth, most_threads)) {}
  ~ThreadQueue() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void submit(Transfer* transfer) override {
    bool grow = false;
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(transfer);
      grow = waiting_.size() > idle_ && threads_.size() < limit_;
    }
    if (grow) start_thread();
    work_.notify_one();
  }

  void reap(std::vector<Transfer*>& done) override {
    std::unique_lock lock(mutex_);
    complete_.wait(lock, [&] { return !done_.empty(); });
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
  }

 private:
  void start_thread() {
    // The program's signals must be delivered to its own threads, so these threads block all of them.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      // The existing threads must suffice; if there are none, this thread carries out the transfers.
      if (threads_.empty()) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        run_here();
        return;
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static void carry_out(Transfer& transfer) {
    const ssize_t result =
        transfer.write ? pwrite(transfer.fd, transfer.memory, transfer.length, static_cast<off_t>(transfer.offset))
                       : pread(transfer.fd, transfer.memory, transfer.length, static_cast<off_t>(transfer.offset));
    transfer.result = result < 0 ? -errno : result;
  }

  void run_here() {
    std::lock_guard lock(mutex_);
    for (Transfer* transfer : waiting_) {
      carry_out(*transfer);
      done_.push_back(transfer);
    }
    waiting_.clear();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      work_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      Transfer* transfer = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      carry_out(*transfer);
      lock.lock();
      done_.push_back(transfer);
      if (done_.size() == 1) complete_.notify_one();
    }
  }

  const unsigned limit_;
  std::vector<std::thread> threads_;  // used only by the queue's owner
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable complete_;
  std::deque<Transfer*> waiting_;
  std::vector<Transfer*> done_;
  size_t idle_ = 0;
  bool stop_ = false;
};

}  // namespace

std::unique_ptr<TransferQueue> make_thread_queue(unsigned depth) { return std::make_unique<ThreadQueue>(depth); }

}  // namespace anyaccel::ops::aio
