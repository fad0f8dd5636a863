// Parsing and error reporting of the sub-commands; see command_support.h.
#include "cli/command_support.h"

#include <unistd.h>

#include <charconv>
#include <exception>
#include <iostream>
#include <limits>
#include <new>
#include <sstream>
#include <system_error>
#include <type_traits>

namespace anyaccel::cli {

namespace {

int report(const std::string& message, int code) {
  std::cout.flush();
  std::cerr << "anyaccel: error: " << message << '\n';
  return code;
}

template <class T>
T parse_within(const std::string& option, const std::string& text, T low, T high) {
  T value{};
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  // Written so that not-a-number is refused.
  if (result.ec == std::errc() && result.ptr == end && value >= low && value <= high) return value;
  std::ostringstream message;
  message << option << " is '" << text << "'; expected a " << (std::is_integral_v<T> ? "whole number" : "number")
          << " from " << low << " to " << high;
  throw UsageError(message.str());
}

}  // namespace

int run_command(CommandLine& line, int argc, char** argv, const std::function<int()>& body) {
  try {
    if (!line.parse(argc, argv)) return 0;
    const int code = body();
    std::cout.flush();
    if (!std::cout) return report("writing to standard output failed", 1);
    return code;
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return report("the host's memory is used up", 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}

int64_t parse_integer(const std::string& option, const std::string& text, int64_t low, int64_t high) {
  return parse_within(option, text, low, high);
}

uint64_t parse_seed(const std::string& option, const std::string& text) {
  return parse_within(option, text, uint64_t{0}, std::numeric_limits<uint64_t>::max());
}

double parse_number(const std::string& option, const std::string& text, double low, double high) {
  return parse_within(option, text, low, high);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace anyaccel::cli
