// Reads how often the kernel's OOM killer killed a process of our control group.
#include "launcher/processes/memory_kills.h"

#include <string>

#include "base/process/control_groups.h"
#include "base/process/kernel_text.h"

namespace anyaccel::launcher {

int64_t count_memory_kills() {
  for (const ControlGroup& group : find_control_groups("memory")) {
    const std::string events =
        kernel_file(group.folder + (group.version == 2 ? "/memory.events" : "/memory.oom_control"));
    // A group of version 2 without the controller has no such file; those above it count its processes.
    if (!events.empty()) return number_of(events, "oom_kill").value_or(0);
  }
  return 0;
}

}  // namespace anyaccel::launcher
