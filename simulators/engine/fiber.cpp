// Fibers: a stack each, switched by a few instructions (swapcontext would enter the kernel twice a switch). For the address
// sanitizer, which does not instrument this file (SIM_ADDRESS_SANITIZER is defined instead), all stacks of a runner are one: it is
// told when run() enters and leaves it, since a note of every switch takes more time than the switch. The thread sanitizer is not
// notified: all fibers of a group are one thread, and telling it apart would cost a vector clock a switch. Its stack traces from
// inside an item are wrong for that.
#include "simulators/engine/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

// A build with -fsanitize=address among its flags, instead of this project's option for it, instruments this file too.
#if defined(__SANITIZE_ADDRESS__)
#define SIM_ADDRESS_SANITIZER 1
#endif
#if defined(SIM_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
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
constexpr std::size_t kLocalGuard = 64;  // bytes behind every local array that no item may touch
constexpr std::size_t kLocalAlignment = 128;
constexpr char kPoison = '\xFF';  // NaNs, whatever the element type

// A stack that is not running goes on from here.
struct Context {
  void* stack_pointer = nullptr;
};

// Kernels read it at every access, so it is found by an offset instead of a call. Libraries that are opened at run time
// have little room for such variables.
[[gnu::tls_model("initial-exec")]] thread_local GroupRunner* running = nullptr;
[[gnu::tls_model("initial-exec")]] thread_local Fiber* entered = nullptr;

void switch_to(Context& from, Context& to) { sim_switch_stack(&from.stack_pointer, to.stack_pointer); }

}  // namespace

// The context of run() while fibers run, and the stacks of the fibers, side by side. What no fiber has yet can be read, so that the
// leak sanitizer may look through all.
struct GroupRunner::Scheduler {
  Scheduler() {
    void* memory = ::mmap(nullptr, kAllStacks, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for fibers' stacks");
    stacks = static_cast<char*>(memory);
  }
  ~Scheduler() {
    unmark();
    ::munmap(stacks, kAllStacks);
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Returns the stack of a runner's fiber `number`; its lowest page cannot be written.
  char* stack(std::size_t number) {
    char* const stack = stacks + number * kStack;
    if (::mprotect(stack + kGuardPage, kStack - kGuardPage, PROT_READ | PROT_WRITE) != 0) {
      throw std::runtime_error("no memory for a fiber's stack");
    }
    used = std::max(used, number + 1);
    return stack;
  }
  // Abandoned fibers have left their frames marked for the address sanitizer.
  void unmark() {
#if defined(SIM_ADDRESS_SANITIZER)
    __asan_unpoison_memory_region(stacks, used * kStack);
#endif
  }
  void enter_stacks() {
#if defined(SIM_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(&fake_stack, stacks, kAllStacks);
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
#endif
  }
  void leave_stacks() {
#if defined(SIM_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(nullptr, bottom, size);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  static constexpr std::size_t kAllStacks = kStack * kMostGroupSize;
  Context context;
  char* stacks;
  std::size_t used = 0;  // the first of them
  // The sanitizer knows the caller's stack by these.
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  std::size_t size = 0;
};

class Fiber {
 public:
  explicit Fiber(char* stack) {
    // Stacks that all begin at the same place in their pages would share a few lines of the caches.
    static thread_local std::size_t made = 0;
    void** top = reinterpret_cast<void**>(stack + kStack - made++ % 61 * 448);
    *--top = nullptr;  // return address of enter(), which never returns
    *--top = reinterpret_cast<void*>(&Fiber::enter);
    top -= 6;  // the registers that the first switch pops
    std::memset(top, 0, 6 * sizeof(void*));
    context.stack_pointer = top;
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  Context context;

 private:
  static void enter() {
    Fiber& self = *entered;
    for (;;) running->work(self);
  }
};

GroupRunner::GroupRunner() : scheduler_(new Scheduler) {
  const auto allocate = [](std::unique_ptr<char[]>& memory, std::size_t bytes) {
    memory.reset(new char[bytes + kLocalAlignment + kLocalGuard]);
    const auto at = reinterpret_cast<std::uintptr_t>(memory.get());
    return memory.get() + (kLocalAlignment - at % kLocalAlignment) % kLocalAlignment;
  };
  local_ = allocate(local_memory_, 2 * kMostLocalBytes);  // room for the guards between many small arrays
  dynamic_ = allocate(dynamic_memory_, kMostLocalBytes);
}
GroupRunner::~GroupRunner() = default;

GroupRunner& GroupRunner::current() { return *running; }

// Items of the running one's sub-group first, so that a sub-group runs until it waits for others.
int GroupRunner::pick() {
  const auto words = static_cast<int>(ready_.size());
  const Item& now = items_[static_cast<std::size_t>(current_)];
  int word = static_cast<int>(now.word);
  std::uint64_t candidates = ready_[now.word];
  const std::uint64_t below = now.bit - 1;
  const std::uint64_t preferred = candidates & (shape_.backwards ? below : ~(below << 1 | 1));
  if (preferred != 0) candidates = preferred;
  for (int tried = 0; candidates == 0; ++tried) {
    if (tried == words) return -1;
    word += shape_.backwards ? -1 : 1;
    if (word == words) word = 0;
    if (word < 0) word = words - 1;
    candidates = ready_[static_cast<std::size_t>(word)];
  }
  const int bit = shape_.backwards ? 63 - __builtin_clzll(candidates) : __builtin_ctzll(candidates);
  return word * width_ + bit;
}

void GroupRunner::work(Fiber& self) {
  for (;;) {
    items_[current_].fiber = &self;
    (*body_)();
    items_[current_].state = State::finished;
    ++finished_;
    idle_.push_back(&self);
    const int next = pick();
    if (next >= 0) {
      switch_to_item(&self, next);  // an unstarted one comes back to this fiber at once
    } else {
      switch_to(self.context, scheduler_->context);
    }
  }
}

void GroupRunner::switch_to_item(Fiber* from, int next) {
  const Item& item = items_[static_cast<std::size_t>(next)];
  ready_[item.word] &= ~item.bit;
  current_ = next;
  Fiber* to = item.fiber;
  if (item.state == State::unstarted) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(scheduler_->stack(fibers_.size())));
      idle_.push_back(fibers_.back().get());
    }
    to = entered = idle_.back();
    idle_.pop_back();
  }
  if (to != from) switch_to(from == nullptr ? scheduler_->context : from->context, to->context);
}

// The fiber that switches back has set current_.
void GroupRunner::wait() {
  Fiber* const self = items_[current_].fiber;
  const int next = pick();
  if (next >= 0) {
    switch_to_item(self, next);
  } else {
    switch_to(self->context, scheduler_->context);
  }
}

// The running item has released these items, its own sub-group or group: they go on in their order.
void GroupRunner::release(int first, int end) {
  for (int i = first; i < end; ++i) {
    items_[i].state = State::runnable;
    set_ready(items_[i]);
  }
  switch_to_item(items_[current_].fiber, shape_.backwards ? end - 1 : first);
}

void GroupRunner::barrier() {
  items_[current_].state = State::waits_barrier;
  if (++at_barrier_ < shape_.size) return wait();
  at_barrier_ = 0;
  release(0, shape_.size);
}

void GroupRunner::collective(void* mine, Combine combine) {
  Item& item = items_[static_cast<std::size_t>(current_)];
  Meeting& meeting = meetings_[item.word];
  const int first = static_cast<int>(item.word) * width_;
  const int end = std::min(shape_.size, first + width_);
  slots_[static_cast<std::size_t>(current_)] = mine;
  item.state = State::waits_collective;
  if (meeting.arrived == 0) meeting.combine = combine;
  meeting.different = meeting.different || meeting.combine != combine;
  if (++meeting.arrived < end - first || shape_.subgroup == 0) return wait();
  if (meeting.different) return wait();  // forever: reported as a divergence
  meeting.arrived = 0;
  combine(&slots_[static_cast<std::size_t>(first)], end - first);
  release(first, end);
}

// ---- barriers of some items --------------------------------------------------------------------------------------------

void GroupRunner::go_on(int item) {
  Item& other = items_[static_cast<std::size_t>(item)];
  other.state = State::runnable;
  set_ready(other);
}

namespace {
// The word of a barrier: arrivals of a phase, those of this phase, and the number of phases that have ended.
constexpr int kArrivedShift = 16, kPhaseShift = 32;
constexpr std::uint64_t kCountMask = 0xFFFF;
}  // namespace

void GroupRunner::phase_make(std::uint64_t* barrier, int count) {
  *static_cast<std::uint64_t*>(checked_local(barrier, 8, 8)) = static_cast<std::uint64_t>(count);
}

void GroupRunner::phase_arrive(std::uint64_t* barrier) {
  auto& word = *static_cast<std::uint64_t*>(checked_local(barrier, 8, 8));
  word += std::uint64_t{1} << kArrivedShift;
  const std::uint64_t count = word & kCountMask;
  if ((word >> kArrivedShift & kCountMask) < count) return;
  word = ((word >> kPhaseShift) + 1) << kPhaseShift | count;
  std::erase_if(phase_waiters_, [&](const PhaseWaiter& waiter) {
    if (waiter.barrier != barrier) return false;
    go_on(waiter.item);
    return true;
  });
}

void GroupRunner::phase_wait(std::uint64_t* barrier, unsigned parity) {
  const auto& word = *static_cast<const std::uint64_t*>(checked_local(barrier, 8, 8));
  while ((word >> kPhaseShift & 1) == parity) {
    items_[static_cast<std::size_t>(current_)].state = State::waits_some;
    phase_waiters_.push_back({current_, barrier});
    wait();
  }
}

void GroupRunner::some_arrive(int barrier, int count) {
  SomeBarrier& some = some_[static_cast<std::size_t>(barrier)];
  if (++some.arrived < count) return;
  some.arrived = 0;
  for (const int item : std::exchange(some.waiting, {})) go_on(item);
}

void GroupRunner::some_sync(int barrier, int count) {
  SomeBarrier& some = some_[static_cast<std::size_t>(barrier)];
  if (some.arrived + 1 < count) {
    items_[static_cast<std::size_t>(current_)].state = State::waits_some;
    some.waiting.push_back(current_);
    ++some.arrived;
    return wait();
  }
  some_arrive(barrier, count);
}

void GroupRunner::background(std::function<void()> work) {
  background_[items_[static_cast<std::size_t>(current_)].word].work.push_back(std::move(work));
}

void GroupRunner::background_commit() {
  Background& mine = background_[items_[static_cast<std::size_t>(current_)].word];
  mine.ends.push_back(mine.work.size());
}

void GroupRunner::background_wait(int groups_left) {
  Background& mine = background_[items_[static_cast<std::size_t>(current_)].word];
  if (mine.ends.size() <= static_cast<std::size_t>(groups_left)) return;
  const std::size_t groups = mine.ends.size() - static_cast<std::size_t>(groups_left);
  const std::size_t count = mine.ends[groups - 1];
  for (std::size_t i = 0; i < count; ++i) mine.work[i]();
  mine.work.erase(mine.work.begin(), mine.work.begin() + static_cast<std::ptrdiff_t>(count));
  mine.ends.erase(mine.ends.begin(), mine.ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& end : mine.ends) end -= count;
}

float GroupRunner::subgroup_sum(float value) {
  collective(&value, [](void* const* items, int count) {
    float sum = *static_cast<float*>(items[0]);
    for (int i = 1; i < count; ++i) sum += *static_cast<float*>(items[i]);
    for (int i = 0; i < count; ++i) *static_cast<float*>(items[i]) = sum;
  });
  return value;
}

float GroupRunner::subgroup_max(float value) {
  collective(&value, [](void* const* items, int count) {
    float most = *static_cast<float*>(items[0]);
    for (int i = 1; i < count; ++i) most = std::max(most, *static_cast<float*>(items[i]));
    for (int i = 0; i < count; ++i) *static_cast<float*>(items[i]) = most;
  });
  return value;
}

// ---- local memory ------------------------------------------------------------------------------------------------------

void GroupRunner::report_local(const std::string& what) {
  if (local_problem_.empty()) local_problem_ = what;
}

void* GroupRunner::local_array(std::size_t bytes, std::size_t alignment) {
  const std::uint32_t index = items_[current_].arrays++;
  if (index < arrays_.size()) {
    const LocalArray& known = arrays_[index];
    if (known.bytes == bytes) return local_ + known.begin;
    report_local("its items do not ask for the same local arrays");
    return local_ + (known.bytes > bytes ? known.begin : 0);
  }
  const auto align = [](std::size_t n, std::size_t a) { return (n + a - 1) / a * a; };
  static_used_ = align(static_used_, alignment) + bytes;
  std::size_t begin = align(local_end_, alignment);
  if (static_used_ > shape_.static_limit || begin + bytes + kLocalGuard > 2 * kMostLocalBytes) {
    report_local("its local arrays need more than " + std::to_string(shape_.static_limit) + " bytes");
    begin = 0;
  }
  arrays_.push_back({begin, bytes});
  local_end_ = begin + bytes + kLocalGuard;
  // It holds nothing a kernel may count on: NaNs show who reads before writing.
  std::memset(local_ + begin, kPoison, bytes + kLocalGuard);
  return local_ + begin;
}

void* GroupRunner::dynamic_local() { return dynamic_; }

void* GroupRunner::checked_local(const void* address, std::size_t bytes, std::size_t alignment) {
  const char* const at = static_cast<const char*>(address);
  const auto within = [&](const char* begin, std::size_t size) { return at >= begin && at + bytes <= begin + size; };
  bool good = within(dynamic_, shape_.dynamic_local);
  for (const LocalArray& array : arrays_) good = good || within(local_ + array.begin, array.bytes);
  if (good && reinterpret_cast<std::uintptr_t>(at) % alignment == 0) return const_cast<void*>(address);
  report_local(std::string("an access of ") + std::to_string(bytes) + " bytes is " +
               (good ? "not aligned to " + std::to_string(alignment) + " in" : std::string("outside of")) +
               " its local memory");
  alignas(64) static thread_local char scratch[64];
  return scratch;
}

// Nothing may have been written behind an array.
void GroupRunner::check_guards() {
  const auto intact = [](const char* guard) {
    return std::all_of(guard, guard + kLocalGuard, [](char c) { return c == kPoison; });
  };
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (!intact(local_ + arrays_[i].begin + arrays_[i].bytes)) {
      report_local("it writes behind the end of its local array " + std::to_string(i) + ", of " +
                   std::to_string(arrays_[i].bytes) + " bytes");
    }
  }
  if (!intact(dynamic_ + shape_.dynamic_local)) {
    report_local("it writes behind the end of the launch's " + std::to_string(shape_.dynamic_local) +
                 " bytes of local memory");
  }
}

void GroupRunner::async_copy16(void* local, const void* bytes) {
  if (!async_used_) {
    async_used_ = true;
    if (async_.size() < static_cast<std::size_t>(shape_.size)) async_.resize(static_cast<std::size_t>(shape_.size));
    for (AsyncCopies& a : async_) {
      a.copies.clear();
      a.ends.clear();
    }
  }
  AsyncCopies::Copy copy;
  copy.local = checked_local(local, 16, 16);
  std::memcpy(copy.bytes.data(), bytes, 16);
  std::memset(copy.local, kPoison, 16);
  async_[static_cast<std::size_t>(current_)].copies.push_back(copy);
}

void GroupRunner::async_commit() {
  if (!async_used_) return;
  AsyncCopies& mine = async_[static_cast<std::size_t>(current_)];
  mine.ends.push_back(mine.copies.size());
}

void GroupRunner::async_wait(int groups_left) {
  if (!async_used_) return;
  AsyncCopies& mine = async_[static_cast<std::size_t>(current_)];
  if (mine.ends.size() <= static_cast<std::size_t>(groups_left)) return;
  const std::size_t groups = mine.ends.size() - static_cast<std::size_t>(groups_left);
  const std::size_t count = mine.ends[groups - 1];
  for (std::size_t i = 0; i < count; ++i) std::memcpy(mine.copies[i].local, mine.copies[i].bytes.data(), 16);
  mine.copies.erase(mine.copies.begin(), mine.copies.begin() + static_cast<std::ptrdiff_t>(count));
  mine.ends.erase(mine.ends.begin(), mine.ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& end : mine.ends) end -= count;
}

// ---- a group -----------------------------------------------------------------------------------------------------------

std::string GroupRunner::divergence() const {
  int at_barrier = 0, in_collective = 0, at_some = 0;
  std::string where;
  for (int first = 0; first < shape_.size; first += width_) {
    const int end = std::min(shape_.size, first + width_);
    int here = 0;
    for (int i = first; i < end; ++i) {
      at_barrier += items_[i].state == State::waits_barrier;
      at_some += items_[i].state == State::waits_some;
      here += items_[i].state == State::waits_collective;
    }
    in_collective += here;
    if (here == 0 || !where.empty()) continue;
    where = here == end - first
                ? "; the items of sub-group " + std::to_string(first / width_) + " meet in different ones"
                : "; " + std::to_string(here) + " of the " + std::to_string(end - first) + " items of sub-group " +
                      std::to_string(first / width_) + " are there";
  }
  return std::to_string(at_barrier) + " of " + std::to_string(shape_.size) + " items wait at a barrier, " +
         std::to_string(finished_) + " have finished and " + std::to_string(in_collective) +
         " wait for others of their sub-group" + where +
         (at_some > 0 ? "; " + std::to_string(at_some) + " wait at barriers of some items" : "");
}

std::string GroupRunner::run(const GroupShape& shape, const std::function<void()>& item) {
  if (shape.size < 1 || shape.size > kMostGroupSize) return "its group has " + std::to_string(shape.size) + " items";
  local_problem_.clear();
  if (shape.dynamic_local > std::min(shape.local_limit, kMostLocalBytes)) {
    report_local("the launch asks for " + std::to_string(shape.dynamic_local) +
                 " bytes of local memory, more than the " + std::to_string(shape.local_limit) + " there are");
    return local_problem_;
  }
  GroupRunner* const outer = std::exchange(running, this);
  shape_ = shape;
  width_ = shape.subgroup > 0 ? shape.subgroup : 64;
  const auto size = static_cast<std::size_t>(shape.size);
  const std::size_t words = (size + static_cast<std::size_t>(width_) - 1) / static_cast<std::size_t>(width_);
  body_ = &item;
  items_.assign(size, Item{});
  slots_.resize(size);
  ready_.assign(words, 0);
  meetings_.assign(words, Meeting{});
  for (std::size_t i = 0; i < size; ++i) {
    items_[i].word = static_cast<std::uint32_t>(i / static_cast<std::size_t>(width_));
    items_[i].bit = std::uint64_t{1} << (i % static_cast<std::size_t>(width_));
    set_ready(items_[i]);
  }
  finished_ = at_barrier_ = 0;
  async_used_ = false;
  phase_waiters_.clear();
  for (SomeBarrier& some : some_) {
    some.arrived = 0;
    some.waiting.clear();
  }
  background_.assign(words, Background{});
  arrays_.clear();
  static_used_ = local_end_ = 0;
  std::memset(dynamic_, kPoison, shape.dynamic_local + kLocalGuard);
  scheduler_->enter_stacks();
  switch_to_item(nullptr, shape.backwards ? shape.size - 1 : 0);
  scheduler_->leave_stacks();
  std::string problem;
  if (finished_ != shape.size) {
    problem = divergence();
    local_problem_.clear();
    fibers_.clear();
    idle_.clear();
    scheduler_->unmark();
  } else {
    check_guards();
    if (static_used_ + shape.dynamic_local > shape.local_limit) {
      report_local("it needs " + std::to_string(static_used_ + shape.dynamic_local) + " bytes of local memory, of " +
                   std::to_string(shape.local_limit));
    }
    problem = local_problem_;
    if (problem.empty() &&
        std::any_of(background_.begin(), background_.end(), [](const Background& b) { return !b.work.empty(); })) {
      problem = "it ends while products run in the background";
    }
    if (problem.empty() && shape.overlaps_previous &&
        std::none_of(items_.begin(), items_.end(), [](const Item& i) { return i.waited; })) {
      problem = "it overlaps the kernel before and never waits for it";
    }
  }
  running = outer;
  return problem;
}

}  // namespace sim
