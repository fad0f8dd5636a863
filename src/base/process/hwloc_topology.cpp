// Initializes hwloc without its plugins and messages.
#include "base/process/hwloc_topology.h"

extern "C" {  // which the header lacks
#include <hwloc/plugins.h>
}

#include <cstdlib>
#include <mutex>

#include "base/process/processors.h"

namespace anyaccel {
namespace {

// Sets a variable of the environment that has no value, until the end of its scope.
class DefaultVariable {
 public:
  DefaultVariable(const char* name, const char* value) : name_(std::getenv(name) == nullptr ? name : nullptr) {
    if (name_ != nullptr) setenv(name_, value, 1);
  }
  ~DefaultVariable() {
    if (name_ != nullptr) unsetenv(name_);
  }
  DefaultVariable(const DefaultVariable&) = delete;
  DefaultVariable& operator=(const DefaultVariable&) = delete;

 private:
  const char* name_;
};

}  // namespace

int init_hwloc_topology(hwloc_topology_t* out_topology) {
  // hwloc tries again forever where the system refuses this call.
  if (!knows_allowed_processors()) return -1;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const DefaultVariable plugins("HWLOC_PLUGINS_PATH", "/nonexistent");
  const DefaultVariable messages("HWLOC_HIDE_ERRORS", "2");
  hwloc_hide_errors();  // which reads the variable once
  return hwloc_topology_init(out_topology);
}

}  // namespace anyaccel
