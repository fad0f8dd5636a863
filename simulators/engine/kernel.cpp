// Implements the table of host-compiled kernels, and the loop over a grid.
#include "simulators/engine/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace sim {

void* ArgumentMemory::refuse(const char* address, std::size_t bytes) {
  if (bad_bytes == 0) {
    bad = address;
    bad_bytes = bytes;
  }
  alignas(16) static thread_local char scratch[64];
  std::memset(scratch, 0, sizeof scratch);
  return scratch;
}

LaunchState& launch_state() {
  [[gnu::tls_model("initial-exec")]] static thread_local LaunchState state;  // as `running` of fiber.cpp
  return state;
}

std::map<std::string, KernelInfo>& kernel_table() {
  static auto* table = new std::map<std::string, KernelInfo>;
  return *table;
}

// A kernel in a header belongs to several files and comes several times, always the same.
void KernelRegistration::add(const char* name, int group_size, int own_subgroup, const ParameterInfo* parameters,
                             std::size_t parameter_count, void (*kernel)(), WithItem with_item) {
  const KernelInfo info{name, group_size, own_subgroup, {parameters, parameters + parameter_count}, kernel, with_item};
  const auto [known, added] = kernel_table().emplace(info.name, info);
  if (added) return;
  const auto same = [](const ParameterInfo& a, const ParameterInfo& b) {
    return a.size == b.size && a.pointer == b.pointer;
  };
  const KernelInfo& other = known->second;
  if (other.group_size != info.group_size || !std::equal(info.parameters.begin(), info.parameters.end(),
                                                         other.parameters.begin(), other.parameters.end(), same)) {
    std::fprintf(stderr, "simulator: two different kernels are called %s\n", info.name.c_str());
    std::abort();
  }
}

namespace {

// Makes what GroupRunner calls out of what with_item gives.
template <typename Groups>
class Loop final : public ItemLoop {
 public:
  explicit Loop(const Groups& groups) : groups_(groups) {}
  void run(void (*item)(const void* arguments), const void* arguments) override {
    groups_([item, arguments] { item(arguments); });
  }

 private:
  const Groups& groups_;
};

}  // namespace

LaunchProblem run_kernel(const KernelInfo& kernel, const void* const* values, std::vector<ArgumentMemory>& memory,
                         const LaunchShape& shape) {
  static thread_local GroupRunner runner;
  const std::string who = "kernel " + kernel.name;
  GroupShape group;
  group.size = shape.group_size > 0 ? shape.group_size : kernel.group_size;
  group.subgroup = kernel.own_subgroup > 0 ? kernel.own_subgroup : shape.subgroup;
  group.backwards = shape.backwards;
  group.dynamic_local = shape.dynamic_local;
  group.static_limit = shape.static_limit;
  group.local_limit = shape.local_limit;
  group.overlaps_previous = shape.overlaps_previous;
  if (kernel.own_subgroup > 0) {
    if (group.size > kernel.group_size || group.size % kernel.own_subgroup != 0) {
      return {"kernel-state", who + ": launched in groups of " + std::to_string(group.size) +
                                  ", compiled for at most " + std::to_string(kernel.group_size) +
                                  " in whole sub-groups of " + std::to_string(kernel.own_subgroup)};
    }
  } else if (group.size != kernel.group_size) {
    return {"kernel-state", who + ": launched in groups of " + std::to_string(group.size) + ", compiled for " +
                                std::to_string(kernel.group_size)};
  }
  for (ArgumentMemory& m : memory) m.overlaps_previous = shape.overlaps_previous;
  LaunchProblem problem;
  ArgumentMemory null_memory;
  LaunchState& state = launch_state();
  const LaunchState outer = state;
  state.null_memory = &null_memory;
  std::int64_t count = 1;
  for (int d = 0; d < 3; ++d) {
    state.groups[d] = shape.groups[d];
    count *= shape.groups[d];
  }
  const auto all_groups = [&](const std::function<void()>& item) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t at = shape.backwards ? count - 1 - i : i;
      for (int d = 0; d < 3; ++d) {
        state.group[d] = at % state.groups[d];
        at /= state.groups[d];
      }
      const std::string what = runner.run(group, item);
      if (what.empty()) continue;
      problem = {runner.local_problem()       ? "local-memory"
                 : what.find("overlaps") == 3 ? "kernel-state"
                                              : "divergent-barrier",
                 who + ", group (" + std::to_string(state.group[0]) + ", " + std::to_string(state.group[1]) + ", " +
                     std::to_string(state.group[2]) + "): " + what};
      return;
    }
  };
  Loop loop(all_groups);
  kernel.with_item(kernel.kernel, values, memory.data(), loop);
  state = outer;
  if (!problem.kind.empty()) return problem;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const ArgumentMemory& m = memory[i];
    if (m.bad_bytes == 0) continue;
    const std::string where = m.pointer == nullptr
                                  ? "null pointer"
                                  : std::to_string(m.bad - m.begin) + " bytes from the start of an allocation of " +
                                        std::to_string(m.end - m.begin);
    return {"out-of-bounds", who + ", argument " + std::to_string(i) + ": access of " + std::to_string(m.bad_bytes) +
                                 " bytes at " + where};
  }
  if (null_memory.bad_bytes != 0) return {"out-of-bounds", who + ": access through a null pointer"};
  return {};
}

}  // namespace sim
