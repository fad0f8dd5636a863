// Memory of the CPU accelerator: ordinary pages for "device" memory, locked pages for pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "anyaccel/abi/driver.h"

namespace anyaccel::cpu {

inline constexpr size_t memory_alignment = 256;

// Uninitialized (new pages are zero). From 2 MiB on, mapped pages on a huge-page boundary that ask for huge pages; pages
// are backed when first touched. `numa_node` < 0: wherever the touching thread runs. Throws OutOfMemoryError.
void* allocate(size_t bytes, int32_t kind, int numa_node);
void release(void* pointer, size_t bytes, int32_t kind) noexcept;

// Locks and unlocks the caller's own range. Throws OutOfMemoryError that names the limit.
void register_range(void* pointer, size_t bytes);
void unregister_range(void* pointer);

// Finds the allocation that holds `pointer`; false when it is none of ours.
bool query(const void* pointer, aa_memory_info& info) noexcept;

// Bytes free for a new allocation, and in total, under the memory limit of the control group where there is one.
void memory_info(int64_t& free_bytes, int64_t& total_bytes);

}  // namespace anyaccel::cpu
