// Runs one tuned kernel of kernels/cuda on the host, without any driver: every access is checked against the arrays it was
// given, items and blocks run in both orders, and both must leave the same bytes.
//
//   DeviceArray x(values), y(count * sizeof(float));
//   EXPECT_EQ(run_tuned("scale_bf16", {.grid = {blocks}, .block = 256}, {in(x), out(y), number(2.0f), none()}), "");
//   const std::vector<float> result = y.read<float>();
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nearly_normal.h"
#include "simulators/engine/kernel.h"

namespace anyaccel::testing {

// Random values of one seed.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  float normal() { return static_cast<float>(nearly_normal(engine_)); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[integer(0, static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937 engine_;
};

// Returns how many seeds a test runs: its usual number times ANYACCEL_TEST_SEEDS.
inline int seeds(int usual = 1) {
  const char* text = std::getenv("ANYACCEL_TEST_SEEDS");
  return usual * (text ? std::max(1, std::atoi(text)) : 1);
}

// Stands for an allocation of a device: bytes at an address aligned to 256.
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t bytes) : memory_(bytes / sizeof(Block) + 1), bytes_(bytes) {
    std::memset(data(), 0xA5, bytes);
  }
  template <typename T>
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size() * sizeof(T)) {
    if (!values.empty()) std::memcpy(data(), values.data(), bytes_);
  }
  char* data() { return memory_[0].bytes; }
  std::size_t bytes() const { return bytes_; }
  template <typename T>
  std::vector<T> read() {
    std::vector<T> values(bytes_ / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data(), values.size() * sizeof(T));
    return values;
  }

 private:
  struct alignas(256) Block {
    char bytes[256];
  };
  std::vector<Block> memory_;
  std::size_t bytes_;
};

struct KernelArgument {
  DeviceArray* array = nullptr;
  std::size_t offset = 0;   // bytes
  bool weights = false;     // no kernel writes it, so it may be read before the kernel before has ended
  std::vector<char> value;  // of an argument that is not a pointer
};
inline KernelArgument in(DeviceArray& array, std::size_t offset = 0) { return {&array, offset, false, {}}; }
inline KernelArgument out(DeviceArray& array, std::size_t offset = 0) { return {&array, offset, false, {}}; }
inline KernelArgument weights(DeviceArray& array, std::size_t offset = 0) { return {&array, offset, true, {}}; }
inline KernelArgument none() { return {}; }
// A number or a struct, exactly of the parameter's type.
template <typename T>
KernelArgument number(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const char* p = reinterpret_cast<const char*>(&value);
  return {nullptr, 0, false, {p, p + sizeof value}};
}

struct TunedShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  int block = 32;
  std::size_t shared_bytes = 0;  // dynamic
  bool overlaps_previous = false;
  bool same_in_any_order = true;  // what the kernel computes does not depend on the order of blocks and items
};

namespace detail {

inline std::string run_once(const sim::KernelInfo& kernel, const TunedShape& shape,
                            const std::vector<KernelArgument>& arguments, bool backwards) {
  std::vector<sim::ArgumentMemory> memory(arguments.size());
  std::vector<const void*> values(arguments.size());
  std::vector<char*> pointers(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const KernelArgument& a = arguments[i];
    values[i] = kernel.parameters[i].pointer ? static_cast<const void*>(&pointers[i]) : a.value.data();
    if (a.array == nullptr) continue;
    pointers[i] = a.array->data() + a.offset;
    memory[i].pointer = pointers[i];
    memory[i].begin = a.array->data();
    memory[i].end = a.array->data() + a.array->bytes();
  }
  sim::LaunchShape launch;
  for (int d = 0; d < 3; ++d) launch.groups[d] = shape.grid[static_cast<std::size_t>(d)];
  launch.group_size = shape.block;
  launch.backwards = backwards;
  launch.dynamic_local = shape.shared_bytes;
  launch.static_limit = sim::kTunedStaticLocalBytes;
  launch.local_limit = sim::kTunedLocalBytes;
  launch.overlaps_previous = shape.overlaps_previous;
  const sim::LaunchProblem problem = sim::run_kernel(kernel, values.data(), memory, launch);
  if (!problem.kind.empty()) return problem.kind + ": " + problem.message;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const std::string who = "early: kernel " + kernel.name + ", argument " + std::to_string(i);
    if (memory[i].early_write_begin != memory[i].early_write_end) return who + " is written before aa_grid_wait()";
    if (memory[i].early_read_begin != memory[i].early_read_end && !arguments[i].weights) {
      return who + " is read before aa_grid_wait()";
    }
  }
  return {};
}

}  // namespace detail

// Runs it on the arrays. Empty, or "kind: message" of what is wrong.
inline std::string run_tuned(const std::string& name, const TunedShape& shape,
                             const std::vector<KernelArgument>& arguments) {
  const auto found = sim::kernel_table().find(name);
  if (found == sim::kernel_table().end()) return "missing: no kernel " + name;
  const sim::KernelInfo& kernel = found->second;
  if (kernel.parameters.size() != arguments.size()) {
    return "arguments: kernel " + name + " has " + std::to_string(kernel.parameters.size()) + " parameters, not " +
           std::to_string(arguments.size());
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool pointer = arguments[i].value.empty();
    if (pointer != kernel.parameters[i].pointer ||
        (!pointer && arguments[i].value.size() != kernel.parameters[i].size)) {
      return "arguments: argument " + std::to_string(i) + " of kernel " + name + " should be " +
             (kernel.parameters[i].pointer ? "an array" : std::to_string(kernel.parameters[i].size) + " bytes") +
             ", not " + (pointer ? "an array" : std::to_string(arguments[i].value.size()) + " bytes");
    }
  }
  const auto all_bytes = [&] {
    std::vector<std::vector<char>> bytes;
    for (const KernelArgument& a : arguments) {
      bytes.push_back(a.array == nullptr ? std::vector<char>() : a.array->read<char>());
    }
    return bytes;
  };
  const std::vector<std::vector<char>> before = all_bytes();
  std::string problem = detail::run_once(kernel, shape, arguments, false);
  if (!problem.empty()) return problem;
  const std::vector<std::vector<char>> forwards = all_bytes();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!before[i].empty()) std::memcpy(arguments[i].array->data(), before[i].data(), before[i].size());
  }
  problem = detail::run_once(kernel, shape, arguments, true);
  if (!problem.empty()) return problem + " (backwards)";
  if (shape.same_in_any_order && all_bytes() != forwards) {
    return "order: kernel " + name + " gives other results when its items and blocks run backwards";
  }
  return {};
}

}  // namespace anyaccel::testing
