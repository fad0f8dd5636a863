// Lines of text output that fit the terminal.
#pragma once

#include <cstddef>
#include <string_view>

namespace anyaccel::cli {

// Prints `label`, padded to `column` characters, and then `text`, broken at spaces where the line would be longer than the
// terminal is wide; further lines begin at `column`. COLUMNS takes the place of the terminal's width. Neither set nor a
// terminal, as in a pipe, the line is not broken, so that programs find it whole. Labels that are longer push the text on.
void print_entry(std::string_view label, size_t column, std::string_view text);

}  // namespace anyaccel::cli
