// hwloc without its plugins.
#pragma once

#include <hwloc.h>

namespace anyaccel {

// As hwloc_topology_init(), but what is installed for hwloc to load (a distribution brings plugins for OpenCL and GL, which
// open vendors' runtimes and start threads) stays closed, unless HWLOC_PLUGINS_PATH names a folder. Changes the environment
// for a moment: hwloc asks nothing else.
int init_hwloc_topology(hwloc_topology_t* out_topology);

}  // namespace anyaccel
