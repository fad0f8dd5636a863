// Initializes hwloc without its plugins.
#include "base/process/hwloc_topology.h"

#include <cstdlib>
#include <mutex>

namespace anyaccel {

int init_hwloc_topology(hwloc_topology_t* out_topology) {
  constexpr const char* variable = "HWLOC_PLUGINS_PATH";
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const bool ours = std::getenv(variable) == nullptr;
  if (ours) setenv(variable, "/nonexistent", 1);
  const int result = hwloc_topology_init(out_topology);
  if (ours) unsetenv(variable);
  return result;
}

}  // namespace anyaccel
