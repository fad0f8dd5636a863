// Runs a program to its end and collects its output. No shell is involved: arguments are passed as they are.
#pragma once

#include <string>
#include <vector>

namespace anyaccel {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal if it was killed by a signal; 127 if it could not be started
  std::string output;  // standard output and standard error together
  bool ok() const noexcept { return exit_code == 0; }
};

// Finds argv[0] in PATH. Standard input is empty, TMPDIR is temporary_place(). Blocks. Thread-safe. Never throws
// because of the program's behaviour.
ProcessResult run_program(const std::vector<std::string>& argv);

}  // namespace anyaccel
