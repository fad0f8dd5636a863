// Computes the biases that the rules of anyaccel/llm/token_rules.h add to a sequence's logits before its next token is
// chosen.
#include "llm/generate/logit_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "anyaccel/error.h"

namespace anyaccel::llm {

namespace {

constexpr float forbidden = -std::numeric_limits<float>::infinity();

void check_ids(const std::vector<int32_t>& ids, int64_t vocabulary, const char* rule) {
  if (ids.empty()) throw InvalidArgument(std::string(rule) + ": a sequence has no tokens; expected at least one");
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw InvalidArgument(std::string(rule) + ": token " + std::to_string(id) + " is out of range; expected 0 to " +
                          std::to_string(vocabulary - 1) + ", the tokens of this model");
  }
}

void check_count(int64_t value, const char* rule) {
  if (value < 0) throw InvalidArgument(std::string(rule) + " is " + std::to_string(value) + "; expected at least 0");
}

// Returns whether `tokens` ends with all but the last of `ids`.
bool may_end(const std::vector<int32_t>& tokens, const std::vector<int32_t>& ids) {
  return ids.size() - 1 <= tokens.size() &&
         std::equal(ids.begin(), ids.end() - 1, tokens.end() - (ids.end() - 1 - ids.begin()));
}

}  // namespace

bool TokenRules::empty() const {
  return sequence_bias.empty() && bad_words_ids.empty() && no_repeat_ngram_size == 0 &&
         min_new_tokens.value_or(min_length) == 0 && !forced_bos_token_id && forced_eos_token_ids.empty() &&
         suppress_tokens.empty() && begin_suppress_tokens.empty() && !grammar;
}

LogitBias::LogitBias(TokenRules rules, int64_t vocabulary)
    : rules_(std::move(rules)), always_(static_cast<size_t>(vocabulary), 0.0f) {
  check_count(rules_.no_repeat_ngram_size, "no_repeat_ngram_size");
  check_count(rules_.min_length, "min_length");
  check_count(rules_.min_new_tokens.value_or(0), "min_new_tokens");
  std::map<std::vector<int32_t>, float> biases;
  for (const SequenceBias& entry : rules_.sequence_bias) {
    check_ids(entry.ids, vocabulary, "sequence_bias");
    if (std::isnan(entry.bias) || entry.bias == std::numeric_limits<float>::infinity()) {
      throw InvalidArgument("sequence_bias: the bias of token " + std::to_string(entry.ids[0]) + " is " +
                            std::to_string(entry.bias) + "; expected a number or -infinity");
    }
    biases[entry.ids] = entry.bias;
  }
  for (const std::vector<int32_t>& ids : rules_.bad_words_ids) {
    check_ids(ids, vocabulary, "bad_words_ids");
    const std::vector<int32_t>& eos = rules_.eos_token_ids;
    if (ids.size() == 1 && std::find(eos.begin(), eos.end(), ids[0]) != eos.end()) continue;
    biases[ids] = forbidden;
  }
  for (const auto& [ids, bias] : biases) {
    if (ids.size() == 1) {
      always_[static_cast<size_t>(ids[0])] = bias;
    } else {
      longer_.push_back({ids, bias});
    }
  }
  if (rules_.forced_bos_token_id) {
    forced_bos_ = {*rules_.forced_bos_token_id};
    check_ids(forced_bos_, vocabulary, "forced_bos_token_id");
  }
  if (!rules_.forced_eos_token_ids.empty()) check_ids(rules_.forced_eos_token_ids, vocabulary, "forced_eos_token_id");
  if (rules_.grammar && (rules_.forced_bos_token_id || !rules_.forced_eos_token_ids.empty())) {
    throw InvalidArgument(
        "a grammar together with forced_bos_token_id or forced_eos_token_id: the forced tokens would break the "
        "grammar; "
        "expected one of them alone");
  }
  // Ids from lists made for a larger vocabulary have no effect.
  const auto drop_unknown = [&](std::vector<int32_t>& ids) {
    std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocabulary; });
  };
  for (auto* ids : {&rules_.suppress_tokens, &rules_.begin_suppress_tokens, &rules_.eos_token_ids}) drop_unknown(*ids);
  for (const int32_t id : rules_.suppress_tokens) always_[static_cast<size_t>(id)] = forbidden;
}

void LogitBias::start(std::span<const std::vector<int32_t>> prompts) {
  sequences_.assign(prompts.size(), {});
  for (size_t i = 0; i < prompts.size(); ++i) {
    sequences_[i].tokens = prompts[i];
    sequences_[i].prompt = prompts[i].size();
    if (rules_.grammar) sequences_[i].reading = rules_.grammar->start();
  }
}

void LogitBias::push(size_t sequence, int32_t token) {
  sequences_[sequence].tokens.push_back(token);
  if (rules_.grammar) rules_.grammar->read(sequences_[sequence].reading, token);
}

void LogitBias::apply_grammar(const Sequence& sequence, const TokenGrammar::Allowed& allowed) {
  bool any = false;
  const auto is_eos = [&](size_t id) {
    return std::find(rules_.eos_token_ids.begin(), rules_.eos_token_ids.end(), static_cast<int32_t>(id)) !=
           rules_.eos_token_ids.end();
  };
  // A file may name tokens that have a text as ends too: where the grammar goes on, they would cut the answer short.
  if (!allowed.may_end) {
    for (const int32_t id : rules_.eos_token_ids) row_[static_cast<size_t>(id)] = forbidden;
  }
  for (size_t id = 0; id < row_.size(); ++id) {
    if (allowed.has(id) || (allowed.may_end && is_eos(id))) {
      any = any || row_[id] != forbidden;
    } else {
      row_[id] = forbidden;
    }
  }
  if (any) return;
  throw InvalidArgument(
      rules_.grammar->source() + ": after " + std::to_string(sequence.tokens.size() - sequence.prompt) +
      " tokens of the answer, the grammar and the other rules leave none: " +
      (allowed.may_end ? "the text is complete, and its end is not allowed"
                       : "no token of the vocabulary that is allowed continues the text as the grammar needs it"));
}

const std::vector<int32_t>* LogitBias::forced_for(const Sequence& sequence) const {
  const size_t length = sequence.tokens.size();
  const auto answer = static_cast<int64_t>(length - sequence.prompt);
  const bool last = answer + 1 == rules_.max_new_tokens || static_cast<int64_t>(length) + 1 == rules_.max_length;
  if (!rules_.forced_eos_token_ids.empty() && last) return &rules_.forced_eos_token_ids;
  if (!forced_bos_.empty() && length == 1) return &forced_bos_;
  return nullptr;
}

bool LogitBias::begins_answer(const Sequence& sequence) const {
  const size_t forced = sequence.prompt == 1 && !forced_bos_.empty() ? 1 : 0;
  return sequence.tokens.size() - sequence.prompt == forced;
}

std::vector<std::pair<int32_t, float>> LogitBias::changes_for(const Sequence& sequence) const {
  const std::vector<int32_t>& tokens = sequence.tokens;
  const auto length = static_cast<int64_t>(tokens.size());
  const int64_t answer = length - static_cast<int64_t>(sequence.prompt);
  std::map<int32_t, float> changes;
  for (const SequenceBias& entry : longer_) {
    if (may_end(tokens, entry.ids)) changes[entry.ids.back()] += entry.bias;
  }
  if (rules_.min_new_tokens ? answer < *rules_.min_new_tokens : length < rules_.min_length) {
    for (const int32_t id : rules_.eos_token_ids) changes[id] = forbidden;
  }
  if (begins_answer(sequence)) {
    for (const int32_t id : rules_.begin_suppress_tokens) changes[id] = forbidden;
  }
  if (const int64_t size = rules_.no_repeat_ngram_size; size > 0) {
    for (auto first = tokens.begin(); tokens.end() - first >= size; ++first) {
      if (std::equal(first, first + (size - 1), tokens.end() - (size - 1))) changes[first[size - 1]] = forbidden;
    }
  }
  return {changes.begin(), changes.end()};
}

std::span<const float> LogitBias::next_row(size_t number) {
  Sequence& sequence = sequences_[number];
  const std::vector<int32_t>* const only = forced_for(sequence);
  auto changes = changes_for(sequence);
  // A forced token is the first or last one of an answer, so its row always differs from the one before or after it.
  const auto allowed = rules_.grammar ? rules_.grammar->allowed(sequence.reading) : nullptr;
  const uint64_t number_of_allowed = allowed ? allowed->number : 0;
  if (sequence.given && !sequence.forced && !only && changes == sequence.changes &&
      number_of_allowed == sequence.allowed) {
    return {};
  }
  sequence.allowed = number_of_allowed;
  sequence.given = true;
  sequence.forced = only != nullptr;
  row_ = always_;
  for (const auto& [id, value] : changes) row_[static_cast<size_t>(id)] += value;
  if (only) {
    // Biases no longer matter, but suppression is applied after forcing and may leave no token.
    const bool begins = begins_answer(sequence);
    const auto suppressed = [&](int32_t id) {
      const auto in = [&](const std::vector<int32_t>& ids) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      };
      return in(rules_.suppress_tokens) || (begins && in(rules_.begin_suppress_tokens));
    };
    std::fill(row_.begin(), row_.end(), forbidden);
    int64_t lowest = -1;
    for (const int32_t id : *only) {
      if (!suppressed(id) && (lowest < 0 || id < lowest)) lowest = id;
    }
    if (lowest >= 0) row_[static_cast<size_t>(lowest)] = 0.0f;
  }
  if (allowed) apply_grammar(sequence, *allowed);
  sequence.changes = std::move(changes);
  return row_;
}

}  // namespace anyaccel::llm
