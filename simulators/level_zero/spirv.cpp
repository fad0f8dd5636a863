// Walks the instructions of a SPIR-V module.
#include "simulators/level_zero/spirv.h"

#include <cstring>
#include <map>

namespace sim::level_zero {
namespace {

constexpr std::uint32_t kMagic = 0x07230203;
constexpr std::uint32_t kNewestVersion = 0x00010400;
enum Opcode : std::uint32_t { kEntryPoint = 15, kExecutionMode = 16, kTypeFunction = 33, kFunction = 54 };
constexpr std::uint32_t kModelKernel = 6, kModeLocalSize = 17;

}  // namespace

SpirvModule read_spirv(const std::uint8_t* bytes, std::size_t size) {
  SpirvModule module;
  std::vector<std::uint32_t> words(size / 4);
  if (size % 4 != 0 || words.size() < 5) {
    module.problem = "the module of " + std::to_string(size) + " bytes is not SPIR-V: words of 4 bytes, 5 at least";
    return module;
  }
  std::memcpy(words.data(), bytes, size);
  if (words[0] != kMagic) {
    module.problem = "the module does not begin with the magic number of SPIR-V";
    return module;
  }
  if (words[1] > kNewestVersion) {
    module.problem = "the module is of SPIR-V " + std::to_string(words[1] >> 16) + "." +
                     std::to_string((words[1] >> 8) & 0xff) + "; the device takes 1.4 at most";
    return module;
  }
  std::map<std::uint32_t, std::size_t> parameters_of_type;      // function type -> number of parameters
  std::map<std::uint32_t, std::uint32_t> type_of_function;      // function -> function type
  std::map<std::uint32_t, std::array<std::uint32_t, 3>> sizes;  // function -> group size
  std::vector<std::pair<std::uint32_t, std::string>> entries;
  for (std::size_t at = 5; at < words.size();) {
    const std::uint32_t count = words[at] >> 16, opcode = words[at] & 0xffff;
    if (count == 0 || at + count > words.size()) {
      module.problem = "the module ends within an instruction, at word " + std::to_string(at);
      return module;
    }
    const std::uint32_t* w = &words[at];
    if (opcode == kEntryPoint && count >= 4 && w[1] == kModelKernel) {
      const char* name = reinterpret_cast<const char*>(w + 3);
      entries.emplace_back(w[2], std::string(name, ::strnlen(name, (count - 3) * 4)));
    } else if (opcode == kExecutionMode && count >= 6 && w[2] == kModeLocalSize) {
      sizes[w[1]] = {w[3], w[4], w[5]};
    } else if (opcode == kTypeFunction && count >= 3) {
      parameters_of_type[w[1]] = count - 3;
    } else if (opcode == kFunction && count >= 5) {
      type_of_function[w[2]] = w[4];
    }
    at += count;
  }
  if (entries.empty()) module.problem = "the module has no kernel";
  for (const auto& [function, name] : entries) {
    module.kernels.push_back({name, parameters_of_type[type_of_function[function]], sizes[function]});
  }
  return module;
}

}  // namespace sim::level_zero
