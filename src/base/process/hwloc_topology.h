// Initializes hwloc without its plugins.
#pragma once

#include <hwloc.h>

namespace anyaccel {

// Like hwloc_topology_init(), but does not load the installed plugins (distributions have plugins for OpenCL and GL,
// which open vendors' runtimes and start threads), unless HWLOC_PLUGINS_PATH names a folder. Changes the environment
// for a moment, because hwloc has no other setting for this.
int init_hwloc_topology(hwloc_topology_t* out_topology);

}  // namespace anyaccel
