// Implements functions shared by the readers of tokenizer components, and GPT-2's byte alphabet.
#include "llm/tokenizer/components.h"

#include <array>

#include "anyaccel/error.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr size_t byte_count = 256;

bool is_printable_byte(size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteAlphabet {
  std::array<std::string, byte_count> text;
  std::array<int, 2 * byte_count> byte_of;

  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = byte_count;
    for (size_t byte = 0; byte < byte_count; ++byte) {
      const char32_t code = is_printable_byte(byte) ? static_cast<char32_t>(byte) : next++;
      append_utf8(text[byte], code);
      byte_of[code] = static_cast<int>(byte);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_text(unsigned char byte) noexcept { return alphabet().text[byte]; }

int byte_of_character(char32_t c) noexcept { return c < 2 * byte_count ? alphabet().byte_of[c] : -1; }

const std::string& component_type(const JsonRef& value) {
  if (!value.is_object()) value.fail("an object with a type");
  return value.at("type").string();
}

void check_text_size(std::string_view text) {
  constexpr size_t max_text_bytes = size_t{1} << 30;
  if (text.size() > max_text_bytes) {
    throw InvalidArgument("encode: the text has " + std::to_string(text.size()) + " bytes; expected at most " +
                          std::to_string(max_text_bytes));
  }
}

void refuse_component(const JsonRef& value, std::string_view kind, std::string_view supported) {
  value.error("the " + std::string(kind) + " " + quote_text(component_type(value)) +
              " is not supported; supported are " + std::string(supported));
}

TextPattern read_pattern(const JsonRef& value) {
  if (!value.is_object() || value.size() != 1) value.fail("an object with \"String\" or \"Regex\"");
  try {
    if (value.key(0) == "String") return TextPattern::literal(value.member(0).string());
    if (value.key(0) == "Regex") return TextPattern::regex(value.member(0).string());
  } catch (const InvalidArgument& error) {
    value.error(error.what());
  }
  value.fail("an object with \"String\" or \"Regex\"");
}

void check_growth(size_t from, size_t to) {
  constexpr size_t most_times = 64;
  constexpr size_t most_more = 1 << 20;
  if (to <= most_more || to - most_more <= from * most_times) return;
  throw CheckpointError("tokenizer: its steps make " + std::to_string(to) + " bytes of " + std::to_string(from) +
                        "; expected at most " + std::to_string(most_times) + " times as many");
}

std::string read_character(const JsonRef& value) {
  const std::string& text = value.string();
  if (text.empty() || utf8_step(text).length != text.size()) value.fail("a text of one character");
  return text;
}

}  // namespace anyaccel::llm
