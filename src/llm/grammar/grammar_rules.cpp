// Builds expressions, and computes with sets of characters.
#include "llm/grammar/grammar_rules.h"

#include <algorithm>
#include <charconv>

namespace anyaccel::llm {

std::vector<CharacterRange> merged_ranges(std::vector<CharacterRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CharacterRange& a, const CharacterRange& b) { return a.first < b.first; });
  std::vector<CharacterRange> merged;
  for (const CharacterRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<CharacterRange> other_characters(const std::vector<CharacterRange>& ranges) {
  std::vector<CharacterRange> others;
  char32_t next = 0;
  for (const CharacterRange& range : merged_ranges(ranges)) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= last_character) others.push_back({next, last_character});
  return others;
}

Expression Expression::text(std::string_view bytes) {
  Expression made;
  made.kind = Kind::Bytes;
  made.bytes = bytes;
  return made;
}

Expression Expression::characters(std::vector<CharacterRange> ranges) {
  Expression made;
  made.kind = Kind::Characters;
  made.ranges = merged_ranges(std::move(ranges));
  return made;
}

Expression Expression::reference(uint32_t rule) {
  Expression made;
  made.kind = Kind::Rule;
  made.rule = rule;
  return made;
}

Expression Expression::sequence(std::vector<Expression> parts) {
  Expression made;
  made.parts = std::move(parts);
  return made;
}

Expression Expression::choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression made;
  made.kind = Kind::Choice;
  made.parts = std::move(parts);
  return made;
}

Expression Expression::repeat(Expression part, int64_t least, int64_t most) {
  Expression made;
  made.kind = Kind::Repeat;
  made.parts.push_back(std::move(part));
  made.least = least;
  made.most = most;
  return made;
}

std::optional<int64_t> read_repetitions(std::string_view text, size_t& at) {
  int64_t count = 0;
  const char* const begin = text.data() + at;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), count);
  if (error != std::errc() || count < 0 || count > max_repetitions) return std::nullopt;
  at += static_cast<size_t>(end - begin);
  return count;
}

}  // namespace anyaccel::llm
