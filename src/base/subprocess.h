// Runs a program to its end and keeps what it said. No shell is involved: arguments are passed as they are.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when it was killed by one; 127 when it could not be started
  std::string output;  // standard output and standard error together
  bool ok() const noexcept { return exit_code == 0; }
};

// Finds argv[0] in PATH. Standard input is empty, TMPDIR is temporary_place(). Blocks. Thread-safe. Never throws for what the program does.
ProcessResult run_program(const std::vector<std::string>& argv);

}  // namespace anyaccel
