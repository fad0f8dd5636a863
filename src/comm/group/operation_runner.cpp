// Implements OperationRunner: the group's thread, and the end of a group.
#include "comm/group/operation_runner.h"

#include "base/process/start_thread.h"

namespace anyaccel::comm {

OperationRunner::OperationRunner(std::unique_ptr<HostCommunicator> communicator, std::shared_ptr<CommsLog> log,
                                 std::function<void(const std::string&)> on_failure)
    : communicator_(std::move(communicator)), log_(std::move(log)), on_failure_(std::move(on_failure)) {}

OperationRunner::~OperationRunner() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void OperationRunner::start() {
  if (!thread_.joinable()) thread_ = start_thread("an asynchronous operation of a process group", [this] { work(); });
}

void OperationRunner::queue(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void OperationRunner::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void OperationRunner::stop_waiting(const std::string& message) noexcept {
  communicator_->abort(message);
  if (abort_) abort_(message);
}

void OperationRunner::fail(const std::string& message, aa_code code) noexcept {
  if (!failure_.set(message, code)) return;
  stop_waiting(message);
  if (on_failure_) on_failure_(message);
}

void OperationRunner::fail_silently(const std::string& message, aa_code code) noexcept {
  if (failure_.set(message, code)) stop_waiting(message);
}

}  // namespace anyaccel::comm
