// Reads how often the kernel's OOM killer killed a process of our control group.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anyaccel::launcher {

// Returns the counter "oom_kill" of this process's memory control group (version 2: memory.events, version 1:
// memory.oom_control); 0 if there is none.
int64_t count_memory_kills();

// Returns the number after "oom_kill " in such a file's text; 0 if it has none.
int64_t parse_memory_kills(std::string_view text);

// Finds the folder of the memory control group in the texts of /proc/self/cgroup and /proc/self/mountinfo; empty if
// there is none. With a control group namespace the path is relative to the mounted folder.
std::string memory_group_folder(std::string_view cgroup, std::string_view mounts);

}  // namespace anyaccel::launcher
