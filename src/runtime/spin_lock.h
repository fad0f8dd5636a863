// A lock for sections of a few nanoseconds: one atomic exchange when nobody else holds it, a short spin and then yields
// when somebody does.
#pragma once

#include <atomic>
#include <thread>

namespace anyaccel {

class SpinLock {
 public:
  void lock() noexcept {
    if (!taken_.exchange(true, std::memory_order_acquire)) [[likely]]
      return;
    wait();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void wait() noexcept {
    for (;;) {
      for (int i = 0; i < 100; ++i) {
        if (!taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire)) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      std::this_thread::yield();
    }
  }

  std::atomic<bool> taken_{false};
};

}  // namespace anyaccel
