// Starts programs and reads what they print, for figures that need a fresh process.
#pragma once

#include <string>
#include <vector>

namespace anyaccel::cli::bench {

// Standard output of a program (standard error goes nowhere). Waits for its end. Throws Error when it cannot be started.
std::string output_of(const std::string& program, const std::vector<std::string>& arguments);

// The same for this very program.
std::string own_output(const std::vector<std::string>& arguments);

}  // namespace anyaccel::cli::bench
