// DriverAccelerator: opening, devices, generators. Its other parts have files of their own beside this one.
#include "anyaccel/driver_accelerator.h"

#include <cstdlib>
#include <cstring>

#include "anyaccel/error.h"
#include "anyaccel/log.h"
#include "runtime/driver/driver_accelerator_impl.h"
#include "runtime/driver/driver_table.h"

namespace anyaccel {

namespace {

std::atomic<uint64_t> next_accelerator_id{1};

template <class Table>
const abi::Calls<Table>* find_extension(const InstanceHolder& holder, const char* extension_name, uint32_t version) {
  const void* raw = nullptr;
  aa_status* status = holder.driver->query_extension(holder.instance, extension_name, version, &raw);
  if (status != nullptr) {
    const aa_code code = status_code(status);
    const std::string message = status_message(status);
    release_status(status);
    if (code != AA_UNIMPLEMENTED) {
      log_warning(holder.name + ": extension \"" + extension_name + "\" cannot be used: " + message);
    }
    return nullptr;
  }
  return complete_extension(static_cast<const Table*>(raw), holder.name);
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
  if (instance) release_status(driver->shutdown(instance));
}

DriverAccelerator::DriverAccelerator(const abi::DriverCalls* driver, std::string origin)
    : driver_(driver),
      name_(driver->name),
      origin_(std::move(origin)),
      id_(next_accelerator_id++),
      shared_(std::make_shared<Shared>()) {
  shared_->builds = read_driver_builds(*driver_, origin_);
}

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
  holder->options = DriverOptions(*driver_);
  const std::vector<aa_option> options = holder->options.for_driver();
  auto params = abi::sized<aa_initialize_params>();
  params.options = options.data();
  params.option_count = static_cast<uint32_t>(options.size());
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
      shared_->contexts[i] = std::make_shared<DeviceContext>(shared_->instance, shared_->props[i], static_cast<int>(i),
                                                             shared_->make_allocator);
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
  release_status(status);
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
  c.call("device_synchronize", [&] { return driver_->device_synchronize(c.device); });
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

}  // namespace anyaccel
