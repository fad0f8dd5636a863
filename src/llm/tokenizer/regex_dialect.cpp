// Translates Oniguruma's Ruby dialect, which tokenizer files use, to PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/tokenizer/regex.h"

namespace anyaccel::llm {
namespace {

// Word characters of Unicode regular expressions; PCRE2's own \w has fewer. Oniguruma's \w (but not [:word:]) also
// counts these numbers of Latin-1.
#define ANYACCEL_REGEX_DIALECT_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define ANYACCEL_WORD_ESCAPE ANYACCEL_REGEX_DIALECT_WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
constexpr std::string_view word_class = ANYACCEL_REGEX_DIALECT_WORD;
constexpr std::string_view word_escape = ANYACCEL_WORD_ESCAPE;
constexpr std::string_view word_border = "(?:(?<=[" ANYACCEL_WORD_ESCAPE "])(?![" ANYACCEL_WORD_ESCAPE
                                         "])|(?<![" ANYACCEL_WORD_ESCAPE "])(?=[" ANYACCEL_WORD_ESCAPE "]))";
constexpr std::string_view no_word_border = "(?:(?<=[" ANYACCEL_WORD_ESCAPE "])(?=[" ANYACCEL_WORD_ESCAPE
                                            "])|(?<![" ANYACCEL_WORD_ESCAPE "])(?![" ANYACCEL_WORD_ESCAPE "]))";

bool is_script(std::string_view name) {
  const std::string pattern = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        escape();
      } else if (depth_ > 0) {
        in_class();
      } else {
        outside();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument("the pattern " + quote_text(in_) + " has " + what + ", which is not supported");
  }
  bool next_is(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }
  void put_class(std::string_view content, bool negated) {
    out_ += depth_ > 0 ? std::string(content) : (negated ? "[^" : "[") + std::string(content) + "]";
    at_ += 2;
  }

  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 's' || c == 'S') {
      // PCRE2's own class also has U+180E, which is no longer white space.
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (c == 'w') {
      put_class(depth_ > 0 ? word_class : word_escape, false);
    } else if ((c == 'b' || c == 'B') && depth_ == 0) {
      out_ += c == 'b' ? word_border : no_word_border;
      at_ += 2;
    } else if (c == 'h') {
      put_class("0-9a-fA-F", false);
    } else if (c == 'W' || c == 'H') {
      if (depth_ > 0) refuse(std::string("\\") + c + " inside a set");
      put_class(c == 'W' ? word_escape : "0-9a-fA-F", true);
    } else if (c == 'p' || c == 'P') {
      property(c == 'P');
    } else if (c == 'u' && at_ + 6 <= in_.size()) {
      out_ += "\\x{" + std::string(in_.substr(at_ + 2, 4)) + "}";
      at_ += 6;
    } else {
      copy(2);
    }
  }

  // The name of a script alone means Script in Oniguruma, and Script_Extensions in PCRE2: a Chinese comma, which several
  // scripts use, would be a Han character.
  void property(bool negated) {
    const size_t end = in_.substr(at_, 3).ends_with('{') ? in_.find('}', at_) : std::string_view::npos;
    if (end == std::string_view::npos) return copy(2);
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (!is_script(name)) return copy(end + 1 - at_);
    out_ += (negated ? "\\P{sc:" : "\\p{sc:") + std::string(name) + "}";
    at_ = end + 1;
  }

  void outside() {
    if (next_is("[")) {
      depth_ = 1;
      copy(1);
      if (next_is("^")) copy(1);
      if (next_is("]")) copy(1);
    } else if (next_is("(?")) {
      copy(2);
      // In Ruby "m" lets the dot match line ends; PCRE2 calls that "s".
      while (at_ < in_.size() && (next_is("m") || next_is("i") || next_is("x") || next_is("-"))) {
        out_ += in_[at_] == 'm' ? 's' : in_[at_];
        ++at_;
      }
    } else {
      copy(1);
    }
  }

  // A set inside a set means their union, so its brackets are dropped.
  void in_class() {
    if (next_is("[:")) {
      named_class();
    } else if (next_is("[^")) {
      refuse("a negated set inside a set");
    } else if (next_is("[")) {
      ++depth_;
      ++at_;
    } else if (next_is("]")) {
      if (--depth_ == 0) out_ += ']';
      ++at_;
    } else if (next_is("&&")) {
      refuse("an intersection of sets");
    } else {
      copy(1);
    }
  }

  // Translates [:name:] with its meaning for Unicode in Oniguruma.
  void named_class() {
    constexpr std::pair<std::string_view, std::string_view> classes[] = {
        {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"alpha", "\\p{Alphabetic}"}, {"digit", "\\p{Nd}"},
        {"lower", "\\p{Lowercase}"},         {"punct", "\\p{P}\\p{S}"},    {"space", "\\p{White_Space}"},
        {"upper", "\\p{Uppercase}"},         {"word", word_class}};
    const size_t end = in_.find(":]", at_);
    if (end == std::string_view::npos) refuse("\"[:\" without \":]\"");
    const std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    for (const auto& [known, content] : classes) {
      if (name != known) continue;
      out_ += content;
      at_ = end + 2;
      return;
    }
    copy(end + 2 - at_);
  }

  std::string_view in_;
  size_t at_ = 0;
  size_t depth_ = 0;  // nesting of sets
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace anyaccel::llm
