// Implements command queues and command buffers: their states, what commits them, the order of their commands, and their ends.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "simulators/apple/metal.h"

namespace sim::apple {
namespace {

std::atomic<int> running_buffers{0};  // committed, and not done

thread_local const QueueWorker* handlers_of = nullptr;  // whose handlers this thread runs

void expect_no_encoder(CommandBuffer& buffer, const char* what, bool* fine) {
  const std::lock_guard lock(buffer.mutex);
  *fine = true;
  if (buffer.status >= kCommitted) {
    violation("command-buffer-state", std::string(what) + " after the command buffer was committed");
    *fine = false;
  } else if (buffer.has_open) {
    violation("encoder-state", std::string(what) + " while an encoder of the command buffer has not ended");
    *fine = false;
  }
}

}  // namespace

bool wait_for(QueueWorker& worker, std::unique_lock<std::mutex>& lock, const char* what,
              const std::function<bool()>& done) {
  if (wait_seconds(worker.changed, lock, settings().hang_seconds, done)) return true;
  violation("hang", std::string("the host has waited for ") + what + " for " + std::to_string(settings().hang_seconds) +
                        " seconds");
  return false;
}

// ---- queues --------------------------------------------------------------------------------------------------------------

QueueWorker::QueueWorker(int device) : stream(std::make_unique<Stream>(sim::apple::engine(), device, false, kLanes)) {}

// Ends command buffers in their order: on macOS that is a dispatch queue of the command queue's own.
void QueueWorker::work(const std::shared_ptr<QueueWorker>& self) {
  handlers_of = this;
  for (;;) {
    Ref<CommandBuffer> reference;
    {
      std::unique_lock lock(self->mutex);
      changed.wait(lock, [&] { return ending || !committed.empty(); });
      if (committed.empty()) break;
      reference = std::move(committed.front());
      committed.pop_front();
    }
    const std::shared_ptr<CommandBuffer> buffer = reference.shared();
    const Id pool = push_pool();
    const auto call = [&](std::vector<Block*>& handlers) {
      for (Block* handler : handlers) {
        call_block(handler, buffer->id());
        release_block(handler);
      }
      handlers.clear();
    };
    {
      const std::lock_guard lock(self->mutex);
      buffer->status = kScheduled;
    }
    call(buffer->scheduled_handlers);
    changed.notify_all();
    Integer code = buffer->refused;
    if (buffer->submitted) {
      Status status = Status::not_ready;
      while (status == Status::not_ready) status = sim::apple::engine().watch(*buffer->finished, 1000000000);
      code = buffer->outcome->error;
      if (status != Status::ok && code == kNoError) {
        code = broken ? kAccessRevoked : status == Status::device_lost ? kDeviceRemoved : kInternal;
        broken = true;
      }
    }
    buffer->complete(code);
    if (!buffer->completed_handlers.empty()) sim::apple::engine().wait(*buffer->finished, 0);
    call(buffer->completed_handlers);
    pop_pool(pool);
    // The reference is released first: the thread that waits for the end may look for leaks.
    reference = {};
    {
      const std::lock_guard lock(self->mutex);
      buffer->done = true;
      --uncompleted;
    }
    --running_buffers;
    changed.notify_all();
  }
  handlers_of = nullptr;
}

CommandQueue::CommandQueue(Ref<MetalDevice> owner, UInteger limit)
    : OfDevice("MTLCommandQueue", std::move(owner)), most(limit), worker(std::make_shared<QueueWorker>(device->index)) {
  thread = std::thread([keeper = worker] { keeper->work(keeper); });
}

// Command buffers keep their queue, so nothing is left to run. The thread ends before the queue has gone, unless it is the thread
// that gives the last command buffer, and with it the queue, back.
void CommandQueue::dealloc() {
  {
    const std::lock_guard lock(worker->mutex);
    worker->ending = true;
    worker->changed.notify_all();
  }
  thread.get_id() == std::this_thread::get_id() ? thread.detach() : thread.join();
  sets.clear();
  OfDevice::dealloc();
}

// ---- command buffers -----------------------------------------------------------------------------------------------------

CommandBuffer::CommandBuffer(Ref<CommandQueue> owner, bool retains_references)
    : Instance("MTLCommandBuffer"), queue(std::move(owner)), retains(retains_references) {}

void CommandBuffer::dealloc() {
  const Ref<CommandQueue> last = std::move(queue);
  error = {};
  sets.clear();
  if (status >= kCommitted) return;  // it has completed: the worker held it until then
  for (auto& [token, resource] : lent) --resource->loans;
  for (auto* handlers : {&scheduled_handlers, &completed_handlers}) {
    for (Block* handler : *handlers) release_block(handler);
  }
  const std::lock_guard lock(last->worker->mutex);
  --last->worker->uncompleted;
  last->worker->changed.notify_all();
}

void CommandBuffer::keep(const std::shared_ptr<Instance>& object, bool always_lent) {
  const auto resource = std::dynamic_pointer_cast<Buffer>(object);
  const std::lock_guard lock(mutex);
  if (retains && !always_lent) {
    kept.emplace(object->token, Ref<Instance>(object));
  } else if (resource != nullptr && lent.emplace(object->token, resource).second) {
    ++resource->loans;
  }
}

void CommandBuffer::complete(Integer code) {
  const auto seconds = [](const Event& event, bool at_end) {
    const auto times = sim::apple::engine().times(event);
    return times ? static_cast<double>(at_end ? times->second : times->first) / 1e9 : 0;
  };
  start = seconds(*started, false);
  end = seconds(*finished, true);
  for (auto& [token, resource] : lent) --resource->loans;
  lent.clear();
  kept.clear();
  passes.clear();
  if (code != kNoError) {
    const char* text = code == kPageFault
                           ? "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"
                       : code == kAccessRevoked ? "Ignored (for causing prior/excessive GPU errors) "
                                                  "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
                       : code == kDeviceRemoved ? "The device was removed"
                                                : "Internal Error (0000000e:Internal Error)";
    const auto made = make_error("MTLCommandBufferErrorDomain", code, text);
    error = Ref<Error>(made);
    release(made);
  }
  const std::lock_guard lock(queue->worker->mutex);
  status = code == kNoError ? kCompleted : kFailed;
}

namespace {

using Events = std::vector<std::shared_ptr<Event>>;
using Order = std::function<std::shared_ptr<Event>(const char* what, Events waits)>;

// The commands that a pass waits for because of the buffers it uses, and those that later passes will wait for. `order`
// appends a command that waits for events and is told by one. Wants the queue's lock held.
Events hazards_of(CommandQueue& queue, const Pass& pass, const std::shared_ptr<Event>& ended, const Order& order) {
  Events waits;
  for (const auto& [token, use] : pass.uses) {
    if (!use.buffer->tracked) continue;
    CommandQueue::Hazard& hazard = queue.hazards[token];
    if (hazard.write != nullptr) waits.push_back(hazard.write);
    if (use.write) {
      waits.insert(waits.end(), hazard.reads.begin(), hazard.reads.end());
      hazard.reads.clear();
      hazard.write = ended;
    } else {
      // Many readers, as weights have, become one event.
      if (hazard.reads.size() >= 32) hazard.reads = {order("readers of a buffer", std::move(hazard.reads))};
      hazard.reads.push_back(ended);
    }
  }
  // Buffers that are no more are forgotten now and then.
  if (queue.hazards.size() > 4096) {
    for (auto at = queue.hazards.begin(); at != queue.hazards.end();) {
      std::string problem;
      const bool gone = engine().handles().get<Buffer>(reinterpret_cast<Id>(at->first), &problem) == nullptr;
      at = gone ? queue.hazards.erase(at) : std::next(at);
    }
  }
  return waits;
}

// Appends the commands of an encoder. Wants the queue's lock held.
void add_pass(CommandQueue& queue, const Pass& pass, const std::shared_ptr<Outcome>& outcome,
              std::vector<std::shared_ptr<const Command>>* commands) {
  // One that only orders: no fault counts it.
  const Order order = [&](const char* what, Events waits) {
    Command command;
    command.what = what;
    command.counted = false;
    command.waits = std::move(waits);
    command.signal = std::make_shared<Event>();
    auto signal = command.signal;
    commands->push_back(std::make_shared<const Command>(std::move(command)));
    return signal;
  };
  const auto ended = std::make_shared<Event>();
  Events first = hazards_of(queue, pass, ended, order);
  if (queue.gate != nullptr) first.push_back(queue.gate);
  Events before = {order("start of an encoder", std::move(first))};  // what the next command waits for
  // Commands of a concurrent encoder that no barrier has joined.
  std::vector<std::pair<std::shared_ptr<Event>, const std::set<std::uint64_t>*>> open;
  const auto everything = [&] {
    Events all = before;
    for (const auto& [event, buffers] : open) all.push_back(event);
    return all;
  };
  const auto next_lane = [&] { return queue.worker->next_lane++ % kLanes; };
  const std::size_t lane = next_lane();
  for (const Recorded& recorded : pass.commands) {
    switch (recorded.kind) {
      case Recorded::Kind::work: {
        Command command;
        command.what = recorded.what;
        command.waits = before;
        command.signal = std::make_shared<Event>();
        command.lane = pass.concurrent ? next_lane() : lane;
        command.run = [run = recorded.run, outcome](Execution& execution) {
          if (outcome->error == kNoError) run(execution);
          if (execution.failure() == Status::ok) return;
          Integer none = kNoError;
          outcome->error.compare_exchange_strong(none,
                                                 execution.failure() == Status::bad_access ? kPageFault : kInternal);
        };
        if (pass.concurrent) {
          open.emplace_back(command.signal, &recorded.buffers);
        } else {
          before = {command.signal};
        }
        commands->push_back(std::make_shared<const Command>(std::move(command)));
        break;
      }
      case Recorded::Kind::barrier: {
        const auto joined = [&](const auto& one) {
          return recorded.buffers.empty() ||
                 std::any_of(one.second->begin(), one.second->end(),
                             [&](std::uint64_t token) { return recorded.buffers.count(token) != 0; });
        };
        Events waits = before;
        for (const auto& one : open) {
          if (joined(one)) waits.push_back(one.first);
        }
        open.erase(std::remove_if(open.begin(), open.end(), joined), open.end());
        before = {order("memoryBarrier", std::move(waits))};
        break;
      }
      case Recorded::Kind::update: {
        const auto reached = order("updateFence", everything());
        const std::lock_guard lock(recorded.fence->mutex);
        recorded.fence->latest = reached;
        break;
      }
      case Recorded::Kind::wait: {
        Events both = before;
        {
          const std::lock_guard lock(recorded.fence->mutex);
          if (recorded.fence->latest != nullptr) both.push_back(recorded.fence->latest);
        }
        before = {order("waitForFence", std::move(both))};
        break;
      }
    }
  }
  Command last;
  last.what = "end of an encoder";
  last.counted = false;
  last.waits = everything();
  last.signal = ended;
  commands->push_back(std::make_shared<const Command>(std::move(last)));
}

// Hands one command buffer to the stream. Wants the queue's lock held.
void submit(CommandBuffer& buffer) {
  CommandQueue& queue = *buffer.queue;
  std::vector<std::shared_ptr<const Command>> commands;
  const auto add = [&](Command command) {
    command.counted = false;
    commands.push_back(std::make_shared<const Command>(std::move(command)));
  };
  if (buffer.injected) buffer.outcome->error = kInternal;
  {
    Command first;
    first.what = "start of a command buffer";
    first.signal = buffer.started;
    add(std::move(first));
  }
  for (const Pass& pass : buffer.passes) {
    if (pass.kind == Pass::Kind::encoder) {
      add_pass(queue, pass, buffer.outcome, &commands);
      continue;
    }
    Command command;
    if (pass.kind == Pass::Kind::signal) {
      // After everything that was committed to the queue before (ggml-metal and PyTorch's MPS rely on it).
      command.what = "encodeSignalEvent";
      command.sees_all = true;
      command.advance = {pass.event->timeline, pass.value};
    } else {
      command.what = "encodeWaitForEvent";
      if (queue.gate != nullptr) command.waits.push_back(queue.gate);
      command.reach = {pass.event->timeline, pass.value};
      command.signal = queue.gate = std::make_shared<Event>();
    }
    add(std::move(command));
  }
  Command last;
  last.what = "end of a command buffer";
  last.sees_all = true;
  last.signal = buffer.finished;
  add(std::move(last));
  const Status status = queue.worker->stream->submit(std::move(commands));
  buffer.submitted = status == Status::ok;
  if (!buffer.submitted)
    buffer.refused = queue.worker->broken ? kAccessRevoked : status == Status::device_lost ? kDeviceRemoved : kInternal;
}

}  // namespace

void commit(CommandBuffer& buffer) {
  CommandQueue& queue = *buffer.queue;
  const std::lock_guard lock(queue.mutex);
  const auto self = shared(buffer);
  if (buffer.status == kNotEnqueued) queue.order.push_back({self, {}});
  for (CommandQueue::Place& place : queue.order) {
    if (place.buffer.lock() == self) place.committed = Ref<CommandBuffer>(self);
  }
  {
    const std::lock_guard state(buffer.mutex);
    buffer.status = kCommitted;
    buffer.sets.insert(buffer.sets.end(), queue.sets.begin(), queue.sets.end());
  }
  // Command buffers run in the order in which they were enqueued; what was dropped without a commit holds nothing up.
  while (!queue.order.empty()) {
    const auto waiting = queue.order.front().buffer.lock();
    Ref<CommandBuffer> front = std::move(queue.order.front().committed);
    if (!front && waiting != nullptr && waiting->alive()) break;
    queue.order.pop_front();
    if (!front) continue;
    submit(*front);
    ++running_buffers;
    const std::lock_guard worker(queue.worker->mutex);
    queue.worker->committed.push_back(std::move(front));
    queue.worker->changed.notify_all();
  }
}

void settle() {
  for (int i = 0; i < 2000 && running_buffers > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// ---- methods ---------------------------------------------------------------------------------------------------------------

namespace {

Id make_command_buffer(CommandQueue& self, bool retains) {
  {
    std::unique_lock lock(self.worker->mutex);
    if (!wait_for(*self.worker, lock, "a free command buffer of the queue",
                  [&] { return self.worker->uncompleted < self.most; })) {
      return nullptr;
    }
    ++self.worker->uncompleted;
  }
  return autorelease(create<CommandBuffer>(Ref<CommandQueue>(shared(self)), retains));
}
Id command_buffer(CommandQueue& self) { return make_command_buffer(self, true); }
Id command_buffer_unretained(CommandQueue& self) { return make_command_buffer(self, false); }

struct CommandBufferDescriptor : Instance {
  CommandBufferDescriptor() : Instance("MTLCommandBufferDescriptor") {}
  bool retains = true;
  UInteger error_options = 0;
};
Boolean descriptor_retains(CommandBufferDescriptor& self) { return self.retains; }
void set_descriptor_retains(CommandBufferDescriptor& self, Boolean retains) { self.retains = retains; }
void set_error_options(CommandBufferDescriptor& self, UInteger options) { self.error_options = options; }
UInteger error_options(CommandBufferDescriptor& self) { return self.error_options; }
CLASS("MTLCommandBufferDescriptor", "NSObject", &make_instance<CommandBufferDescriptor>)
METHOD("MTLCommandBufferDescriptor", "retainedReferences", descriptor_retains)
METHOD("MTLCommandBufferDescriptor", "setRetainedReferences:", set_descriptor_retains)
METHOD("MTLCommandBufferDescriptor", "errorOptions", error_options)
METHOD("MTLCommandBufferDescriptor", "setErrorOptions:", set_error_options)
Id command_buffer_described(CommandQueue& self, Id id) {
  const auto descriptor = get<CommandBufferDescriptor>(id, "the descriptor");
  return descriptor == nullptr ? nullptr : make_command_buffer(self, descriptor->retains);
}

void add_set(std::vector<Ref<ResidencySet>>& sets, Id id) {
  const auto set = get<ResidencySet>(id, "the residency set");
  if (set == nullptr) return;
  for (const auto& known : sets) {
    if (known.get() == set.get()) return;
  }
  APPLE_REQUIRE(sets.size() < kMostSets, , "bad-argument", "more than 32 residency sets");
  sets.emplace_back(set);
}
void queue_add_set(CommandQueue& self, Id id) {
  const std::lock_guard lock(self.mutex);
  add_set(self.sets, id);
}
void queue_add_sets(CommandQueue& self, const Id* ids, UInteger count) {
  for (UInteger i = 0; i < count; ++i) queue_add_set(self, ids[i]);
}
void queue_remove_set(CommandQueue& self, Id id) {
  const std::lock_guard lock(self.mutex);
  for (auto at = self.sets.begin(); at != self.sets.end(); ++at) {
    if ((*at)->id() != id) continue;
    self.sets.erase(at);
    return;
  }
}
PROTOCOL("MTLCommandQueue", "MTLObject")
METHOD("MTLCommandQueue", "commandBuffer", command_buffer)
METHOD("MTLCommandQueue", "commandBufferWithUnretainedReferences", command_buffer_unretained)
METHOD("MTLCommandQueue", "commandBufferWithDescriptor:", command_buffer_described)
METHOD_SINCE(1500, "MTLCommandQueue", "addResidencySet:", queue_add_set)
METHOD_SINCE(1500, "MTLCommandQueue", "addResidencySets:count:", queue_add_sets)
METHOD_SINCE(1500, "MTLCommandQueue", "removeResidencySet:", queue_remove_set)

Id device_of_buffer(CommandBuffer& self) { return self.queue->device->id(); }
Id queue_of(CommandBuffer& self) { return self.queue->id(); }
Boolean retains_of(CommandBuffer& self) { return self.retains; }
Id label_of_buffer(CommandBuffer& self) { return self.label.empty() ? nullptr : string_autoreleased(self.label); }
void set_label_of_buffer(CommandBuffer& self, Id label) {
  self.label.clear();
  if (label != nullptr) text_of(label, "the label", &self.label);
}

void enqueue(CommandBuffer& self) {
  CommandQueue& queue = *self.queue;
  const std::lock_guard lock(queue.mutex);
  APPLE_REQUIRE(self.status == kNotEnqueued, , "command-buffer-state", "the command buffer was enqueued already");
  self.status = kEnqueued;
  queue.order.push_back({shared(self), {}});
}

void commit_once(CommandBuffer& self) {
  {
    const std::lock_guard lock(self.mutex);
    // "commit an already committed command buffer", "commit command buffer with uncommitted encoder": Metal stops the program.
    APPLE_REQUIRE(self.status < kCommitted, , "command-buffer-state", "the command buffer was committed already");
    APPLE_REQUIRE(!self.has_open, , "encoder-state", "an encoder of the command buffer has not ended");
  }
  commit(self);
}

// The documentation: it blocks until the completion handlers have ended too.
void wait_until_completed(CommandBuffer& self) {
  APPLE_REQUIRE(self.status >= kCommitted, , "command-buffer-state",
                "the command buffer was not committed: the wait would not end");
  QueueWorker& worker = *self.queue->worker;
  APPLE_REQUIRE(handlers_of != &worker || self.done, , "hang",
                "a handler waits for a command buffer of its queue: its own end comes first");
  {
    std::unique_lock lock(worker.mutex);
    if (!wait_for(worker, lock, "a command buffer", [&] { return self.done; })) return;
  }
  if (self.submitted) engine().wait(*self.finished, 0);
}
void wait_until_scheduled(CommandBuffer& self) {
  APPLE_REQUIRE(self.status >= kCommitted, , "command-buffer-state",
                "the command buffer was not committed: the wait would not end");
  QueueWorker& worker = *self.queue->worker;
  std::unique_lock lock(worker.mutex);
  wait_for(worker, lock, "a command buffer to be scheduled", [&] { return self.status >= kScheduled; });
}

UInteger status_of(CommandBuffer& self) {
  const UInteger status = self.status;
  if (status >= kCompleted && self.submitted) engine().wait(*self.finished, 0);
  return status;
}
Id error_of(CommandBuffer& self) {
  return self.status >= kCompleted && self.error ? autoreleased(self.error.shared()) : nullptr;
}
// Zero before, as the header says.
double start_of(CommandBuffer& self) { return self.status >= kCompleted ? self.start : 0; }
double end_of(CommandBuffer& self) { return self.status >= kCompleted ? self.end : 0; }

void add_handler(CommandBuffer& self, Id id, std::vector<Block*>* handlers) {
  APPLE_REQUIRE(id != nullptr, , "bad-argument", "the handler is nil");
  const std::lock_guard lock(self.mutex);
  APPLE_REQUIRE(self.status < kCommitted, , "command-buffer-state", "a handler is added before the commit");
  if (Block* block = copy_block(id)) handlers->push_back(block);
}
void add_completed_handler(CommandBuffer& self, Id block) { add_handler(self, block, &self.completed_handlers); }
void add_scheduled_handler(CommandBuffer& self, Id block) { add_handler(self, block, &self.scheduled_handlers); }

void add_event(CommandBuffer& self, Id id, std::uint64_t value, Pass::Kind kind) {
  const auto event = get<MetalEvent>(id, "the event");
  if (event == nullptr) return;
  bool fine = false;
  expect_no_encoder(self, "an event is encoded", &fine);
  if (!fine) return;
  APPLE_REQUIRE(event->device.get() == self.queue->device.get() || std::strcmp(event->kind, "MTLSharedEvent") == 0, ,
                "wrong-owner", "the event is another device's, and not shared");
  Pass pass;
  pass.kind = kind;
  pass.event = event;
  pass.value = value;
  self.keep(event);
  const std::lock_guard lock(self.mutex);
  self.passes.push_back(std::move(pass));
}
void encode_signal(CommandBuffer& self, Id event, std::uint64_t value) {
  add_event(self, event, value, Pass::Kind::signal);
}
void encode_wait(CommandBuffer& self, Id event, std::uint64_t value) {
  add_event(self, event, value, Pass::Kind::wait);
}

void use_set(CommandBuffer& self, Id id) {
  const std::lock_guard lock(self.mutex);
  APPLE_REQUIRE(self.status < kCommitted, , "command-buffer-state", "the command buffer was committed already");
  add_set(self.sets, id);
}
void use_sets(CommandBuffer& self, const Id* ids, UInteger count) {
  for (UInteger i = 0; i < count; ++i) use_set(self, ids[i]);
}

void debug_group(CommandBuffer&, Id name) { get<String>(name, "the name"); }
void end_debug_group(CommandBuffer&) {}

PROTOCOL("MTLCommandBuffer", "NSObject")
SURE_METHOD("MTLCommandBuffer", "device", device_of_buffer)
SURE_METHOD("MTLCommandBuffer", "commandQueue", queue_of)
METHOD("MTLCommandBuffer", "retainedReferences", retains_of)
SURE_METHOD("MTLCommandBuffer", "label", label_of_buffer)
METHOD("MTLCommandBuffer", "setLabel:", set_label_of_buffer)
METHOD("MTLCommandBuffer", "enqueue", enqueue)
METHOD("MTLCommandBuffer", "commit", commit_once)
METHOD("MTLCommandBuffer", "waitUntilCompleted", wait_until_completed)
METHOD("MTLCommandBuffer", "waitUntilScheduled", wait_until_scheduled)
METHOD("MTLCommandBuffer", "status", status_of)
SURE_METHOD("MTLCommandBuffer", "error", error_of)
METHOD("MTLCommandBuffer", "GPUStartTime", start_of)
METHOD("MTLCommandBuffer", "GPUEndTime", end_of)
METHOD("MTLCommandBuffer", "kernelStartTime", start_of)
METHOD("MTLCommandBuffer", "kernelEndTime", end_of)
METHOD("MTLCommandBuffer", "addCompletedHandler:", add_completed_handler)
METHOD("MTLCommandBuffer", "addScheduledHandler:", add_scheduled_handler)
METHOD("MTLCommandBuffer", "encodeSignalEvent:value:", encode_signal)
METHOD("MTLCommandBuffer", "encodeWaitForEvent:value:", encode_wait)
METHOD("MTLCommandBuffer", "pushDebugGroup:", debug_group)
METHOD("MTLCommandBuffer", "popDebugGroup", end_debug_group)
METHOD_SINCE(1500, "MTLCommandBuffer", "useResidencySet:", use_set)
METHOD_SINCE(1500, "MTLCommandBuffer", "useResidencySets:count:", use_sets)

// ---- events ----------------------------------------------------------------------------------------------------------------

struct Listener : Instance {
  Listener() : Instance("MTLSharedEventListener") {}
};
std::uint64_t signaled_value(MetalEvent& self) { return engine().value(*self.timeline); }
void set_signaled_value(MetalEvent& self, std::uint64_t value) { engine().advance(*self.timeline, value); }
Boolean wait_until_signaled(MetalEvent& self, std::uint64_t value, std::uint64_t milliseconds) {
  const std::uint64_t most = std::uint64_t{1} << 63;
  const std::uint64_t nanoseconds = milliseconds > most / 1000000 ? kForever : milliseconds * 1000000;
  return engine().wait(*self.timeline, value, nanoseconds) == Status::ok;
}
// Called once, by a thread of the listener's, when the value is reached.
void notify_listener(MetalEvent& self, Id listener, std::uint64_t value, Id id) {
  const auto one = get<Listener>(listener, "the listener");
  if (one == nullptr) return;
  Block* block = copy_block(id);
  APPLE_REQUIRE(block != nullptr, , "bad-argument", "the block is nil");
  std::thread([event = shared(self), one, value, block] {
    Status status = Status::not_ready;
    while (status == Status::not_ready) status = engine().wait(*event->timeline, value, 1000000000);
    if (status != Status::ok) return;
    const Id pool = push_pool();
    call_block(block, event->id(), engine().value(*event->timeline));
    release_block(block);
    pop_pool(pool);
  }).detach();
}
PROTOCOL("MTLEvent", "MTLObject")
PROTOCOL("MTLSharedEvent", "MTLEvent")
CLASS("MTLSharedEventListener", "NSObject", &make_instance<Listener>)
METHOD("MTLSharedEvent", "signaledValue", signaled_value)
METHOD("MTLSharedEvent", "setSignaledValue:", set_signaled_value)
METHOD_SINCE(1200, "MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:", wait_until_signaled)
METHOD("MTLSharedEvent", "notifyListener:atValue:block:", notify_listener)

}  // namespace
}  // namespace sim::apple
