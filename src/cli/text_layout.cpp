// Breaks lines of text output at the terminal's width.
#include "cli/text_layout.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace anyaccel::cli {

size_t terminal_width(int descriptor) {
  constexpr long narrowest = 40;
  if (const char* columns = std::getenv("COLUMNS")) {
    const long asked = std::strtol(columns, nullptr, 10);
    if (asked >= narrowest) return static_cast<size_t>(asked);
  }
  winsize size{};
  if (!isatty(descriptor) || ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col >= narrowest ? size.ws_col : 0;
}

void print_entry(std::string_view label, size_t column, std::string_view text) {
  const size_t width = terminal_width(STDOUT_FILENO);  // 0: lines are not broken
  std::string line(label);
  line.resize(std::max(column, line.size() + 1), ' ');
  while (!text.empty()) {
    size_t take = text.size();
    if (width > 0 && line.size() + text.size() > width) {
      const size_t room = width > line.size() ? width - line.size() : 0;
      take = text.rfind(' ', room);
      if (take == std::string_view::npos || take == 0) take = text.find(' ');  // a word longer than the line
      if (take == std::string_view::npos) take = text.size();
    }
    line += text.substr(0, take);
    std::printf("%s\n", line.c_str());
    text.remove_prefix(take);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    line.assign(column, ' ');
    if (text.empty()) return;
  }
  std::printf("%s\n", line.c_str());
}

}  // namespace anyaccel::cli
