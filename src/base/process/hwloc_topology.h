// Initializes hwloc without its plugins and messages.
#pragma once

#include <hwloc.h>

namespace anyaccel {

// Like hwloc_topology_init(), with two differences. It does not load the installed plugins, unless HWLOC_PLUGINS_PATH names a
// folder: distributions have plugins for OpenCL and GL, which open vendors' runtimes and start threads. And hwloc prints nothing on
// standard error (as it does where /sys is empty), unless HWLOC_HIDE_ERRORS is set. Changes the environment for a moment, because
// hwloc has no other setting for either.
int init_hwloc_topology(hwloc_topology_t* out_topology);

}  // namespace anyaccel
