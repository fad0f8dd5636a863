// Waits for other members: spins for some time, then sleeps, and checks regularly that the members are alive.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "anyaccel/error.h"
#include "comm/shared_memory/shared_memory_group.h"
#include "comm/wait_limit.h"

namespace anyaccel::comm::shm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A peer that is nearly ready arrives within this time; sleeping and waking costs more.
constexpr auto kLookTime = 20us;
// Used if nothing else needs the core, because waking takes tens of microseconds in a virtual machine. With 1 ms of
// spinning instead of 20 us, measured alternately, the tokens of a model on two ranks took 3% less time (the median;
// 10% less on average, on a busy host), and with 10 ms instead of 1 ms 1% less (7%).
constexpr auto kLookTimeOnOwnCores = 10ms;
constexpr int kYields = 50;
// A sleep ends by itself, so that a lost wake-up costs only one of these intervals. They grow to the largest.
constexpr auto kFirstSleep = 250us;
constexpr auto kLongestSleep = 4ms;

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Works between processes: the kernel identifies sleepers by the file that is mapped at the address.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds time) noexcept {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void SharedMemoryGroup::wake(int peer) {
  Header& header = at(peer).header();
  header.bell.fetch_add(1, std::memory_order_release);
  futex_wake(header.bell);
}

void SharedMemoryGroup::wait_slowly(const Condition& ready, bool everyone, int peer) {
  const auto start = Clock::now();
  if (yields_) {
    for (int i = 0; i < kYields; ++i) {
      sched_yield();
      if (ready()) return;
    }
  } else {
    const std::chrono::nanoseconds look = own_cores_ ? kLookTimeOnOwnCores : kLookTime;
    do {
      for (int i = 0; i < 16; ++i) {
        pause();
        if (ready()) return;
      }
    } while (Clock::now() - start < look);
  }
  Header& header = mine_->header();
  WaitLimit limit(membership_.timeout, start);
  std::chrono::nanoseconds sleep = kFirstSleep;
  while (true) {
    const uint32_t bell = header.bell.load(std::memory_order_acquire);
    // The member that makes ready() true reads `sleeping` afterwards. It has no fence there, so its read may come
    // first, which is rare and is the reason why sleeps are short.
    header.sleeping.store(1, std::memory_order_seq_cst);
    const bool now = ready();
    if (!now) futex_wait(header.bell, bell, sleep);
    header.sleeping.store(0, std::memory_order_relaxed);
    if (now || ready()) return;
    check_members(ready, everyone, peer);
    if (ready()) return;
    if (limit.passed()) {
      fail(activity() + ": " + name_of(peer) + " did not come within " + std::to_string(membership_.timeout.count()) +
               " ms",
           AA_DEADLINE_EXCEEDED);
    }
    sleep = std::min<std::chrono::nanoseconds>(2 * sleep, kLongestSleep);
  }
}

void SharedMemoryGroup::check_job() {
  throw_if_failed();
  if (!membership_.watch || !membership_.watch->failed()) return;
  try {
    membership_.watch->check();
  } catch (const Error& error) {
    fail(error.what(), error.code());
  }
}

void SharedMemoryGroup::check_members(const Condition& ready, bool everyone, int peer) {
  check_job();
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    const Header& header = at(member).header();
    const State state = header.state.load(std::memory_order_acquire);
    const bool needed = everyone || member == peer;
    const bool dead = needed && state == State::Member && !processes_[static_cast<size_t>(member)].alive();
    if (state == State::Member && !dead) continue;
    // It may have completed its part before it ended.
    if (ready()) return;
    if (state == State::Failed) fail(std::string(header.reason, strnlen(header.reason, sizeof(header.reason))));
    if (!needed) continue;
    // The state is checked again, because it may have been set just before the process ended.
    if (dead && header.state.load(std::memory_order_acquire) == State::Member) {
      fail(activity() + ": " + name_of(member) + " died");
    }
    if (state == State::Left) fail(activity() + ": " + name_of(member) + " has left the group");
  }
}

}  // namespace anyaccel::comm::shm
