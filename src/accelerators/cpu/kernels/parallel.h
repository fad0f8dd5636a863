// Splitting the work of an op over the worker pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "accelerators/cpu/worker_pool.h"

namespace anyaccel::cpu {

// Below this many elements touched an op stays on the calling thread: a region costs 0.5 to 1 us, and a thread works
// through some ten thousand elements of the first-level cache in that time.
inline constexpr int64_t kParallelGrain = 16384;

// Flushes denormals to zero on the calling thread for its lifetime, as inside a parallel region: exponentials of
// softmax and attention underflow all the time, and arithmetic on denormals is a hundred times slower.
class FlushDenormals {
 public:
  FlushDenormals() noexcept : before_(flush_denormals()) {}
  ~FlushDenormals() { restore_denormals(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t before_;
};

// Calls body(begin, end) so that [0, count) is covered once, on several threads when `count` items of `work` elements
// each are worth it.
template <class Body>
void parallel_for(int64_t count, int64_t work, Body&& body) {
  if (count <= 0) return;
  const int64_t threads = std::min<int64_t>(count, 1 + count * std::max<int64_t>(work, 1) / kParallelGrain);
  if (threads > 1) {
    WorkerPool& pool = WorkerPool::instance();
    if (pool.size() > 1) {
      pool.run([&](int index, int size) {
        const int64_t parts = std::min<int64_t>(size, threads);
        if (index >= parts) return;
        // In a region of its own, where barriers wait for nobody: the other threads have other shares, or none, and
        // would never arrive at a barrier of this one.
        pool.run([&](int, int) { body(count * index / parts, count * (index + 1) / parts); });
      });
      return;
    }
  }
  const FlushDenormals flush;
  body(int64_t{0}, count);
}

}  // namespace anyaccel::cpu
