// Fibers: a stack each, switched by a few instructions (swapcontext would enter the kernel twice a switch), with the notes
// that the address and thread sanitizers need.
#include "simulators/engine/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "simulators/engine/fiber.cpp switches stacks on x86-64 only; add this processor's callee-saved registers"
#endif

// void sim_switch_stack(void** save, void* load): pushes the callee-saved registers, exchanges stack pointers, pops.
asm(R"(
.text
.p2align 4
.type sim_switch_stack, @function
sim_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_switch_stack, . - sim_switch_stack
)");
extern "C" void sim_switch_stack(void** save, void* load);

namespace sim {
namespace {

constexpr std::size_t kStack = 256 * 1024;
constexpr std::size_t kGuardPage = 4096;

}  // namespace

// Where run() waits while a fiber runs.
struct GroupRunner::Scheduler {
  void* stack_pointer = nullptr;
  // Of the thread's own stack, learned from the sanitizer at the first switch.
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* fake_stack = nullptr;
  void* thread_fiber = nullptr;
};

class Fiber {
 public:
  Fiber() {
    void* stack = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::runtime_error("no memory for a fiber's stack");
    stack_ = static_cast<char*>(stack);
    ::mprotect(stack_, kGuardPage, PROT_NONE);
    void** top = reinterpret_cast<void**>(stack_ + kStack);
    *--top = nullptr;  // return address of enter(), which never returns
    *--top = reinterpret_cast<void*>(&Fiber::enter);
    top -= 6;  // the registers that the first switch pops
    std::memset(top, 0, 6 * sizeof(void*));
    stack_pointer_ = top;
#if defined(__SANITIZE_THREAD__)
    tsan_ = __tsan_create_fiber(0);
#endif
  }
  ~Fiber() {
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(tsan_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_, kStack);  // an abandoned fiber leaves its frames marked
#endif
    ::munmap(stack_, kStack);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From the scheduler into the fiber, until it calls leave().
  void resume(GroupRunner::Scheduler& scheduler) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler.fake_stack, stack_, kStack);
#endif
#if defined(__SANITIZE_THREAD__)
    scheduler.thread_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, 0);
#endif
    sim_switch_stack(&scheduler.stack_pointer, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
#endif
  }

  void leave(GroupRunner::Scheduler& scheduler) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, scheduler.bottom, scheduler.size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(scheduler.thread_fiber, 0);
#endif
    sim_switch_stack(&stack_pointer_, scheduler.stack_pointer);
    arrived(scheduler);
  }

 private:
  void arrived([[maybe_unused]] GroupRunner::Scheduler& scheduler) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack_, &scheduler.bottom, &scheduler.size);
#endif
  }
  static void enter();

  char* stack_;
  void* stack_pointer_;
  [[maybe_unused]] void* fake_stack_ = nullptr;
#if defined(__SANITIZE_THREAD__)
  void* tsan_;
#endif
};

namespace {
thread_local GroupRunner* running = nullptr;
thread_local Fiber* entered = nullptr;
}  // namespace

void Fiber::enter() {
  GroupRunner& runner = *running;
  Fiber& self = *entered;
  self.arrived(*runner.scheduler_);
  for (;;) {
    runner.work();
    runner.idle_.push_back(&self);
    self.leave(*runner.scheduler_);
  }
}

GroupRunner::GroupRunner() : local_(new char[kLocalBytes]), scheduler_(new Scheduler) {}
GroupRunner::~GroupRunner() = default;

GroupRunner& GroupRunner::current() { return *running; }

void GroupRunner::work() {
  while (started_ < size_) {
    const int index = nth(started_++);
    current_ = index;
    items_[index].fiber = entered;
    (*body_)();
    items_[index].state = State::finished;
  }
}

void GroupRunner::wait(State state) {
  const int self = current_;
  items_[self].state = state;
  items_[self].fiber->leave(*scheduler_);
  current_ = self;
}

void GroupRunner::barrier() { wait(State::waits_barrier); }

float GroupRunner::reduce(State kind, float value) {
  const int self = current_;
  items_[self].value = value;
  wait(kind);
  return items_[self].value;
}

void* GroupRunner::local_array(std::size_t bytes, std::size_t alignment) {
  std::size_t& used = items_[current_].local_used;
  std::size_t begin = (used + alignment - 1) / alignment * alignment;
  if (begin + bytes > kLocalBytes) {
    local_overflow_ = true;
    begin = 0;
  }
  used = begin + bytes;
  local_peak_ = std::max(local_peak_, used);
  return local_.get() + begin;
}

void GroupRunner::resume(Fiber& fiber) {
  entered = &fiber;
  fiber.resume(*scheduler_);
}

// True if some item may go on.
bool GroupRunner::release_waiting() {
  bool any = false;
  for (int first = 0; subgroup_ > 0 && first < size_; first += subgroup_) {
    const int end = std::min(size_, first + subgroup_);
    const State kind = items_[first].state;
    if (kind != State::waits_sum && kind != State::waits_max) continue;
    float value = items_[first].value;
    bool all = true;
    for (int i = first + 1; i < end; ++i) {
      all = all && items_[i].state == kind;
      value = kind == State::waits_sum ? value + items_[i].value : std::max(value, items_[i].value);
    }
    if (!all) continue;
    for (int i = first; i < end; ++i) {
      items_[i].value = value;
      items_[i].state = State::runnable;
    }
    any = true;
  }
  if (any) return true;
  if (!std::all_of(items_.begin(), items_.end(), [](const Item& i) { return i.state == State::waits_barrier; })) {
    return false;
  }
  for (Item& item : items_) item.state = State::runnable;
  return true;
}

std::string GroupRunner::run(int size, int subgroup, bool backwards, const std::function<void()>& item) {
  GroupRunner* const outer = std::exchange(running, this);
  size_ = size;
  subgroup_ = subgroup;
  backwards_ = backwards;
  body_ = &item;
  started_ = 0;
  items_.assign(static_cast<std::size_t>(size), Item{});
  // Local memory holds nothing a kernel may count on: NaNs show who reads before writing.
  std::memset(local_.get(), 0xFF, local_peak_);
  local_overflow_ = false;
  std::string problem;
  for (;;) {
    while (started_ < size_) {
      if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>());
        idle_.push_back(fibers_.back().get());
      }
      Fiber* const fiber = idle_.back();
      idle_.pop_back();
      resume(*fiber);
    }
    bool ran = false;
    for (int k = 0; k < size_; ++k) {
      Item& next = items_[nth(k)];
      if (next.state != State::runnable) continue;
      ran = true;
      resume(*next.fiber);
    }
    if (ran || release_waiting()) continue;
    break;
  }
  int finished = 0, barrier = 0;
  for (const Item& i : items_) {
    finished += i.state == State::finished;
    barrier += i.state == State::waits_barrier;
  }
  if (finished != size_) {
    local_overflow_ = false;
    problem = std::to_string(barrier) + " of " + std::to_string(size_) + " items wait at a barrier, " +
              std::to_string(finished) + " have finished and " + std::to_string(size_ - barrier - finished) +
              " wait in a sub-group reduction";
    fibers_.clear();
    idle_.clear();
  } else if (local_overflow_) {
    problem = "its local arrays need more than " + std::to_string(kLocalBytes) + " bytes";
  }
  running = outer;
  return problem;
}

}  // namespace sim
