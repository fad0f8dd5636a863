// Expressions for parts of JSON texts: characters of strings, strings that match a pattern, and numbers within bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/grammar/grammar_rules.h"

namespace anyaccel::llm {

// Returns one character of the ranges as it is written in a JSON string: control characters, quotes and backslashes are
// escaped, all others are not.
Expression json_characters(const std::vector<CharacterRange>& ranges);
// Returns one character in any of its forms, escapes of pairs of surrogates included.
Expression any_json_character();
// Returns the inside of JSON strings that contain a match of the regular expression (ECMA 262, as JSON Schema uses it).
// `any` is one character. InvalidArgument for a part that is not supported, with its offset.
Expression json_pattern(std::string_view pattern, const Expression& any);

// The bounds of a number; nothing where there is none.
struct NumberBounds {
  struct Bound {
    double value = 0;
    bool exclusive = false;
  };
  std::optional<Bound> low, high;
};
// Both throw InvalidArgument if no number is within the bounds.
Expression json_integer(const NumberBounds& bounds);
Expression json_number(const NumberBounds& bounds);

}  // namespace anyaccel::llm
