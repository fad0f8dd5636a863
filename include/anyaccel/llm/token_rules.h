// Rules about single tokens of an answer: they forbid tokens, force them, or make them more or less likely. They are
// those of transformers' GenerationConfig, with its names and in its order; docs/generation.md lists every field.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace anyaccel::llm {

class TokenGrammar;

struct SequenceBias {
  std::vector<int32_t> ids;  // at least one
  float bias = 0.0f;         // finite or -infinity

  friend bool operator==(const SequenceBias&, const SequenceBias&) = default;
};

// "So far" means the prompt and the answer.
struct TokenRules {
  // Added to the logit of the last id if the tokens so far end with the other ids. A later entry of the same ids
  // replaces an earlier one.
  std::vector<SequenceBias> sequence_bias;
  // Sequences whose last token is forbidden if the tokens so far end with the others. A sequence that is a single token
  // of eos_token_ids has no effect.
  std::vector<std::vector<int32_t>> bad_words_ids;
  // Forbids tokens that would repeat a sequence of this many tokens; 0: none.
  int64_t no_repeat_ngram_size = 0;
  // The tokens eos_token_ids are forbidden until there are this many tokens in total, or, if min_new_tokens is given, that
  // many in the answer.
  int64_t min_length = 0;
  std::optional<int64_t> min_new_tokens;
  // The second token of the text, if the prompt has one token.
  std::optional<int32_t> forced_bos_token_id;
  // The answer's last token, if its length is limited; of several the lowest.
  std::vector<int32_t> forced_eos_token_ids;
  // Tokens that are always forbidden, and tokens forbidden as an answer's first token (with forced_bos_token_id and a
  // prompt of one token, as the first one after the forced token). Ids that the model does not have have no effect here.
  std::vector<int32_t> suppress_tokens;
  std::vector<int32_t> begin_suppress_tokens;
  // Forbids tokens that no text of a grammar begins with, and the tokens eos_token_ids where the text may not end. Not
  // together with forced tokens. TextGenerator makes it of GenerateOptions::grammar.
  std::shared_ptr<const TokenGrammar> grammar;

  // Values that the rules above refer to.
  std::vector<int32_t> eos_token_ids;
  int64_t max_new_tokens = 0;
  int64_t max_length = 0;  // of prompt and answer together, if that is less; 0: no such limit

  // Returns whether there is any rule.
  bool empty() const;
  friend bool operator==(const TokenRules&, const TokenRules&) = default;
};

}  // namespace anyaccel::llm
