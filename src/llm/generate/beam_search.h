// Beam search for one prompt, as transformers defines it (GenerationMixin._beam_search of version 5): which of several
// answers go on, with which tokens, and which are finished. The answers are kept here; beam_generation.h runs the model.
//
// A beam's score is the sum of the logarithms of its tokens' probabilities. Numbers are fp32, and sums that exclude a
// candidate add -1e9, as there, so that the order of equal and of excluded candidates is the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "anyaccel/llm/beam_settings.h"

namespace anyaccel::llm {

// A token that continues a beam, and the score of the beam with it.
struct BeamCandidate {
  int32_t beam = 0;
  int32_t token = 0;
  float score = 0;
};

// Collects the candidates with the highest scores; of equal ones, those that were added first.
class BestCandidates {
 public:
  explicit BestCandidates(size_t count) : count_(count) {}
  // Adds a token of a beam for each score of `log_probabilities`, plus `base`.
  void add(int32_t beam, std::span<const float> log_probabilities, float base);
  // Returns the candidates, the best first.
  std::vector<BeamCandidate> sorted() &&;

 private:
  struct Entry {
    BeamCandidate candidate;
    uint64_t order = 0;
  };
  static bool is_better(const Entry& a, const Entry& b);

  size_t count_;
  uint64_t order_ = 0;
  std::vector<Entry> heap_;  // the worst is the first
};

// Replaces logits by the logarithms of their probabilities.
void to_log_probabilities(std::span<float> logits);

class BeamSearch {
 public:
  // A finished or unfinished answer.
  struct Sequence {
    std::vector<int32_t> tokens;
    float score = 0;  // of a finished one: divided by its length to the power of the penalty
    bool finished = false;
  };
  // Returns whether an answer ends with its last token.
  using EndsAnswer = std::function<bool(std::span<const int32_t> tokens)>;

  // `max_tokens` is the number of tokens of an answer at which it ends in any case.
  BeamSearch(const BeamSettings& settings, size_t eos_tokens, int64_t max_tokens, EndsAnswer ends);

  // Returns the number of candidates that advance() expects: so many that as many as there are beams go on, if one of each
  // beam ends with each end-of-sequence token.
  size_t candidates() const { return candidates_; }
  // Returns the answers that go on, the best first: as many as beams. Before the first step all are empty, and only the
  // first one counts.
  const std::vector<Sequence>& running() const { return running_; }
  // For running()[i] after advance(): the beam before that step which it continues.
  std::span<const int32_t> parents() const { return parents_; }
  // Takes the best continuations of all running beams, and returns whether the search goes on. Not to be called once it does not.
  bool advance(std::span<const BeamCandidate> best);
  // Returns the finished answers, the best first.
  std::vector<Sequence> finished() const;

 private:
  bool all_finished() const;
  float penalty_of(int64_t length) const;
  void add_finished(std::span<const Sequence> continued, std::span<const bool> ended, size_t length);

  BeamSettings settings_;
  size_t candidates_;
  int64_t max_tokens_;
  EndsAnswer ends_;
  std::vector<Sequence> running_, finished_;
  std::vector<int32_t> parents_;
};

}  // namespace anyaccel::llm
