// Implements compiler_output.h.
#include "ops/build/compiler_output.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "anyaccel/log.h"

namespace anyaccel::ops {
namespace {

constexpr size_t most_lines = 60;
constexpr size_t most_columns = 1000;  // templates of C++ make lines of a megabyte
constexpr size_t lines_before = 5;     // "In file included from"

bool has_any(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return line.find(word) != line.npos; });
}
// The second is for compilers that say it in another way: the word is also in names of files and of options.
bool reports_error(std::string_view line) { return has_any(line, {"error:", "undefined reference"}); }
bool may_report_error(std::string_view line) { return has_any(line, {"error", "Error", "ERROR"}); }

// The beginning of a line, without a part of a character of UTF-8.
std::string_view beginning_of(std::string_view line) {
  size_t end = std::min(line.size(), most_columns);
  while (end > 0 && end < line.size() && (static_cast<unsigned char>(line[end]) & 0xc0u) == 0x80) --end;
  return line.substr(0, end);
}

}  // namespace

std::string shown_output(const std::string& output) {
  std::vector<std::string_view> lines;
  bool is_wide = false;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    lines.push_back(std::string_view(output).substr(begin, end - begin));
    is_wide = is_wide || end - begin > most_columns;
    begin = end + 1;
  }
  if (lines.size() <= most_lines && !is_wide) return output;
  log_debug("the whole output of the compiler:\n" + output);

  size_t first = 0;
  if (lines.size() > most_lines) {
    auto error = std::ranges::find_if(lines, reports_error);
    if (error == lines.end()) error = std::ranges::find_if(lines, may_report_error);
    if (error != lines.end()) first = static_cast<size_t>(error - lines.begin());
    first = std::min(first - std::min(first, lines_before), lines.size() - most_lines);
  }
  std::string shown;
  for (size_t i = first; i < std::min(first + most_lines, lines.size()); ++i) {
    shown += std::string(beginning_of(lines[i])) + (lines[i].size() > most_columns ? " ...\n" : "\n");
  }
  return shown + "(" + std::to_string(std::min(most_lines, lines.size())) + " of " + std::to_string(lines.size()) +
         " lines, from line " + std::to_string(first + 1) + " on; with ANYACCEL_LOG=debug all of them are written)";
}

}  // namespace anyaccel::ops
