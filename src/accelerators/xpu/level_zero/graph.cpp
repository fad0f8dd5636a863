// Implements graph.h: recorded graphs.
#include "accelerators/xpu/level_zero/graph.h"

#include <new>

#include "accelerators/streams/captures.h"
#include "accelerators/xpu/level_zero/stream.h"

namespace anyaccel::xpu::level_zero {

RecordedList::RecordedList(const std::shared_ptr<DeviceState>& device)
    : device_(device), started_(device->events().acquire(false)), finished_(nullptr) {
  try {
    finished_ = device->events().acquire(false);
    ListDesc desc{};
    desc.type = type_list_desc;
    desc.ordinal = device->facts().queue_ordinal;
    ListHandle list = nullptr;
    device->check(device->api().zeCommandListCreate(device->context().handle(), device->handle(), &desc, &list),
                  "zeCommandListCreate");
    commands_ = std::make_unique<CommandList>(device, list, false);
    commands_->wait(started_);
    commands_->reset(started_);
  } catch (...) {
    if (finished_) device->events().give_back(finished_, false);
    device->events().give_back(started_, false);
    throw;
  }
}

RecordedList::~RecordedList() {
  commands_.reset();
  if (events_ != Events::free) return;
  device_->events().give_back(started_, false);
  device_->events().give_back(finished_, false);
}

void RecordedList::refuse_if_taken() const {
  if (events_ == Events::free) return;
  throw abi::Failure(
      AA_FAILED_PRECONDITION,
      "an earlier launch of the graph was refused halfway, or its end could not be recorded, so that the end of "
      "another one could not be told from that; destroy the graph and capture it again");
}

void RecordedList::close() {
  commands_->signal(finished_);
  device_->check(device_->api().zeCommandListClose(commands_->handle()), "zeCommandListClose");
}

CommandList& Graph::commands() {
  if (!list_is_open_) {
    steps_.emplace_back().list = std::make_unique<RecordedList>(device_);
    list_is_open_ = true;
  }
  ++nodes_;
  return steps_.back().list->commands();
}

void Graph::add(GraphStep step) {
  close_list();
  steps_.push_back(std::move(step));
  ++nodes_;
}

void Graph::finish() {
  close_list();
  queue_ = std::make_shared<GraphQueue>(device_);
}

Graph::~Graph() {
  if (!queue_ || is_forked_child()) return;
  // After an error the caller could not wait. A stream that has not passed the lists' events would wait forever.
  if (last_launch_) last_launch_->settle();
  // The last event of a list is signaled before the queue knows that the list has ended.
  queue_->settle();
}

void Graph::close_list() {
  if (!list_is_open_) return;
  list_is_open_ = false;
  steps_.back().list->close();
}

void Graph::keep_end(Stream& stream) {
  last_launch_ = stream.end_of_work();
  for (const GraphStep& step : steps_) {
    if (step.list) step.list->give_back();
  }
}

// A list must not run twice at the same time, or the signals of two launches become one. The end of a launch whose stream has
// failed may never be signaled, so that nothing can wait for it; but as long as it is not, the launch may still run.
void Graph::follow_last_launch(Stream& stream) {
  if (!last_launch_ || stream.made(*last_launch_) || last_launch_->passed()) return;
  device_->usable();
  if (last_launch_->fault()->is_set()) {
    throw abi::Failure(
        AA_FAILED_PRECONDITION,
        "the graph's earlier launch, on another stream, has not ended, and that stream has failed: synchronize it, "
        "which waits for its work, before the graph is launched again, destroy it, or capture another graph");
  }
  stream.wait_for(last_launch_);
}

void Graph::launch(abi::Stream& target) {
  auto& stream = static_cast<Stream&>(target);
  if (stream.capturing()) {
    throw abi::Failure(AA_UNIMPLEMENTED, "a graph cannot be launched on a stream that captures another one");
  }
  // Before anything is enqueued: from here on, lists that are taken are those of this launch.
  for (const GraphStep& step : steps_) {
    if (step.list) step.list->refuse_if_taken();
  }
  follow_last_launch(stream);
  try {
    const auto enqueue = [&](GraphStep& step) {
      if (step.list) stream.run(*step.list, queue_);
      if (step.function) stream.host_call(step.function, step.user);
      if (step.record) stream.record(step.record);
      if (step.wait) stream.wait_for(step.wait->latest());
    };
    streams::enqueue_all(steps_, enqueue, [&] { keep_end(stream); });
  } catch (...) {
    try {
      keep_end(stream);  // of what was enqueued
    } catch (const abi::Failure&) {
      // The stream accepts no more commands.
    } catch (const std::bad_alloc&) {
      // The earlier end remains.
    }
    throw;
  }
}

}  // namespace anyaccel::xpu::level_zero
