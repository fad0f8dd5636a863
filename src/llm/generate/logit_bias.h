// Computes the biases that the rules of anyaccel/llm/token_rules.h add to a sequence's logits before its next token is
// chosen: a row of numbers, in which -infinity forbids a token. The host tracks the tokens of each sequence and reports
// when its row changes, so that the device performs one addition and a captured step stays correct.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "anyaccel/llm/token_rules.h"
#include "llm/grammar/token_grammar.h"

namespace anyaccel::llm {

class LogitBias {
 public:
  // InvalidArgument for a bias that is a NaN or +infinity, a negative length, or an id out of the vocabulary's range
  // where the rule would otherwise have no effect.
  LogitBias(TokenRules rules, int64_t vocabulary);

  // Restarts sequences 0, 1, ... with these prompts.
  void start(std::span<const std::vector<int32_t>> prompts);
  // Records the next token of a sequence.
  void push(size_t sequence, int32_t token);
  // Returns the row for choosing the sequence's next token, valid until the next call; empty if it is the same as the
  // one returned last. InvalidArgument if the grammar allows no token that there is.
  std::span<const float> next_row(size_t sequence);

 private:
  struct Sequence {
    std::vector<int32_t> tokens;  // prompt and answer
    size_t prompt = 0;
    bool given = false;
    // The biases in the row returned last, without those in `always_`.
    std::vector<std::pair<int32_t, float>> changes;
    bool forced = false;
    TokenGrammar::Reading reading;  // of the answer
    uint64_t allowed = 0;           // the tokens that the grammar allowed in the row returned last
  };

  // Forbids what the grammar does not allow. InvalidArgument if it allows no token.
  void apply_grammar(const Sequence& sequence, const TokenGrammar::Allowed& allowed);
  std::vector<std::pair<int32_t, float>> changes_for(const Sequence& sequence) const;
  // Returns whether begin_suppress_tokens applies to the sequence's next token.
  bool begins_answer(const Sequence& sequence) const;
  // Returns the tokens of which one is forced; null if none is.
  const std::vector<int32_t>* forced_for(const Sequence& sequence) const;

  TokenRules rules_;
  std::vector<int32_t> forced_bos_;
  std::vector<float> always_;         // of every row: biases of single tokens, tokens that are never allowed
  std::vector<SequenceBias> longer_;  // of several tokens, bad words with -infinity
  std::vector<Sequence> sequences_;
  std::vector<float> row_;
};

}  // namespace anyaccel::llm
