// What an error shows of a compiler's output.
#pragma once

#include <string>

namespace anyaccel::ops {

// Returns the output unchanged if it has at most 60 lines, else 60 of them, from a few lines before the first that reports
// an error, and a line that says how many were left out and how to see them. ANYACCEL_LOG=debug writes the whole.
std::string shown_output(const std::string& output);

}  // namespace anyaccel::ops
