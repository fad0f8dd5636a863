// Reads the processors and memory nodes that this process may use, with hwloc.
//
// hwloc's own variables HWLOC_XMLFILE and HWLOC_SYNTHETIC describe another machine, for --dry_run and tests.
#pragma once

#include <vector>

namespace anyaccel::launcher {

// A NUMA node by the kernel's number, which may have gaps.
struct MemoryNode {
  int id = 0;
  // Processors that are near it and may be used, ascending. None: memory only (high-bandwidth memory in flat mode,
  // CXL). Two consecutive nodes with the same processors: one node that the kernel was told to split ("fake NUMA").
  std::vector<int> processors;
};

// A core with those of its processors (hardware threads) that may be used, lowest first.
struct Core {
  std::vector<int> processors;
};

struct Machine {
  std::vector<MemoryNode> nodes;  // by number
  std::vector<Core> cores;        // node by node
  std::vector<int> processors;    // of all cores, ascending
  std::vector<int> present;       // including those that are offline, or outside this process's cpuset or affinity mask
  bool this_machine = true;       // false: from a file or a description
  double quota = 0;  // processors' worth of time that control groups allow this process (processors.h); 0: no limit
};

// Takes some milliseconds. UnavailableError when hwloc cannot read the topology.
Machine read_machine();

}  // namespace anyaccel::launcher
