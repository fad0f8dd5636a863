// Implements the choice of a token on the host: rules, penalties, filters and the draw, in the order of
// docs/generation.md.
#include "llm/generate/token_chooser.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "anyaccel/error.h"
#include "llm/generate/score_filter.h"

namespace anyaccel::llm {

std::vector<double> token_probabilities(std::vector<float> scores, const Sampling& sampling) {
  std::vector<double> probabilities(scores.size(), 0.0);
  if (sampling.temperature > 0) filter_scores(scores, sampling);
  const auto most = std::max_element(scores.begin(), scores.end());
  if (sampling.temperature == 0) {
    probabilities[static_cast<size_t>(most - scores.begin())] = 1.0;
    return probabilities;
  }
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) sum += probabilities[i] = std::exp(double{scores[i]} - double{*most});
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

TokenChooser::TokenChooser(const Sampling& sampling, const TokenRules& rules, int64_t vocabulary)
    : sampling_(sampling), bias_(static_cast<size_t>(vocabulary), 0.0f) {
  if (!rules.empty()) rules_.emplace(rules, vocabulary);
}

void TokenChooser::start(const std::vector<int32_t>& prompt, uint64_t seed) {
  random_.seed(seed);
  seen_.assign(bias_.size(), false);
  counts_.assign(bias_.size(), 0);
  for (const int32_t id : prompt) seen_[static_cast<size_t>(id)] = true;
  pending_.reset();
  if (rules_) rules_->start(std::span(&prompt, 1));
}

void TokenChooser::adjust(std::span<float> scores) {
  if (rules_) {
    // Only now, because the token that ends an answer is none of the grammar's.
    if (pending_) rules_->push(0, *pending_);
    pending_.reset();
    const std::span<const float> row = rules_->next_row(0);
    if (!row.empty()) bias_.assign(row.begin(), row.end());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] += bias_[i];
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (seen_[i])
      scores[i] = scores[i] > 0 ? scores[i] / sampling_.repetition_penalty : scores[i] * sampling_.repetition_penalty;
    if (counts_[i] > 0) {
      scores[i] -= sampling_.presence_penalty + static_cast<float>(counts_[i]) * sampling_.frequency_penalty;
    }
  }
}

void TokenChooser::push(int32_t token) {
  seen_[static_cast<size_t>(token)] = true;
  ++counts_[static_cast<size_t>(token)];
  pending_ = token;
}

std::vector<float> TokenChooser::scores(std::span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  adjust(scores);
  const bool broken = std::any_of(scores.begin(), scores.end(), [](float x) { return std::isnan(x); }) ||
                      !std::isfinite(*std::max_element(scores.begin(), scores.end()));
  if (broken) {
    throw NumericalError(
        "generation stopped: the model's logits have no finite maximum; the weights are damaged (--check-tensors), "
        "numbers "
        "have grown too large for the dtype, or the rules about tokens that are not allowed leave none");
  }
  return scores;
}

double TokenChooser::uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

int32_t TokenChooser::draw(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  double left = uniform() * sum;
  int32_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    left -= weights[i];
    if (left < 0) break;
  }
  return last;
}

TokenChooser::Choice TokenChooser::choose(std::span<const float> logits, const std::optional<Draft>& draft) {
  std::vector<double> p = token_probabilities(scores(logits), sampling_);
  Choice choice;
  const auto probability_of = [&](size_t id) {  // of the draft
    if (draft->probabilities.empty()) return static_cast<int32_t>(id) == draft->token ? 1.0 : 0.0;
    return id < draft->probabilities.size() ? draft->probabilities[id] : 0.0;
  };
  if (draft) {
    const auto token = static_cast<size_t>(draft->token);
    choice.accepted = uniform() * probability_of(token) < p[token];
  }
  if (choice.accepted) {
    choice.token = draft->token;
  } else {
    if (draft) {
      double left = 0;
      for (size_t id = 0; id < p.size(); ++id) {
        p[id] = std::max(0.0, p[id] - probability_of(id));
        left += p[id];
      }
      // Both distributions are the same up to rounding, and nothing is left: the draft follows the model's.
      if (left <= 0) p[static_cast<size_t>(draft->token)] = 1.0;
    }
    choice.token = draw(p);
  }
  push(choice.token);
  return choice;
}

}  // namespace anyaccel::llm
