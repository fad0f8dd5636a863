// Host functions in the order of a stream: a thread that waits for one event, calls, and signals another.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "accelerators/xpu/level_zero/event.h"

namespace anyaccel::xpu::level_zero {

class HostCalls {
 public:
  explicit HostCalls(std::shared_ptr<DeviceState> device);
  // Finishes the calls that were pushed.
  ~HostCalls();
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  struct Call {
    std::shared_ptr<Record> ready;     // signaled when the stream has reached the call
    std::shared_ptr<Record> returned;  // signaled by the thread; the stream waits for it
    void (*function)(void* user);
    void* user;
  };
  // Thread-safe.
  void push(Call call);

 private:
  void run();
  void carry_out(const Call& call);

  std::shared_ptr<DeviceState> device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace anyaccel::xpu::level_zero
