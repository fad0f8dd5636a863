// Computes embeddings of texts from a model's last hidden states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model.h"

namespace anyaccel::llm {

enum class Pooling {
  Mean,  // the mean over all tokens
  Last,  // the last token, which has seen all others
};

// Returns the last hidden state (after the final norm, before the output matrix: transformers' last_hidden_state),
// pooled over the tokens: hidden_size numbers. `ids` is a text with the special tokens that the model expects;
// `adapter` is a name of Model::adapters(), or empty for none. Blocks. Throws InvalidArgument for no ids, ids or an
// adapter that the model does not have, or more ids than the model's limit; NumericalError if a state is NaN or
// infinite. Ranks that share a model make the same call, and all get the result.
std::vector<float> embed(const std::shared_ptr<const Model>& model, std::span<const int32_t> ids, Pooling pooling,
                         std::string_view adapter = {});

}  // namespace anyaccel::llm
