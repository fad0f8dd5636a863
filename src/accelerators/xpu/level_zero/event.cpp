// Implements event.h: events.
#include "accelerators/xpu/level_zero/event.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "accelerators/xpu/level_zero/stream.h"

namespace anyaccel::xpu::level_zero {

GraphQueue::GraphQueue(std::shared_ptr<DeviceState> device) : device_(std::move(device)) {
  QueueDesc desc{};
  desc.type = type_queue_desc;
  desc.ordinal = device_->facts().queue_ordinal;
  desc.mode = queue_asynchronous;
  device_->check(device_->api().zeCommandQueueCreate(device_->context().handle(), device_->handle(), &desc, &handle_),
                 "zeCommandQueueCreate");
}

GraphQueue::~GraphQueue() {
  if (!is_forked_child()) device_->api().zeCommandQueueDestroy(handle_);
}

GraphRun::GraphRun(std::shared_ptr<GraphQueue> queue) : queue_(std::move(queue)) {
  FenceDesc desc{};
  desc.type = type_fence_desc;
  DeviceState& device = queue_->device();
  device.check(device.api().zeFenceCreate(queue_->handle(), &desc, &fence_), "zeFenceCreate");
}

GraphRun::~GraphRun() {
  if (is_forked_child()) return;
  const DeviceState& device = queue_->device();
  while (started_ && !device.lost() && device.api().zeFenceHostSynchronize(fence_, patience_ns) == not_ready) {
  }
  device.api().zeFenceDestroy(fence_);
}

void GraphRun::start(ListHandle list) {
  DeviceState& device = queue_->device();
  device.check(device.api().zeCommandQueueExecuteCommandLists(queue_->handle(), 1, &list, fence_),
               "zeCommandQueueExecuteCommandLists");
  started_ = true;
}

bool GraphRun::ended(bool waits) {
  DeviceState& device = queue_->device();
  for (;;) {
    device.usable();
    const Result result = device.api().zeFenceHostSynchronize(fence_, waits ? patience_ns : 0);
    if (result != not_ready) {
      device.check(result, "zeFenceHostSynchronize");
      return true;
    }
    if (!waits) return false;
  }
}

void StreamFault::set(const abi::Failure& failure, uint64_t point) {
  streams::StreamFault::set(failure);
  uint64_t known = failed_.load();
  while (point < known && !failed_.compare_exchange_weak(known, point)) {
  }
}

void StreamFault::raise_if_failed(uint64_t point) const {
  if (failed_.load() <= point) raise_if_set();
}

void StreamFault::expect_run() {
  look(UINT64_MAX, false);  // or a stream that nobody waits for would keep all of its runs
  const std::lock_guard lock(mutex_);
  runs_.reserve(runs_.size() + 1);
}

void StreamFault::watch(std::shared_ptr<GraphRun> run) noexcept {
  const std::lock_guard lock(mutex_);
  runs_.push_back({std::move(run), points_.load(std::memory_order_relaxed) + 1});
}

bool StreamFault::look(uint64_t point, bool waits) {
  for (;;) {
    Watched first;
    {
      const std::lock_guard lock(mutex_);
      if (runs_.empty() || runs_.front().point > point) return true;
      first = runs_.front();
    }
    try {
      if (!first.run->ended(waits)) return false;
    } catch (const abi::Failure& failure) {
      set(failure, first.point);
    }
    const std::lock_guard lock(mutex_);
    if (!runs_.empty() && runs_.front().run == first.run) runs_.erase(runs_.begin());
  }
}

Point::Point(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamFault> fault, bool timed)
    : device_(std::move(device)),
      fault_(std::move(fault)),
      timed_(timed),
      number_(fault_->next_number()),
      event_(device_->events().acquire(timed)),
      made_ms_(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count()) {
}

Point::~Point() { device_->events().give_back(event_, timed_); }

bool Point::completed(Result result, const char* call) {
  if (result == success) {
    done_.store(true, std::memory_order_release);
    return true;
  }
  if (result == not_ready) return false;
  try {
    device_->check(result, call);
  } catch (const abi::Failure& failure) {
    fault_->set(failure, number_);
    throw;
  }
  return false;
}

void Point::find_fault(bool waits) {
  const bool all_tell = fault_->look(number_, waits);
  fault_->raise_if_failed(number_);
  if (all_tell) well_.store(true, std::memory_order_release);
}

bool Point::complete() {
  device_->usable();
  fault_->raise_if_failed(number_);
  if (!done_.load(std::memory_order_acquire) &&
      !completed(device_->api().zeEventQueryStatus(event_), "zeEventQueryStatus")) {
    return false;
  }
  find_fault(false);
  return true;
}

void Point::wait() {
  if (!complete()) {
    // Wakes up periodically, because a wait for one stream may not be notified that another call found the device lost.
    while (!completed(device_->api().zeEventHostSynchronize(event_, patience_ns), "zeEventHostSynchronize")) {
      device_->usable();
    }
  }
  find_fault(true);
}

bool Point::passed() noexcept {
  if (done_.load(std::memory_order_acquire)) return true;
  if (device_->lost() || is_forked_child() || device_->api().zeEventQueryStatus(event_) != success) return false;
  done_.store(true, std::memory_order_release);
  return true;
}

void Point::settle() noexcept {
  if (is_forked_child()) return;
  while (device_->api().zeEventHostSynchronize(event_, patience_ns) == not_ready && !device_->lost()) {
  }
}

uint64_t Point::ticks() {
  KernelTimestamp timestamp{};
  device_->check(device_->api().zeEventQueryKernelTimestamp(event_, &timestamp), "zeEventQueryKernelTimestamp");
  return timestamp.global_end;
}

double Point::milliseconds_until(Point& end) {
  const DeviceFacts& facts = device_->facts();
  const double ms_per_tick = facts.nanoseconds_per_tick * 1e-6;
  const double expected = (end.made_ms_ - made_ms_) / ms_per_tick;
  return ticks_between(ticks(), end.ticks(), facts.properties.kernel_timestamp_valid_bits, expected) * ms_per_tick;
}

void drop_passed(Waits& waits) {
  const auto passed = [](const std::shared_ptr<Point>& point) { return point->passed_well(); };
  if (!waits || std::ranges::none_of(*waits, passed)) return;
  auto left = std::make_shared<std::vector<std::shared_ptr<Point>>>();
  std::ranges::remove_copy_if(*waits, std::back_inserter(*left), passed);
  waits = left->empty() ? nullptr : std::move(left);
}

template <class Ask>
void Record::take_over_faults(const Ask& ask) {
  if (!waits_) return;
  for (const std::shared_ptr<Point>& point : *waits_) {
    if (point->passed_well()) continue;
    try {
      ask(*point);
    } catch (const abi::Failure& failure) {
      fault()->set(failure, number());
      fault()->raise_if_set();
    }
  }
}

bool Record::passed_well() const noexcept {
  const auto well = [](const std::shared_ptr<Point>& point) { return point->passed_well(); };
  return point_->passed_well() && (!waits_ || std::ranges::all_of(*waits_, well));
}

bool Record::complete() {
  if (!point_->complete()) return false;
  // The stream has passed what it waited for, even if a query of that lags behind.
  bool all = true;
  take_over_faults([&](Point& point) { all = point.complete() && all; });
  return all;
}

void Record::wait() {
  point_->wait();
  take_over_faults([](Point& point) { point.wait(); });
}

Waits Record::added_to(const Waits& earlier, const StreamFault& stream) const {
  auto all = earlier ? std::make_shared<std::vector<std::shared_ptr<Point>>>(*earlier)
                     : std::make_shared<std::vector<std::shared_ptr<Point>>>();
  const auto add = [&](const std::shared_ptr<Point>& point) {
    if (point->fault().get() == &stream) return;
    const auto known = std::ranges::find(*all, point->fault(), [](const auto& other) { return other->fault(); });
    if (known == all->end()) {
      all->push_back(point);
    } else if ((*known)->number() < point->number()) {
      *known = point;
    }
  };
  add(point_);
  if (waits_) std::ranges::for_each(*waits_, add);
  return all;
}

double ticks_between(uint64_t start, uint64_t end, uint32_t valid_bits, double expected) {
  if (valid_bits == 0 || valid_bits >= 64) return static_cast<double>(static_cast<int64_t>(end - start));
  const auto difference = static_cast<double>((end - start) & ((uint64_t{1} << valid_bits) - 1));
  const double period = std::ldexp(1.0, static_cast<int>(valid_bits));
  return difference + period * std::round((expected - difference) / period);
}

void Event::record(abi::Stream& stream) { static_cast<Stream&>(stream).record(core()); }

}  // namespace anyaccel::xpu::level_zero
