// Runs a group's operations on device tensors with the accelerator's own library (DeviceCommunicator): on the current
// stream, or, asynchronously, on the group's own stream.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "comm/comms_log.h"
#include "comm/device/device_communicator.h"
#include "comm/group/operation_runner.h"

namespace anyaccel::comm {

class DevicePath {
 public:
  DevicePath(Accelerator& accelerator, std::shared_ptr<DeviceCommunicator> communicator, std::shared_ptr<CommsLog> log)
      : accelerator_(accelerator), communicator_(std::move(communicator)), log_(std::move(log)) {}
  ~DevicePath();

  DeviceCommunicator& communicator() noexcept { return *communicator_; }

  // call(DeviceCommunicator&) enqueues the operation. `capturing`: the current stream records a graph.
  template <class Call>
  Work run(OperationLabel label, bool capturing, const Tensor* output, const Tensor* input, bool async_op,
           Call&& call) {
    if (capturing) {
      call(*communicator_);
      return {};
    }
    if (!async_op) {
      Timing timing = begin(label);
      call(*communicator_);
      end(std::move(timing));
      return {};
    }
    const int device = communicator_->device_index();
    Event ready = accelerator_.Event();
    ready.record(accelerator_.current_stream(device));
    if (!side_) side_ = accelerator_.Stream();
    side_.wait_event(ready);
    for (const Tensor* tensor : {output, input}) {
      if (tensor) tensor->storage()->record_stream(side_);
    }
    const ScopeGuard current = accelerator_.stream(side_);
    Timing timing = begin(label);
    call(*communicator_);
    end(std::move(timing));
    return finished_by(side_);
  }

  // Logs the operations that have ended.
  void collect();

 private:
  class AsyncWork;
  // The timing of one logged operation: two events.
  struct Timing {
    OperationLabel label{CommOp::AllReduce, 0};
    Event start;
    Event end;
  };

  Timing begin(OperationLabel label);
  void end(Timing timing);
  Work finished_by(const Stream& stream);

  Accelerator& accelerator_;
  std::shared_ptr<DeviceCommunicator> communicator_;
  std::shared_ptr<CommsLog> log_;
  Stream side_;
  std::deque<Timing> timings_;  // not in the log yet
};

}  // namespace anyaccel::comm
