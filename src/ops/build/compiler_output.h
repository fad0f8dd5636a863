// What an error shows of a compiler's output.
#pragma once

#include <string>

namespace anyaccel::ops {

// Returns the output unchanged if it has at most 60 lines of at most 1,000 bytes. Else 60 of them, from a few lines before
// the first that reports an error, of which longer ones are cut, and a line that says how many are shown and how to see all.
// ANYACCEL_LOG=debug writes the whole.
std::string shown_output(const std::string& output);

}  // namespace anyaccel::ops
