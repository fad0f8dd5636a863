// Reads GBNF, the notation of llama.cpp for grammars (grammars/README.md there): rules of literals, character classes,
// groups, alternatives and repetitions. Tokens (<...>) are refused.
#include <charconv>
#include <map>
#include <optional>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/grammar/grammar_rules.h"

namespace anyaccel::llm {

namespace {

class GbnfReader {
 public:
  GbnfReader(std::string_view text, std::string_view source) : text_(text) { rules_.source = source; }

  GrammarRules read() {
    if (!is_valid_utf8(text_)) throw InvalidArgument(rules_.source + ": it is not UTF-8; expected a grammar in GBNF");
    skip_space(/*lines=*/true);
    while (at_ < text_.size()) read_rule();
    for (const auto& [name, used] : names_) {
      if (used.defined) continue;
      line_ = used.line;
      fail("the rule " + quote_text(name) + " is used and not defined");
    }
    const auto root = names_.find("root");
    if (root == names_.end()) {
      throw InvalidArgument(rules_.source +
                            ": there is no rule \"root\"; expected root ::= ..., which is the whole text");
    }
    rules_.root = root->second.rule;
    return std::move(rules_);
  }

 private:
  struct Name {
    uint32_t rule = 0;
    int line = 0;
    bool defined = false;
  };

  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidArgument(rules_.source + ", line " + std::to_string(line_) + ": " + message);
  }
  // Returns a short form of what comes next, for messages.
  std::string found() const {
    if (at_ >= text_.size()) return "the end of the file";
    return text_[at_] == '\n' || text_[at_] == '\r' ? "the end of the line" : quote_text(text_.substr(at_, 12));
  }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }

  // Skips blanks and comments, and with `lines` the ends of lines too.
  void skip_space(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
        --at_;
      } else if (c == '\n' || c == '\r') {
        if (!lines) return;
        if (c == '\n') ++line_;
      } else if (c != ' ' && c != '\t') {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string read_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail("expected the name of a rule, found " + found());
    return std::string(text_.substr(begin, at_ - begin));
  }
  Name& named(const std::string& name) {
    const auto [at, added] = names_.try_emplace(name);
    if (added) {
      at->second = {static_cast<uint32_t>(rules_.rules.size()), line_, false};
      rules_.rules.push_back({name, {}});
    }
    return at->second;
  }

  void read_rule() {
    const std::string name = read_name();
    skip_space(/*lines=*/false);
    if (!take("::=")) fail("expected ::= behind the name " + quote_text(name) + ", found " + found());
    Name& entry = named(name);
    if (entry.defined) fail("the rule " + quote_text(name) + " is defined twice");
    entry.defined = true;
    const uint32_t rule = entry.rule;
    skip_space(/*lines=*/true);
    Expression body = read_choice(0);
    rules_.rules[rule].body = std::move(body);
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
      fail("expected the end of the rule " + quote_text(name) + ", found " + found());
    }
    skip_space(/*lines=*/true);
  }

  Expression read_choice(int depth) {
    if (depth > max_grammar_depth) {
      fail("groups are nested more than " + std::to_string(max_grammar_depth) + " deep");
    }
    std::vector<Expression> parts;
    for (;;) {
      parts.push_back(read_sequence(depth));
      // An alternative may begin on the next line.
      const size_t before = at_;
      const int line = line_;
      skip_space(/*lines=*/true);
      if (!take("|")) {
        at_ = before;
        line_ = line;
        return Expression::choice(std::move(parts));
      }
      skip_space(/*lines=*/true);
    }
  }

  Expression read_sequence(int depth) {
    std::vector<Expression> parts;
    for (;;) {
      skip_space(/*lines=*/depth > 0);
      std::optional<Expression> part = read_item(depth);
      if (!part) return parts.size() == 1 ? std::move(parts[0]) : Expression::sequence(std::move(parts));
      parts.push_back(read_repetition(std::move(*part)));
    }
  }

  // Returns nothing where a sequence ends.
  std::optional<Expression> read_item(int depth) {
    if (at_ >= text_.size()) return std::nullopt;
    const char c = text_[at_];
    if (take("\"")) return read_literal();
    if (take("[")) return read_class();
    if (take(".")) return Expression::characters({{0, last_character}});
    if (take("(")) {
      Expression group = read_choice(depth + 1);
      skip_space(/*lines=*/true);
      if (!take(")")) fail("expected ) at the end of a group, found " + found());
      return group;
    }
    if (c == '<' || next_is("!<")) {
      fail("tokens such as " + found() + " are not supported; write the token's text as a literal");
    }
    if (!is_name(c)) return std::nullopt;
    const size_t before = at_;
    const std::string name = read_name();
    // Inside a group, lines do not end rules, so a name may turn out to begin the next rule.
    const size_t after = at_;
    const int line = line_;
    skip_space(/*lines=*/false);
    if (next_is("::=")) {
      at_ = before;
      fail("expected ) or more of the group, found the rule " + quote_text(name));
    }
    at_ = after;
    line_ = line;
    return Expression::reference(named(name).rule);
  }

  Expression read_literal() {
    std::string bytes;
    while (!take("\"")) {
      if (at_ >= text_.size()) fail("a literal has no closing quote");
      append_utf8(bytes, read_character());
    }
    return Expression::text(bytes);
  }

  Expression read_class() {
    const bool others = take("^");
    std::vector<CharacterRange> ranges;
    while (!take("]")) {
      if (at_ >= text_.size()) fail("a class of characters has no closing bracket");
      CharacterRange range;
      range.first = range.last = read_character();
      if (next_is("-") && !next_is("-]")) {
        ++at_;
        if (at_ >= text_.size()) continue;
        range.last = read_character();
      }
      if (range.last < range.first) fail("a range of characters ends before it begins");
      ranges.push_back(range);
    }
    if (ranges.empty() && !others) fail("a class of characters is empty");
    return Expression::characters(others ? other_characters(ranges) : std::move(ranges));
  }

  char32_t read_character() {
    if (text_[at_] != '\\') {
      if (text_[at_] == '\n') ++line_;
      const Utf8Step step = utf8_step(text_.substr(at_));
      at_ += step.length;
      return step.code;
    }
    ++at_;
    if (at_ >= text_.size()) fail("a backslash ends the file");
    switch (const char c = text_[at_++]; c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return read_hex(2);
      case 'u': return read_hex(4);
      case 'U': return read_hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<char32_t>(c);
      default:
        --at_;
        fail("\\" + std::string(text_.substr(at_, utf8_length(c))) +
             R"( is not an escape; expected \n, \r, \t, \\, \", \[, \], \-, \^, \xHH, \uHHHH or \UHHHHHHHH)");
    }
  }

  char32_t read_hex(size_t digits) {
    const std::string_view text = text_.substr(at_, digits);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (error != std::errc() || end != text.data() + digits) {
      fail("expected " + std::to_string(digits) + " hexadecimal digits, found " + found());
    }
    at_ += digits;
    if (code > last_character || (code >= 0xD800 && code <= 0xDFFF)) fail("an escape is not a character of Unicode");
    return code;
  }

  Expression read_repetition(Expression part) {
    for (;;) {
      skip_space(/*lines=*/false);
      if (take("*")) {
        part = repeated(std::move(part), 0, -1);
      } else if (take("+")) {
        part = repeated(std::move(part), 1, -1);
      } else if (take("?")) {
        part = repeated(std::move(part), 0, 1);
      } else if (take("{")) {
        skip_space(false);
        const int64_t least = read_count();
        int64_t most = least;
        skip_space(false);
        if (take(",")) {
          skip_space(false);
          most = next_is("}") ? -1 : read_count();
          skip_space(false);
        }
        if (!take("}")) fail("expected } at the end of a repetition, found " + found());
        if (most >= 0 && most < least) fail("a repetition has a maximum below its minimum");
        part = repeated(std::move(part), least, most);
      } else {
        repetitions_ = 0;
        return part;
      }
    }
  }

  Expression repeated(Expression part, int64_t least, int64_t most) {
    if (++repetitions_ > max_grammar_depth) fail("too many repetitions behind one another");
    return Expression::repeat(std::move(part), least, most);
  }

  int64_t read_count() {
    const std::optional<int64_t> count = read_repetitions(text_, at_);
    if (!count) fail("expected a number from 0 to " + std::to_string(max_repetitions) + ", found " + found());
    return *count;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int repetitions_ = 0;
  GrammarRules rules_;
  std::map<std::string, Name> names_;
};

}  // namespace

GrammarRules read_gbnf(std::string_view text, std::string_view source) { return GbnfReader(text, source).read(); }

}  // namespace anyaccel::llm
