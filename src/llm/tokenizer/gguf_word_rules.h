// What the names of tokenizer.ggml.pre in GGUF files stand for: how a text is split into words before bytes are merged.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

// The steps that the tokenizer.json of the models that a name stands for has.
struct WordRule {
  std::array<std::string_view, 6> names;     // those after the last are empty
  std::array<std::string_view, 5> patterns;  // split one after the other; empty ones are none
  bool splits_as_gpt2 = false;               // after that
  bool takes_whole_words = false;            // a word that is in the vocabulary is not merged
  bool adds_bos = false;                     // unless tokenizer.ggml.add_bos_token says otherwise
  bool composes = false;                     // to Unicode's form NFC
};

// Null for a name that is not known.
const WordRule* find_word_rule(std::string_view name) noexcept;
// The rule with exactly these steps, whatever it says about a BOS; null if there is none.
const WordRule* find_word_rule(const std::vector<std::string>& patterns, bool splits_as_gpt2, bool takes_whole_words,
                               bool composes) noexcept;
std::string word_rule_names();  // with commas between

}  // namespace anyaccel::llm
