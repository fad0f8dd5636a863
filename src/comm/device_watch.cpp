// See device_watch.h.
#include "comm/device_watch.h"

#include <utility>

#include "anyaccel/error.h"
#include "runtime/host_services.h"

namespace anyaccel::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks: short beside the seconds in which a failure is to be noticed, long beside the microsecond that a look
// costs.
constexpr std::chrono::milliseconds interval{20};
// A wait of the host looks without pause this long, then with pauses.
constexpr std::chrono::microseconds busy_wait{200};
constexpr std::chrono::microseconds pause{100};

}  // namespace

DeviceWatch::DeviceWatch(Subject subject) : subject_(std::move(subject)) {
  if (!subject_.alone) thread_ = std::thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::mark(const Stream& stream) {
  const std::lock_guard lock(marks_mutex_);
  subject_.marks[marking_].record(stream);
  ++marked_;
}

void DeviceWatch::fail(const std::string& why, aa_code code) noexcept {
  try {
    if (!failure_.set(why, code)) return;
  } catch (...) {  // no memory for the text
    return;
  }
  host_services()->status_release(subject_.table->comm_abort(subject_.comm));
  if (subject_.on_failure) subject_.on_failure(why);
}

void DeviceWatch::check_library() {
  failure_.check();
  const StatusRef status(subject_.table->async_error(subject_.comm));
  if (!status.ok()) fail(subject_.label + ": an operation failed: " + std::string(status.message()), status.code());
  failure_.check();
}

void DeviceWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, interval);
    if (ending_ || failed()) continue;
    lock.unlock();
    try {
      look_at_job();
      check_library();
      look_at_operations();
    } catch (const Error& error) {
      fail(error.what(), error.code());
    } catch (const std::exception& error) {
      fail(subject_.label + ": " + error.what(), AA_INTERNAL);
    }
    lock.lock();
  }
}

void DeviceWatch::look_at_job() {
  if (subject_.job && subject_.job->failed()) subject_.job->check();
}

void DeviceWatch::look_at_operations() {
  if (!waits_) {
    const std::lock_guard lock(marks_mutex_);
    if (marked_ == awaited_) return;
    awaited_ = marked_;
    marking_ = 1 - marking_;
    waits_ = true;
    waiting_since_ = Clock::now();
  }
  // marking_ changes on this thread only.
  if (subject_.marks[1 - marking_].query()) {
    waits_ = false;
  } else if (Clock::now() - waiting_since_ > subject_.timeout) {
    fail(subject_.label + ": an operation was not complete within " + std::to_string(subject_.timeout.count()) +
             " ms: not every member takes part in it",
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
