// Runs a group's operations on device tensors with the accelerator's library.
#include "comm/device/device_path.h"

#include "anyaccel/error.h"

namespace anyaccel::comm {

class DevicePath::AsyncWork final : public Work::State {
 public:
  AsyncWork(Accelerator& accelerator, std::shared_ptr<DeviceCommunicator> communicator, Event finished)
      : accelerator_(accelerator), communicator_(std::move(communicator)), finished_(std::move(finished)) {}

  bool done() const override { return communicator_->failed() || finished_.query(); }
  void wait() override {
    communicator_->check();
    accelerator_.current_stream(communicator_->device_index()).wait_event(finished_);
  }

 private:
  Accelerator& accelerator_;
  std::shared_ptr<DeviceCommunicator> communicator_;
  Event finished_;
};

DevicePath::~DevicePath() {
  try {
    collect();
  } catch (const Error&) {  // operations of a failed device are not logged
  }
}

Work DevicePath::finished_by(const Stream& stream) {
  Event finished = accelerator_.Event();
  finished.record(stream);
  return Work(std::make_shared<AsyncWork>(accelerator_, communicator_, std::move(finished)));
}

DevicePath::Timing DevicePath::begin(OperationLabel label) {
  Timing timing;
  if (!log_) return timing;
  timing.label = label;
  timing.start = accelerator_.Event(true);
  timing.start.record(accelerator_.current_stream(communicator_->device_index()));
  return timing;
}

void DevicePath::end(Timing timing) {
  if (!log_) return;
  timing.end = accelerator_.Event(true);
  timing.end.record(accelerator_.current_stream(communicator_->device_index()));
  timings_.push_back(std::move(timing));
  collect();
}

void DevicePath::collect() {
  while (!timings_.empty() && timings_.front().end.query()) {
    const Timing& timing = timings_.front();
    log_->record(timing.label.op, timing.label.bytes, communicator_->size(),
                 std::chrono::nanoseconds(static_cast<int64_t>(timing.start.elapsed_time(timing.end) * 1e6)));
    timings_.pop_front();
  }
}

}  // namespace anyaccel::comm
