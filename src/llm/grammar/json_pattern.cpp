// Builds expressions for the characters of JSON strings, and for those that match a regular expression.
#include <charconv>

#include "anyaccel/error.h"
#include "base/text/utf8.h"
#include "llm/grammar/json_text_rules.h"

namespace anyaccel::llm {

namespace {

using Ranges = std::vector<CharacterRange>;

// Returns those characters of both.
Ranges common(const Ranges& a, const Ranges& b) {
  Ranges left = other_characters(a);
  const Ranges right = other_characters(b);
  left.insert(left.end(), right.begin(), right.end());
  return other_characters(left);
}

const Ranges decimal_digits = {{'0', '9'}};
const Ranges word_characters = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
const Ranges white_space = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                            {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

Expression hex_digit() { return Expression::characters({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}); }

// Reads the regular expressions of ECMA 262 that describe regular languages, without assertions in the middle.
class PatternReader {
 public:
  PatternReader(std::string_view text, const Expression& any) : text_(text), any_(any) {}

  Expression read() {
    if (!is_valid_utf8(text_)) fail("it is not UTF-8");
    Expression body = read_choice(0);
    if (at_ < text_.size()) fail("a ) without its (");
    return body;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidArgument("the pattern cannot be used: at byte " + std::to_string(at_) + ": " + message);
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  // An alternative of the whole pattern that does not begin with ^ may match anywhere; likewise $ at its end.
  Expression read_choice(int depth) {
    if (depth > max_grammar_depth) fail("groups are nested too deeply");
    std::vector<Expression> ways;
    do {
      const bool begins = depth > 0 || take("^");
      std::vector<Expression> parts;
      if (!begins) parts.push_back(Expression::repeat(any_, 0, -1));
      bool ends = depth > 0;
      while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
        if (text_[at_] == '$' && depth == 0 && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
          ++at_;
          ends = true;
          break;
        }
        parts.push_back(read_repetition(read_atom(depth)));
      }
      if (!ends) parts.push_back(Expression::repeat(any_, 0, -1));
      ways.push_back(Expression::sequence(std::move(parts)));
    } while (take("|"));
    return Expression::choice(std::move(ways));
  }

  Expression read_atom(int depth) {
    if (take("(")) {
      if (take("?") && !take(":")) fail("only groups of the forms (...) and (?:...) are supported");
      Expression group = read_choice(depth + 1);
      if (!take(")")) fail("a group has no )");
      return group;
    }
    if (take(".")) return json_characters(other_characters({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
    if (take("[")) return read_class();
    const char c = text_[at_];
    if (c == '^' || c == '$') {
      fail("^ and $ are supported at the ends of the pattern and of its alternatives only");
    }
    if (c == '*' || c == '+' || c == '?') fail("a repetition without something to repeat");
    Ranges ranges;
    read_character(ranges, /*in_class=*/false);
    return json_characters(ranges);
  }

  Expression read_class() {
    const bool others = take("^");
    Ranges ranges;
    while (!take("]")) {
      if (at_ >= text_.size()) fail("a class has no ]");
      Ranges first;
      const bool one = read_character(first, /*in_class=*/true);
      if (one && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        Ranges last;
        if (!read_character(last, /*in_class=*/true)) fail("a range ends with a class");
        if (last[0].first < first[0].first) fail("a range ends before it begins");
        first[0].last = last[0].first;
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    return json_characters(others ? other_characters(ranges) : ranges);
  }

  // Adds a character or a class such as \d; returns whether it is one character.
  bool read_character(Ranges& ranges, bool in_class) {
    if (!take("\\")) {
      const Utf8Step step = utf8_step(text_.substr(at_));
      at_ += step.length;
      ranges.push_back({step.code, step.code});
      return true;
    }
    if (at_ >= text_.size()) fail("it ends with a backslash");
    const auto add_class = [&](const Ranges& added, bool others) {
      const Ranges all = others ? other_characters(added) : added;
      ranges.insert(ranges.end(), all.begin(), all.end());
      return false;
    };
    const auto add_one = [&](char32_t code) {
      ranges.push_back({code, code});
      return true;
    };
    const char c = text_[at_++];
    switch (c) {
      case 'd':
      case 'D': return add_class(decimal_digits, c == 'D');
      case 'w':
      case 'W': return add_class(word_characters, c == 'W');
      case 's':
      case 'S': return add_class(white_space, c == 'S');
      case 'n': return add_one('\n');
      case 'r': return add_one('\r');
      case 't': return add_one('\t');
      case 'f': return add_one('\f');
      case 'v': return add_one('\v');
      case 'x': return add_one(read_hex(2));
      case 'u': return add_one(read_hex(4));
      default: break;
    }
    constexpr std::string_view punctuation = "^$\\.*+?()[]{}|/-\"'#&,:;<=>@!%~` ";
    if (punctuation.find(c) != std::string_view::npos) return add_one(static_cast<char32_t>(c));
    --at_;
    fail(std::string(in_class ? "in a class, " : "") + "\\" + std::string(text_.substr(at_, utf8_length(c))) +
         " is not supported");
  }

  char32_t read_hex(size_t digits) {
    const std::string_view text = text_.substr(at_, digits);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (error != std::errc() || end != text.data() + digits) fail("expected hexadecimal digits");
    if (code >= 0xD800 && code <= 0xDFFF) fail("surrogates are not supported; write the character itself");
    at_ += digits;
    return code;
  }

  Expression read_repetition(Expression part) {
    const size_t before = at_;
    int64_t least = 0, most = -1;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      least = read_count();
      most = take(",") ? (text_.substr(at_).starts_with("}") ? -1 : read_count()) : least;
      if (!take("}")) fail("expected } at the end of a repetition");
      if (most >= 0 && most < least) fail("a repetition has a maximum below its minimum");
    } else {
      return part;
    }
    take("?");  // a lazy repetition matches the same texts
    if (at_ < text_.size() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos) {
      at_ = before;
      fail("a repetition of a repetition");
    }
    return Expression::repeat(std::move(part), least, most);
  }

  int64_t read_count() {
    const std::optional<int64_t> count = read_repetitions(text_, at_);
    if (!count) fail("expected a number from 0 to " + std::to_string(max_repetitions));
    return *count;
  }

  std::string_view text_;
  const Expression& any_;
  size_t at_ = 0;
};

}  // namespace

Expression json_characters(const std::vector<CharacterRange>& ranges) {
  std::vector<Expression> ways;
  const Ranges plain = common(ranges, {{0x20, '!'}, {'#', '['}, {']', last_character}});
  if (!plain.empty()) ways.push_back(Expression::characters(plain));
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  for (const CharacterRange& range : common(ranges, {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}})) {
    for (char32_t code = range.first; code <= range.last; ++code) {
      const size_t letter = escaped.find(static_cast<char>(code));
      constexpr char hex[] = "0123456789abcdef";
      ways.push_back(Expression::text(letter != std::string_view::npos
                                          ? std::string("\\") + letters[letter]
                                          : std::string("\\u00") + hex[code >> 4] + hex[code & 15]));
    }
  }
  // Without a way it is a class that no character matches.
  return ways.empty() ? Expression::characters({}) : Expression::choice(std::move(ways));
}

Expression any_json_character() {
  const Expression hex = hex_digit();
  const auto letters = [](std::initializer_list<CharacterRange> ranges) { return Expression::characters(ranges); };
  const Expression d = letters({{'d', 'd'}, {'D', 'D'}});
  const Expression plain_first = letters({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
  const Expression high = letters({{'8', '9'}, {'a', 'b'}, {'A', 'B'}});
  const Expression low = letters({{'c', 'f'}, {'C', 'F'}});
  const Expression u = Expression::text("\\u");
  return Expression::choice(
      {Expression::characters({{0x20, '!'}, {'#', '['}, {']', last_character}}),
       Expression::sequence(
           {Expression::text("\\"),
            letters(
                {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}})}),
       Expression::sequence({u, plain_first, hex, hex, hex}),
       Expression::sequence({u, d, letters({{'0', '7'}}), hex, hex}),
       Expression::sequence({u, d, high, hex, hex, u, d, low, hex, hex})});
}

Expression json_pattern(std::string_view pattern, const Expression& any) { return PatternReader(pattern, any).read(); }

}  // namespace anyaccel::llm
