// Reads prompts and other texts from files; files that are not text are rejected with a reason.
#pragma once

#include <string>

namespace anyaccel::cli {

// Reads a file, a pipe with a writer, or standard input ("-"). Throws Error, which names the `argument` that gave the path
// ("--prompt-file"), for a folder, a file that cannot be read, a pipe without a writer (reading it would block forever), an
// empty file, more than 256 MiB, and bytes that are not UTF-8.
std::string read_text_file(const std::string& path, const std::string& argument);

// UsageError if the text of `option` is not UTF-8.
void check_prompt_text(const std::string& text, const std::string& option);

}  // namespace anyaccel::cli
