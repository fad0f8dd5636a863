// Reads this process's memory use from the kernel, in bytes.
#pragma once

#include <cstdint>

namespace anyaccel {

struct ProcessMemory {
  int64_t resident = 0;       // VmRSS: file pages included
  int64_t peak_resident = 0;  // VmHWM
  int64_t own = 0;            // RssAnon and RssShmem: without pages of mapped files
};

// All zeros if /proc cannot be read.
ProcessMemory process_memory();

}  // namespace anyaccel
