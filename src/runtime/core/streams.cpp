// Implements streams.h.
#include "runtime/core/streams.h"

#include <string>

#include "anyaccel/error.h"
#include "anyaccel/log.h"

namespace anyaccel {

DriverStream& driver_stream(const anyaccel::Stream& stream) {
  auto* impl = dynamic_cast<DriverStream*>(stream.state());
  if (!impl) throw InvalidArgument("the stream is empty or was made by another kind of accelerator");
  return *impl;
}

DriverEvent& driver_event(const anyaccel::Event& event) {
  auto* impl = dynamic_cast<DriverEvent*>(event.state());
  if (!impl) throw InvalidArgument("the event is empty or was made by another kind of accelerator");
  return *impl;
}

std::unique_ptr<HostCalls> CaptureScope::end() noexcept {
  const std::vector<std::shared_ptr<DriverStream>> ending = std::move(streams);
  for (const std::shared_ptr<DriverStream>& stream : ending) stream->end_capture();
  return std::move(calls);
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

DriverStream::DriverStream(DeviceContext& context, std::shared_ptr<DeviceContext> owner, int32_t priority,
                           uint32_t flags)
    : context_(context), owner_(std::move(owner)) {
  host_.device = &context;
  host_.context = &context;
  host_.gate = &gate_;
  auto params = abi::sized<aa_stream_params>();
  params.priority = priority;
  params.flags = flags;
  params.host_stream = &host_;
  context.call("stream_create", [&] { return context.driver().stream_create(context.device, &params, &host_.stream); });
  context.check_made(host_.stream, "stream_create");
}

DriverStream::~DriverStream() {
  if (owner_) context_.allocator->forget_stream(host_.stream);
  release_status(context_.driver().stream_destroy(host_.stream));
}

std::shared_ptr<detail::EventState> DriverStream::make_event() const { return context_.make_event(false); }

bool DriverStream::query() const {
  gate_.refuse_others();
  int32_t done = 0;
  aa_status* status = context_.driver().stream_query(host_.stream, &done);
  if (status && status_code(status) == AA_UNIMPLEMENTED) [[unlikely]] {
    release_status(status);
    synchronize();
    return true;
  }
  context_.check(status, "stream_query");
  return done != 0;
}

void DriverStream::synchronize() const {
  gate_.refuse_others();
  context_.check(context_.driver().stream_synchronize(host_.stream), "stream_synchronize");
}

void DriverStream::wait_event(const detail::EventState& event) {
  if (dynamic_cast<const HostEvent*>(&event)) return;  // always complete
  auto* impl = dynamic_cast<const DriverEvent*>(&event);
  if (!impl) throw InvalidArgument("the event was made by another kind of accelerator");
  if (impl->context().instance != context_.instance) {
    throw InvalidArgument("wait_event: the stream belongs to " + context_.name() + ", the event to " +
                          impl->context().name() + " of another accelerator; wait for it on the host (synchronize)");
  }
  // A stream that waits for an event of a capture joins that capture.
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
  if (status && status_code(status) == AA_UNIMPLEMENTED) [[unlikely]] {
    release_status(status);
    event.synchronize();
    return;
  }
  context_.check(status, "stream_wait_event");
}

void DriverStream::begin_capture(const std::shared_ptr<CaptureScope>& scope) {
  scope->streams.push_back(shared_from_this());
  bool closed = false;
  try {
    closed = gate_.close(scope);
    if (!closed) {
      gate_.refuse_others();
      throw InvalidArgument("the stream is capturing a graph already", AA_FAILED_PRECONDITION);
    }
    context_.set_capturing(host_.stream, true);
    capture_ = scope.get();
  } catch (...) {
    if (closed) gate_.open();
    scope->streams.pop_back();
    throw;
  }
}

void DriverStream::end_capture() noexcept {
  capture_ = nullptr;
  context_.set_capturing(host_.stream, false);
  gate_.open();
}

namespace {

void call_logging_errors(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    log_error(std::string("a function given to Stream::host_call threw: ") + error.what());
  } catch (...) {
    log_error("a function given to Stream::host_call threw an exception that is not a std::exception");
  }
}

}  // namespace

void DriverStream::host_call(std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const StreamGate::Pass pass(gate_);
  if (capturing()) {
    HostCalls& kept = *capture_->calls;
    kept.reserve(kept.size() + 1);
    context_.check(
        context_.driver().stream_host_call(
            host_.stream, [](void* user) { call_logging_errors(*static_cast<std::function<void()>*>(user)); },
            owned.get()),
        "stream_host_call");
    kept.push_back(std::move(owned));
    return;
  }
  aa_status* status = context_.driver().stream_host_call(
      host_.stream,
      [](void* user) {
        const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(user));
        call_logging_errors(*call);
      },
      owned.get());
  if (!status) static_cast<void>(owned.release());  // the host call owns it now, and may have deleted it already
  if (status && status_code(status) == AA_UNIMPLEMENTED) [[unlikely]] {
    release_status(status);
    synchronize();
    call_logging_errors(*owned);
    return;
  }
  context_.check(status, "stream_host_call");
}

void* DriverStream::native_handle() const {
  void* native = nullptr;
  context_.check(context_.driver().stream_native(host_.stream, &native), "stream_native");
  return native;
}

DriverEvent::~DriverEvent() { release_status(context_->driver().event_destroy(event_)); }

void DriverEvent::record(const anyaccel::Stream& stream) {
  DriverStream& impl = driver_stream(stream);
  const DeviceContext& other = impl.context();
  if (&other != context_.get()) {
    throw InvalidArgument("record: the event belongs to " + context_->name() + ", the stream to " + other.name() +
                          (other.instance != context_->instance ? " of another accelerator" : ""));
  }
  const StreamUse use(impl);
  context_->call("event_record", [&] { return context_->driver().event_record(event_, use.handle()); });
  const bool captured = impl.capturing();
  if (!captured && !captured_.load(std::memory_order_acquire)) [[likely]]
    return;
  const std::lock_guard lock(mutex_);
  capture_ = std::static_pointer_cast<CaptureScope>(impl.gate().owner());
  captured_.store(captured, std::memory_order_release);
}

std::shared_ptr<CaptureScope> DriverEvent::capture() const {
  if (!captured_.load(std::memory_order_acquire)) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  return capture_.lock();
}

bool DriverEvent::query() const {
  int32_t done = 0;
  context_->check(context_->driver().event_query(event_, &done), "event_query");
  return done != 0;
}

void DriverEvent::synchronize() const {
  context_->check(context_->driver().event_synchronize(event_), "event_synchronize");
}

double DriverEvent::elapsed_ms(const detail::EventState& end) const {
  auto* impl = dynamic_cast<const DriverEvent*>(&end);
  if (!impl || impl->context().instance != context_->instance) {
    throw InvalidArgument("the end event was made by another accelerator");
  }
  double milliseconds = 0;
  context_->check(context_->driver().event_elapsed(event_, impl->event(), &milliseconds), "event_elapsed");
  return milliseconds;
}

}  // namespace anyaccel
