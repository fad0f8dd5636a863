// Implements device_state.h: the state that all objects of an opened device share.
#include "accelerators/xpu/level_zero/device_state.h"

namespace anyaccel::xpu::level_zero {

Context::Context(Platform platform) : platform_(std::move(platform)) {
  ContextDesc desc{};
  desc.type = type_context_desc;
  check(platform_, api().zeContextCreate(platform_.driver, &desc, &handle_), "zeContextCreate");
}

Context::~Context() {
  if (!is_forked_child()) api().zeContextDestroy(handle_);
}

EventPool::~EventPool() {
  if (is_forked_child()) return;
  for (EventHandle event : all_) context_.api().zeEventDestroy(event);
  for (PoolHandle pool : pools_) context_.api().zeEventPoolDestroy(pool);
}

EventHandle EventPool::acquire(bool timed) {
  constexpr uint32_t pool_size = 64;
  std::lock_guard lock(mutex_);
  std::vector<EventHandle>& free = free_[timed];
  if (free.empty()) {
    EventPoolDesc pool_desc{};
    pool_desc.type = type_event_pool_desc;
    pool_desc.flags = pool_host_visible | (timed ? pool_kernel_timestamp : 0);
    pool_desc.count = pool_size;
    PoolHandle pool = nullptr;
    pools_.reserve(pools_.size() + 1);
    all_.reserve(all_.size() + pool_size);
    free.reserve(all_.capacity());  // give_back must not allocate
    check(context_.platform(), context_.api().zeEventPoolCreate(context_.handle(), &pool_desc, 0, nullptr, &pool),
          "zeEventPoolCreate");
    pools_.push_back(pool);
    for (uint32_t i = 0; i < pool_size; ++i) {
      EventDesc desc{};
      desc.type = type_event_desc;
      desc.index = i;
      desc.signal_scope = scope_host;
      desc.wait_scope = scope_host;
      EventHandle event = nullptr;
      check(context_.platform(), context_.api().zeEventCreate(pool, &desc, &event), "zeEventCreate");
      all_.push_back(event);
      free.push_back(event);
    }
  }
  EventHandle event = free.back();
  free.pop_back();
  return event;
}

void EventPool::give_back(EventHandle event, bool timed) noexcept {
  if (is_forked_child()) return;
  // An event that cannot be reset is not used again; it is destroyed with the pool.
  if (context_.api().zeEventHostReset(event) != success) return;
  std::lock_guard lock(mutex_);
  free_[timed].push_back(event);
}

DeviceState::DeviceState(std::shared_ptr<const Context> context, int32_t index)
    : context_(std::move(context)),
      index_(index),
      facts_(read_facts(context_->platform(), handle())),
      events_(*context_) {}

void DeviceState::fail(Result result, const char* call) {
  if (code_of(result) == AA_DEVICE_LOST) {
    {
      std::lock_guard lock(lost_mutex_);
      if (!lost()) {
        lost_text_ = "xpu:" + std::to_string(index_) + " (" + facts_.properties.name + ") was lost: " + call +
                     " gave " + result_text(result) + "; what was in its memory is gone, and it can only be closed";
        lost_.store(true, std::memory_order_release);
      }
    }
    refuse();
  }
  raise(context_->platform(), result, call);
}

void DeviceState::refuse() const {
  if (is_forked_child()) {
    throw abi::Failure(AA_FAILED_PRECONDITION,
                       "xpu:" + std::to_string(index_) +
                           " was opened before fork() and cannot be used in the child; start children with exec, or "
                           "before the accelerator is first used");
  }
  throw abi::Failure(AA_DEVICE_LOST, lost_text_, error_device_lost);
}

}  // namespace anyaccel::xpu::level_zero
