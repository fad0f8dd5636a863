// Implements device_state.h: the state that all objects of an opened device share.
#include "accelerators/queue_runtime/device_state.h"

namespace anyaccel::queue_runtime {
namespace {

std::atomic<uint64_t> next_id{1};

}  // namespace

DeviceState::DeviceState(std::shared_ptr<Runtime> runtime, int32_t index)
    : runtime_(std::move(runtime)), index_(index), id_(next_id.fetch_add(1)) {
  usable();
  make_current();
}

DeviceState::~DeviceState() {
  if (is_forked_child()) return;
  // Handles of a lost device are released too, and the vendor's errors are ignored.
  if (bound_device != id_) vendor().set_device(facts().ordinal);
  for (const std::vector<EventHandle>& events : free_events_) {
    for (EventHandle event : events) vendor().event_destroy(event);
  }
  bound_device = 0;
  vendor().release_device(facts().ordinal);
}

std::string DeviceState::label() const {
  return std::string(vendor().accelerator()) + ":" + std::to_string(index_) + " (" + facts().name + ")";
}

void DeviceState::make_current() {
  bound_device = 0;
  check(vendor().set_device(facts().ordinal));
  bound_device = id_;
}

void DeviceState::bind_surely() {
  usable();
  int current = -1;
  if (bound_device != id_ || vendor().get_device(current).result != 0 || current != facts().ordinal) make_current();
}

void DeviceState::fail(const Answer& answer) {
  const aa_code code = vendor().code(answer.result);
  std::string text = label() + ": " + answer.call + " gave " + vendor().text(answer.result);
  if (code != AA_DEVICE_LOST) throw abi::Failure(code, text, answer.result);
  {
    const std::lock_guard lock(lost_mutex_);
    if (!lost()) {
      lost_text_ = text +
                   ". The device was lost with all that is in its memory: close it, and start a new process to " +
                   "use it again";
      lost_native_ = answer.result;
      lost_.store(true, std::memory_order_release);
    }
  }
  refuse();
}

void DeviceState::refuse() const {
  if (is_forked_child()) {
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       label() +
                           " was opened before fork() and cannot be used in the child; start children with exec, or "
                           "before the accelerator is first used");
  }
  throw abi::Failure(AA_DEVICE_LOST, lost_text_, lost_native_);
}

EventHandle DeviceState::acquire_event(bool timed) {
  {
    const std::lock_guard lock(events_mutex_);
    std::vector<EventHandle>& free = free_events_[timed];
    if (!free.empty()) {
      EventHandle event = free.back();
      free.pop_back();
      return event;
    }
  }
  bind_surely();
  EventHandle event = nullptr;
  run([&] { return vendor().event_create(event, timed); });
  return event;
}

void DeviceState::give_back_event(EventHandle event, bool timed) noexcept {
  if (is_forked_child()) return;
  try {
    const std::lock_guard lock(events_mutex_);
    free_events_[timed].push_back(event);
  } catch (const std::bad_alloc&) {
    vendor().event_destroy(event);
  }
}

void* DeviceState::allocate(int32_t kind, size_t size) {
  bind_surely();
  void* pointer = nullptr;
  const Answer answer = ask([&] {
    return kind == AA_MEMORY_PINNED ? vendor().allocate_pinned(pointer, size) : vendor().allocate(pointer, size);
  });
  if (answer.result != 0 && vendor().code(answer.result) == AA_RESOURCE_EXHAUSTED) {
    std::string text = label() + " has no " + std::to_string(size) + " bytes of " +
                       (kind == AA_MEMORY_PINNED ? "locked host memory" : "memory") + " left: " + answer.call +
                       " gave " + vendor().text(answer.result);
    size_t free = 0, total = 0;
    if (kind == AA_MEMORY_DEVICE && vendor().memory_info(free, total).result == 0) {
      text += "; " + std::to_string(free) + " of " + std::to_string(total) + " bytes are free";
    }
    throw abi::Failure(AA_RESOURCE_EXHAUSTED, text, answer.result);
  }
  check(answer);
  const auto alignment = static_cast<uintptr_t>(facts().alignment);
  if (kind == AA_MEMORY_DEVICE && reinterpret_cast<uintptr_t>(pointer) % alignment != 0) {
    vendor().free(pointer);
    throw abi::Failure(AA_INTERNAL, label() + ": " + answer.call + " gave memory that is not aligned to " +
                                        std::to_string(alignment) + " bytes, which this driver takes for promised");
  }
  runtime_->allocations.add({pointer, size, kind, index_});
  return pointer;
}

void DeviceState::free(int32_t kind, void* pointer) {
  if (is_forked_child()) refuse();
  if (!runtime_->allocations.remove(pointer, kind)) {
    throw abi::Failure(AA_INVALID_ARGUMENT, label() + ": memory of kind " + std::to_string(kind) +
                                                " was to be freed that mem_alloc never gave, or that was freed before");
  }
  const auto call = [&] { return kind == AA_MEMORY_PINNED ? vendor().free_pinned(pointer) : vendor().free(pointer); };
  if (lost()) {
    call();  // the vendor's errors about a lost device's memory are ignored
    return;
  }
  bind_surely();
  run(call);
}

}  // namespace anyaccel::queue_runtime
