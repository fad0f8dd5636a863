// Reads the parts of a SPIR-V module that a driver without a compiler can check: header, entry points, parameters,
// group sizes. Opcodes from the SPIR-V specification, unified 1.6, sections 2.3 and 3.42.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sim::level_zero {

struct SpirvKernel {
  std::string name;
  std::size_t parameters = 0;
  std::array<std::uint32_t, 3> group_size{};  // zeros: none required
};

struct SpirvModule {
  std::string problem;  // empty: the module could be read
  std::vector<SpirvKernel> kernels;
};

SpirvModule read_spirv(const std::uint8_t* bytes, std::size_t size);

}  // namespace sim::level_zero
