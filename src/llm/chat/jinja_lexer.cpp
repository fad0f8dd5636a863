// Splits templates into tokens as jinja2/lexer.py does with trim_blocks and lstrip_blocks.
#include "llm/chat/jinja_lexer.h"

#include <algorithm>
#include <cstdint>

#include "base/text/utf8.h"
#include "llm/chat/jinja_value.h"
#include "llm/chat/python_text.h"

namespace anyaccel::llm::jinja {

namespace {

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_begin(c) || is_decimal(c); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(TokenKind::End, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw TemplateError("line " + std::to_string(line_) + ": " + message);
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  bool next_is(std::string_view text) const { return std::string_view(source_).substr(at_, text.size()) == text; }

  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const Utf8Step step = utf8_step(std::string_view(source_).substr(at_));
      if (!is_space(step.code)) return;
      advance(step.length);
    }
  }

  // Reads the text up to the next {{, {% or {#, and then that.
  void text() {
    size_t begin = std::string::npos;
    for (size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next != '{' && next != '%' && next != '#') continue;
      begin = at;
      break;
    }
    const std::string_view rest = std::string_view(source_).substr(at_);
    if (begin == std::string::npos) {
      add_text(rest);
      advance(rest.size());
      return;
    }
    std::string_view text = rest.substr(0, begin - at_);
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    const bool signed_begin = sign == '-' || sign == '+';
    if (sign == '-') {
      text = strip(text, Ends::Right);
    } else if (sign != '+' && kind != '{') {
      text = without_indentation(text);
    }
    add_text(text);
    advance(begin - at_ + 2 + (signed_begin ? 1 : 0));
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      add(TokenKind::OutputBegin, "{{");
      code("}}", TokenKind::OutputEnd);
    } else if (!raw()) {
      add(TokenKind::BlockBegin, "{%");
      code("%}", TokenKind::BlockEnd);
    }
    line_begins_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // lstrip_blocks: a block that is the first thing on its line removes the blanks before it.
  std::string_view without_indentation(std::string_view text) const {
    const size_t line_end = text.rfind('\n');
    const size_t begin = line_end == std::string_view::npos ? 0 : line_end + 1;
    if (begin == 0 && !line_begins_) return text;
    const std::string_view indentation = text.substr(begin);
    return strip(indentation).empty() ? text.substr(0, begin) : text;
  }

  void add_text(std::string_view text) {
    if (!text.empty()) add(TokenKind::Text, std::string(text));
  }

  // Called after the end of a block or comment: trim_blocks removes one line break, a minus sign all white space.
  void after_end(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && next_is("\n")) {
      advance(1);
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment begins with {# and does not end with #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_end(sign);
  }

  // Reads {% raw %} ... {% endraw %} and returns whether there was one. The caller has consumed "{%" and its sign.
  bool raw() {
    const size_t begin = at_;
    const int line = line_;
    skip_space();
    if (!next_is("raw")) return rewind(begin, line);
    advance(3);
    skip_space();
    const char sign = next_is("-") || next_is("+") ? source_[at_] : '\0';
    if (sign != '\0') advance(1);
    if (!next_is("%}")) return rewind(begin, line);
    advance(2);
    after_end(sign);
    line_begins_ = source_[at_ - 1] == '\n';
    for (size_t block = source_.find("{%", at_); block != std::string::npos; block = source_.find("{%", block + 2)) {
      size_t name = block + 2;
      const char begin_sign =
          name < source_.size() && (source_[name] == '-' || source_[name] == '+') ? source_[name] : '\0';
      if (begin_sign != '\0') ++name;
      const std::string_view tail = strip(std::string_view(source_).substr(name), Ends::Left);
      if (tail.substr(0, 6) != "endraw") continue;
      std::string_view close = strip(tail.substr(6), Ends::Left);
      const char end_sign = !close.empty() && (close[0] == '-' || close[0] == '+') ? close[0] : '\0';
      if (end_sign != '\0') close.remove_prefix(1);
      if (close.substr(0, 2) != "%}") continue;
      std::string_view text = std::string_view(source_).substr(at_, block - at_);
      if (begin_sign == '-') {
        text = strip(text, Ends::Right);
      } else if (begin_sign != '+') {
        text = without_indentation(text);
      }
      add_text(text);
      advance(source_.size() - close.size() + 2 - at_);
      after_end(end_sign);
      return true;
    }
    fail("{% raw %} has no {% endraw %}");
  }

  bool rewind(size_t begin, int line) {
    at_ = begin;
    line_ = line;
    return false;
  }

  // Reads the tokens up to `end`, which does not count inside brackets.
  void code(std::string_view end, TokenKind end_kind) {
    std::vector<char> brackets;
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) fail("a block does not end; expected " + std::string(end));
      if (brackets.empty()) {
        const bool with_sign = next_is("-") || (end_kind == TokenKind::BlockEnd && next_is("+"));
        if (std::string_view(source_).substr(at_ + (with_sign ? 1 : 0), 2) == end) {
          const char sign = with_sign ? source_[at_] : '\0';
          add(end_kind, std::string(end));
          advance(with_sign ? 3 : 2);
          if (end_kind == TokenKind::BlockEnd) {
            after_end(sign);
          } else if (sign == '-') {
            skip_space();
          }
          return;
        }
      }
      token(brackets);
    }
  }

  void token(std::vector<char>& brackets) {
    const char c = source_[at_];
    if (is_name_begin(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      add(TokenKind::Name, source_.substr(at_, end - at_));
      at_ = end;
    } else if (is_decimal(c)) {
      number();
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      operation(brackets);
    }
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_decimal(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() &&
                                                                   is_decimal(source_[end + 1])))) {
        ++end;
      }
    };
    digits();
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_decimal(source_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t mark = end++;
      if (end < source_.size() && (source_[end] == '+' || source_[end] == '-')) ++end;
      if (end < source_.size() && is_decimal(source_[end])) {
        real = true;
        digits();
      } else {
        end = mark;
      }
    }
    if (end < source_.size() && is_name_part(source_[end])) {
      fail("a number is followed by '" + source_.substr(end, 1) + "'; expected a decimal number");
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    add(real ? TokenKind::Float : TokenKind::Integer, std::move(text));
    at_ = end;
  }

  void string(char mark) {
    std::string value;
    size_t at = at_ + 1;
    for (;; ++at) {
      if (at >= source_.size()) fail("a string does not end");
      if (source_[at] == mark) break;
      if (source_[at] != '\\') {
        value += source_[at];
        continue;
      }
      if (++at >= source_.size()) fail("a string does not end");
      at = escape(at, value);
    }
    const size_t bytes = at + 1 - at_;
    add(TokenKind::String, std::move(value));
    advance(bytes);
  }

  // Reads the escape sequence of a Python string literal at `at`, after the backslash; returns the index of its last
  // byte.
  size_t escape(size_t at, std::string& value) {
    const char c = source_[at];
    constexpr std::string_view letters = "\\'\"abfnrtv";
    constexpr std::string_view meanings = "\\'\"\a\b\f\n\r\t\v";
    const size_t found = letters.find(c);
    if (found != std::string_view::npos) {
      value += meanings[found];
      return at;
    }
    if (c == '\n') return at;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t code = 0;
      for (size_t i = 1; i <= digits; ++i) {
        const char digit = at + i < source_.size() ? source_[at + i] : '\0';
        const int bits = is_decimal(digit)              ? digit - '0'
                         : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                         : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                        : -1;
        if (bits < 0)
          fail(std::string("the escape sequence \\") + c + " needs " + std::to_string(digits) + " hexadecimal digits");
        code = code * 16 + static_cast<uint32_t>(bits);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape sequence is not a Unicode character");
      append_utf8(value, code);
      return at + digits;
    }
    if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t i = 0;
      for (; i < 3 && at + i < source_.size() && source_[at + i] >= '0' && source_[at + i] <= '7'; ++i) {
        code = code * 8 + static_cast<uint32_t>(source_[at + i] - '0');
      }
      append_utf8(value, code);
      return at + i - 1;
    }
    if (c == 'N') fail("the escape sequence \\N{...} is not supported");
    value += '\\';
    value += c;
    return at;
  }

  void operation(std::vector<char>& brackets) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!next_is(two)) continue;
      add(TokenKind::Operator, std::string(two));
      at_ += 2;
      return;
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      fail("unexpected character '" + source_.substr(at_, utf8_length(c)) + "'");
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) fail(std::string("unexpected '") + c + "'");
      if (brackets.back() != c) fail(std::string("unexpected '") + c + "', expected '" + brackets.back() + "'");
      brackets.pop_back();
    }
    add(TokenKind::Operator, std::string(1, c));
    ++at_;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // the next text begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!is_valid_utf8(source)) throw TemplateError("the template is not UTF-8");
  // Line breaks become \n, and a last one is dropped.
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace anyaccel::llm::jinja
