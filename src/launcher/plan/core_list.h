// Lists of processors as people and the kernel write them: "0,2-4,6".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::launcher {

// Numbers and ranges, ascending and disjoint, separated by commas (blanks around them are allowed). InvalidArgument that
// quotes the part that is not such a thing, runs backwards, or overlaps with what stands before it.
std::vector<int> parse_core_list(std::string_view text);

// The shortest such text: {0, 2, 3, 4} is "0,2-4". Ascending numbers.
std::string format_core_list(const std::vector<int>& cores);

}  // namespace anyaccel::launcher
