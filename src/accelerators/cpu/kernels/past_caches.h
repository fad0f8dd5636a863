// Copies of more memory than the caches hold.
#pragma once

#include <cstddef>

namespace anyaccel::cpu {

// Copies `bytes` bytes between ranges that do not overlap, with stores past the caches and with prefetches ahead of the loads;
// docs/performance_runtime.md has the figures. Thread-safe; threads that synchronize with this one see what was copied.
void copy_past_caches(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace anyaccel::cpu
