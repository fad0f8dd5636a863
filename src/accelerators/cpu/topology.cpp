// Implements topology.h: the machine's NUMA nodes, read through hwloc at first use (reading takes milliseconds).
#include "accelerators/cpu/topology.h"

#include <hwloc.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "anyaccel/error.h"
#include "base/process/hwloc_topology.h"

namespace anyaccel::cpu {
namespace {

std::vector<NumaNode> read_nodes(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> objects;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    if (object->cpuset && !hwloc_bitmap_iszero(object->cpuset)) objects.push_back(object);
  }
  std::vector<NumaNode> nodes;
  for (size_t i = 0; i < objects.size(); ++i) {
    // hwloc gives memory without cores the cores of the part of the machine it belongs to: the set of another node, or
    // one that holds another node's.
    bool memory_only = false;
    for (size_t j = 0; j < objects.size(); ++j) {
      const bool equal = hwloc_bitmap_isequal(objects[j]->cpuset, objects[i]->cpuset);
      if (equal ? j < i : hwloc_bitmap_isincluded(objects[j]->cpuset, objects[i]->cpuset)) memory_only = true;
    }
    if (memory_only) continue;
    nodes.push_back({static_cast<int>(objects[i]->os_index), hwloc_bitmap_weight(objects[i]->cpuset),
                     static_cast<int64_t>(objects[i]->attr->numanode.local_memory)});
  }
  if (nodes.empty()) {
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    nodes.push_back({0, cores > 0 ? cores : 1, 0});
  }
  return nodes;
}

// Null: this machine.
std::vector<NumaNode> load_nodes(const char* xml_file) {
  hwloc_topology_t topology = nullptr;
  std::vector<NumaNode> nodes;
  if (init_hwloc_topology(&topology) == 0) {
    if (!xml_file || hwloc_topology_set_xml(topology, xml_file) == 0) {
      hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
      if (hwloc_topology_load(topology) == 0) nodes = read_nodes(topology);
    }
    hwloc_topology_destroy(topology);
  }
  if (nodes.empty() && xml_file) {
    throw InvalidArgument("\"" + std::string(xml_file) + "\" is not a topology that hwloc can read");
  }
  if (nodes.empty()) nodes.push_back({0, 1, 0});
  return nodes;
}

}  // namespace

const std::vector<NumaNode>& numa_nodes() {
  static const auto& nodes = *new std::vector<NumaNode>(load_nodes(nullptr));  // used until the process ends
  return nodes;
}

std::vector<NumaNode> numa_nodes_from_xml(const std::string& xml_file) { return load_nodes(xml_file.c_str()); }

int device_count() {
  if (const char* text = std::getenv("LOCAL_SIZE")) {
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && value > 0 && value <= 65535) return static_cast<int>(value);
  }
  return static_cast<int>(numa_nodes().size());
}

void bind_to_node(void* pointer, size_t bytes, int os_index) {
  if (numa_nodes().size() < 2) return;
  hwloc_topology_t topology = nullptr;
  if (init_hwloc_topology(&topology) != 0) return;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    hwloc_bitmap_set(nodes, static_cast<unsigned>(os_index));
    // A preference only: if the node is full, the pages are allocated elsewhere.
    hwloc_set_area_membind(topology, pointer, bytes, nodes, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
    hwloc_bitmap_free(nodes);
  }
  hwloc_topology_destroy(topology);
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "x86-64 processor";
}

}  // namespace anyaccel::cpu
