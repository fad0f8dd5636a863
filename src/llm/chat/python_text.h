// Declares Python's string functions where they differ from the obvious C++ ones: they count code points, and know
// Unicode's white space and letters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm::jinja {

bool is_space(char32_t c) noexcept;      // str.isspace()
bool is_printable(char32_t c) noexcept;  // str.isprintable()
bool is_alpha(char32_t c) noexcept;      // str.isalpha()
bool is_digit(char32_t c) noexcept;      // str.isdigit() of decimal digits

// Returns the number of code points in valid UTF-8.
size_t code_points(std::string_view text) noexcept;
// Returns the byte offset at which code point `index` begins; the size of the text if the index is beyond the end.
size_t byte_offset(std::string_view text, size_t index) noexcept;

// Removes white space, or the characters in `characters`, at the chosen ends.
enum class Ends { Both, Left, Right };
std::string_view strip(std::string_view text, Ends ends = Ends::Both);
std::string_view strip(std::string_view text, Ends ends, std::string_view characters);

// str.upper(), str.lower(), str.title(), str.capitalize(). Throw TemplateError for a character whose upper case is more
// than one character, except for the German sharp s.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

// str.split() with a separator; at most `limit` splits (< 0: all), from the right if `from_right`.
std::vector<std::string_view> split(std::string_view text, std::string_view separator, int64_t limit, bool from_right);
// str.split() at white space, without empty parts.
std::vector<std::string_view> split_words(std::string_view text, int64_t limit, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// Replaces at most `limit` occurrences (< 0: all). An empty `from` is found between all characters.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit);

}  // namespace anyaccel::llm::jinja
