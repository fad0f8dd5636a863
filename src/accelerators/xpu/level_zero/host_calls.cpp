// Implements host_calls.h: host functions in the order of a stream.
#include "accelerators/xpu/level_zero/host_calls.h"

namespace anyaccel::xpu::level_zero {

HostCalls::HostCalls(std::shared_ptr<DeviceState> device) : device_(std::move(device)), thread_([this] { run(); }) {}

HostCalls::~HostCalls() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void HostCalls::push(Call call) {
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_one();
}

void HostCalls::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    carry_out(call);
  }
}

void HostCalls::carry_out(const Call& call) {
  try {
    call.ready->wait();
    call.function(call.user);
  } catch (const abi::Failure&) {
    // The work before it failed, so the function is not called. The error stays with the stream.
  }
  // In every case, or the stream would wait forever.
  try {
    device_->check(device_->api().zeEventHostSignal(call.returned->event()), "zeEventHostSignal");
  } catch (const abi::Failure& failure) {
    call.returned->fault()->set(failure);
  }
}

}  // namespace anyaccel::xpu::level_zero
