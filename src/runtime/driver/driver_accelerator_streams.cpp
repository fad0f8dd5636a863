// DriverAccelerator: streams and events.
#include <string>

#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/driver_accelerator_impl.h"

namespace anyaccel {

anyaccel::Stream DriverAccelerator::Stream(int priority) {
  DeviceContext& c = context(current_device_index);
  return anyaccel::Stream(std::make_shared<StreamImpl>(c, shared_->contexts[static_cast<size_t>(c.index)], priority,
                                                       AA_STREAM_NON_BLOCKING));
}

ScopeGuard DriverAccelerator::stream(const anyaccel::Stream& s) {
  handle(s);  // refuses what is no stream
  check_own(static_cast<const StreamImpl&>(*s.state()).context(), "the stream");
  const int index = s.device_index();
  ThreadState& state = thread_state();
  if (state.streams.size() <= static_cast<size_t>(index)) state.streams.resize(static_cast<size_t>(index) + 1);
  flush(index);  // others may wait for work of the stream that is left
  anyaccel::Stream previous = state.streams[static_cast<size_t>(index)];
  const int previous_device = state.device;
  state.streams[static_cast<size_t>(index)] = s;
  state.device = index;
  return ScopeGuard([this, s, previous, previous_device, index](bool) {
    ThreadState& inner = thread_state();
    inner.streams[static_cast<size_t>(index)] = previous;
    inner.device = previous_device;
    flush_stream(s);
  });
}

const anyaccel::Stream& DriverAccelerator::current_stream(int index) {
  const ThreadState& state = thread_state();
  const auto i = static_cast<size_t>(index == current_device_index ? state.device : resolve(index));
  if (i < state.streams.size() && state.streams[i]) return state.streams[i];
  return context(static_cast<int>(i)).default_stream;
}

void DriverAccelerator::flush(int index) {
  // A device that was never opened holds no work.
  if (!shared_->ready.load(std::memory_order_acquire) || !shared_->instance->lazy) return;
  const auto i = static_cast<size_t>(resolve(index));
  if (!shared_->open[i].load(std::memory_order_acquire)) return;
  flush_stream(current_stream(static_cast<int>(i)));
}

void DriverAccelerator::flush_stream(const anyaccel::Stream& stream) const {
  const auto& impl = static_cast<const StreamImpl&>(*stream.state());  // stream() takes no other kind
  const auto* lazy = impl.context().instance->lazy;
  if (lazy && !impl.capturing()) impl.context().check(lazy->flush(impl.stream()), "flush");
}

ScopeGuard DriverAccelerator::step(uint64_t key) {
  instance();
  const auto* lazy = shared_->instance->lazy;
  if (!lazy) return {};
  const anyaccel::Stream& current = current_stream();
  const auto& stream = static_cast<const StreamImpl&>(*current.state());
  if (stream.capturing()) return {};
  auto params = abi::sized<aa_step>();
  params.key = key;
  stream.context().check(lazy->step_begin(stream.stream(), &params), "step_begin");
  return ScopeGuard([current](bool) {
    const auto& began = static_cast<const StreamImpl&>(*current.state());
    began.context().check(began.context().instance->lazy->step_end(began.stream()), "step_end");
  });
}

const anyaccel::Stream& DriverAccelerator::default_stream(int index) { return context(index).default_stream; }

anyaccel::Event DriverAccelerator::Event(bool enable_timing) {
  DeviceContext& c = context(current_device_index);
  return anyaccel::Event(c.make_event(enable_timing));
}

std::shared_ptr<detail::EventState> DriverAccelerator::DeviceContext::make_event(bool timing) {
  if (timing && !(props.caps & AA_CAP_EVENT_TIMING)) return std::make_shared<HostEvent>();
  const uint32_t flags = timing ? AA_EVENT_TIMING : AA_EVENT_DEFAULT;
  aa_event* raw = nullptr;
  aa_status* status = driver().event_create(device, flags, &raw);
  if (status_code(status) == AA_UNIMPLEMENTED) {
    release_status(status);
    return std::make_shared<HostEvent>();
  }
  if (status) status = after_failure(status, [&] { return driver().event_create(device, flags, &raw); });
  check(status, "event_create");
  return std::make_shared<EventImpl>(shared_from_this(), raw);
}

void HostEvent::record(const anyaccel::Stream& stream) {
  if (!stream) throw InvalidArgument("record: the stream is empty");
  stream.synchronize();
  const std::lock_guard lock(mutex_);
  time_ = Clock::now();
}

std::optional<HostEvent::Clock::time_point> HostEvent::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

double HostEvent::elapsed_ms(const detail::EventState& end) const {
  const auto* other = dynamic_cast<const HostEvent*>(&end);
  if (!other) throw InvalidArgument("the end event was made by another accelerator, or without timing");
  const auto first = time();
  const auto last = other->time();
  if (!first || !last)
    throw InvalidArgument("elapsed_time of an event that was never recorded", AA_FAILED_PRECONDITION);
  return std::chrono::duration<double, std::milli>(*last - *first).count();
}

DriverAccelerator::StreamImpl::StreamImpl(DeviceContext& context, std::shared_ptr<DeviceContext> owner,
                                          int32_t priority, uint32_t flags)
    : context_(context), owner_(std::move(owner)) {
  host_.device = &context;
  host_.context = &context;
  host_.gate = &gate_;
  auto params = abi::sized<aa_stream_params>();
  params.priority = priority;
  params.flags = flags;
  params.host_stream = &host_;
  context.call("stream_create", [&] { return context.driver().stream_create(context.device, &params, &host_.stream); });
}

DriverAccelerator::StreamImpl::~StreamImpl() {
  if (owner_) context_.allocator->forget_stream(host_.stream);
  release_status(context_.driver().stream_destroy(host_.stream));
}

std::shared_ptr<detail::EventState> DriverAccelerator::StreamImpl::make_event() const {
  return context_.make_event(false);
}

bool DriverAccelerator::is_current_stream_capturing(int index) {
  return static_cast<const StreamImpl&>(*current_stream(index).state()).capturing();  // stream() takes no other kind
}

bool DriverAccelerator::StreamImpl::query() const {
  gate_.refuse_others();
  int32_t done = 0;
  aa_status* status = context_.driver().stream_query(host_.stream, &done);
  if (status_code(status) == AA_UNIMPLEMENTED) {
    release_status(status);
    synchronize();
    return true;
  }
  context_.check(status, "stream_query");
  return done != 0;
}

void DriverAccelerator::StreamImpl::synchronize() const {
  gate_.refuse_others();
  context_.check(context_.driver().stream_synchronize(host_.stream), "stream_synchronize");
}

void DriverAccelerator::StreamImpl::wait_event(const detail::EventState& event) {
  if (dynamic_cast<const HostEvent*>(&event)) return;  // always complete
  auto* impl = dynamic_cast<const EventImpl*>(&event);
  if (!impl) throw InvalidArgument("the event was made by another kind of accelerator");
  if (impl->context().instance != context_.instance) {
    throw InvalidArgument("wait_event: the stream belongs to " + context_.name() + ", the event to " +
                          impl->context().name() + " of another accelerator; wait for it on the host (synchronize)");
  }
  // A stream that waits for a point of a capture takes part in it.
  if (const std::shared_ptr<CaptureScope> capture = impl->capture(); capture && gate_.owner() != capture) {
    if (!capture->is_mine()) {
      throw InvalidArgument(
          "the event was recorded last in a graph that another thread is capturing, and work of this thread must not "
          "be "
          "recorded with it; wait until the capture has ended",
          AA_FAILED_PRECONDITION);
    }
    begin_capture(capture);
  }
  const StreamGate::Pass pass(gate_);
  aa_status* status = context_.driver().stream_wait_event(host_.stream, impl->event());
  if (status_code(status) == AA_UNIMPLEMENTED) {
    release_status(status);
    event.synchronize();
    return;
  }
  context_.check(status, "stream_wait_event");
}

void DriverAccelerator::StreamImpl::begin_capture(const std::shared_ptr<CaptureScope>& scope) {
  scope->streams.push_back(shared_from_this());
  bool closed = false;
  try {
    closed = gate_.close(scope);
    if (!closed) {
      gate_.refuse_others();
      throw InvalidArgument("the stream is capturing a graph already", AA_FAILED_PRECONDITION);
    }
    context_.set_capturing(host_.stream, true);
  } catch (...) {
    if (closed) gate_.open();
    scope->streams.pop_back();
    throw;
  }
}

void DriverAccelerator::StreamImpl::end_capture(HostCalls& calls) noexcept {
  for (auto& call : captured_calls_) calls.push_back(std::move(call));
  captured_calls_.clear();
  context_.set_capturing(host_.stream, false);
  gate_.open();
}

namespace {

void call_logging_errors(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    log_error(std::string("a function given to Stream::host_call threw: ") + error.what());
  }
}

}  // namespace

void DriverAccelerator::StreamImpl::host_call(std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const StreamGate::Pass pass(gate_);
  if (capturing()) {
    captured_calls_.reserve(captured_calls_.size() + 1);
    context_.check(
        context_.driver().stream_host_call(
            host_.stream, [](void* user) { call_logging_errors(*static_cast<std::function<void()>*>(user)); },
            owned.get()),
        "stream_host_call");
    captured_calls_.push_back(std::move(owned));
    return;
  }
  aa_status* status = context_.driver().stream_host_call(
      host_.stream,
      [](void* user) {
        const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(user));
        call_logging_errors(*call);
      },
      owned.get());
  if (!status) static_cast<void>(owned.release());  // the call owns it now, and may have ended it already
  if (status_code(status) == AA_UNIMPLEMENTED) {
    release_status(status);
    synchronize();
    call_logging_errors(*owned);
    return;
  }
  context_.check(status, "stream_host_call");
}

void* DriverAccelerator::StreamImpl::native_handle() const {
  void* native = nullptr;
  context_.check(context_.driver().stream_native(host_.stream, &native), "stream_native");
  return native;
}

DriverAccelerator::EventImpl::~EventImpl() { release_status(context_->driver().event_destroy(event_)); }

void DriverAccelerator::EventImpl::record(const anyaccel::Stream& stream) {
  handle(stream);  // refuses what is no stream
  const DeviceContext& other = static_cast<const StreamImpl&>(*stream.state()).context();
  if (&other != context_.get()) {
    throw InvalidArgument("record: the event belongs to " + context_->name() + ", the stream to " + other.name() +
                          (other.instance != context_->instance ? " of another accelerator" : ""));
  }
  const StreamUse use(stream);
  context_->check(context_->driver().event_record(event_, use.handle()), "event_record");
  const auto& impl = static_cast<const StreamImpl&>(*stream.state());
  const bool captured = impl.capturing();
  if (!captured && !captured_.load(std::memory_order_acquire)) [[likely]]
    return;
  const std::lock_guard lock(mutex_);
  capture_ = std::static_pointer_cast<CaptureScope>(impl.gate().owner());
  captured_.store(captured, std::memory_order_release);
}

std::shared_ptr<DriverAccelerator::CaptureScope> DriverAccelerator::EventImpl::capture() const {
  if (!captured_.load(std::memory_order_acquire)) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  return capture_.lock();
}

bool DriverAccelerator::EventImpl::query() const {
  int32_t done = 0;
  context_->check(context_->driver().event_query(event_, &done), "event_query");
  return done != 0;
}

void DriverAccelerator::EventImpl::synchronize() const {
  context_->check(context_->driver().event_synchronize(event_), "event_synchronize");
}

double DriverAccelerator::EventImpl::elapsed_ms(const detail::EventState& end) const {
  auto* impl = dynamic_cast<const EventImpl*>(&end);
  if (!impl || impl->context().instance != context_->instance) {
    throw InvalidArgument("the end event was made by another accelerator");
  }
  double milliseconds = 0;
  context_->check(context_->driver().event_elapsed(event_, impl->event(), &milliseconds), "event_elapsed");
  return milliseconds;
}

}  // namespace anyaccel
