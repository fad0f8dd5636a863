// Implements the search: which candidates go on, which are finished, and when it ends.
#include "llm/generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

namespace anyaccel::llm {

namespace {

constexpr float excluded = -1.0e9f;

// Returns the indices of the highest values, the highest first; of equal ones the lower index first.
std::vector<size_t> highest(std::span<const float> values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(std::min(count, order.size()));
  return order;
}

}  // namespace

void to_log_probabilities(std::span<float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - most));
  const auto norm = static_cast<float>(std::log(sum));
  for (float& logit : logits) logit = logit - most - norm;
}

bool BestCandidates::is_better(const Entry& a, const Entry& b) {
  return a.candidate.score != b.candidate.score ? a.candidate.score > b.candidate.score : a.order < b.order;
}

void BestCandidates::add(int32_t beam, std::span<const float> log_probabilities, float base) {
  for (size_t token = 0; token < log_probabilities.size(); ++token, ++order_) {
    const float score = log_probabilities[token] + base;
    if (heap_.size() == count_) {
      if (score <= heap_.front().candidate.score) continue;  // of equal ones the earlier stays
      std::ranges::pop_heap(heap_, is_better);
      heap_.pop_back();
    }
    heap_.push_back({{beam, static_cast<int32_t>(token), score}, order_});
    std::ranges::push_heap(heap_, is_better);
  }
}

std::vector<BeamCandidate> BestCandidates::sorted() && {
  std::ranges::sort(heap_, is_better);
  std::vector<BeamCandidate> result;
  result.reserve(heap_.size());
  for (const Entry& entry : heap_) result.push_back(entry.candidate);
  return result;
}

BeamSearch::BeamSearch(const BeamSettings& settings, size_t eos_tokens, int64_t max_tokens, EndsAnswer ends)
    : settings_(settings),
      candidates_(std::max<size_t>(2, 1 + eos_tokens) * static_cast<size_t>(settings.beams)),
      max_tokens_(max_tokens),
      ends_(std::move(ends)),
      running_(static_cast<size_t>(settings.beams)),
      finished_(static_cast<size_t>(settings.beams)) {
  // All beams begin with the same prompt, so only the first may have descendants.
  for (size_t i = 1; i < running_.size(); ++i) running_[i].score = excluded;
  for (Sequence& sequence : finished_) sequence.score = excluded;
}

float BeamSearch::penalty_of(int64_t length) const {
  return static_cast<float>(std::pow(static_cast<double>(length), static_cast<double>(settings_.length_penalty)));
}

bool BeamSearch::all_finished() const { return std::ranges::all_of(finished_, &Sequence::finished); }

std::vector<BeamSearch::Sequence> BeamSearch::finished() const {
  std::vector<Sequence> result;
  std::ranges::copy_if(finished_, std::back_inserter(result), &Sequence::finished);
  return result;
}

bool BeamSearch::advance(std::span<const BeamCandidate> best) {
  const size_t beams = running_.size();
  const size_t length = running_[0].tokens.size() + 1;
  std::vector<Sequence> continued;
  const auto ended = std::make_unique<bool[]>(best.size());
  std::vector<float> going_on;
  for (size_t i = 0; i < best.size(); ++i) {
    Sequence& next = continued.emplace_back(running_[static_cast<size_t>(best[i].beam)]);
    next.tokens.push_back(best[i].token);
    next.score = best[i].score;
    ended[i] = static_cast<int64_t>(length) >= max_tokens_ || ends_(next.tokens);
    going_on.push_back(next.score + (ended[i] ? excluded : 0.0f));
  }
  const std::span<const bool> ends(ended.get(), best.size());
  const std::vector<size_t> chosen = highest(going_on, beams);
  running_.clear();
  parents_.clear();
  for (const size_t i : chosen) {
    running_.push_back(continued[i]);
    running_.back().score = going_on[i];
    parents_.push_back(best[i].beam);
  }
  add_finished(continued, ends, length);

  const bool longest = settings_.early_stopping == EarlyStopping::Never && settings_.length_penalty > 0.0f;
  const int64_t reached = longest ? max_tokens_ : static_cast<int64_t>(length);
  const float possible = running_[0].score / penalty_of(reached);
  float worst = finished_[0].score;
  for (const Sequence& sequence : finished_) worst = std::min(worst, sequence.score);
  // An unfinished one counts as the worst.
  const bool can_improve = possible > (all_finished() ? worst : excluded);
  const bool open = !(all_finished() && settings_.early_stopping == EarlyStopping::Yes);
  return can_improve && open && std::ranges::find(ends, false) != ends.end();
}

// Only the best candidates, as many as beams, may finish.
void BeamSearch::add_finished(std::span<const Sequence> continued, std::span<const bool> ended, size_t length) {
  const size_t beams = finished_.size();
  const float divisor = penalty_of(static_cast<int64_t>(length));
  std::vector<Sequence> merged = finished_;
  std::vector<float> scores;
  for (const Sequence& sequence : merged) scores.push_back(sequence.score);
  for (size_t i = 0; i < continued.size(); ++i) {
    const bool finishes = ended[i] && i < beams;
    merged.push_back(continued[i]);
    merged.back().finished = finishes;
    float score = continued[i].score / divisor;
    if (!finishes) score += excluded;
    merged.back().score = score;
    scores.push_back(score);
  }
  finished_.clear();
  for (const size_t i : highest(scores, beams)) finished_.push_back(std::move(merged[i]));
}

}  // namespace anyaccel::llm
