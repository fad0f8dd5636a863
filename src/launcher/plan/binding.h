// Assigns processors and memory to the ranks of a host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/topology.h"

namespace anyaccel::launcher {

// The memory policy of a rank (set_mempolicy).
struct MemoryPolicy {
  enum class Kind { Unchanged, Bind, Prefer };
  Kind kind = Kind::Unchanged;
  std::vector<int> nodes;  // exactly one for Prefer
};

struct Binding {
  std::vector<int> processors;  // the affinity mask, ascending; empty: unchanged
  int threads = 1;              // number of cores of the rank, used for OMP_NUM_THREADS
  MemoryPolicy memory;
};

// Divides cores among `ranks` processes: each gets the same number, in order; remaining cores stay idle.
//
// With an empty `list` the shares are whole cores, node by node, and every core includes all of its hardware threads. A
// list names processors by the kernel's numbers; exactly those are used, and each counts as a core. The memory of a
// rank whose processors all belong to one node is bound to that node, or to both halves of a node that was split in
// two. If there are as many memory-only nodes as nodes with processors (high-bandwidth memory in flat mode), ranks on
// the i-th node with processors prefer the i-th memory-only node. InvalidArgument for a bad list, a processor that is
// absent or may not be used, or fewer cores than ranks.
std::vector<Binding> bind_ranks(const Machine& machine, int ranks, std::string_view list);

// Plans without binding: every rank may run anywhere, and its number of threads is its share of the cores.
std::vector<Binding> share_threads(const Machine& machine, int ranks);

// "cores 0-3, memory bound to node 0"
std::string describe(const Binding& binding);

}  // namespace anyaccel::launcher
