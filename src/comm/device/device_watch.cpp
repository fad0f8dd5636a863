// Watches a communicator of devices for failures.
#include "comm/device/device_watch.h"

#include <utility>

#include "anyaccel/error.h"
#include "base/process/start_thread.h"
#include "runtime/driver/host_services.h"

namespace anyaccel::comm {
namespace {

using Clock = std::chrono::steady_clock;

// The interval between checks: short compared with the seconds in which a failure must be noticed, long compared with
// the microsecond that a check costs.
constexpr std::chrono::milliseconds interval{20};
// The host polls without pauses for this long, then with pauses.
constexpr std::chrono::microseconds busy_wait{200};
constexpr std::chrono::microseconds pause{100};
// If the library reports a failure, the cause is often another member's end, and the job soon reports which member.
constexpr std::chrono::milliseconds grace{500};

// The object whose watching thread this is; null on other threads.
thread_local const DeviceWatch* own_watch = nullptr;

}  // namespace

DeviceWatch::DeviceWatch(Subject subject) : subject_(std::move(subject)) {
  if (!subject_.alone) thread_ = start_thread("the watch over a group of devices", [this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (own_watch == this) {
    thread_.detach();  // it is informed of the failure and drops the last reference to this object: see run()
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

void DeviceWatch::mark(const Stream& stream) {
  const std::lock_guard lock(marks_mutex_);
  subject_.marks[marking_].record(stream);
  ++marked_;
}

void DeviceWatch::fail(const std::string& why, aa_code code) noexcept {
  try {
    if (!failure_.set(why, code)) return;
  } catch (...) {  // out of memory for the text
    return;
  }
  release_status(subject_.table->comm_abort(subject_.comm));
  if (own_watch == this) {
    found_here_ = true;  // run() reports it
  } else if (subject_.on_failure) {
    subject_.on_failure(why);
  }
}

void DeviceWatch::check_library() {
  failure_.check();
  const StatusRef status(subject_.table->async_error(subject_.comm));
  if (!status.ok()) fail_of_library("an operation failed: " + std::string(status.message()), status.code());
}

void DeviceWatch::fail_of_library(const std::string& text, aa_code code) {
  const bool own_mistake = code == AA_INVALID_ARGUMENT || code == AA_FAILED_PRECONDITION;
  const auto begin = Clock::now();
  try {
    do {
      failure_.check();
      look_at_job();
      if (own_mistake || !subject_.job) break;
      std::this_thread::sleep_for(pause);
    } while (Clock::now() - begin < grace);
  } catch (const CommunicationError& error) {
    fail(error.what(), error.code());
    failure_.check();
  }
  fail(subject_.label + ": " + text, code);
  failure_.check();
  throw CommunicationError(subject_.label + ": " + text, code);
}

void DeviceWatch::run() {
  own_watch = this;
  std::unique_lock lock(mutex_);
  while (!ending_ && !failed()) {
    changed_.wait_for(lock, interval);
    if (ending_ || failed()) break;
    lock.unlock();
    look();
    lock.lock();
  }
  lock.unlock();
  if (!found_here_ || !subject_.on_failure) return;
  std::string why;
  try {
    failure_.check();
  } catch (const CommunicationError& error) {
    why = error.what();
  }
  // The callback comes last, since it may destroy this object, or the program may do so meanwhile.
  const std::function<void(const std::string&)> tell = std::move(subject_.on_failure);
  tell(why);
}

void DeviceWatch::look() noexcept {
  try {
    look_at_job();
    check_library();
    look_at_operations();
  } catch (const Error& error) {
    fail(error.what(), error.code());
  } catch (const std::exception& error) {
    fail(subject_.label + ": " + error.what(), AA_INTERNAL);
  }
}

void DeviceWatch::look_at_job() const {
  if (subject_.job && subject_.job->failed()) subject_.job->check();
}

void DeviceWatch::look_at_operations() {
  if (!waits_) {
    const std::lock_guard lock(marks_mutex_);
    if (marked_ == awaited_) return;
    awaited_ = marked_;
    marking_ = 1 - marking_;
    waits_ = true;
    limit_ = WaitLimit(subject_.timeout);
  }
  try {
    // marking_ changes on this thread only.
    waits_ = !subject_.marks[1 - marking_].query();
  } catch (const InvalidArgument&) {
    waits_ = false;  // the mark was captured, on a stream that waited for a capturing one
  }
  if (waits_ && limit_.passed()) {
    throw CommunicationError(subject_.label + ": an operation was not complete within " +
                                 std::to_string(subject_.timeout.count()) + " ms: not every member takes part in it",
                             AA_DEADLINE_EXCEEDED);
  }
}

void DeviceWatch::drain() noexcept {
  try {
    for (const Event& mark : subject_.marks) wait_for(mark);
  } catch (...) {  // The group or the device has failed: nothing is left to wait for.
  }
}

void DeviceWatch::wait_for(const Event& event) const {
  const auto begin = Clock::now();
  while (true) {
    failure_.check();
    if (event.query()) return;
    if (Clock::now() - begin > busy_wait) {
      std::this_thread::sleep_for(pause);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace anyaccel::comm
