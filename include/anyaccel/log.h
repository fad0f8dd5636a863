// The log of the process: one line per message on standard error, "anyaccel: warning: ...".
//
// ANYACCEL_LOG=debug|info|warning|error|off chooses the lowest level that is written (default warning); it is read when
// the level is first needed, unless set_log_level() came before. All functions may be called from any thread and never
// throw; a message is written by one system call, so that lines of several threads and processes do not mix.
#pragma once

#include <string_view>

namespace anyaccel {

enum class LogLevel { debug = 0, info = 1, warning = 2, error = 3, off = 4 };

// Returns the lowest level that is written.
LogLevel log_level() noexcept;
// Changes it for the process; for programs with their own option, and tests.
void set_log_level(LogLevel level) noexcept;
// True when a message of this level would be written: check this before building an expensive one.
inline bool log_enabled(LogLevel level) noexcept { return level >= log_level(); }

// Writes a message if its level is enabled. Further lines of a longer message are indented; LogLevel::off writes
// nothing.
void log(LogLevel level, std::string_view message) noexcept;

inline void log_debug(std::string_view message) noexcept { log(LogLevel::debug, message); }
inline void log_info(std::string_view message) noexcept { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) noexcept { log(LogLevel::warning, message); }
inline void log_error(std::string_view message) noexcept { log(LogLevel::error, message); }

}  // namespace anyaccel
