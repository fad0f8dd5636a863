// Which Gaudi modules of this machine a process may use. Synapse gives a process one module, and reads no variable about which;
// the variables of Habana's frameworks are read here.
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
  std::string module = {};      // the one to use, whatever the others say
  std::string local_rank = {};  // which of those that are visible
};
ModuleChoice choice_of_environment();

// The modules to try, in order; the first that no other process has is used. `present`: those of the machine, which are all
// visible where nothing is said. Empty: none is left. Throws abi::Failure, AA_INVALID_ARGUMENT, for a text that is no number or
// no list of different numbers.
std::vector<uint32_t> choose_modules(const ModuleChoice& choice, const std::vector<uint32_t>& present);

}  // namespace anyaccel::hpu
