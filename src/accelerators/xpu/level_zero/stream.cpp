// Implements stream.h: streams.
#include "accelerators/xpu/level_zero/stream.h"

#include <algorithm>
#include <new>

#include "accelerators/xpu/level_zero/device.h"

namespace anyaccel::xpu::level_zero {

void StreamList::add(Stream* stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void StreamList::remove(Stream* stream) noexcept {
  std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}

std::vector<std::shared_ptr<Record>> StreamList::ends_of_work() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Record>> ends;
  for (Stream* stream : streams_) {
    if (std::shared_ptr<Record> end = stream->end_of_work()) ends.push_back(std::move(end));
  }
  return ends;
}

Stream::Stream(std::shared_ptr<DeviceState> device, std::shared_ptr<StreamList> siblings, const QueueDesc& desc)
    : device_(std::move(device)), siblings_(std::move(siblings)) {
  const auto create = [&](uint32_t flags) {
    QueueDesc list_desc = desc;
    list_desc.flags |= flags;
    ListHandle list = nullptr;
    const Result result =
        device_->api().zeCommandListCreateImmediate(device_->context().handle(), device_->handle(), &list_desc, &list);
    if (result == success) list_ = std::make_unique<CommandList>(device_, list, flags == queue_in_order);
    return result;
  };
  // A loader that is older than the driver refuses the flag when its validation is on.
  Result result = error_invalid_enumeration;
  if (device_->context().platform().version >= version_1_9) result = create(queue_in_order);
  if (result == error_invalid_enumeration) result = create(0);
  device_->check(result, "zeCommandListCreateImmediate");
  siblings_->add(this);
}

Stream::~Stream() {
  siblings_->remove(this);
  host_calls_.reset();
}

void Stream::close() {
  siblings_->remove(this);
  captures_.abandon();
  if (is_forked_child()) return;
  // Whatever else fails, submitted work must have ended before the list is destroyed.
  struct Settle {
    Stream& stream;
    ~Settle() { stream.settle(); }
  } settle{*this};
  if (!device_->lost()) synchronize();
}

void Stream::settle() noexcept {
  std::lock_guard lock(mutex_);
  if (list_->settle()) return;
  try {
    end_of_work_locked();
  } catch (const abi::Failure&) {
    // The list accepts no commands any more, and before version 1.6 nothing but a later command tells when it has passed those
    // that it accepted. The last record is the best there is.
  } catch (const std::bad_alloc&) {
    // As above.
  }
  if (end_) end_->settle();
}

void Stream::begin_work() {
  device_->usable();
  worked_since_end_ = true;
}

CommandList& Stream::target() {
  if (Graph* const graph = capture()) return graph->commands();
  begin_work();
  return *list_;
}

void Stream::copy(const aa_copy& what) {
  std::lock_guard lock(mutex_);
  target().copy(what.destination, what.source, what.size);
}

void Stream::copy_peer(const aa_peer_copy& what) {
  auto& to = static_cast<Device&>(abi::object(what.destination_device));
  auto& from = static_cast<Device&>(abi::object(what.source_device));
  if (device_.get() != &to.state() && device_.get() != &from.state()) {
    throw abi::Failure(AA_INVALID_ARGUMENT, "a copy between two devices on a stream of another one");
  }
  if (!to.can_copy_from(from)) {
    throw abi::Failure(AA_UNIMPLEMENTED, "the two devices cannot reach each other's memory (zeDeviceCanAccessPeer)");
  }
  std::lock_guard lock(mutex_);
  target().copy(what.destination, what.source, what.size);
}

void Stream::fill(const aa_fill& what) {
  std::lock_guard lock(mutex_);
  target().fill(what.destination, what.pattern, what.pattern_size, what.size);
}

void Stream::launch(abi::Kernel& kernel, const aa_launch& launch) {
  std::lock_guard lock(mutex_);
  target().launch(static_cast<Kernel&>(kernel), launch);
}

// ---- records and waits -----------------------------------------------------------------------------------------------

void Stream::release_passed() {
  for (;;) {
    const auto own = std::find_if(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.own; });
    if (own == kept_.end() || !own->record->passed()) return;
    kept_.erase(kept_.begin(), own + 1);
  }
}

std::shared_ptr<Record> Stream::mark_locked(bool timed) {
  device_->usable();
  release_passed();
  drop_passed(waits_);
  auto record = std::make_shared<Record>(device_, fault_, timed, waits_);
  kept_.push_back({record, true});
  try {
    list_->signal(record->event());
  } catch (const abi::Failure& failure) {
    kept_.pop_back();
    // A stream that accepts no barrier any more has lost its order.
    if (failure.code() != AA_RESOURCE_EXHAUSTED) fault_->set(failure, record->number());
    throw;
  }
  end_ = record;
  worked_since_end_ = false;
  return record;
}

void Stream::record(const std::shared_ptr<EventCore>& event) {
  std::lock_guard lock(mutex_);
  if (Graph* const graph = capture()) {
    GraphStep step;
    step.record = event;
    graph->add(std::move(step));
    event->set_captured(captures_.current());
    return;
  }
  event->set(mark_locked(event->timed()));
}

void Stream::wait_locked(const std::shared_ptr<Record>& record) {
  begin_work();
  kept_.push_back({record, false});
  Waits waits = made(*record) ? waits_ : record->added_to(waits_, *fault_);
  list_->wait(record->event());
  waits_ = std::move(waits);
  // A stream that only ever waits would keep every record.
  constexpr size_t many = 64;
  if (kept_.size() % many == 0) mark_locked(false);
}

void Stream::wait_for(std::shared_ptr<Record> record) {
  if (!record || made(*record)) return;
  try {
    if (record->complete() && record->passed_well()) return;
  } catch (const abi::Failure&) {
    device_->usable();
    // This stream fails with it, as if the wait had come first.
  }
  std::lock_guard lock(mutex_);
  wait_locked(record);
}

// Takes part in the capture that the event was recorded in.
void Stream::join(const EventCore& event) {
  const auto open = std::static_pointer_cast<Capture>(event.capture());
  if (!open || !open->is_open() || open == captures_.current()) return;
  if (&open->graph().device() != device_.get()) {
    throw abi::Failure(AA_UNIMPLEMENTED, "a stream cannot take part in a capture of another device");
  }
  captures_.join(open);
}

void Stream::wait_event(abi::Event& event) {
  const std::shared_ptr<EventCore>& core = static_cast<Event&>(event).core();
  {
    std::lock_guard lock(mutex_);
    join(*core);
    if (Graph* const graph = capture()) {
      GraphStep step;
      step.wait = core;
      graph->add(std::move(step));
      return;
    }
  }
  wait_for(core->latest());
}

std::shared_ptr<Record> Stream::end_of_work_locked() {
  if (worked_since_end_) mark_locked(false);
  return end_;
}

std::shared_ptr<Record> Stream::end_of_work() {
  std::lock_guard lock(mutex_);
  return end_of_work_locked();
}

std::shared_ptr<Record> Stream::end_to_wait_for() {
  device_->usable();
  std::lock_guard lock(mutex_);
  fault_->raise_if_set();
  if (capture()) {
    throw abi::Failure(AA_FAILED_PRECONDITION, "the stream is capturing a graph and cannot be waited for");
  }
  return end_of_work_locked();
}

bool Stream::query() {
  const std::shared_ptr<Record> end = end_to_wait_for();
  return !end || end->complete();
}

// When it throws, work that was submitted has ended too: the caller gives up the memory that it uses.
void Stream::synchronize() {
  try {
    const std::shared_ptr<Record> end = end_to_wait_for();
    if (end) end->wait();
  } catch (const abi::Failure& failure) {
    if (failure.code() != AA_FAILED_PRECONDITION && !device_->lost()) settle();
    throw;
  }
  std::lock_guard lock(mutex_);
  release_passed();
}

void* Stream::native() { return list_->handle(); }

// ---- host calls ------------------------------------------------------------------------------------------------------

namespace {

// Once more after an error, such as a lack of memory that passes: a stream that is not woken up cannot even be destroyed.
Result signal_surely(const DeviceState& device, EventHandle event) {
  const Result result = device.api().zeEventHostSignal(event);
  return result == success ? result : device.api().zeEventHostSignal(event);
}

}  // namespace

void Stream::carry_out(DeviceState& device, const HostCall& call) {
  try {
    call.ready->wait();
    call.function(call.user);
  } catch (const abi::Failure&) {
    // The work before it failed, so the function is not called. The error stays with the stream.
  }
  // In every case, or the stream would wait forever.
  try {
    device.check(signal_surely(device, call.returned->event()), "zeEventHostSignal");
  } catch (const abi::Failure& failure) {
    call.returned->fault()->set(failure, call.returned->number());
  }
}

void Stream::host_call(void (*function)(void* user), void* user) {
  std::lock_guard lock(mutex_);
  if (Graph* const graph = capture()) {
    GraphStep step;
    step.function = function;
    step.user = user;
    graph->add(std::move(step));
    return;
  }
  if (!host_calls_) {
    host_calls_ = std::make_unique<streams::HostCalls<HostCall>>(
        [device = device_](const HostCall& call) { carry_out(*device, call); });
  }
  HostCall call{mark_locked(false), std::make_shared<Record>(device_, fault_, false, nullptr), function, user};
  const EventHandle returned = call.returned->event();
  try {
    wait_locked(call.returned);
    host_calls_->push(std::move(call));
  } catch (...) {
    signal_surely(*device_, returned);  // or the stream would wait forever
    throw;
  }
}

// ---- graphs ----------------------------------------------------------------------------------------------------------

void Stream::capture_begin() {
  std::lock_guard lock(mutex_);
  device_->usable();
  captures_.begin(std::make_unique<Graph>(device_));
}

std::unique_ptr<abi::Graph> Stream::capture_end() {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Graph> graph = captures_.end();
  graph->finish();
  return graph;
}

bool Stream::capturing() {
  std::lock_guard lock(mutex_);
  return capture() != nullptr;
}

namespace {

// After lack of memory the host would launch the graph again.
[[noreturn]] void give_up(RecordedList& list, const abi::Failure& failure) {
  list.lose();
  if (failure.code() != AA_RESOURCE_EXHAUSTED) throw abi::Failure(failure);
  throw abi::Failure(AA_INTERNAL, failure.what(), failure.native_code());
}

}  // namespace

void Stream::run(RecordedList& list, const std::shared_ptr<GraphQueue>& queue) {
  std::lock_guard lock(mutex_);
  begin_work();
  fault_->expect_run();
  auto run = std::make_shared<GraphRun>(queue);
  list_->signal(list.started());
  list.take();
  try {
    run->start(list.commands().handle());
  } catch (const abi::Failure& failure) {
    try {
      list_->reset(list.started());  // or the next launch would find it signaled
    } catch (const abi::Failure&) {
      give_up(list, failure);
    }
    throw;
  }
  fault_->watch(std::move(run));
  try {
    list_->wait(list.finished());
    list_->reset(list.finished());
  } catch (const abi::Failure& failure) {
    fault_->set_behind_all(failure);  // later work would not come after the list
    give_up(list, failure);
  }
}

}  // namespace anyaccel::xpu::level_zero
