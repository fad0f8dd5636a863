// Restricts a row of scores to the tokens that may be drawn, on the host, for settings that the op "sample" does not
// have: locally typical sampling.
#pragma once

#include <span>

#include "anyaccel/llm/session.h"

namespace anyaccel::llm {

// Returns whether the scores have to be filtered on the host before a token is drawn from them.
bool needs_score_filter(const Sampling& sampling);

// Divides the scores by the temperature (over 0) and sets those of tokens that top_k, top_p, min_p and typical_p remove
// to -infinity, in this order, as transformers' processors do. A draw from the softmax of the result follows all of the
// settings. One token is always left. A row whose maximum is not finite stays as it is.
void filter_scores(std::span<float> scores, const Sampling& sampling);

}  // namespace anyaccel::llm
