// Implements core.h: opening the runtime and devices, and what belongs to a thread.
#include "runtime/core/core.h"

#include <cstdlib>

#include "anyaccel/error.h"
#include "runtime/core/streams.h"
#include "runtime/driver/driver_table.h"

namespace anyaccel {

namespace {

std::atomic<uint64_t> next_accelerator_id{1};

}  // namespace

// Vendors' runtimes shut down at exit, before objects of the program that were constructed before the runtime was
// opened: a call from the destructor of such an object, or from a thread that is still running, would crash inside a
// runtime that is half gone. Exit handlers run in reverse order of registration, so these run before the runtimes' own,
// and no driver is called afterwards.
struct DriverCore::AtExit {
  struct Opened {
    DriverCore* core;  // null: destroyed already
    std::weak_ptr<DriverInstance> instance;
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
  static void add(DriverCore* core, const std::shared_ptr<DriverInstance>& instance) {
    std::lock_guard lock(mutex());
    std::erase_if(opened(), [](const Opened& o) { return !o.core && o.instance.expired(); });
    opened().push_back({core, instance});
    std::atexit(end_all);
  }
  static void forget(const DriverCore* core) {
    std::lock_guard lock(mutex());
    for (Opened& o : opened()) {
      if (o.core == core) o.core = nullptr;
    }
  }
  static void end_all() {
    std::lock_guard lock(mutex());
    for (const Opened& o : opened()) {
      if (const auto instance = o.instance.lock()) instance->end();
      if (o.core) o.core->driver_ = ended_driver_table();
    }
    opened().clear();
  }
};

DriverCore::DriverCore(DriverAccelerator& accelerator, const abi::DriverCalls* driver, std::string origin)
    : accelerator_(accelerator),
      driver_(driver),
      name_(driver->name),
      origin_(std::move(origin)),
      id_(next_accelerator_id++) {}

DriverCore::~DriverCore() { AtExit::forget(this); }

void DriverCore::unload_portable_ops() { portable_.reset(); }

DriverInstance& DriverCore::open() {
  const std::lock_guard lock(mutex_);
  if (ready_.load(std::memory_order_relaxed)) return *instance_;
  std::vector<aa_device_props> props;
  std::shared_ptr<DriverInstance> opened = open_instance(driver_, origin_, props);
  // The host's own processor has no runtime that shuts down.
  if (!(props[0].caps & AA_CAP_IS_HOST)) AtExit::add(this, opened);

  open_ = std::vector<std::atomic<DeviceContext*>>(props.size());
  contexts_.resize(props.size());
  props_ = std::move(props);
  instance_ = std::move(opened);
  ready_.store(true, std::memory_order_release);
  return *instance_;
}

int DriverCore::resolve(int index) {
  instance();
  const int resolved = index == current_device_index ? thread().device : index;
  if (resolved < 0 || resolved >= static_cast<int>(props_.size())) {
    throw InvalidArgument(name_ + ": device " + std::to_string(index) + " was asked for, but there are " +
                              std::to_string(props_.size()) + " (0 to " + std::to_string(props_.size() - 1) + ")",
                          AA_OUT_OF_RANGE);
  }
  return resolved;
}

DeviceContext& DriverCore::context(int index) {
  const auto i = static_cast<size_t>(resolve(index));
  if (DeviceContext* open = open_[i].load(std::memory_order_acquire)) return *open;
  std::vector<std::function<void()>> callbacks;
  DeviceContext* result = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!contexts_[i]) {
      contexts_[i] = std::make_shared<DeviceContext>(instance_, props_[i], static_cast<int>(i), make_allocator_);
      callbacks.swap(when_open_);
    }
    result = contexts_[i].get();
    open_[i].store(result, std::memory_order_release);
  }
  for (auto& callback : callbacks) callback();
  return *result;
}

ThreadState& DriverCore::thread() const {
  static thread_local ThreadState* last = nullptr;
  if (last && last->accelerator == id_) return *last;
  // Usually one accelerator, at most two (the active one and the CPU for fallbacks); a list is faster than a map. The
  // main thread's list is destroyed before the program's objects with static lifetime, whose destructors may still get
  // here: what they create is leaked.
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

void DriverCore::check_own(const DeviceContext& context, const char* what) {
  instance();
  if (context.instance == instance_) [[likely]]
    return;
  throw InvalidArgument(std::string(what) + " was made by another accelerator (on " + context.name() +
                        "), and cannot be used on " + name_);
}

void DriverCore::when_open(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    bool opened = false;
    for (auto& c : contexts_) opened = opened || c;
    if (!opened) {
      when_open_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace anyaccel
