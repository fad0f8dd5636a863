// Implements queue.h.
#include "accelerators/xpu/opencl/queue.h"

#include <array>

namespace anyaccel::xpu::opencl {

Queue::Queue(const Api& api, cl_context context, cl_device_id device) : api_(api), context_(context) {
  const std::array<cl_ulong, 3> properties{CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_int error = CL_SUCCESS;
  queue_ = OwnedQueue(api, api.CreateCommandQueueWithProperties(context, device, properties.data(), &error));
  check(error, "clCreateCommandQueueWithProperties");
}

void Queue::raise() {
  std::lock_guard lock(mutex_);
  if (error_) throw abi::Failure(*error_);
}

void Queue::fail_enqueue(cl_int error, const char* what) {
  try {
    check(error, what);
  } catch (const abi::Failure& failure) {
    std::lock_guard lock(mutex_);
    if (failure.code() == AA_DEVICE_LOST && !error_) error_ = failure;
    throw;
  }
  __builtin_unreachable();
}

void Queue::fail_command(cl_int status) {
  std::lock_guard lock(mutex_);
  if (closed_) return;  // an event of a destroyed stream is complete
  if (!error_) {
    error_.emplace(status == CL_DEVICE_NOT_AVAILABLE ? AA_DEVICE_LOST : AA_INTERNAL,
                   "work on the stream failed with " + error_name(status) + "; the stream cannot be used any more",
                   status);
  }
  throw abi::Failure(*error_);
}

OwnedEvent Queue::marker() {
  OwnedEvent event;
  check_enqueue(api_.EnqueueMarkerWithWaitList(get(), 0, nullptr, event.out(api_)), "clEnqueueMarkerWithWaitList");
  check_enqueue(api_.Flush(get()), "clFlush");
  return event;
}

cl_int Queue::status_of(cl_event event) const {
  cl_int status = CL_COMPLETE;
  check(api_.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
        "clGetEventInfo");
  return status;
}

bool Queue::is_complete(cl_event event) {
  const cl_int status = status_of(event);
  if (status < 0) fail_command(status);
  return status <= CL_COMPLETE;
}

void Queue::wait(cl_event event) {
  const cl_int error = api_.WaitForEvents(1, &event);
  // The event's own status is more specific than the result of the wait.
  if (!is_complete(event)) check_enqueue(error, "clWaitForEvents");
}

OwnedEvent Queue::last_marker() {
  std::lock_guard lock(marker_mutex_);
  if (!marker_is_last_.exchange(true, std::memory_order_acq_rel)) {
    last_marker_.reset();
    try {
      last_marker_ = marker();
    } catch (...) {
      touch();
      throw;
    }
  }
  return share(api_, last_marker_.get());
}

bool Queue::idle() {
  raise();
  const OwnedEvent last = last_marker();
  return !last || is_complete(last.get());
}

void Queue::finish() {
  const OwnedEvent last = last_marker();
  if (last) wait(last.get());
  raise();
}

void Queue::carry_out(const HostCall& call) const {
  const cl_event after = call.after.get();
  api_.WaitForEvents(1, &after);  // an error belongs to the queue and is reported there
  if (call.function) call.function(call.user);
  api_.SetUserEventStatus(call.done.get(), CL_COMPLETE);
}

void Queue::call_between(OwnedEvent after, void (*function)(void* user), void* user) {
  cl_int error = CL_SUCCESS;
  OwnedEvent done(api_, api_.CreateUserEvent(context_, &error));
  check(error, "clCreateUserEvent");
  HostCall call{std::move(after), function, user, std::move(done)};
  {
    std::lock_guard lock(mutex_);
    if (!host_calls_) {
      host_calls_ = std::make_unique<streams::HostCalls<HostCall>>([this](const HostCall& call) { carry_out(call); });
    }
  }
  // The barrier is enqueued first: if it is rejected, the function must not run.
  const cl_event wait = call.done.get();
  check_enqueue(api_.EnqueueBarrierWithWaitList(get(), 1, &wait, nullptr), "clEnqueueBarrierWithWaitList");
  try {
    host_calls_->push(std::move(call));
  } catch (...) {
    // Or the stream would wait forever. The call is refused, so that nothing depends on the barrier.
    api_.SetUserEventStatus(call.done.get(), CL_COMPLETE);
    throw;
  }
}

void Queue::host_call(void (*function)(void* user), void* user) { call_between(marker(), function, user); }

void Queue::wait_for(cl_event event, cl_context context) {
  if (context == context_) {
    check_enqueue(api_.EnqueueBarrierWithWaitList(get(), 1, &event, nullptr), "clEnqueueBarrierWithWaitList");
  } else {
    call_between(share(api_, event), nullptr, nullptr);  // OpenCL orders commands of one context only
  }
}

void Queue::close() {
  std::unique_ptr<streams::HostCalls<HostCall>> ending;
  {
    std::lock_guard lock(mutex_);
    ending = std::move(host_calls_);
    error_.reset();
    closed_ = true;
  }
}

}  // namespace anyaccel::xpu::opencl
