// Computes natural logarithms of the probabilities that rows of logits give to tokens, on the host in double.
#pragma once

#include <cstdint>
#include <span>

#include "anyaccel/llm/text_generation.h"

namespace anyaccel::llm {

// Returns ln p of the token under these logits; a NaN if they have no finite maximum.
double log_probability(std::span<const float> logits, int32_t token);

// Returns ln p of the token and of the `top` most likely tokens; of equal ones those with the lower id come first.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t top);

}  // namespace anyaccel::llm
