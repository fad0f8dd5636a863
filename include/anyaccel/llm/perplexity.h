// Measures how well a model predicts a text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"

namespace anyaccel::llm {

struct PerplexityOptions {
  int64_t window = 0;  // tokens that the model sees at once; 0: the least of 2048, the model's limit and the text
  // Tokens from the beginning of a window to that of the next; 0: half a window. A smaller stride gives each token more
  // context, but takes more computation.
  int64_t stride = 0;
  CacheType cache = CacheType::Model;                         // of keys and values
  std::string adapter;                                        // a name of Model::adapters(); empty: none
  std::function<void(int64_t done, int64_t total)> progress;  // tokens; an exception it throws ends the work
};

struct Perplexity {
  double value = 0;       // exp(-mean of ln p), p being the probability that the model gives to a token
  double bits = 0;        // mean of -log2 p
  int64_t predicted = 0;  // number of tokens in the mean
  double mean_error = 0;  // standard error of the mean of -ln p, as if tokens were independent
};

// Runs the tokens in windows. Each token but the first is predicted once: in the first window in which it is not the
// first, from all tokens of the window before it. This is the definition of transformers' documentation ("Perplexity of
// fixed-length models"), with the mean over the tokens and not over windows. `ids`: at least 2, with a BOS if the model
// expects one. Blocks. Throws InvalidArgument for fewer ids, ids that the model does not have, a window of less than 2
// or above the model's limit, a stride that is not in 1 to window - 1, or an adapter that the model does not have;
// NumericalError if logits are NaN or infinite.
Perplexity perplexity(const std::shared_ptr<const Model>& model, std::span<const int32_t> ids,
                      const PerplexityOptions& options = {});

}  // namespace anyaccel::llm
