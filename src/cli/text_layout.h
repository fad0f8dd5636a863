// Breaks lines of text output at the terminal's width.
#pragma once

#include <cstddef>
#include <string_view>

namespace anyaccel::cli {

// Returns the columns of the terminal behind a file descriptor, or COLUMNS if that is set; 0 if there is neither, or fewer
// than 40.
size_t terminal_width(int descriptor);

// Prints `label`, padded to `column` characters, and then `text`, broken at spaces where the line would be longer than
// the terminal is wide; further lines begin at `column`. COLUMNS overrides the terminal's width. Without COLUMNS and
// without a terminal, as in a pipe, the line is not broken, so that programs can parse it. Longer labels move the text
// to the right.
void print_entry(std::string_view label, size_t column, std::string_view text);

}  // namespace anyaccel::cli
