// Finds the rule that a name in tokenizer.ggml.pre of a GGUF file stands for: how a text is split into words before
// bytes are merged.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

// The steps in the tokenizer.json of the models that a name stands for.
struct WordRule {
  std::array<std::string_view, 7> names;     // the unused ones are empty
  std::array<std::string_view, 5> patterns;  // applied one after the other; the unused ones are empty
  bool splits_as_gpt2 = false;               // after the patterns
  bool takes_whole_words = false;            // a word in the vocabulary becomes one token without merging
  bool adds_bos = false;                     // unless tokenizer.ggml.add_bos_token says otherwise
  bool composes = false;                     // to Unicode's form NFC
};

// Returns null for an unknown name.
const WordRule* find_word_rule(std::string_view name) noexcept;
// Returns the rule with exactly these steps, whatever it says about a BOS; null if there is none.
const WordRule* find_word_rule(const std::vector<std::string>& patterns, bool splits_as_gpt2, bool takes_whole_words,
                               bool composes) noexcept;
std::string word_rule_names();  // separated by commas

}  // namespace anyaccel::llm
