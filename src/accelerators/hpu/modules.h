// Chooses the Gaudi modules of this machine that a process may use. Synapse gives a process one module, and reads no
// environment variable that selects it; the variables of Habana's frameworks are read here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anyaccel::hpu {

inline constexpr const char* visible_variable = "HABANA_VISIBLE_MODULES";
inline constexpr const char* module_variable = "HLS_MODULE_ID";
inline constexpr const char* rank_variable = "LOCAL_RANK";

// The values of the three variables; empty: not set.
struct ModuleChoice {
  std::string visible = {};     // numbers, separated by commas
  std::string module = {};      // the module to use, whatever the other variables say
  std::string local_rank = {};  // index among the visible modules
};
ModuleChoice choice_of_environment();

// Returns the modules to try, in order; the first that no other process has is used. `present`: the machine's modules,
// all of which are visible if no variable is set. Returns an empty list if none is left. Throws abi::Failure with
// AA_INVALID_ARGUMENT for a text that is not a number, or not a list of different numbers.
std::vector<uint32_t> choose_modules(const ModuleChoice& choice, const std::vector<uint32_t>& present);

}  // namespace anyaccel::hpu
