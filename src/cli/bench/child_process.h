// Starts programs and reads their output, for figures that need a new process.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::cli::bench {

// Returns a program's standard output (standard error is discarded). Waits for its end. Throws Error if it cannot be
// started.
std::string output_of(const std::string& program, const std::vector<std::string>& arguments);

// The same for this program.
std::string own_output(const std::vector<std::string>& arguments);

}  // namespace anyaccel::cli::bench
