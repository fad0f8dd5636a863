// Iterates over, checks and repairs UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anyaccel {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  size_t length = 0;  // bytes of the character, or of the broken sequence (1 to 3); 0 at the end
  bool valid = false;
  bool incomplete = false;  // invalid only because the text ends: more bytes could complete it
  char32_t code = 0xFFFD;
};

// Returns the character at the beginning of `text`. A broken sequence is the longest prefix that could begin a
// character, at least one byte: the part that Unicode (section 3.9) recommends to replace with one U+FFFD.
Utf8Step utf8_step(std::string_view text) noexcept;

bool is_valid_utf8(std::string_view text) noexcept;
// Replaces each broken sequence with one U+FFFD.
std::string repair_utf8(std::string_view text);
void append_utf8(std::string& text, char32_t code);
// Returns the length in bytes of the character that begins with this byte, in valid text.
inline size_t utf8_length(char first) noexcept {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace anyaccel
