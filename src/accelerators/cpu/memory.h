// Memory of the CPU accelerator: ordinary pages for "device" memory, locked pages for pinned memory.
//
// Pages are backed when they are first touched, and the kernel overcommits memory. So that running out of memory is an
// exception and not the end of some process, an allocation must fit into what the machine and the process's control
// groups (memory_limits.h) have left at that moment, less what this process has allocated and not touched yet, and a
// margin. What other processes have allocated and not touched is not known. Mapped files (weights) are not allocations:
// their pages are page cache, which the kernel drops and reads again. ANYACCEL_CPU_OVERCOMMIT=1 switches these checks
// off.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/abi/driver.h"

namespace anyaccel::cpu {

inline constexpr size_t memory_alignment = 256;

// Uninitialized (new pages are zero). Device memory from 2 MiB on is ShareableMemory, once that has been started. From 2 MiB on, mapped pages on a huge-page boundary that ask for huge pages; pages
// are backed when first touched. `numa_node` < 0: wherever the touching thread runs. Throws OutOfMemoryError, which names the
// limit. Costs some tens of microseconds from 2 MiB on, or where memory is pinned, for reading the limits.
void* allocate(size_t bytes, int32_t kind, int numa_node);
void release(void* pointer, size_t bytes, int32_t kind) noexcept;

// Locks and unlocks the caller's own range. Throws OutOfMemoryError that names the limit.
void register_range(void* pointer, size_t bytes);
void unregister_range(void* pointer);

// Finds the allocation that contains `pointer`; returns false if there is none.
bool query(const void* pointer, aa_memory_info& info) noexcept;

// Bytes that allocate() would still give, and what the machine or the tightest limit has altogether.
void memory_info(int64_t& free_bytes, int64_t& total_bytes);

// Returns true if ANYACCEL_CPU_OVERCOMMIT is 1. Throws InvalidArgument if it is neither 0 nor 1.
bool overcommits();

}  // namespace anyaccel::cpu
