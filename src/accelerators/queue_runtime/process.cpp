// Implements process.h: children made by fork().
#include "accelerators/queue_runtime/process.h"

#include <pthread.h>

#include <atomic>

namespace anyaccel::queue_runtime {
namespace {

// The number of forks between the process of the first StartedProcess and this one.
std::atomic<unsigned> generation{0};

unsigned watched_generation() {
  [[maybe_unused]] static const int watched =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  return generation.load(std::memory_order_relaxed);
}

}  // namespace

StartedProcess::StartedProcess() : generation_(watched_generation()) {}

bool StartedProcess::is_forked_child() const noexcept {
  return generation.load(std::memory_order_relaxed) != generation_;
}

}  // namespace anyaccel::queue_runtime
