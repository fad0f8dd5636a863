// Decodes UTF-8 according to the Unicode standard, table 3-7.
#include "base/text/utf8.h"

namespace anyaccel {

Utf8Step utf8_step(std::string_view text) noexcept {
  Utf8Step step;
  if (text.empty()) return step;
  const auto first = static_cast<unsigned char>(text[0]);
  step.length = 1;
  if (first < 0x80) {
    step.valid = true;
    step.code = first;
    return step;
  }
  size_t needed = 0;
  unsigned low = 0x80;  // bounds of the second byte: no overlong forms, no surrogates, nothing above U+10FFFF
  unsigned high = 0xBF;
  char32_t code = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    needed = 1;
    code = first & 0x1Fu;
  } else if (first >= 0xE0 && first <= 0xEF) {
    needed = 2;
    code = first & 0x0Fu;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    needed = 3;
    code = first & 0x07u;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return step;
  }
  for (size_t i = 1; i <= needed; ++i) {
    if (i >= text.size()) {
      step.incomplete = true;
      return step;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return step;
    low = 0x80;
    high = 0xBF;
    code = (code << 6) | (byte & 0x3Fu);
    step.length = i + 1;
  }
  step.valid = true;
  step.code = code;
  return step;
}

bool is_valid_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!step.valid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.valid ? text.substr(0, step.length) : replacement_character;
    text.remove_prefix(step.length);
  }
  return out;
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&text](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace anyaccel
