// Prompts from files: what is no text is refused with its reason.
#pragma once

#include <string>

namespace anyaccel::cli {

// What --prompt-file names: a file, a pipe that somebody writes to, or standard input ("-"). Throws Error that says why for
// a folder, a file that cannot be read, a pipe without a writer (which would be waited for without end), an empty file, more
// than 256 MiB, and bytes that are not UTF-8.
std::string read_prompt_file(const std::string& file);

// UsageError when the text of `option` is not UTF-8.
void check_prompt_text(const std::string& text, const std::string& option);

}  // namespace anyaccel::cli
