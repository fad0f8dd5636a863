// Reads the kernel's text files: /proc, /sys and control groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// Returns the contents of a file; empty if it cannot be read.
std::string kernel_file(const std::string& path);

// Calls `each` with every line.
template <class Each>
void for_lines(std::string_view text, Each&& each) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The words of a line, which blanks and tabs part.
std::vector<std::string_view> split_line(std::string_view line);

// The number that a text begins with; nothing if it begins with none, or with a negative one.
std::optional<int64_t> leading_number(std::string_view text);

// The number behind a key at the beginning of a line.
std::optional<int64_t> number_of(std::string_view text, std::string_view key);

}  // namespace anyaccel
