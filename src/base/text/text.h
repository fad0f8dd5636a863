// Trims, splits and compares texts that people write, such as the values of environment variables.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// std::tolower() and std::toupper() follow the program's locale: with a Turkish one, I is not the capital of i.
constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// Removes blanks and tabs (and the carriage returns of files from other systems) at both ends.
constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

// Returns the items between commas, trimmed; empty items are left out.
inline std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = trimmed(text.substr(begin, end - begin));
    if (!item.empty()) items.emplace_back(item);
    begin = end + 1;
  }
  return items;
}

}  // namespace anyaccel
