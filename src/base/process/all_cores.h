// Runs the same work on all cores that this process may use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/process/processors.h"
#include "base/process/start_thread.h"

namespace anyaccel {

// Runs `body` simultaneously on as many threads as this process can compute with (processors.h), at most 16 and at most `work`,
// including the calling thread. Each call of `body` takes pieces of the work until none is left. Blocks until all have returned;
// rethrows the first exception.
template <class Body>
void on_all_cores(size_t work, const Body& body) {
  constexpr unsigned most_threads = 16;
  if (work < 2) {  // counting cores reads a file for each processor
    body();
    return;
  }
  const unsigned cores = std::min(
      static_cast<unsigned>(threads_within(count_cores(allowed_processors()), processor_quota())), most_threads);
  std::exception_ptr failure;
  std::mutex mutex;
  const auto guarded = [&] {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  start_helpers(threads, std::min<size_t>(cores, work) - 1, guarded);
  guarded();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace anyaccel
