// Reads the processors and memory nodes that this process may use, with hwloc.
#include "launcher/plan/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "anyaccel/error.h"
#include "base/process/hwloc_topology.h"
#include "base/process/processors.h"
#include "launcher/plan/core_list.h"

namespace anyaccel::launcher {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Topology load() {
  if (!knows_allowed_processors()) {
    throw UnavailableError(
        "the system refuses the call sched_getaffinity, which tells the processors that ranks may use; a filter of "
        "system calls (seccomp) has to allow it");
  }
  hwloc_topology_t raw = nullptr;
  if (init_hwloc_topology(&raw) != 0) throw UnavailableError("hwloc cannot make a topology");
  Topology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (hwloc_topology_load(raw) != 0) {
    throw UnavailableError("hwloc cannot read this machine's topology: " + std::string(std::strerror(errno)) +
                           " (HWLOC_XMLFILE and HWLOC_SYNTHETIC, where set, must describe a machine)");
  }
  return topology;
}

std::vector<int> members(hwloc_const_bitmap_t set) {
  std::vector<int> numbers;
  if (!set) return numbers;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) numbers.push_back(i);
  return numbers;
}

// Returns the intersection of `from` and `with`; `with` is ascending.
std::vector<int> shared(const std::vector<int>& from, const std::vector<int>& with) {
  std::vector<int> result;
  for (const int number : from) {
    if (std::binary_search(with.begin(), with.end(), number)) result.push_back(number);
  }
  return result;
}

// Returns whether a node has no processors according to the kernel. hwloc gives such a node the processors of its
// package.
bool kernel_says_memory_only(int node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  std::string line;
  return file && (!std::getline(file, line) || line.find_first_not_of(" \t\n") == std::string::npos);
}

// For a description of another machine: a node is recognized as memory only by its kind, or by the processors that
// hwloc gives nodes without processors: those of the part of the machine that they belong to, which contain another
// node's or equal those of a node further above. (Equal to the node just above is a node split in two.)
bool looks_memory_only(const std::vector<hwloc_obj_t>& nodes, size_t i) {
  hwloc_obj_t node = nodes[i];
  if (hwloc_bitmap_iszero(node->cpuset)) return true;
  for (const char* kind : {"HBM", "MCDRAM", "CXL", "NVM", "GPUMemory"}) {
    if (node->subtype && std::strncmp(node->subtype, kind, std::strlen(kind)) == 0) return true;
  }
  for (size_t j = 0; j < nodes.size(); ++j) {
    if (j == i) continue;
    const bool equal = hwloc_bitmap_isequal(nodes[j]->cpuset, node->cpuset) != 0;
    if (equal ? j + 1 < i && !hwloc_bitmap_isequal(nodes[i - 1]->cpuset, node->cpuset)
              : hwloc_bitmap_isincluded(nodes[j]->cpuset, node->cpuset)) {
      return true;
    }
  }
  return false;
}

}  // namespace

Machine read_machine() {
  const Topology topology = load();
  Machine machine;
  machine.this_machine = hwloc_topology_is_thissystem(topology.get()) != 0;
  std::vector<int> usable = members(hwloc_topology_get_allowed_cpuset(topology.get()));
  usable = shared(usable, members(hwloc_topology_get_topology_cpuset(topology.get())));
  if (machine.this_machine) usable = shared(usable, allowed_processors());
  machine.present = members(hwloc_topology_get_complete_cpuset(topology.get()));
  machine.processors = usable;
  if (usable.empty()) throw UnavailableError("hwloc finds no processor that this process may use");

  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end(), [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int id = static_cast<int>(nodes[i]->os_index);
    const bool memory_only = machine.this_machine ? kernel_says_memory_only(id) : looks_memory_only(nodes, i);
    const std::vector<int> near = memory_only ? std::vector<int>() : members(nodes[i]->cpuset);
    const std::vector<int> allowed = shared(near, usable);
    // A node whose processors are all unavailable to this process is unusable, and does not count as memory-only
    // either.
    if (near.empty() || !allowed.empty()) machine.nodes.push_back({id, allowed});
  }

  const auto node_of = [&](int processor) {
    for (size_t i = 0; i < machine.nodes.size(); ++i) {
      const std::vector<int>& list = machine.nodes[i].processors;
      if (std::binary_search(list.begin(), list.end(), processor)) return i;
    }
    return machine.nodes.size();
  };
  std::vector<std::pair<size_t, Core>> cores;
  std::vector<int> placed;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) != nullptr;) {
    const std::vector<int> processors = shared(members(core->cpuset), usable);
    if (processors.empty()) continue;
    cores.push_back({node_of(processors.front()), {processors}});
    placed.insert(placed.end(), processors.begin(), processors.end());
  }
  std::sort(placed.begin(), placed.end());
  for (const int processor : usable) {  // if the kernel provides no information about cores
    if (!std::binary_search(placed.begin(), placed.end(), processor)) {
      cores.push_back({node_of(processor), {{processor}}});
    }
  }
  std::sort(cores.begin(), cores.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.processors.front() < b.second.processors.front();
  });
  for (auto& [node, core] : cores) machine.cores.push_back(std::move(core));
  if (machine.this_machine) machine.quota = processor_quota();
  return machine;
}

}  // namespace anyaccel::launcher
