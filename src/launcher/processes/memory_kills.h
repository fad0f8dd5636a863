// Reads how often the kernel's OOM killer killed a process of our control group.
#pragma once

#include <cstdint>

namespace anyaccel::launcher {

// Returns the counter "oom_kill" of this process's memory control group (version 2: memory.events, version 1:
// memory.oom_control), or of the nearest group above it that has one, which counts the processes of all groups below it; 0 if
// there is none.
int64_t count_memory_kills();

}  // namespace anyaccel::launcher
