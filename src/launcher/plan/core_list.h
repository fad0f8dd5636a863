// Parses and formats lists of processors in the kernel's syntax: "0,2-4,6".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// Numbers and ranges, ascending and disjoint, separated by commas (blanks around them are allowed). InvalidArgument
// quotes the part that is malformed, is a descending range, or overlaps with an earlier part.
std::vector<int> parse_core_list(std::string_view text);

// Returns the shortest such text: {0, 2, 3, 4} is "0,2-4". The numbers must be ascending.
std::string format_core_list(const std::vector<int>& cores);

}  // namespace anyaccel::launcher
