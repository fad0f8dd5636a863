// What a shell does: finds programs in PATH, splits a text into words, quotes words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// The file that PATH gives for a program's name (as it is when it holds a slash); empty when there is none that can be
// executed.
std::string find_program(const std::string& name);

// Splits as a POSIX shell does without expanding anything: blanks separate, '...' keeps what it encloses, "..." too except
// for a backslash before $ ` " \ and a line's end, a backslash keeps the next character. InvalidArgument that quotes a text
// whose quotation does not end; `what` names it ("--launcher_args").
std::vector<std::string> split_words(std::string_view text, std::string_view what);

// One word that a shell reads as `text`, whatever it holds; for a shell, or for a person to paste.
std::string quote_word(std::string_view text);
// All of them, with blanks between.
std::string quote_words(const std::vector<std::string>& words);

}  // namespace anyaccel
