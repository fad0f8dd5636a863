// Implements a lock for sections of a few nanoseconds.
//
// As long as only one thread uses it, locking is two plain stores and a load (an atomic exchange would cost more than
// the section). The first other thread ends that mode permanently: it announces itself, makes every running thread
// execute a memory barrier (membarrier(2)), waits until the owner has left the section, and from then on all threads
// use a spin lock: one atomic exchange if it is free, else a short spin and then yields. This is the asymmetric form of
// Dekker's algorithm, as in biased locking.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace anyaccel {

class SpinLock {
 public:
  SpinLock() noexcept : revoked_(!can_own()) {}

  void lock() noexcept {
    if (owner_.load(std::memory_order_relaxed) == self()) [[likely]] {
      busy_.store(true, std::memory_order_relaxed);
      // Keeps the compiler from swapping store and load; for the processor, the revoking thread's membarrier does.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (!revoking_.load(std::memory_order_acquire)) [[likely]]
        return;
      busy_.store(false, std::memory_order_release);
    }
    lock_slow();
  }

  void unlock() noexcept {
    if (busy_.load(std::memory_order_relaxed) && owner_.load(std::memory_order_relaxed) == self()) [[likely]] {
      busy_.store(false, std::memory_order_release);
    } else {
      taken_.store(false, std::memory_order_release);
    }
  }

 private:
  // Identifies the calling thread.
  static const void* self() noexcept {
    static thread_local char tag;
    return &tag;
  }

  // Returns false if the kernel has no such barrier, and under the thread sanitizer, which does not model it.
  static bool can_own() noexcept {
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    static const bool registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    return registered;
#endif
  }

  [[gnu::noinline]] void lock_slow() noexcept {
    const void* nobody = nullptr;
    if (!revoked_.load(std::memory_order_acquire)) {
      if (owner_.compare_exchange_strong(nobody, self())) return lock();
      revoke();
    }
    while (taken_.exchange(true, std::memory_order_acquire)) {
      for (int i = 0; i < 100 && taken_.load(std::memory_order_relaxed); ++i) pause();
      if (taken_.load(std::memory_order_relaxed)) std::this_thread::yield();
    }
  }

  // Returns when the owner has left the section and will not use its fast path again. Several threads may call it at
  // once.
  void revoke() noexcept {
    revoking_.store(true, std::memory_order_seq_cst);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
      // Cannot happen once registered. A sleep longer than a scheduler tick is a barrier on every processor too.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    while (busy_.load(std::memory_order_acquire)) std::this_thread::yield();
    revoked_.store(true, std::memory_order_release);
  }

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<const void*> owner_{nullptr};
  std::atomic<bool> busy_{false};      // the owner is in the section; written by the owner only
  std::atomic<bool> revoking_{false};  // the owner must not use its fast path any more
  std::atomic<bool> revoked_;          // the owner has left the section too: now taken_ decides
  std::atomic<bool> taken_{false};
};

}  // namespace anyaccel
