// DriverAccelerator: opening, devices, facts, generators, streams and events. Memory and graphs have files of their own.
#include "anyaccel/driver_accelerator.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "base/install_paths.h"
#include "runtime/driver/driver_accelerator_impl.h"
#include "runtime/driver/driver_table.h"
#include "runtime/op_builder_registry.h"
#include "runtime/range_trace.h"

namespace anyaccel {

namespace {

std::atomic<uint64_t> next_accelerator_id{1};

template <class Table>
const Table* find_extension(const InstanceHolder& holder, const char* extension_name, uint32_t version) {
  const void* raw = nullptr;
  aa_status* status = holder.driver->query_extension(holder.instance, extension_name, version, &raw);
  if (status != nullptr) {
    const int32_t code = host_services()->status_code(status);
    const std::string message = host_services()->status_message(status);
    host_services()->status_release(status);
    if (code != AA_UNIMPLEMENTED) {
      log_warning(holder.name + ": extension \"" + extension_name + "\" cannot be used: " + message);
    }
    return nullptr;
  }
  return complete_extension(static_cast<const Table*>(raw), holder.name);
}

std::vector<std::string> split_commas(const char* text) {
  std::vector<std::string> parts;
  std::stringstream stream(text ? text : "");
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

void InstanceHolder::end() noexcept {
  driver = ended_driver_table();
  const ExtensionTables& ended = ended_extension_tables();
#define ANYACCEL_END(field, table, extension_name, version, functions) \
  if (field) field = ended.field;
  ANYACCEL_EXTENSIONS(ANYACCEL_END)
#undef ANYACCEL_END
}

// Vendors' runtimes end at exit, before the objects of a program that were made before they were opened: a call from such
// an object's destructor, or from a thread that goes on, would crash in what is left of them. What was registered last runs
// first, so these run before the runtimes' own functions, and nothing is asked of the drivers afterwards.
struct DriverAccelerator::Shared::AtExit {
  struct Opened {
    DriverAccelerator* accelerator;  // null: it is gone
    std::weak_ptr<InstanceHolder> instance;
  };
  static std::mutex& mutex() {
    static auto& made = *new std::mutex;
    return made;
  }
  static std::vector<Opened>& opened() {
    static auto& list = *new std::vector<Opened>;
    return list;
  }
  // After the driver has opened its runtime.
  static void add(DriverAccelerator* accelerator, const std::shared_ptr<InstanceHolder>& instance) {
    std::lock_guard lock(mutex());
    std::erase_if(opened(), [](const Opened& o) { return !o.accelerator && o.instance.expired(); });
    opened().push_back({accelerator, instance});
    std::atexit(end_all);
  }
  static void forget(const DriverAccelerator* accelerator) {
    std::lock_guard lock(mutex());
    for (Opened& o : opened()) {
      if (o.accelerator == accelerator) o.accelerator = nullptr;
    }
  }
  static void end_all() {
    std::lock_guard lock(mutex());
    for (const Opened& o : opened()) {
      if (const auto instance = o.instance.lock()) instance->end();
      if (o.accelerator) o.accelerator->driver_ = ended_driver_table();
    }
    opened().clear();
  }
};

InstanceHolder::~InstanceHolder() {
  if (instance) host_services()->status_release(driver->shutdown(instance));
}

DriverAccelerator::DriverAccelerator(const aa_driver* driver, std::string origin)
    : driver_(driver),
      name_(driver->name),
      origin_(std::move(origin)),
      id_(next_accelerator_id++),
      shared_(std::make_shared<Shared>()) {}

DriverAccelerator::~DriverAccelerator() {
  Shared::AtExit::forget(this);
  shared_->portable.reset();  // its modules are unloaded through this object
}

aa_instance* DriverAccelerator::instance() const {
  if (shared_->ready.load(std::memory_order_acquire)) return shared_->instance->instance;
  std::lock_guard lock(shared_->mutex);
  if (shared_->ready.load(std::memory_order_relaxed)) return shared_->instance->instance;

  auto holder = std::make_shared<InstanceHolder>();
  holder->driver = driver_;
  holder->name = name_;
  aa_initialize_params params{};
  params.struct_size = sizeof(params);
  params.library_path = origin_ == "built in" ? nullptr : origin_.c_str();
  check(driver_->initialize(&params, &holder->instance), "initialize", name_.c_str());

  int32_t count = 0;
  check(driver_->device_count(holder->instance, &count), "device_count", name_.c_str());
  if (count <= 0) {
    throw UnavailableError(
        name_ + ": the runtime was opened but offers no device" +
        (*driver_->visible_devices_env ? std::string("; check ") + driver_->visible_devices_env : std::string()));
  }
  std::vector<aa_device_props> props(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    props[static_cast<size_t>(i)].struct_size = sizeof(aa_device_props);
    check(driver_->device_props(holder->instance, i, &props[static_cast<size_t>(i)]), "device_props", name_.c_str());
  }
#define ANYACCEL_FIND(member, table, extension_name, version, functions) \
  holder->member = find_extension<table>(*holder, extension_name, version);
  ANYACCEL_EXTENSIONS(ANYACCEL_FIND)
#undef ANYACCEL_FIND

  // The host's own processor has no runtime that ends.
  if (!(props[0].caps & AA_CAP_IS_HOST)) Shared::AtExit::add(const_cast<DriverAccelerator*>(this), holder);

  shared_->props = std::move(props);
  shared_->open = std::vector<std::atomic<DeviceContext*>>(static_cast<size_t>(count));
  shared_->contexts.resize(static_cast<size_t>(count));
  shared_->instance = std::move(holder);
  shared_->ready.store(true, std::memory_order_release);
  return shared_->instance->instance;
}

int DriverAccelerator::resolve(int index) const {
  instance();
  const int resolved = index == current_device_index ? thread_state().device : index;
  if (resolved < 0 || resolved >= static_cast<int>(shared_->props.size())) {
    throw InvalidArgument(name_ + ": device " + std::to_string(index) + " was asked for, but there are " +
                              std::to_string(shared_->props.size()) + " (0 to " +
                              std::to_string(shared_->props.size() - 1) + ")",
                          AA_OUT_OF_RANGE);
  }
  return resolved;
}

DriverAccelerator::DeviceContext& DriverAccelerator::context(int index) const {
  const auto i = static_cast<size_t>(resolve(index));
  if (DeviceContext* open = shared_->open[i].load(std::memory_order_acquire)) return *open;
  std::vector<std::function<void()>> callbacks;
  DeviceContext* result = nullptr;
  {
    std::lock_guard lock(shared_->mutex);
    if (!shared_->contexts[i]) {
      shared_->contexts[i] = std::make_shared<DeviceContext>(shared_->instance, shared_->props[i], static_cast<int>(i));
      callbacks.swap(shared_->lazy_calls);
    }
    result = shared_->contexts[i].get();
    shared_->open[i].store(result, std::memory_order_release);
  }
  for (auto& callback : callbacks) callback();
  return *result;
}

DriverAccelerator::ThreadState& DriverAccelerator::thread_state() const {
  static thread_local ThreadState* last = nullptr;
  if (last && last->accelerator == id_) return *last;
  // Usually one accelerator, at most two (the active one and the CPU for fallbacks); a list is faster than a map. The main
  // thread's list ends before the program's objects with static lifetime do, whose destructors may still get here: what they
  // make is left behind.
  using States = std::vector<std::unique_ptr<ThreadState>>;
  static thread_local bool ended = false;
  struct Owner {
    States list;
    ~Owner() {
      ended = true;
      last = nullptr;
    }
  };
  static thread_local Owner own;
  static thread_local States* late = nullptr;
  if (ended && !late) late = new States;
  States& states = ended ? *late : own.list;
  for (auto& state : states) {
    if (state->accelerator == id_) return *(last = state.get());
  }
  states.push_back(std::make_unique<ThreadState>());
  last = states.back().get();
  last->accelerator = id_;
  return *last;
}

void DriverAccelerator::check_own(const DeviceContext& context, const char* what) const {
  instance();
  if (context.instance == shared_->instance) [[likely]]
    return;
  throw InvalidArgument(std::string(what) + " was made by another accelerator (on " + context.name() +
                        "), and cannot be used on " + name_);
}

aa_device* DriverAccelerator::device_handle(int index) { return context(index).device; }

aa_stream* DriverAccelerator::handle(const anyaccel::Stream& stream) {
  auto* impl = dynamic_cast<StreamImpl*>(stream.state());
  if (!impl) throw InvalidArgument("the stream is empty or was made by another kind of accelerator");
  return impl->stream();
}

aa_event* DriverAccelerator::handle(const anyaccel::Event& event) {
  auto* impl = dynamic_cast<EventImpl*>(event.state());
  if (!impl) throw InvalidArgument("the event is empty or was made by another kind of accelerator");
  return impl->event();
}

DriverAccelerator::StreamUse::StreamUse(const anyaccel::Stream& stream) : handle_(DriverAccelerator::handle(stream)) {
  StreamGate& gate = static_cast<StreamImpl*>(stream.state())->gate();
  outer_ = gate.enter();
  gate_ = &gate;
}

DriverAccelerator::StreamUse::~StreamUse() { static_cast<StreamGate*>(gate_)->leave(outer_); }

const void* DriverAccelerator::extension(const char* extension_name, uint32_t min_version) const {
  instance();
  const InstanceHolder& holder = *shared_->instance;
#define ANYACCEL_KNOWN(field, table, known_name, known_version, functions)                \
  if (std::strcmp(extension_name, known_name) == 0) {                                     \
    return holder.field && holder.field->version >= min_version ? holder.field : nullptr; \
  }
  ANYACCEL_EXTENSIONS(ANYACCEL_KNOWN)
#undef ANYACCEL_KNOWN
  const void* raw = nullptr;
  aa_status* status = driver_->query_extension(holder.instance, extension_name, min_version, &raw);
  host_services()->status_release(status);
  return status ? nullptr : raw;
}

// ---- execution model, devices -----------------------------------------------------------------------------------

bool DriverAccelerator::is_synchronized_device() const { return caps() & AA_CAP_SYNCHRONOUS; }
bool DriverAccelerator::use_host_timers() const { return caps() & AA_CAP_HOST_TIMERS; }
bool DriverAccelerator::resolves_data_dependency() const { return caps() & AA_CAP_RESOLVES_DEPENDENCIES; }
bool DriverAccelerator::handles_memory_backpressure() const { return caps() & AA_CAP_MEMORY_BACKPRESSURE; }
bool DriverAccelerator::is_host_coherent() const { return caps() & AA_CAP_HOST_COHERENT; }

std::string DriverAccelerator::device_name(int index) const {
  if (index == current_device_index) return name_;
  const int resolved = resolve(index);
  return device_properties(resolved).caps & AA_CAP_IS_HOST ? name_ : name_ + ":" + std::to_string(resolved);
}

Device DriverAccelerator::device(int index) { return Device{this, resolve(index)}; }
void DriverAccelerator::set_device(int index) { thread_state().device = resolve(index); }
int DriverAccelerator::current_device() const { return thread_state().device; }
std::string DriverAccelerator::current_device_name() const { return device_name(current_device()); }

int DriverAccelerator::device_count() const {
  instance();
  return static_cast<int>(shared_->props.size());
}

void DriverAccelerator::synchronize(int index) {
  DeviceContext& c = context(index);
  c.check(driver_->device_synchronize(c.device), "device_synchronize");
}

bool DriverAccelerator::is_available() const {
  try {
    return device_count() > 0;
  } catch (const Error&) {
    return false;
  }
}

const aa_device_props& DriverAccelerator::device_properties(int index) const {
  return shared_->props[static_cast<size_t>(resolve(index))];
}

// ---- random numbers -----------------------------------------------------------------------------------------------

Generator& DriverAccelerator::random() { return context(current_device_index).generator; }
Generator& DriverAccelerator::default_generator(int index) { return context(index).generator; }
void DriverAccelerator::set_rng_state(const RngState& state, int index) { context(index).generator.set_state(state); }
RngState DriverAccelerator::get_rng_state(int index) { return context(index).generator.get_state(); }
void DriverAccelerator::manual_seed(uint64_t seed) { random().manual_seed(seed); }
void DriverAccelerator::manual_seed_all(uint64_t seed) {
  for (int i = 0; i < device_count(); ++i) context(i).generator.manual_seed(seed);
}
uint64_t DriverAccelerator::initial_seed() { return random().initial_seed(); }

// ---- streams and events --------------------------------------------------------------------------------------------

anyaccel::Stream DriverAccelerator::Stream(int priority) {
  DeviceContext& c = context(current_device_index);
  aa_stream* raw = nullptr;
  c.check(driver_->stream_create(c.device, priority, AA_STREAM_NON_BLOCKING, &raw), "stream_create");
  return anyaccel::Stream(std::make_shared<StreamImpl>(c, shared_->contexts[static_cast<size_t>(c.index)], raw));
}

ScopeGuard DriverAccelerator::stream(const anyaccel::Stream& s) {
  handle(s);  // refuses what is no stream
  check_own(static_cast<const StreamImpl&>(*s.state()).context(), "the stream");
  const int index = s.device_index();
  ThreadState& state = thread_state();
  if (state.streams.size() <= static_cast<size_t>(index)) state.streams.resize(static_cast<size_t>(index) + 1);
  anyaccel::Stream previous = state.streams[static_cast<size_t>(index)];
  const int previous_device = state.device;
  state.streams[static_cast<size_t>(index)] = s;
  state.device = index;
  return ScopeGuard([this, previous, previous_device, index](bool) {
    ThreadState& inner = thread_state();
    inner.streams[static_cast<size_t>(index)] = previous;
    inner.device = previous_device;
  });
}

const anyaccel::Stream& DriverAccelerator::current_stream(int index) {
  const ThreadState& state = thread_state();
  const auto i = static_cast<size_t>(index == current_device_index ? state.device : resolve(index));
  if (i < state.streams.size() && state.streams[i]) return state.streams[i];
  return context(static_cast<int>(i)).default_stream;
}

const anyaccel::Stream& DriverAccelerator::default_stream(int index) { return context(index).default_stream; }

anyaccel::Event DriverAccelerator::Event(bool enable_timing) {
  DeviceContext& c = context(current_device_index);
  aa_event* raw = nullptr;
  c.check(driver_->event_create(c.device, enable_timing ? AA_EVENT_TIMING : AA_EVENT_DEFAULT, &raw), "event_create");
  return anyaccel::Event(std::make_shared<EventImpl>(shared_->contexts[static_cast<size_t>(c.index)], raw));
}

DriverAccelerator::StreamImpl::~StreamImpl() {
  if (owner_) context_.allocator->forget_stream(stream_);
  host_services()->status_release(context_.driver().stream_destroy(stream_));
}

std::shared_ptr<detail::EventState> DriverAccelerator::StreamImpl::make_event() const {
  aa_event* raw = nullptr;
  context_.check(context_.driver().event_create(context_.device, AA_EVENT_DEFAULT, &raw), "event_create");
  return std::make_shared<EventImpl>(context_.shared_from_this(), raw);
}

bool DriverAccelerator::is_current_stream_capturing(int index) {
  return static_cast<const StreamImpl&>(*current_stream(index).state()).capturing();  // stream() takes no other kind
}

bool DriverAccelerator::StreamImpl::query() const {
  gate_.refuse_others();
  int32_t done = 0;
  context_.check(context_.driver().stream_query(stream_, &done), "stream_query");
  return done != 0;
}

void DriverAccelerator::StreamImpl::synchronize() const {
  gate_.refuse_others();
  context_.check(context_.driver().stream_synchronize(stream_), "stream_synchronize");
}

void DriverAccelerator::StreamImpl::wait_event(const detail::EventState& event) {
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
  context_.check(context_.driver().stream_wait_event(stream_, impl->event()), "stream_wait_event");
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
    context_.set_capturing(stream_, true);
  } catch (...) {
    if (closed) gate_.open();
    scope->streams.pop_back();
    throw;
  }
}

void DriverAccelerator::StreamImpl::end_capture(HostCalls& calls) noexcept {
  for (auto& call : captured_calls_) calls.push_back(std::move(call));
  captured_calls_.clear();
  context_.set_capturing(stream_, false);
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
            stream_, [](void* user) { call_logging_errors(*static_cast<std::function<void()>*>(user)); }, owned.get()),
        "stream_host_call");
    captured_calls_.push_back(std::move(owned));
    return;
  }
  aa_status* status = context_.driver().stream_host_call(
      stream_,
      [](void* user) {
        const std::unique_ptr<std::function<void()>> call(static_cast<std::function<void()>*>(user));
        call_logging_errors(*call);
      },
      owned.get());
  if (!status) static_cast<void>(owned.release());  // the call owns it now, and may have ended it already
  context_.check(status, "stream_host_call");
}

void* DriverAccelerator::StreamImpl::native_handle() const {
  void* native = nullptr;
  context_.check(context_.driver().stream_native(stream_, &native), "stream_native");
  return native;
}

DriverAccelerator::EventImpl::~EventImpl() {
  host_services()->status_release(context_->driver().event_destroy(event_));
}

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

// ---- number formats, mixed precision --------------------------------------------------------------------------------

bool DriverAccelerator::is_bf16_supported() const {
  return device_properties(0).dtypes_computable >> AA_DTYPE_BF16 & 1;
}
bool DriverAccelerator::is_fp16_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F16 & 1; }
bool DriverAccelerator::is_fp64_supported() const { return device_properties(0).dtypes_computable >> AA_DTYPE_F64 & 1; }
bool DriverAccelerator::is_triton_supported() const { return caps() & AA_CAP_TRITON; }

bool DriverAccelerator::prefer_triton_grouped_mm() const {
  // From architecture 9.0 on the vendor's own product of grouped matrices is faster; before that it is a loop.
  const int major = is_triton_supported() ? compute_capability().first : 0;
  return major >= 7 && major < 9;
}

std::vector<DType> DriverAccelerator::supported_dtypes() const {
  std::vector<DType> dtypes{DType::F32};
  if (is_bf16_supported()) dtypes.push_back(DType::BF16);
  if (is_fp16_supported()) dtypes.push_back(DType::F16);
  return dtypes;
}

ScopeGuard DriverAccelerator::amp(DType dtype) {
  if (dtype != DType::None && dtype != DType::BF16 && dtype != DType::F16) {
    throw InvalidArgument("amp takes bfloat16 or float16 (or none, to switch it off), not " +
                          std::string(dtype_name(dtype)));
  }
  ThreadState& state = thread_state();
  const DType previous = state.amp;
  state.amp = dtype;
  return ScopeGuard([this, previous](bool) { thread_state().amp = previous; });
}

DType DriverAccelerator::amp_dtype() const noexcept { return thread_state().amp; }

// ---- profiler, communication, builders, processes, compiling ---------------------------------------------------------

void DriverAccelerator::range_push(std::string_view message, std::string_view domain, std::string_view category) {
  trace_range_push(message, domain, category);
  // A range must not be what opens the device.
  if (!shared_->ready.load(std::memory_order_acquire) || !shared_->instance->profiler) return;
  host_services()->status_release(
      shared_->instance->profiler->range_push(shared_->instance->instance, std::string(message).c_str(),
                                              std::string(domain).c_str(), std::string(category).c_str()));
}

void DriverAccelerator::range_pop(std::string_view domain) {
  trace_range_pop(domain);
  if (!shared_->ready.load(std::memory_order_acquire) || !shared_->instance->profiler) return;
  host_services()->status_release(
      shared_->instance->profiler->range_pop(shared_->instance->instance, std::string(domain).c_str()));
}

std::string DriverAccelerator::communication_backend_name() const { return driver_->communication_backend; }

std::string DriverAccelerator::communication_backend_version() const {
  if (!is_available()) return {};
  const InstanceHolder& holder = *shared_->instance;
  if (!holder.collectives) return {};
  const char* library = nullptr;
  const char* version = nullptr;
  const StatusRef status(holder.collectives->library(holder.instance, &library, &version));
  return status.ok() ? version : "";
}

CollectivesAccess DriverAccelerator::collectives(int index) {
  instance();
  const aa_collectives_table* table = shared_->instance->collectives;
  if (!table) return {};
  DeviceContext& c = context(index);
  const anyaccel::Stream& current = current_stream(c.index);
  auto use = std::make_shared<StreamUse>(current);
  const auto& stream = static_cast<const StreamImpl&>(*current.state());  // stream() takes no other kind
  return {table, c.instance->instance, c.device, stream.stream(), stream.capturing(), std::move(use)};
}

std::string DriverAccelerator::op_builder_dir() const { return install_kernels_dir(); }

std::unique_ptr<OpBuilder> DriverAccelerator::create_op_builder(std::string_view builder_name) {
  return make_op_builder(builder_name, *this);
}

OpBuilderFactory DriverAccelerator::get_op_builder(std::string_view builder_name) {
  if (!is_known_op_builder(builder_name)) return {};
  return [this, name = std::string(builder_name)] { return make_op_builder(name, *this); };
}

BuildExtension DriverAccelerator::build_extension() const {
  const char* cxx = std::getenv("CXX");
  return {cxx && *cxx ? cxx : "c++", {"-std=c++20", "-O3", "-fPIC", "-shared"}, {install_include_dir()}};
}

void DriverAccelerator::lazy_call(std::function<void()> callback) {
  {
    std::lock_guard lock(shared_->mutex);
    bool opened = false;
    for (auto& c : shared_->contexts) opened = opened || c;
    if (!opened) {
      shared_->lazy_calls.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

std::vector<std::string> DriverAccelerator::export_envs() const { return split_commas(driver_->export_env_prefixes); }
std::vector<std::string> DriverAccelerator::visible_devices_envs() const {
  return split_commas(driver_->visible_devices_env);
}

void DriverAccelerator::set_visible_devices_envs(std::map<std::string, std::string>& env,
                                                 const std::vector<std::string>& ids) const {
  std::string joined;
  for (const std::string& id : ids) joined += (joined.empty() ? "" : ",") + id;
  for (const std::string& variable : visible_devices_envs()) env[variable] = joined;
}

std::string DriverAccelerator::get_compile_backend() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->compile_backend;
}

void DriverAccelerator::set_compile_backend(const std::string& backend) {
  if (backend != "graph" && backend != "eager") {
    throw InvalidArgument("\"" + backend + "\" not supported by " + device_name() +
                          ". Supported Backends are graph, eager");
  }
  std::lock_guard lock(shared_->mutex);
  shared_->compile_backend = backend;
}

// ---- ops -----------------------------------------------------------------------------------------------------------

namespace {

// The version of the interface that brought an op's present definition. A driver of an older one has an op of that name that
// does something else, and is not asked for it. 0: as it has always been, or an op that older drivers lack.
uint32_t op_defined_since(std::string_view name) { return name == "sample" ? AA_ABI_VERSION(1, 4) : 0; }

}  // namespace

int32_t DriverAccelerator::find_op(const char* op_name) {
  instance();
  Shared& shared = *shared_;
  std::call_once(shared.portable_once, [&] { shared.portable = make_portable_ops(*this); });
  std::lock_guard lock(shared.routes_mutex);
  for (size_t i = 0; i < shared.route_names.size(); ++i) {
    if (shared.route_names[i] == op_name) return static_cast<int32_t>(i);
  }
  OpHandle found;
  const InstanceHolder& holder = *shared.instance;
  if (holder.ops && driver_->abi_version >= op_defined_since(op_name)) {
    aa_status* status = holder.ops->find(holder.instance, op_name, &found.own);
    if (status) found.own = -1;
    host_services()->status_release(status);
  }
  const std::optional<Op> op = find_op_by_name(op_name);
  if (shared.portable && op && shared.portable->has(*op)) found.portable = static_cast<int32_t>(*op);
  const size_t number = shared.route_names.size();
  if (!found || number == shared.routes.size()) return -1;
  shared.route_names.emplace_back(op_name);
  shared.routes[number] = found;
  shared.route_count.store(number + 1, std::memory_order_release);
  return static_cast<int32_t>(number);
}

OpHandle DriverAccelerator::route(const aa_op_call& call) const {
  const auto number = static_cast<size_t>(call.op);
  if (call.op < 0 || number >= shared_->route_count.load(std::memory_order_acquire)) {
    throw InvalidArgument(name_ + ": an op was called by the number " + std::to_string(call.op) +
                          ", which find_op() never gave");
  }
  return shared_->routes[number];
}

OpHandle DriverAccelerator::resolve_op(const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  const OpHandle all = route(call);
  if (all.own >= 0) {
    aa_op_call own = call;
    own.op = all.own;
    int32_t supported = 0;
    c.check(c.instance->ops->supports(c.device, &own, &supported), "ops.supports");
    if (supported) return {.own = all.own};
  }
  if (all.portable >= 0 && shared_->portable->supports(static_cast<Op>(all.portable), call, c.index)) {
    return {.portable = all.portable};
  }
  return {};
}

void DriverAccelerator::enqueue_op(OpHandle op, const aa_op_call& call, int index) {
  DeviceContext& c = context(index);
  if (op.own >= 0) [[likely]] {
    aa_op_call own = call;
    own.op = op.own;
    const StreamUse use(current_stream(index));
    c.check(c.instance->ops->enqueue(use.handle(), &own), "op");
    return;
  }
  if (op.portable < 0) throw NotImplementedError(name_ + " does not run this call of an op");
  const StreamUse use(current_stream(index));
  shared_->portable->enqueue(static_cast<Op>(op.portable), call, c.index);
}

}  // namespace anyaccel
