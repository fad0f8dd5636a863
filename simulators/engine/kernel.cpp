// The table of host-compiled kernels, and the loop over a grid.
#include "simulators/engine/kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

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
  static thread_local LaunchState state;
  return state;
}

std::map<std::string, KernelInfo>& kernel_table() {
  static auto* table = new std::map<std::string, KernelInfo>;
  return *table;
}

// A kernel in a header belongs to several files and comes several times, always the same.
void KernelRegistration::add(KernelInfo info) {
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

LaunchProblem run_kernel(const KernelInfo& kernel, const void* const* values, std::vector<ArgumentMemory>& memory,
                         const std::uint32_t groups[3], int subgroup, bool backwards) {
  static thread_local GroupRunner runner;
  LaunchProblem problem;
  ArgumentMemory null_memory;
  LaunchState& state = launch_state();
  const LaunchState outer = state;
  state.null_memory = &null_memory;
  for (int d = 0; d < 3; ++d) state.groups[d] = groups[d];
  kernel.with_item(values, memory.data(), [&](const std::function<void()>& item) {
    for (std::int64_t z = 0; z < groups[2]; ++z) {
      for (std::int64_t y = 0; y < groups[1]; ++y) {
        for (std::int64_t x = 0; x < groups[0]; ++x) {
          state.group[0] = x;
          state.group[1] = y;
          state.group[2] = z;
          const std::string what = runner.run(kernel.group_size, subgroup, backwards, item);
          if (what.empty()) continue;
          problem = {runner.local_overflow() ? "local-memory" : "divergent-barrier",
                     "kernel " + kernel.name + ", group (" + std::to_string(x) + ", " + std::to_string(y) + ", " +
                         std::to_string(z) + "): " + what};
          return;
        }
      }
    }
  });
  state = outer;
  if (!problem.kind.empty()) return problem;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const ArgumentMemory& m = memory[i];
    if (m.bad_bytes == 0) continue;
    const std::string where = m.pointer == nullptr
                                  ? "null pointer"
                                  : std::to_string(m.bad - m.begin) + " bytes from the start of an allocation of " +
                                        std::to_string(m.end - m.begin);
    return {"out-of-bounds", "kernel " + kernel.name + ", argument " + std::to_string(i) + ": access of " +
                                 std::to_string(m.bad_bytes) + " bytes at " + where};
  }
  if (null_memory.bad_bytes != 0) return {"out-of-bounds", "kernel " + kernel.name + ": access through a null pointer"};
  return {};
}

}  // namespace sim
