// Chooses the experts of each token from the router's logits, and the order in which the experts' rows are computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {

// A token's choices are in the order of the experts' numbers; if there is a shared expert, it is every token's last
// choice. A row is one token in one expert. Rows are in the order of the experts, and of the tokens in each.
struct ExpertChoice {
  int64_t choices = 0;               // of each token: K
  std::vector<Slice> rows;           // of each expert, the shared one last
  std::vector<int32_t> row_tokens;   // the token of each row: T * K
  std::vector<int32_t> choice_rows;  // the row of each token's choices: [T, K]
  std::vector<float> weights;        // of the same: [T, K]
};

// `logits` is [T, E]; `shared` [T], or empty: the logits of the shared expert's weight; `bias` [E], or empty. If logits are not numbers, some
// experts are chosen, and their weights are no numbers either.
void choose_experts(const ExpertsConfig& config, std::span<const float> logits, std::span<const float> shared,
                    std::span<const float> bias, ExpertChoice& choice);

}  // namespace anyaccel::llm
