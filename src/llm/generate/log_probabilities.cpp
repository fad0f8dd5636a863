// Implements log_probabilities.h.
#include "llm/generate/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace anyaccel::llm {

namespace {

// Returns ln of the sum of exp(logit).
double log_sum(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

}  // namespace

double log_probability(std::span<const float> logits, int32_t token) {
  return static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum(logits);
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int32_t top) {
  const double total = log_sum(logits);
  const auto of = [&](int32_t id) { return static_cast<float>(logits[static_cast<size_t>(id)] - total); };
  TokenLogprobs result{of(token), {}};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min(static_cast<ptrdiff_t>(top), std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (ptrdiff_t i = 0; i < count; ++i) {
    result.top.push_back({ids[static_cast<size_t>(i)], of(ids[static_cast<size_t>(i)])});
  }
  return result;
}

}  // namespace anyaccel::llm
