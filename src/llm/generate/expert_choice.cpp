// Chooses experts as transformers does: scores of all experts in single precision, the largest few, whose weights are divided
// by their sum if the family does so. That sum makes it the same as a softmax over the chosen ones.
#include "llm/generate/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace anyaccel::llm {
namespace {

// Marks the largest values; of equal ones, those with the lower numbers.
void mark_largest(std::span<const float> values, int64_t count, std::span<uint8_t> marks) {
  std::ranges::fill(marks, uint8_t{0});
  for (int64_t i = 0; i < count; ++i) {
    size_t best = values.size();
    for (size_t j = 0; j < values.size(); ++j) {
      if (marks[j] == 0 && (best == values.size() || values[j] > values[best])) best = j;
    }
    marks[best] = 1;
  }
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Sets the values to -infinity that are not in the best groups.
void exclude_groups(const ExpertsConfig& config, std::span<float> values) {
  const auto groups = static_cast<size_t>(config.groups);
  const size_t size = values.size() / groups;
  std::vector<float> scores(groups);
  std::vector<uint8_t> marks(groups);
  for (size_t group = 0; group < groups; ++group) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (const float value : values.subspan(group * size, size)) {
      second = std::max(second, std::min(best, value));
      best = std::max(best, value);
    }
    scores[group] = config.groups_by_two ? best + second : best;
  }
  mark_largest(scores, config.groups_per_token, marks);
  for (size_t i = 0; i < values.size(); ++i) {
    if (marks[i / size] == 0) values[i] = -std::numeric_limits<float>::infinity();
  }
}

void softmax(std::span<const float> logits, std::span<float> out) {
  const float largest = *std::ranges::max_element(logits);
  float sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += out[i] = std::exp(logits[i] - largest);
  for (float& value : out) value /= sum;
}

}  // namespace

void choose_experts(const ExpertsConfig& config, std::span<const float> logits, std::span<const float> shared,
                    std::span<const float> bias, ExpertChoice& choice) {
  const auto experts = static_cast<size_t>(config.count), routed = static_cast<size_t>(config.per_token);
  const size_t tokens = logits.size() / experts;
  const bool has_shared = config.shared_inner > 0;
  const size_t choices = routed + (has_shared ? 1 : 0);
  choice.choices = static_cast<int64_t>(choices);
  choice.rows.assign(experts + (has_shared ? 1 : 0), {});
  choice.weights.resize(tokens * choices);
  choice.choice_rows.resize(tokens * choices);
  choice.row_tokens.resize(tokens * choices);
  std::vector<float> scores(experts), order;
  std::vector<uint8_t> marks(experts);
  for (size_t token = 0; token < tokens; ++token) {
    if (config.uses_sigmoid) {
      for (size_t i = 0; i < experts; ++i) scores[i] = sigmoid(logits[token * experts + i]);
    } else {
      softmax(logits.subspan(token * experts, experts), scores);
    }
    order = scores;
    for (size_t i = 0; i < bias.size(); ++i) order[i] += bias[i];
    if (config.groups > config.groups_per_token) exclude_groups(config, order);
    mark_largest(order, config.per_token, marks);
    float sum = 0;
    size_t at = token * choices;
    for (size_t expert = 0; expert < experts; ++expert) {
      if (marks[expert] == 0) continue;
      // The expert's number, until the rows' places are known.
      choice.choice_rows[at] = static_cast<int32_t>(expert);
      choice.weights[at++] = scores[expert];
      sum += scores[expert];
      ++choice.rows[expert].end;
    }
    const float factor = config.normalizes ? config.scale / sum : config.scale;
    for (size_t i = token * choices; i < at; ++i) choice.weights[i] *= factor;
    if (!has_shared) continue;
    choice.choice_rows[at] = static_cast<int32_t>(experts);
    choice.weights[at] = shared.empty() ? 1.0f : sigmoid(shared[token]);
    ++choice.rows[experts].end;
  }
  int64_t next = 0;
  for (Slice& rows : choice.rows) {
    const int64_t count = rows.end;
    rows = {next, next};  // `end` grows to its place again below
    next += count;
  }
  for (size_t i = 0; i < choice.choice_rows.size(); ++i) {
    const int64_t row = choice.rows[static_cast<size_t>(choice.choice_rows[i])].end++;
    choice.choice_rows[i] = static_cast<int32_t>(row);
    choice.row_tokens[static_cast<size_t>(row)] = static_cast<int32_t>(i / choices);
  }
}

}  // namespace anyaccel::llm
