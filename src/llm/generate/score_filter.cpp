// Implements score_filter.h: the order and the ties are those of the op "sample" (abi/ops.h), followed by typical_p.
#include "llm/generate/score_filter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace anyaccel::llm {

namespace {

struct Candidate {
  size_t token;
  double score;   // divided by the temperature
  double weight;  // exp(score - the largest score)
};

double total_weight(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& candidate) { return sum + candidate.weight; });
}

// Keeps the tokens whose information content is closest to the entropy, until their probabilities sum to `mass`
// (Meister et al., "Locally Typical Sampling"). Tokens that are as close as the last one are kept too.
void keep_typical(std::vector<Candidate>& candidates, double mass) {
  const double total = total_weight(candidates), largest = candidates.front().score;
  const auto surprise = [&](const Candidate& candidate) { return std::log(total) - (candidate.score - largest); };
  double entropy = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.weight > 0) entropy += candidate.weight / total * surprise(candidate);
  }
  const auto distance = [&](const Candidate& candidate) { return std::abs(surprise(candidate) - entropy); };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
  size_t last = 0;
  for (double sum = candidates[0].weight; sum < mass * total && last + 1 < candidates.size();) {
    sum += candidates[++last].weight;
  }
  const double furthest = distance(candidates[last]);
  while (last + 1 < candidates.size() && distance(candidates[last + 1]) <= furthest) ++last;
  candidates.resize(last + 1);
}

}  // namespace

bool needs_score_filter(const Sampling& sampling) { return sampling.temperature > 0.0f && sampling.typical_p < 1.0f; }

void filter_scores(std::span<float> scores, const Sampling& sampling) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float score : scores) {
    if (std::isnan(score)) return;
    largest = std::max(largest, score);
  }
  if (!std::isfinite(largest)) return;

  std::vector<Candidate> candidates;
  const double temperature = sampling.temperature;
  for (size_t token = 0; token < scores.size(); ++token) {
    if (std::isinf(scores[token])) continue;
    const double score = scores[token];
    candidates.push_back({token, score / temperature, std::exp((score - largest) / temperature)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < candidates.size()) {
    candidates.resize(static_cast<size_t>(sampling.top_k));
  }
  if (sampling.top_p < 1.0f) {
    const double mass = static_cast<double>(sampling.top_p) * total_weight(candidates);
    size_t kept = 0;
    for (double sum = 0; kept < candidates.size() && sum < mass;) sum += candidates[kept++].weight;
    candidates.resize(kept);
  }
  while (candidates.size() > 1 && candidates.back().weight < static_cast<double>(sampling.min_p)) candidates.pop_back();
  if (sampling.typical_p < 1.0f) keep_typical(candidates, sampling.typical_p);

  std::fill(scores.begin(), scores.end(), -std::numeric_limits<float>::infinity());
  for (const Candidate& candidate : candidates) scores[candidate.token] = static_cast<float>(candidate.score);
}

}  // namespace anyaccel::llm
