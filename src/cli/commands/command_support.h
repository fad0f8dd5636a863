// Declares shared code of the sub-commands, which parses options and reports errors.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "cli/command_line.h"

namespace anyaccel::cli {

// Reports wrong usage, with exit code 2. The message names the option, what was found and what was expected.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses options and, on success, runs `body`, whose result is the exit code. Prints "anyaccel: error: ..." for any
// exception; with --json also an object on standard output (only on rank 0 of a job): {"error": {"kind", "message"}}
// and the contents of a PartialResult. A standard output that cannot be written is an error too. `--help` prints the
// help and returns 0. Environment variables are checked first, but not for a command that only passes them on
// (`uses_variables` false).
int run_command(CommandLine& line, int argc, char** argv, const std::function<int()>& body, bool uses_variables = true);

// Writes buffered text. Returns `code`, or, where standard output cannot be written (a full disk, a closed descriptor), reports why
// and returns 1 instead of 0.
int check_standard_output(int code);

// Parses an option's text as a number within [low, high]. UsageError quotes any other text.
int64_t parse_integer(const std::string& option, const std::string& text, int64_t low, int64_t high);
// Parses a number from 0 to 2^64 - 1.
uint64_t parse_seed(const std::string& option, const std::string& text);
double parse_number(const std::string& option, const std::string& text, double low, double high);

// Throws UsageError in a job of several ranks, each of which would run `command` as a whole.
void require_one_process(const std::string& command);

// Returns whether standard error is a terminal.
bool stderr_is_terminal();

}  // namespace anyaccel::cli
