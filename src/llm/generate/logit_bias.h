// What the rules of anyaccel/llm/token_rules.h add to a sequence's logits before its next token is chosen: a row of numbers, of
// which -infinity forbids a token. The host keeps the tokens of each sequence and says when its row changes, so that the device
// has one addition to make and a captured step stays right.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "anyaccel/llm/token_rules.h"

namespace anyaccel::llm {

class LogitBias {
 public:
  // InvalidArgument for a bias that is a NaN or +infinity, a negative length, or an id that the vocabulary lacks where a rule
  // would otherwise do nothing.
  LogitBias(TokenRules rules, int64_t vocabulary);

  // Sequences 0, 1, ... begin anew with these prompts.
  void start(std::span<const std::vector<int32_t>> prompts);
  // A sequence has got its next token.
  void push(size_t sequence, int32_t token);
  // The row that the sequence's next token is to be chosen with, valid until the next call; empty when it is the one that was
  // given last.
  std::span<const float> next_row(size_t sequence);

 private:
  struct Sequence {
    std::vector<int32_t> tokens;  // prompt and answer
    size_t prompt = 0;
    bool given = false;
    // What the row given last had beside `always_`.
    std::vector<std::pair<int32_t, float>> changes;
    bool forced = false;
  };

  std::vector<std::pair<int32_t, float>> changes_for(const Sequence& sequence) const;
  // Whether the sequence's next token is the one that begin_suppress_tokens speaks of.
  bool begins_answer(const Sequence& sequence) const;
  // The tokens of which one is forced; null: none is.
  const std::vector<int32_t>* forced_for(const Sequence& sequence) const;

  TokenRules rules_;
  std::vector<int32_t> forced_bos_;
  std::vector<float> always_;         // of every row: biases of single tokens, tokens that are never allowed
  std::vector<SequenceBias> longer_;  // of several tokens, bad words with -infinity
  std::vector<Sequence> sequences_;
  std::vector<float> row_;
};

}  // namespace anyaccel::llm
