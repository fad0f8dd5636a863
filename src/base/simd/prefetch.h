// Prefetches a cache line that will be written.
#pragma once

namespace anyaccel::cpu {

// Brings a line into the first-level cache and takes it away from the other cores. __builtin_prefetch() with a second argument
// of 1 does that only where the compiler may assume PREFETCHW, which x86-64 does not include, and fetches a copy for reading
// elsewhere, so that the store has to wait for the other cores after all. Processors that lack the instruction execute it as no
// operation.
inline void prefetch_to_write(const void* line) { asm volatile("prefetchw (%0)" ::"r"(line)); }

}  // namespace anyaccel::cpu
