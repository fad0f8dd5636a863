// Host functions in the order of a stream. A thread for each stream: on one that streams share, a function that waits could stop
// another stream.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "anyaccel/abi/driver_class.hpp"
#include "anyaccel/error.h"
#include "base/process/start_thread.h"

namespace anyaccel::streams {

template <class Call>
class HostCalls {
 public:
  // `carry_out` must not throw. Throws abi::Failure if no thread can be started, so that it belongs before the stream is told to wait.
  explicit HostCalls(std::function<void(const Call&)> carry_out) : carry_out_(std::move(carry_out)) {
    try {
      thread_ = start_thread("the host functions of a stream", [this] { run(); });
    } catch (const UnavailableError& error) {
      throw abi::Failure(AA_RESOURCE_EXHAUSTED, error.what());
    }
  }
  // Carries out the calls that were pushed.
  ~HostCalls() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  // Thread-safe. When it throws, `call` is unchanged.
  void push(Call&& call) {
    {
      std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const Call call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      carry_out_(call);
    }
  }

  const std::function<void(const Call&)> carry_out_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace anyaccel::streams
