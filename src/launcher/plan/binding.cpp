// Assigns processors and memory to the ranks of a host.
#include "launcher/plan/binding.h"

#include <algorithm>

#include "anyaccel/error.h"
#include "launcher/plan/core_list.h"

namespace anyaccel::launcher {
namespace {

bool contains_all(const std::vector<int>& list, const std::vector<int>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](int number) { return std::binary_search(list.begin(), list.end(), number); });
}

MemoryPolicy memory_for(const Machine& machine, const std::vector<int>& processors) {
  std::vector<const MemoryNode*> with;
  std::vector<const MemoryNode*> without;
  for (const MemoryNode& node : machine.nodes) (node.processors.empty() ? without : with).push_back(&node);
  const bool flat = !without.empty() && with.size() == without.size();
  for (size_t i = 0; i < with.size(); ++i) {
    if (!contains_all(with[i]->processors, processors)) continue;
    if (flat) return {MemoryPolicy::Kind::Prefer, {without[i]->id}};
    MemoryPolicy policy{MemoryPolicy::Kind::Bind, {with[i]->id}};
    for (size_t j = i + 1; j < with.size() && with[j]->processors == with[i]->processors; ++j) {
      policy.nodes.push_back(with[j]->id);
    }
    return policy;
  }
  return {};
}

// Returns the processors of a list that the user gave.
std::vector<int> checked_list(const Machine& machine, std::string_view text) {
  std::vector<int> list = parse_core_list(text);
  for (const int processor : list) {
    if (contains_all(machine.processors, {processor})) continue;
    const bool there = contains_all(machine.present, {processor});
    throw InvalidArgument("the core list \"" + std::string(text) + "\" names core " + std::to_string(processor) +
                          (there ? ", which is offline or not allowed to this process" : ", which this machine lacks") +
                          "; it may use " + format_core_list(machine.processors));
  }
  return list;
}

}  // namespace

std::vector<Binding> bind_ranks(const Machine& machine, int ranks, std::string_view list) {
  std::vector<Core> cores = machine.cores;
  if (!list.empty()) {
    cores.clear();
    for (const int processor : checked_list(machine, list)) cores.push_back({{processor}});
  }
  const size_t share = cores.size() / static_cast<size_t>(ranks);
  if (share == 0) {
    throw InvalidArgument("each of " + std::to_string(ranks) + " ranks needs a core of its own, and there are " +
                          std::to_string(cores.size()) + (list.empty() ? "" : " in \"" + std::string(list) + "\"") +
                          "; ask for fewer ranks" + (list.empty() ? "" : ", a longer list,") +
                          " or leave out --bind_cores_to_rank");
  }
  std::vector<Binding> bindings;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    Binding binding;
    binding.threads = static_cast<int>(share);
    for (size_t i = rank * share; i < (rank + 1) * share; ++i) {
      binding.processors.insert(binding.processors.end(), cores[i].processors.begin(), cores[i].processors.end());
    }
    std::sort(binding.processors.begin(), binding.processors.end());
    binding.memory = memory_for(machine, binding.processors);
    bindings.push_back(std::move(binding));
  }
  return bindings;
}

std::vector<Binding> share_threads(const Machine& machine, int ranks) {
  Binding binding;
  binding.threads = std::max(1, static_cast<int>(machine.cores.size()) / ranks);
  return std::vector<Binding>(static_cast<size_t>(ranks), binding);
}

std::string describe(const Binding& binding) {
  if (binding.processors.empty()) return "cores unbound";
  std::string text = "cores " + format_core_list(binding.processors);
  std::string nodes;
  for (const int node : binding.memory.nodes) nodes += (nodes.empty() ? "" : ",") + std::to_string(node);
  switch (binding.memory.kind) {
    case MemoryPolicy::Kind::Unchanged: return text + ", memory anywhere";
    case MemoryPolicy::Kind::Bind: return text + ", memory bound to node " + nodes;
    case MemoryPolicy::Kind::Prefer: return text + ", memory preferred on node " + nodes;
  }
  return text;
}

}  // namespace anyaccel::launcher
