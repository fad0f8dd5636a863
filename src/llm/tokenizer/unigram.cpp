// Implements the unigram model of tokenizer.json.
#include "llm/tokenizer/unigram.h"

#include <limits>

#include "anyaccel/error.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {

UnigramModel::UnigramModel(const JsonRef& value) {
  const JsonRef list = value.at("vocab");
  if (!list.is_array()) list.fail("a list of tokens with scores");
  std::vector<std::string> tokens;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonRef entry = list[i];
    if (!entry.is_array() || entry.size() != 2) entry.fail("a token and its score");
    const std::string& token = entry[0].string();
    if (token.size() > longest_unigram_token) {
      entry.error("the token has " + std::to_string(token.size()) + " bytes; expected at most " +
                  std::to_string(longest_unigram_token));
    }
    scores_.push_back(entry[1].number(-1e30, 1e30));
    least = std::min(least, scores_.back());
    tokens.push_back(token);
  }
  if (tokens.empty()) list.fail("a token at least");
  unknown_score_ = least - unknown_penalty;
  vocabulary_ = Vocabulary(std::move(tokens));
  std::vector<std::pair<std::string_view, int32_t>> index;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) index.emplace_back(*vocabulary_.token(id), id);
  tokens_ = PrefixIndex(std::move(index));
  if (const auto unknown = value.find("unk_id")) {
    unknown_ = static_cast<int32_t>(unknown->integer(0, vocabulary_.size() - 1));
  }
  if (read_flag(value, "byte_fallback", false)) byte_ids_ = byte_tokens(vocabulary_);
  if (std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end()) byte_ids_.clear();
}

// `text` is a token, or adjacent characters that have none.
void UnigramModel::add(std::string_view text, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_.find(text)) {
    ids.push_back(*id);
  } else if (!byte_ids_.empty()) {
    for (const char c : text) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  } else if (unknown_) {
    ids.push_back(*unknown_);
  }
}

void UnigramModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const std::vector<TokenSpan> spans = best_split<double>(
      piece, tokens_, unknown_score_, [this](int32_t id, size_t) { return scores_[static_cast<size_t>(id)]; });
  // As in the reference, a character without a token requires the unknown token even if its bytes are used in the end.
  const auto is_unknown = [this](const TokenSpan& span) { return span.id < 0 || span.id == unknown_; };
  for (size_t i = 0; i < spans.size();) {
    if (spans[i].id < 0 && !unknown_) {
      throw CheckpointError("tokenizer: the text has characters without a token, and the model names no unknown token");
    }
    size_t last = i;
    while (is_unknown(spans[i]) && last + 1 < spans.size() && is_unknown(spans[last + 1])) ++last;
    add(piece.substr(spans[i].begin, spans[last].end - spans[i].begin), ids);
    i = last + 1;
  }
}

}  // namespace anyaccel::llm
