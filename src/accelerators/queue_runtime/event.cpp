// Implements event.h: events.
#include "accelerators/queue_runtime/event.h"

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
  bool done = false;
  keep(device_->ask([&] { return device_->vendor().stream_query(handle_, done); }), *device_, *fault_);
  return done;
}

void StreamCore::wait() {
  device_->usable();
  const auto synchronize = [&] { return device_->ask([&] { return device_->vendor().stream_synchronize(handle_); }); };
  // On a stream that has failed too, and once more after a wait that failed: the caller frees what its work still uses, such
  // as the host's memory of a copy.
  const Answer answer = synchronize();
  if (answer.result != 0) synchronize();
  fault_->raise_if_set();
  keep(answer, *device_, *fault_);
}

void take_over_faults(StreamFault& fault, std::span<const std::shared_ptr<Record>> waited) {
  for (const std::shared_ptr<Record>& record : waited) {
    try {
      record->complete();
    } catch (const abi::Failure& failure) {
      fault.set(failure);
    }
  }
  fault.raise_if_set();
}

// ---- records ---------------------------------------------------------------------------------------------------------

Record::Record(const std::shared_ptr<StreamCore>& stream, bool timed, std::vector<std::shared_ptr<Record>> waited)
    : stream_(stream),
      fault_(stream->fault()),
      device_(stream->shared_device()),
      timed_(timed),
      event_(device_->acquire_event(timed)),
      waited_(std::move(waited)) {}

Record::~Record() { device_->give_back_event(event_, timed_); }

// The event may be complete without an error although work before it failed: some runtimes report that for the stream
// only.
void Record::find_fault() {
  if (const std::shared_ptr<StreamCore> stream = stream_.lock()) stream->complete();
  std::vector<std::shared_ptr<Record>> waited;
  {
    const std::lock_guard lock(mutex_);
    waited = waited_;
  }
  take_over_faults(*fault_, waited);
  done_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  waited_.clear();  // `waited` still has them: they are released after the lock
}

bool Record::complete() {
  device_->usable();
  if (done_.load(std::memory_order_acquire)) return true;
  fault_->raise_if_set();
  bool done = false;
  keep(device_->ask([&] { return device_->vendor().event_query(event_, done); }), *device_, *fault_);
  if (done) find_fault();
  return done;
}

void Record::wait() {
  if (complete()) return;
  keep(device_->ask([&] { return device_->vendor().event_synchronize(event_); }), *device_, *fault_);
  find_fault();
}

double Record::milliseconds_until(Record& end) {
  if (&end == this) return 0;
  float milliseconds = 0;
  device_->run([&] { return device_->vendor().event_elapsed(milliseconds, event_, end.event_); });
  return milliseconds;
}

// ---- events ----------------------------------------------------------------------------------------------------------

void Event::record(abi::Stream& stream) { static_cast<Stream&>(stream).record(core()); }

}  // namespace anyaccel::queue_runtime
