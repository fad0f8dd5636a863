// Counts what a language model must read for a token, and compute for a prompt, for the benchmarks of models.
#pragma once

#include "anyaccel/llm/model.h"

namespace anyaccel::cli::bench {

// Returns the bytes of weights that one token must read: all except an untied input embedding and learned positions, of
// which it reads one row, and of each layer's experts those that compute the token.
double weight_bytes_per_token(const llm::Model& model);

double cache_bytes_per_position(const llm::Model& model);

// Returns the multiplications and additions for a prompt of n tokens from position 0, with logits of the last token only.
double prefill_operations(const llm::Model& model, double n);

}  // namespace anyaccel::cli::bench
