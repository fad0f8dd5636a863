// Finds programs in PATH, splits a text into words, and quotes words, as a shell does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// Returns the file of a program found in PATH (a name with a slash is used unchanged); empty if there is no executable
// one.
std::string find_program(const std::string& name);

// Splits as a POSIX shell does without expanding anything: blanks separate, '...' keeps what it encloses, "..." too
// except for a backslash before $ ` " \ and a line's end, a backslash keeps the next character. InvalidArgument for an
// unterminated quotation; `what` names the text in the message ("--launcher_args").
std::vector<std::string> split_words(std::string_view text, std::string_view what);

// Quotes `text` as one shell word, whatever it contains; for a shell, or for users to paste.
std::string quote_word(std::string_view text);
// Quotes all of them, separated by blanks.
std::string quote_words(const std::vector<std::string>& words);

}  // namespace anyaccel
