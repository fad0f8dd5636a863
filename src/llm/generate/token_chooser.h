// Chooses tokens from logits on the host, one sequence at a time, as a session does on the device; and decides whether a
// token that was drafted is taken, so that the tokens follow the model's distribution all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "anyaccel/llm/session.h"
#include "anyaccel/llm/token_rules.h"
#include "llm/generate/logit_bias.h"

namespace anyaccel::llm {

// Returns the probabilities that the settings leave to the tokens: all of it to the most likely one at temperature 0.
std::vector<double> token_probabilities(std::vector<float> scores, const Sampling& sampling);

class TokenChooser {
 public:
  TokenChooser(const Sampling& sampling, const TokenRules& rules, int64_t vocabulary);

  size_t vocabulary() const { return bias_.size(); }
  void start(const std::vector<int32_t>& prompt, uint64_t seed);

  // A token that another model, or a guess, has proposed, and the probabilities that it was drawn from (of the first
  // so many ids; empty: it was certain).
  struct Draft {
    int32_t token = 0;
    std::span<const double> probabilities;
  };
  struct Choice {
    int32_t token = 0;
    bool accepted = false;  // the draft was taken
  };
  // Chooses the next token, whose probability is that of the model whatever the draft is: the draft is taken with
  // probability min(1, p / q), else a token is drawn from what p has over q (Leviathan et al. 2023, algorithm 1). At
  // temperature 0 it is the most likely one, of equal ones that with the lowest id. NumericalError if no logit is a
  // finite maximum.
  Choice choose(std::span<const float> logits, const std::optional<Draft>& draft);
  // Applies rules and penalties to the scores of the next token.
  void adjust(std::span<float> scores);
  // Records the next token of the sequence.
  void push(int32_t token);
  // Draws an index by its weight.
  int32_t draw(std::span<const double> weights);

 private:
  std::vector<float> scores(std::span<const float> logits);
  double uniform();  // in [0, 1)

  Sampling sampling_;
  std::optional<LogitBias> rules_;
  std::vector<float> bias_;
  std::vector<bool> seen_;
  std::vector<int32_t> counts_;     // of the answer
  std::optional<int32_t> pending_;  // the newest token, which the rules have yet to read
  std::mt19937_64 random_;
};

}  // namespace anyaccel::llm
