// Implements event.h: events.
#include "accelerators/queue_runtime/event.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "accelerators/queue_runtime/stream.h"

namespace anyaccel::queue_runtime {
namespace {

// Throws the error, and keeps it for later queries.
void keep(const Answer& answer, DeviceState& device, StreamFault& fault) {
  try {
    device.check(answer);
  } catch (const abi::Failure& failure) {
    fault.set(failure);
  }
  fault.raise_if_set();
}

}  // namespace

void StreamFault::set_good(uint64_t point) noexcept {
  uint64_t known = good_.load();
  while (known < point && !good_.compare_exchange_weak(known, point)) {
  }
}

// ---- streams ---------------------------------------------------------------------------------------------------------

StreamCore::~StreamCore() {
  if (device_->is_forked_child()) return;
  try {
    device_->ask([&] { return device_->vendor().stream_destroy(handle_); });
  } catch (const abi::Failure&) {
    device_->vendor().stream_destroy(handle_);  // a lost device's
  }
}

void StreamCore::on_wait(std::function<void()> release) {
  const std::lock_guard lock(release_mutex_);
  release_ = std::move(release);
}

void StreamCore::release_held() {
  const std::lock_guard lock(release_mutex_);
  if (release_) release_();
}

bool StreamCore::complete() {
  device_->usable();
  fault_->raise_if_set();
  const uint64_t before = fault_->latest();
  bool done = false;
  keep(device_->ask([&] { return device_->vendor().stream_query(handle_, done); }), *device_, *fault_);
  if (done) fault_->set_good(before);
  return done;
}

void StreamCore::wait() {
  device_->usable();
  const auto synchronize = [&] { return device_->ask([&] { return device_->vendor().stream_synchronize(handle_); }); };
  // On a stream that has failed too, and once more after a wait that failed: the caller frees what its work still uses, such
  // as the host's memory of a copy.
  const uint64_t before = fault_->latest();
  const Answer answer = synchronize();
  if (answer.result != 0) synchronize();
  fault_->raise_if_set();
  keep(answer, *device_, *fault_);
  fault_->set_good(before);
}

// ---- points ----------------------------------------------------------------------------------------------------------

Point::Point(const std::shared_ptr<StreamCore>& stream, bool timed)
    : stream_(stream),
      fault_(stream->fault()),
      device_(stream->shared_device()),
      timed_(timed),
      number_(fault_->next_number()),
      event_(device_->acquire_event(timed)) {}

Point::~Point() { device_->give_back_event(event_, timed_); }

// The event may be complete without an error although work before it failed: some runtimes report that for the stream
// only.
void Point::find_fault() {
  if (const std::shared_ptr<StreamCore> stream = stream_.lock()) stream->complete();
  fault_->raise_if_set();
  done_.store(true, std::memory_order_release);
}

bool Point::complete() {
  device_->usable();
  if (passed()) return true;
  if (fault_->is_good(number_)) {  // an error of the stream, or that the event tells, is of later work
    if (!ended()) return false;
    done_.store(true, std::memory_order_release);
    return true;
  }
  fault_->raise_if_set();
  bool done = false;
  keep(device_->ask([&] { return device_->vendor().event_query(event_, done); }), *device_, *fault_);
  if (done) find_fault();
  return done;
}

void Point::wait() {
  if (complete()) return;
  if (fault_->is_good(number_)) {  // as in complete()
    device_->ask([&] { return device_->vendor().event_synchronize(event_); });
    device_->usable();
    done_.store(true, std::memory_order_release);
    return;
  }
  keep(device_->ask([&] { return device_->vendor().event_synchronize(event_); }), *device_, *fault_);
  find_fault();
}

bool Point::ended() {
  if (passed() || stream_.expired()) return true;  // streams wait for their work before they are destroyed
  bool done = false;
  const Answer answer = device_->ask([&] { return device_->vendor().event_query(event_, done); });
  return done || answer.result != 0;
}

void Point::settle() noexcept {
  if (device_->is_forked_child() || device_->lost()) return;
  try {
    if (!ended()) device_->ask([&] { return device_->vendor().event_synchronize(event_); });
  } catch (...) {
    // The device was lost meanwhile, so that nothing runs on it.
  }
}

void drop_passed(Waits& waits) {
  const auto passed = [](const std::shared_ptr<Point>& point) { return point->passed(); };
  if (!waits || std::ranges::none_of(*waits, passed)) return;
  auto left = std::make_shared<std::vector<std::shared_ptr<Point>>>();
  std::ranges::remove_copy_if(*waits, std::back_inserter(*left), passed);
  waits = left->empty() ? nullptr : std::move(left);
}

bool is_complete(Point& point) { return point.complete(); }

bool is_complete_after_waiting(Point& point) {
  point.wait();
  return true;
}

bool take_over_faults(StreamFault& fault, const Waits& waits, bool (*ask)(Point& point)) {
  if (!waits) return true;
  bool all = true;
  for (const std::shared_ptr<Point>& point : *waits) {
    try {
      all = ask(*point) && all;
    } catch (const abi::Failure& failure) {
      fault.set(failure);
      fault.raise_if_set();
    }
  }
  return all;
}

// ---- records ---------------------------------------------------------------------------------------------------------

// It is not known to have passed before its waits have answered too: a query of one event may lag behind that of another, and
// what it waited for tells of a failure only when it is found complete.
bool Record::ask(bool (*ask)(Point& point)) {
  point_->device().usable();
  if (passed()) return true;
  if (!ask(*point_) || !take_over_faults(point_->fault(), waits(), ask)) return false;
  done_.store(true, std::memory_order_release);
  Waits released;  // after the lock
  const std::lock_guard lock(mutex_);
  waits_.swap(released);
  return true;
}

void Record::settle() noexcept {
  point_->settle();
  if (const Waits own = waits()) {
    for (const std::shared_ptr<Point>& point : *own) point->settle();
  }
}

Waits Record::added_to(const Waits& earlier, const StreamCore& stream) const {
  auto all = earlier ? std::make_shared<std::vector<std::shared_ptr<Point>>>(*earlier)
                     : std::make_shared<std::vector<std::shared_ptr<Point>>>();
  const auto add = [&](const std::shared_ptr<Point>& point) {
    if (point->is_of(stream)) return;
    const auto known = std::ranges::find_if(*all, [&](const auto& other) { return other->is_same_stream(*point); });
    if (known == all->end()) {
      all->push_back(point);
    } else if ((*known)->number() < point->number()) {
      *known = point;
    }
  };
  add(point_);
  if (const Waits own = waits()) std::ranges::for_each(*own, add);
  return all;
}

double Record::milliseconds_until(Record& end) {
  if (&end == this) return 0;
  DeviceState& device = point_->device();
  float milliseconds = 0;
  device.run([&] { return device.vendor().event_elapsed(milliseconds, event(), end.event()); });
  return milliseconds;
}

// ---- events ----------------------------------------------------------------------------------------------------------

void Event::record(abi::Stream& stream) { static_cast<Stream&>(stream).record(core()); }

}  // namespace anyaccel::queue_runtime
