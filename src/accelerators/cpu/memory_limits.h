// Computes how much memory the process can have: what the machine has left, what its control groups allow (version 1
// and 2, parents included), and RLIMIT_AS. The functions take the files' texts, so that tests can pass those of other
// machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/control_groups.h"

namespace anyaccel::cpu {

struct MemoryLimit {
  int64_t total = 0;
  int64_t available = 0;      // page cache that can be dropped counts as available
  std::string source;         // for messages: "this machine", "the control group /sys/fs/cgroup/memory/a", ...
  bool of_addresses = false;  // limits what is mapped, not what is used
};

// From /proc/meminfo; nothing for any other text. Kernels before 3.14 have no MemAvailable; MemFree is used instead.
std::optional<MemoryLimit> parse_meminfo(std::string_view text);

// Contents of the files of a group; empty where there is no such file.
struct MemoryGroupTexts {
  std::string max;      // memory.max, or memory.limit_in_bytes of version 1
  std::string high;     // memory.high; the kernel slows a group above it down to a crawl, so it counts as a limit
  std::string current;  // memory.current, or memory.usage_in_bytes
  std::string stat;     // memory.stat
};
// Nothing when the group sets no limit.
std::optional<MemoryLimit> parse_group(const ControlGroup& group, const MemoryGroupTexts& texts);

// All limits of this process now. Reads a handful of small files: some tens of microseconds.
std::vector<MemoryLimit> read_memory_limits();

// The margin that is kept free below a limit, so that the last allocation does not end the process or swap out others:
// a 32nd of the limit, at least 16 MiB and at most 512 MiB.
int64_t margin_of(const MemoryLimit& limit);

}  // namespace anyaccel::cpu
