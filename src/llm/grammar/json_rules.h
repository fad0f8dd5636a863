// Rules for the values of JSON texts, from which the reader of schemas (json_schema.cpp) composes its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/grammar/grammar_rules.h"

namespace anyaccel::llm {

inline constexpr std::string_view json_type_names[] = {"null",   "boolean", "integer", "number",
                                                       "string", "array",   "object"};

// Returns a string with this inside.
Expression json_quoted(Expression inside);
// Returns the inside of keys without escapes that are none of `names`.
Expression json_other_keys(const std::vector<std::string>& names);

// One member of an object.
struct JsonPair {
  Expression key;  // with its quotes
  Expression value;
};
struct JsonProperty {
  JsonPair pair;
  bool required = false;
};

class JsonRules {
 public:
  // `source` names the file in errors.
  explicit JsonRules(std::string_view source) { rules_.source = source; }

  // Returns the index of a new rule. Throws InvalidArgument if there are too many.
  uint32_t add(std::string name, Expression body = {});
  // Sets what a rule stands for.
  void define(uint32_t rule, Expression body) { rules_.rules[rule].body = std::move(body); }
  // Returns all rules; the object is empty then.
  GrammarRules finish(uint32_t root);

  // One character of a string, in any of its forms.
  Expression character();
  Expression any_string();
  Expression any_value();
  // Any value of one of json_type_names.
  Expression any_of_type(std::string_view type);
  // An array whose first elements are `first`, of which `least` must be there, and whose others are `rest`. `most` is -1 if there
  // is no limit.
  Expression list(std::vector<Expression> first, const std::optional<Expression>& rest, int64_t least, int64_t most);
  // An object with the properties in this order, and behind them any number of `others`.
  Expression members(const std::vector<JsonProperty>& properties, const std::optional<JsonPair>& others);

 private:
  template <class Make>
  Expression common(const char* name, const Make& make);
  Expression space();

  GrammarRules rules_;
  std::map<std::string, uint32_t, std::less<>> common_;
};

}  // namespace anyaccel::llm
