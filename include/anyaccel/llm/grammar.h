// Grammars that restrict a model's answer to a language: GBNF, the notation of llama.cpp, or the language of the JSON
// texts that a JSON Schema allows. docs/generation.md lists the supported parts of each.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace anyaccel::llm {

struct GrammarRules;
class GrammarStates;

// Never changed once made: any number of threads may use it at once.
class Grammar {
 public:
  // Reads GBNF text, whose rule "root" is the language. `source` names the text in errors: a path. Throws
  // InvalidArgument, with the line, for text that is not GBNF, a rule that is missing, occurs twice, begins with itself
  // or never ends, and for a grammar that is too large.
  static std::shared_ptr<const Grammar> parse_gbnf(std::string_view text, std::string_view source);
  // Reads a JSON Schema. Every text of the language is valid under the schema; the language leaves out some valid texts
  // (orders of properties, unlimited white space). Throws InvalidArgument, with the field, for a schema that is
  // damaged, allows nothing, or has a keyword that is not supported and would change the meaning.
  static std::shared_ptr<const Grammar> parse_json_schema(std::string_view text, std::string_view source);

  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // Returns whether the whole text belongs to the language. InvalidArgument if the grammar is so ambiguous that there
  // are too many ways to read the text.
  bool accepts(std::string_view text) const;
  const GrammarStates& states() const noexcept { return *states_; }

 private:
  explicit Grammar(const GrammarRules& rules);
  std::unique_ptr<const GrammarStates> states_;
};

}  // namespace anyaccel::llm
