// The pool of worker threads: publishing a region, running it, joining it; see worker_pool.h.
//
// A region is published by raising `epoch`; workers wait for it to change, run the body and lower `pending`, for which
// the caller waits. Every wait spins for a bounded time and then sleeps on a futex, so that a descheduled partner costs
// a wake-up and not a lost time slice.
#include "accelerators/cpu/worker_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/error.h"
#include "base/process/processors.h"
#include "base/process/start_thread.h"

namespace anyaccel::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// The time that a wait spins. A futex wake-up takes some 35 us on virtual machines: spinning about that long between
// regions costs at most twice the best choice. Inside a region the partner is known to be running, so waiting longer
// pays.
constexpr std::chrono::nanoseconds kIdleSpin = std::chrono::microseconds(60);
constexpr std::chrono::nanoseconds kRegionSpin = std::chrono::microseconds(500);
constexpr int kPausesPerClockRead = 32;

constexpr uint32_t kFlushToZero = 1u << 15;
constexpr uint32_t kDenormalsAreZero = 1u << 6;

// A 32-bit word that threads wait on until it changes.
class alignas(64) WaitWord {
 public:
  uint32_t load() const noexcept { return value_.load(std::memory_order_acquire); }
  void set(uint32_t value) noexcept { value_.store(value, std::memory_order_seq_cst); }
  // Adds and wakes all sleepers. Returns the new value.
  uint32_t add(uint32_t amount) noexcept {
    const uint32_t value = value_.fetch_add(amount, std::memory_order_seq_cst) + amount;
    wake();
    return value;
  }
  uint32_t add_silently(uint32_t amount) noexcept {
    return value_.fetch_add(amount, std::memory_order_seq_cst) + amount;
  }
  void wake() noexcept {
    // Ordered after the change of value_ and before a sleeper's check of it: one of the two sees the other.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(FUTEX_WAKE_PRIVATE, INT_MAX);
  }

  // Returns when the value differs from `old`.
  void wait_while(uint32_t old, std::chrono::nanoseconds spin) noexcept {
    if (load() != old) return;
    if (spin.count() > 0) {
      const Clock::time_point end = Clock::now() + spin;
      do {
        for (int i = 0; i < kPausesPerClockRead; ++i) {
          _mm_pause();
          if (load() != old) return;
        }
      } while (Clock::now() < end);
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (value_.load(std::memory_order_seq_cst) == old) futex(FUTEX_WAIT_PRIVATE, old);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void reset() noexcept {
    value_.store(0, std::memory_order_relaxed);
    sleepers_.store(0, std::memory_order_relaxed);
  }

 private:
  void futex(int operation, uint32_t value) noexcept {
    static_assert(sizeof(value_) == sizeof(uint32_t));
    const int saved = errno;
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), operation, value, nullptr, nullptr, 0);
    errno = saved;
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// Barrier of the threads of a region. A thread whose body threw leaves it, so that the others do not wait forever.
class RegionBarrier {
 public:
  // Before the region is published.
  void prepare(int threads) noexcept {
    state_.store(static_cast<uint32_t>(threads) << kExpectedShift, std::memory_order_relaxed);
  }
  void arrive_and_wait(std::chrono::nanoseconds spin) noexcept {
    const uint32_t generation = generation_.load();
    const uint32_t state = state_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if ((state & kArrivedMask) == state >> kExpectedShift) {
      complete(state & kArrivedMask);
    } else {
      generation_.wait_while(generation, spin);
    }
  }
  void leave() noexcept {
    const uint32_t state = state_.fetch_sub(1u << kExpectedShift, std::memory_order_acq_rel) - (1u << kExpectedShift);
    const uint32_t arrived = state & kArrivedMask;
    if (arrived != 0 && arrived == state >> kExpectedShift) complete(arrived);
  }

 private:
  static constexpr int kExpectedShift = 16;
  static constexpr uint32_t kArrivedMask = 0xffff;

  void complete(uint32_t arrived) noexcept {
    state_.fetch_sub(arrived, std::memory_order_acq_rel);
    generation_.add(1);
  }

  alignas(64) std::atomic<uint32_t> state_{0};  // expected threads << 16 | arrived threads
  WaitWord generation_;
};

// Region depth of the calling thread: 0 outside, 1 in a region, more in regions started inside one.
thread_local int region_depth = 0;

// The first number of OMP_NUM_THREADS ("8" or "8,2" for nested levels); 0 if the value is invalid.
int asked_threads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return 0;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (end == text || errno != 0 || value <= 0 || value > INT_MAX) return 0;
  while (*end == ' ' || *end == '\t') ++end;
  return *end == '\0' || *end == ',' ? static_cast<int>(value) : 0;
}

int initial_size() {
  const std::vector<int> processors = allowed_processors();
  const int asked = asked_threads();
  if (asked > 0) return std::min(asked, static_cast<int>(processors.size()));
  return threads_within(count_cores(processors), processor_quota());
}

// The state of the pool. Never destroyed: workers may outlive static destructors.
struct State {
  using Function = void (*)(void*, int, int);

  std::mutex region_mutex;  // held for the whole of a region
  std::atomic<int> size{initial_size()};
  std::vector<pthread_t> workers;  // region_mutex; worker i has index i + 1
  std::chrono::nanoseconds idle_spin{0};
  std::chrono::nanoseconds region_spin{0};

  // The region; written before `epoch` is raised, and valid until `pending` is 0. A null function ends the workers.
  Function function = nullptr;
  void* context = nullptr;
  int count = 0;
  WaitWord epoch;
  WaitWord pending;
  RegionBarrier barrier;

  std::mutex error_mutex;
  std::exception_ptr error;  // error_mutex

  void call(int index) noexcept {
    try {
      function(context, index, count);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      barrier.leave();
    }
  }

  void publish(Function body, void* argument, int threads) noexcept {
    function = body;
    context = argument;
    count = threads;
    barrier.prepare(threads);
    pending.set(static_cast<uint32_t>(workers.size()));
    epoch.add(1);
  }

  void join() noexcept {
    for (uint32_t left = pending.load(); left != 0; left = pending.load()) pending.wait_while(left, region_spin);
  }

  void stop_workers() noexcept {
    if (workers.empty()) return;
    publish(nullptr, nullptr, 0);
    for (pthread_t worker : workers) pthread_join(worker, nullptr);
    workers.clear();
  }

  void start_workers();
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

struct WorkerStart {
  int index;
  uint32_t epoch;  // the latest epoch that is not for this worker
};

void* worker_main(void* argument) {
  WorkerStart start = *static_cast<WorkerStart*>(argument);
  delete static_cast<WorkerStart*>(argument);
  State& pool = state();
  flush_denormals();
  region_depth = 1;
  for (;;) {
    pool.epoch.wait_while(start.epoch, pool.idle_spin);
    ++start.epoch;
    if (pool.function == nullptr) return nullptr;
    pool.call(start.index);
    if (pool.pending.add_silently(~0u) == 0) pool.pending.wake();
  }
}

// fork() copies the calling thread only: the child starts its own workers, and finds no region half run.
void before_fork() {
  if (region_depth == 0) state().region_mutex.lock();
}
void after_fork_in_parent() {
  if (region_depth == 0) state().region_mutex.unlock();
}
void after_fork_in_child() {
  State& pool = state();
  pool.workers.clear();
  pool.epoch.reset();
  pool.pending.reset();
  if (region_depth == 0) pool.region_mutex.unlock();
}

void State::start_workers() {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  const int threads = size.load(std::memory_order_relaxed);
  // A spinning thread keeps the one it waits for from running where there are more threads than processors, or less time than
  // threads could use.
  const bool spins = threads <= threads_within(static_cast<int>(allowed_processors().size()), processor_quota());
  idle_spin = spins ? kIdleSpin : std::chrono::nanoseconds(0);
  region_spin = spins ? kRegionSpin : std::chrono::nanoseconds(0);
  workers.reserve(static_cast<size_t>(threads) - 1);
  for (int index = 1; index < threads; ++index) {
    auto* start = new (std::nothrow) WorkerStart{index, epoch.load()};
    pthread_t worker;
    const int error = start ? pthread_create(&worker, nullptr, worker_main, start) : ENOMEM;
    if (error != 0) {
      delete start;
      stop_workers();
      throw Error("worker thread " + std::to_string(index) + " of " + std::to_string(threads - 1) + ": " +
                      refused_thread(error) + "; fewer threads suffice with a lower OMP_NUM_THREADS",
                  AA_RESOURCE_EXHAUSTED, error);
    }
    workers.push_back(worker);
  }
}

// Flushing of denormals for the calling thread while it runs a region.
class FlushScope {
 public:
  FlushScope() noexcept : control_(flush_denormals()) { ++region_depth; }
  ~FlushScope() {
    --region_depth;
    restore_denormals(control_);
  }
  FlushScope(const FlushScope&) = delete;
  FlushScope& operator=(const FlushScope&) = delete;

 private:
  uint32_t control_;
};

}  // namespace

WorkerPool& WorkerPool::instance() {
  state();  // here, because size() must not throw, as making it does where memory is short
  static WorkerPool pool;
  return pool;
}

int WorkerPool::size() const noexcept { return state().size.load(std::memory_order_relaxed); }

void WorkerPool::set_size(int threads) {
  constexpr int kMost = 4096;
  if (threads < 1 || threads > kMost) {
    throw InvalidArgument("a worker pool of " + std::to_string(threads) + " threads was asked for; expected 1 to " +
                          std::to_string(kMost));
  }
  State& pool = state();
  const std::lock_guard lock(pool.region_mutex);
  pool.stop_workers();
  pool.size.store(threads, std::memory_order_relaxed);
}

void WorkerPool::run_erased(Erased function, void* context) {
  if (region_depth != 0) {
    // A thread of a region already has its share of the pool.
    ++region_depth;
    try {
      function(context, 0, 1);
    } catch (...) {
      --region_depth;
      throw;
    }
    --region_depth;
    return;
  }
  State& pool = state();
  const std::lock_guard lock(pool.region_mutex);
  const int threads = pool.size.load(std::memory_order_relaxed);
  if (threads == 1) {
    const FlushScope flush;
    function(context, 0, 1);
    return;
  }
  if (pool.workers.empty()) pool.start_workers();
  {
    const FlushScope flush;
    pool.publish(function, context, threads);
    pool.call(0);
    pool.join();
  }
  if (pool.error) std::rethrow_exception(std::exchange(pool.error, nullptr));
}

void WorkerPool::barrier(int /*index*/) noexcept {
  State& pool = state();
  if (region_depth == 1 && pool.size.load(std::memory_order_relaxed) > 1) {
    pool.barrier.arrive_and_wait(pool.region_spin);
  }
}

uint32_t flush_denormals() noexcept {
  const uint32_t control = _mm_getcsr();
  _mm_setcsr(control | kFlushToZero | kDenormalsAreZero);
  return control;
}

void restore_denormals(uint32_t control) noexcept { _mm_setcsr(control); }

}  // namespace anyaccel::cpu
