// What the sub-commands share: how they parse their options and how they report errors.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "cli/command_line.h"

namespace anyaccel::cli {

// Wrong usage: exit code 2. The message names the option, what was found and what was expected.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses and, when that went well, runs `body`, whose result is the exit code. Prints "anyaccel: error: ..." for whatever is
// thrown; with --json also an object on standard output (on the first rank of a job alone), {"error": {"kind", "message"}} and
// what a PartialResult holds. A standard output that cannot be written is an error too. `--help` prints the help and gives 0.
// Environment variables are checked first, but not for a command that only passes them on (`uses_variables` false).
int run_command(CommandLine& line, int argc, char** argv, const std::function<int()>& body, bool uses_variables = true);

// The number that an option's text is, within [low, high]. UsageError that quotes any other text.
int64_t parse_integer(const std::string& option, const std::string& text, int64_t low, int64_t high);
// 0 to 2^64 - 1.
uint64_t parse_seed(const std::string& option, const std::string& text);
double parse_number(const std::string& option, const std::string& text, double low, double high);

// Whether standard error is a terminal.
bool stderr_is_terminal();

}  // namespace anyaccel::cli
