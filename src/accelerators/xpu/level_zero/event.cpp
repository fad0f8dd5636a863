// Implements event.h: events.
#include "accelerators/xpu/level_zero/event.h"

#include <chrono>
#include <cmath>

#include "accelerators/xpu/level_zero/stream.h"

namespace anyaccel::xpu::level_zero {
namespace {

constexpr uint64_t patience_ns = 1'000'000'000;

}  // namespace

Record::Record(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamFault> fault, bool timed)
    : device_(std::move(device)),
      fault_(std::move(fault)),
      timed_(timed),
      event_(device_->events().acquire(timed)),
      made_ms_(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count()) {
}

Record::~Record() { device_->events().give_back(event_, timed_); }

bool Record::completed(Result result, const char* call) {
  if (result == success) {
    done_.store(true, std::memory_order_release);
    fault_->raise_if_set();
    return true;
  }
  if (result == not_ready) return false;
  try {
    device_->check(result, call);
  } catch (const abi::Failure& failure) {
    fault_->set(failure);
    throw;
  }
  return false;
}

bool Record::complete() {
  device_->usable();
  fault_->raise_if_set();
  if (done_.load(std::memory_order_acquire)) return true;
  return completed(device_->api().zeEventQueryStatus(event_), "zeEventQueryStatus");
}

void Record::wait() {
  if (complete()) return;
  // Wakes up periodically, because a wait for one stream may not be notified that another call found the device lost.
  while (!completed(device_->api().zeEventHostSynchronize(event_, patience_ns), "zeEventHostSynchronize")) {
    device_->usable();
  }
}

bool Record::passed() noexcept {
  if (done_.load(std::memory_order_acquire)) return true;
  if (device_->lost() || is_forked_child() || device_->api().zeEventQueryStatus(event_) != success) return false;
  done_.store(true, std::memory_order_release);
  return true;
}

void Record::settle() noexcept {
  if (is_forked_child()) return;
  while (device_->api().zeEventHostSynchronize(event_, patience_ns) == not_ready && !device_->lost()) {
  }
}

uint64_t Record::ticks() {
  KernelTimestamp timestamp{};
  device_->check(device_->api().zeEventQueryKernelTimestamp(event_, &timestamp), "zeEventQueryKernelTimestamp");
  return timestamp.global_end;
}

double Record::milliseconds_until(Record& end) {
  const DeviceFacts& facts = device_->facts();
  const double ms_per_tick = facts.nanoseconds_per_tick * 1e-6;
  const double expected = (end.made_ms_ - made_ms_) / ms_per_tick;
  return ticks_between(ticks(), end.ticks(), facts.properties.kernel_timestamp_valid_bits, expected) * ms_per_tick;
}

double ticks_between(uint64_t start, uint64_t end, uint32_t valid_bits, double expected) {
  if (valid_bits == 0 || valid_bits >= 64) return static_cast<double>(static_cast<int64_t>(end - start));
  const auto difference = static_cast<double>((end - start) & ((uint64_t{1} << valid_bits) - 1));
  const double period = std::ldexp(1.0, static_cast<int>(valid_bits));
  return difference + period * std::round((expected - difference) / period);
}

void Event::record(abi::Stream& stream) { static_cast<Stream&>(stream).record(core()); }

}  // namespace anyaccel::xpu::level_zero
