// Reads this process's memory use from the kernel, in bytes.
#include "base/process/process_memory.h"

#include <cstdio>

namespace anyaccel {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (!file) return memory;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof(line), file)) {
    if (std::sscanf(line, "VmRSS: %lld kB", &kib) == 1) memory.resident = kib * 1024;
    if (std::sscanf(line, "VmHWM: %lld kB", &kib) == 1) memory.peak_resident = kib * 1024;
    if (std::sscanf(line, "RssAnon: %lld kB", &kib) == 1) memory.own += kib * 1024;
    if (std::sscanf(line, "RssShmem: %lld kB", &kib) == 1) memory.own += kib * 1024;
  }
  std::fclose(file);
  return memory;
}

}  // namespace anyaccel
