// Declares what the main() of a program with sub-commands calls.
#pragma once

#include <span>

namespace anyaccel::cli {

// A sub-command. `run` takes its own name in argv[0] and its options after it, and returns the exit code.
struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* summary;  // its line in the program's help
};

// Runs the sub-command that argv[1] names, or prints the help or the version, and returns the process's exit code: 2 for an
// unknown sub-command. Shuts the accelerators down at the end.
int command_main(std::span<const Command> commands, int argc, char** argv);

}  // namespace anyaccel::cli
