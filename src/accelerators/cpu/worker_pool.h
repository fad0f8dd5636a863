// The threads that run CPU kernels.
//
// One pool serves the process. Workers spin for a short while after a region and then sleep: waking a sleeping thread
// costs tens of microseconds, more than most regions of a decode step take. Its size comes from the process's affinity mask, its
// control groups and OMP_NUM_THREADS; every worker, and the calling thread inside a region, flushes denormals to zero.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace anyaccel::cpu {

class WorkerPool {
 public:
  // The pool of the process; its threads are started by the first parallel region, not here, and started anew in a
  // child after fork(). The size is found once: OMP_NUM_THREADS, at most the processors of the affinity mask; without it one thread
  // for each core of the mask, and no more than the processors' worth of time that control groups allow.
  static WorkerPool& instance();

  // Threads a region runs on, the caller's included.
  int size() const noexcept;

  // Changes the number of threads (>= 1); for benchmarks and tests. Must not be called inside a region.
  void set_size(int threads);

  // Calls body(index, count) once for every index in [0, count), count = size(), on all threads at once (index 0 on the
  // calling thread), and returns when all have returned. Regions of different callers run one after another. A region
  // started inside a region runs on the calling thread alone, as body(0, 1). The first exception that a body throws is
  // rethrown here after all bodies have returned.
  template <class Body>
  void run(Body&& body) {
    using Function = std::remove_reference_t<Body>;
    run_erased([](void* context, int index, int count) { (*static_cast<Function*>(context))(index, count); },
               const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

  // Waits inside a region until every thread of the region has arrived: a spinning barrier.
  void barrier(int index) noexcept;

 private:
  using Erased = void (*)(void* context, int index, int count);
  void run_erased(Erased function, void* context);
};

// Sets flush-to-zero and denormals-are-zero on the calling thread; returns the earlier control word.
uint32_t flush_denormals() noexcept;
void restore_denormals(uint32_t control) noexcept;

}  // namespace anyaccel::cpu
