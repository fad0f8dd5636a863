// Speculative decoding: several tokens are drafted by a small model or by looking for repetitions, and the model checks
// them in one step, which takes hardly longer than a step of one token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "anyaccel/llm/session.h"
#include "anyaccel/llm/text_generation.h"
#include "llm/generate/token_chooser.h"

namespace anyaccel::llm {

class SpeculativeDecoding {
 public:
  // `session` is the model's. Throws InvalidArgument for options out of range, NotImplementedError for models whose
  // frequencies depend on a sequence's length, or that are sharded.
  SpeculativeDecoding(Session& session, const GenerateOptions& options, const TokenRules& rules);

  // Receives each new token, the logits that it was chosen from and the number of tokens so far; returns whether the
  // answer goes on.
  using Receive = std::function<bool(int32_t token, std::span<const float> logits, int64_t length)>;
  // Answers a prompt in the session's sequence 0; prompt and answer have at most `length` tokens, for which the session
  // has room. Drafts end there too, so that the answer depends neither on the session's size nor on other prompts.
  void answer(const std::vector<int32_t>& prompt, uint64_t seed, int64_t length, const Receive& receive);

  int64_t steps() const { return steps_; }
  int64_t drafted() const { return drafted_; }
  int64_t accepted() const { return accepted_; }

 private:
  struct Drafts {
    std::vector<int32_t> tokens;
    std::vector<std::vector<double>> probabilities;  // of each; empty: the tokens are certain
  };
  Drafts draft(const std::vector<int32_t>& tokens, int64_t most);
  Drafts draft_by_model(const std::vector<int32_t>& tokens, int64_t most);
  Drafts draft_by_ngrams(const std::vector<int32_t>& tokens, int64_t most) const;
  // Runs tokens from position `first` on, and returns the logits after the last `rows` of them.
  static std::vector<float> run(Session& session, std::span<const int32_t> tokens, int64_t first, int64_t rows);

  Session& session_;
  Speculation settings_;
  Sampling sampling_;
  TokenChooser chooser_;
  TokenChooser draft_chooser_;
  std::unique_ptr<Session> draft_session_;
  size_t draft_run_ = 0;  // tokens of the sequence that draft_session_ has run
  int64_t steps_ = 0, drafted_ = 0, accepted_ = 0;
};

}  // namespace anyaccel::llm
