// Implements the log: level from ANYACCEL_LOG, lines to standard error.
#include "anyaccel/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace anyaccel {
namespace {

constexpr std::string_view names[] = {"debug", "info", "warning", "error", "off"};
constexpr int unread = -1;

std::atomic<int> current_level{unread};

void write_line(LogLevel level, std::string_view message) noexcept {
  try {
    std::string line = "anyaccel: ";
    line.append(names[static_cast<int>(level)]).append(": ");
    while (!message.empty() && (message.back() == '\n' || message.back() == '\r')) message.remove_suffix(1);
    for (const char c : message) {
      line += c;
      if (c == '\n') line += "  ";
    }
    line += '\n';
    // There is nowhere to report that the log cannot be written.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
    // Out of memory: the message is lost, the program continues.
  }
}

LogLevel read_level() noexcept {
  const char* text = std::getenv("ANYACCEL_LOG");
  const std::string_view value = text ? text : "";
  LogLevel level = LogLevel::warning;
  bool known = value.empty();
  for (int i = 0; i < 5; ++i) {
    if (value == names[i]) {
      level = static_cast<LogLevel>(i);
      known = true;
    }
  }
  int expected = unread;
  const bool first = current_level.compare_exchange_strong(expected, static_cast<int>(level));
  if (!known && first) {
    try {
      write_line(LogLevel::warning, "ANYACCEL_LOG=" + std::string(value) +
                                        " is not one of debug, info, warning, error, off; using warning");
    } catch (...) {
      // As in write_line.
    }
  }
  return static_cast<LogLevel>(current_level.load());
}

}  // namespace

LogLevel log_level() noexcept {
  const int level = current_level.load(std::memory_order_relaxed);
  return level == unread ? read_level() : static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) noexcept { current_level.store(static_cast<int>(level)); }

void log(LogLevel level, std::string_view message) noexcept {
  if (level < LogLevel::debug || level >= LogLevel::off || !log_enabled(level)) return;
  write_line(level, message);
}

}  // namespace anyaccel
