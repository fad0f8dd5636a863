// Settings of a beam search; docs/generation.md describes it.
#pragma once

#include <cstdint>

namespace anyaccel::llm {

// When a beam search ends, once as many answers are finished as there are beams; transformers' early_stopping.
enum class EarlyStopping {
  No,   // when the best unfinished answer, scored at its present length, is not better than the worst finished one
  Yes,  // at once
  // As No, but with a positive length penalty the unfinished answer is scored at the maximum length, so that no better
  // answer is missed.
  Never,
};

struct BeamSettings {
  int32_t beams = 1;  // answers that are followed at a time; a search needs 2 to max_beams
  // The score of a finished answer is the sum of the logarithms of its tokens' probabilities, divided by the number of
  // its tokens to this power; above 0 longer answers gain. -100 to 100.
  float length_penalty = 1.0f;
  EarlyStopping early_stopping = EarlyStopping::No;

  friend bool operator==(const BeamSettings&, const BeamSettings&) = default;
};
constexpr int32_t max_beams = 256;

}  // namespace anyaccel::llm
