// Which processors and which memory each rank of a host gets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/topology.h"

namespace anyaccel::launcher {

// What the kernel is told about a rank's memory (set_mempolicy).
struct MemoryPolicy {
  enum class Kind { Unchanged, Bind, Prefer };
  Kind kind = Kind::Unchanged;
  std::vector<int> nodes;  // one for Prefer
};

struct Binding {
  std::vector<int> processors;  // the affinity mask, ascending; empty: unchanged
  int threads = 1;              // cores of the rank: what OMP_NUM_THREADS follows
  MemoryPolicy memory;
};

// Shares cores among `ranks` processes: each gets the same number, in order; what is left over stays idle.
//
// With an empty `list` the shares are whole cores, node by node, and every core brings all of its hardware threads. A list
// names processors by the kernel's numbers; exactly those are used, and each counts as a core.
// A rank whose processors are all near one node gets that node's memory: bound to it; to both of two nodes that are one
// node split in two; where there are as many nodes of memory alone as nodes with processors (high-bandwidth memory in flat
// mode), the i-th of them is preferred by ranks on the i-th node with processors.
// InvalidArgument for a bad list, a processor that is absent or may not be used, or fewer cores than ranks.
std::vector<Binding> bind_ranks(const Machine& machine, int ranks, std::string_view list);

// Without binding: every rank may run everywhere, and gets its share of the cores as threads.
std::vector<Binding> share_threads(const Machine& machine, int ranks);

// "cores 0-3, memory bound to node 0"
std::string describe(const Binding& binding);

}  // namespace anyaccel::launcher
