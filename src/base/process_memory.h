// Memory of this process as the kernel counts it, in bytes.
#pragma once

#include <cstdint>

namespace anyaccel {

struct ProcessMemory {
  int64_t resident = 0;       // VmRSS: file pages included
  int64_t peak_resident = 0;  // VmHWM
};

// Zeros when /proc cannot be read.
ProcessMemory process_memory();

}  // namespace anyaccel
