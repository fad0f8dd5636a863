// Implements modules.h: chooses the Gaudi modules that a process may use.
#include "accelerators/hpu/modules.h"

#include <algorithm>
#include <charconv>

#include "accelerators/queue_runtime/library.h"
#include "anyaccel/abi/driver_class.hpp"

namespace anyaccel::hpu {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const char* expected) {
  throw abi::Failure(AA_INVALID_ARGUMENT, std::string(variable) + " is \"" + value + "\"; expected " + expected);
}

uint32_t number_of(std::string_view text, const char* variable, const std::string& value, const char* expected) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse(variable, value, expected);
  return number;
}

std::vector<uint32_t> visible_modules(const std::string& list) {
  constexpr const char* expected = "numbers of modules, each once, such as \"0,1\"";
  std::vector<uint32_t> modules;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const uint32_t module =
        number_of(std::string_view(list).substr(begin, end - begin), visible_variable, list, expected);
    if (std::find(modules.begin(), modules.end(), module) != modules.end()) refuse(visible_variable, list, expected);
    modules.push_back(module);
    begin = end + 1;
  }
  return modules;
}

}  // namespace

ModuleChoice choice_of_environment() {
  using queue_runtime::variable;
  return {variable(visible_variable), variable(module_variable), variable(rank_variable)};
}

std::vector<uint32_t> choose_modules(const ModuleChoice& choice, const std::vector<uint32_t>& present) {
  const auto is_absent = [&](uint32_t module) {
    return std::find(present.begin(), present.end(), module) == present.end();
  };
  if (!choice.module.empty()) {
    const uint32_t module = number_of(choice.module, module_variable, choice.module, "the number of a module");
    return is_absent(module) ? std::vector<uint32_t>() : std::vector<uint32_t>{module};
  }
  std::vector<uint32_t> modules = choice.visible.empty() ? present : visible_modules(choice.visible);
  if (!choice.local_rank.empty()) {
    const uint32_t rank = number_of(choice.local_rank, rank_variable, choice.local_rank, "a number from 0");
    if (rank >= modules.size()) return {};
    modules = {modules[rank]};
  }
  std::erase_if(modules, is_absent);
  return modules;
}

}  // namespace anyaccel::hpu
