// Parses and formats lists of processors in the kernel's syntax.
#include "launcher/plan/core_list.h"

#include <charconv>
#include <optional>

#include "anyaccel/error.h"
#include "base/text/text.h"

namespace anyaccel::launcher {
namespace {

// Far above any machine's; keeps "0-4000000000" from filling the memory.
constexpr int max_core = 1 << 20;

// Digits only: no sign, no blank.
std::optional<int> parse_number(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value > max_core) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(std::string_view list, std::string_view part, const char* why) {
  throw InvalidArgument("the core list \"" + std::string(list) + "\": \"" + std::string(part) + "\" " + why);
}

}  // namespace

std::vector<int> parse_core_list(std::string_view text) {
  std::vector<int> cores;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    const size_t dash = part.find('-');
    const std::optional<int> first = parse_number(part.substr(0, dash));
    const std::optional<int> last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1));
    if (!first || !last) refuse(text, part, "is neither a number nor two numbers with a dash between");
    if (*last < *first) refuse(text, part, "runs backwards: a range's end is not below its start");
    if (!cores.empty() && *first <= cores.back()) {
      refuse(text, part, "overlaps with what stands before it, or is below it: the parts of a list go upwards");
    }
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

std::string format_core_list(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t j = i + 1;
    while (j < cores.size() && cores[j] == cores[j - 1] + 1) ++j;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[i]);
    if (j - i > 1) text += '-' + std::to_string(cores[j - 1]);
    i = j;
  }
  return text;
}

}  // namespace anyaccel::launcher
