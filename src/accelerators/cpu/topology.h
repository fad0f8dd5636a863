// The machine's NUMA nodes, read through hwloc at first use (reading takes milliseconds).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace anyaccel::cpu {

// A NUMA node with processor cores. Memory-only nodes (flat-mode HBM, CXL) are not listed; of several nodes that have
// the very same cores (fake NUMA) only the first is.
struct NumaNode {
  int os_index = 0;    // the kernel's number; may have gaps
  int cores = 0;       // processing units allowed to this process
  int64_t memory = 0;  // bytes
};

// At least one.
const std::vector<NumaNode>& numa_nodes();

// The same from a topology written by hwloc (`lstopo file.xml`), for tests with the topologies of other machines.
std::vector<NumaNode> numa_nodes_from_xml(const std::string& xml_file);

// Devices of the CPU accelerator: LOCAL_SIZE when it is a positive number, else the number of NUMA nodes with cores.
int device_count();

// Prefers `os_index` for pages of the range that are touched later. Nothing on a machine with one node.
void bind_to_node(void* pointer, size_t bytes, int os_index);

// "Intel(R) Xeon(R) Processor"; from /proc/cpuinfo.
std::string processor_name();

}  // namespace anyaccel::cpu
