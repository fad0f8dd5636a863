// Initializes hwloc without its plugins.
#include "base/process/hwloc_topology.h"

#include <cstdlib>
#include <mutex>

#include "base/process/processors.h"

namespace anyaccel {

int init_hwloc_topology(hwloc_topology_t* out_topology) {
  constexpr const char* variable = "HWLOC_PLUGINS_PATH";
  // hwloc tries again forever where the system refuses this call.
  if (!knows_allowed_processors()) return -1;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const bool ours = std::getenv(variable) == nullptr;
  if (ours) setenv(variable, "/nonexistent", 1);
  const int result = hwloc_topology_init(out_topology);
  if (ours) unsetenv(variable);
  return result;
}

}  // namespace anyaccel
