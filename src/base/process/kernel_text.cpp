// Implements kernel_text.h.
#include "base/process/kernel_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

namespace anyaccel {

std::string kernel_file(const std::string& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char buffer[8192];
  for (ssize_t got = 0; (got = ::read(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  ::close(file);
  return text;
}

std::vector<std::string_view> split_line(std::string_view line) {
  std::vector<std::string_view> found;
  for (size_t begin = 0; (begin = line.find_first_not_of(" \t", begin)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    found.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return {};
  return value;
}

std::optional<int64_t> number_of(std::string_view text, std::string_view key) {
  std::optional<int64_t> found;
  for_lines(text, [&](std::string_view line) {
    const auto parts = split_line(line);
    if (!found && parts.size() > 1 && parts[0] == key) found = leading_number(parts[1]);
  });
  return found;
}

}  // namespace anyaccel
