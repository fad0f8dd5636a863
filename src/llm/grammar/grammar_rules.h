// The rules of a grammar as its readers (gbnf.cpp, json_schema.cpp) write them, in characters and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anyaccel::llm {

struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;
};

inline constexpr char32_t last_character = 0x10FFFF;

// Sorts the ranges and merges those that touch.
std::vector<CharacterRange> merged_ranges(std::vector<CharacterRange> ranges);
// Returns all characters that are in none of the ranges.
std::vector<CharacterRange> other_characters(const std::vector<CharacterRange>& ranges);

struct Expression {
  enum class Kind { Bytes, Characters, Rule, Sequence, Choice, Repeat };
  Kind kind = Kind::Sequence;  // without parts: the empty text
  std::string bytes;
  std::vector<CharacterRange> ranges;  // one character of any of them
  uint32_t rule = 0;                   // an index into GrammarRules::rules
  std::vector<Expression> parts;       // Repeat has one
  int64_t least = 0;                   // times, of Repeat
  int64_t most = -1;                   // -1: no limit

  static Expression text(std::string_view bytes);
  static Expression characters(std::vector<CharacterRange> ranges);
  static Expression reference(uint32_t rule);
  static Expression sequence(std::vector<Expression> parts);
  static Expression choice(std::vector<Expression> parts);
  static Expression repeat(Expression part, int64_t least, int64_t most);
};

struct GrammarRule {
  std::string name;
  Expression body;
};

struct GrammarRules {
  std::string source;  // names the file in errors
  std::vector<GrammarRule> rules;
  uint32_t root = 0;
};

GrammarRules read_gbnf(std::string_view text, std::string_view source);
GrammarRules read_json_schema(std::string_view text, std::string_view source);

// Readers refuse deeper nesting and more repetitions; GrammarStates refuses what grows too large nevertheless.
inline constexpr int max_grammar_depth = 100;
inline constexpr int64_t max_repetitions = 100'000;
// Reads the number of a repetition at `at`, which is then behind its digits. Nothing if there is no number from 0 to
// max_repetitions.
std::optional<int64_t> read_repetitions(std::string_view text, size_t& at);

}  // namespace anyaccel::llm
