// Implements the unigram language model, which splits a text into the tokens with the largest sum of scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/tokenizer/prefix_index.h"
#include "llm/tokenizer/token_model.h"

namespace anyaccel::llm {

constexpr double unknown_penalty = 10;          // below the worst score, for a character without a token
constexpr size_t longest_unigram_token = 1024;  // bytes; the worst-case time grows with it

// A token's place in a text.
struct TokenSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;  // -1: a character without a token
};

// Returns the split with the largest sum; of equal ones, the one whose last token begins first. `score(id, length)`
// returns a token's score. SentencePiece adds in float, Hugging Face tokenizers in double. Time is linear in the text's
// length.
template <typename Sum, typename Score>
std::vector<TokenSpan> best_split(std::string_view text, const PrefixIndex& tokens, Sum unknown_score, Score&& score) {
  struct Node {
    Sum sum = 0;
    int64_t begin = -1;
    int32_t id = -1;
  };
  std::vector<Node> best(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t character = utf8_length(text[at]);
    const Sum so_far = best[at].sum;
    const auto offer = [&](size_t length, int32_t id, Sum token_score) {
      Node& node = best[at + length];
      const Sum sum = token_score + so_far;
      if (node.begin < 0 || sum > node.sum) node = {sum, static_cast<int64_t>(at), id};
    };
    bool has_character = false;
    tokens.for_each(text.substr(at), [&](size_t length, int32_t id) {
      offer(length, id, score(id, length));
      has_character = has_character || length == character;
    });
    if (!has_character) offer(character, -1, unknown_score);
    at += character;
  }
  std::vector<TokenSpan> spans;
  for (size_t end = text.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].begin);
    spans.push_back({begin, end, best[end].id});
    end = begin;
  }
  return {spans.rbegin(), spans.rend()};
}

// The "Unigram" model of a tokenizer.json, with the rules of Hugging Face tokenizers.
class UnigramModel : public TokenModel {
 public:
  // CheckpointError for a vocabulary that is not a list of tokens with scores, a token that is longer than
  // longest_unigram_token, and an unknown id out of range. Of a token that occurs twice the last id and score count.
  explicit UnigramModel(const JsonRef& value);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  void add(std::string_view text, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  PrefixIndex tokens_;
  std::optional<int32_t> unknown_;
  std::vector<int32_t> byte_ids_;  // of "<0x00>" to "<0xFF>"; empty without byte fallback, or if one is missing
};

}  // namespace anyaccel::llm
