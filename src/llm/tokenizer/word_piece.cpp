// Implements the WordPiece and WordLevel models with the rules of Hugging Face tokenizers.
#include "llm/tokenizer/word_piece.h"

#include "anyaccel/error.h"
#include "base/text/utf8.h"

namespace anyaccel::llm {
namespace {

int32_t unknown_token(const std::optional<int32_t>& id, const std::string& name) {
  if (id) return *id;
  throw CheckpointError("tokenizer: the text has a word without tokens, and the unknown token " + quote_text(name) +
                        " is not in the vocabulary either");
}

}  // namespace

WordPieceModel::WordPieceModel(const JsonRef& value, size_t count)
    : vocabulary_(value.at("vocab"), count),
      unknown_name_(value.at("unk_token").string()),
      unknown_(vocabulary_.find(unknown_name_)),
      most_characters_(value.at("max_input_chars_per_word").integer(0, INT32_MAX)) {
  const std::string& prefix = value.at("continuing_subword_prefix").string();
  std::vector<std::pair<std::string_view, int32_t>> first;
  std::vector<std::pair<std::string_view, int32_t>> later;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    if (token == nullptr) continue;
    first.emplace_back(*token, id);
    if (token->starts_with(prefix)) later.emplace_back(std::string_view(*token).substr(prefix.size()), id);
  }
  first_ = PrefixIndex(std::move(first));
  later_ = PrefixIndex(std::move(later));
}

void WordPieceModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  int64_t characters = 0;
  for (size_t at = 0; at < piece.size(); at += utf8_length(piece[at])) ++characters;
  const size_t before = ids.size();
  bool fits = characters <= most_characters_;
  for (size_t at = 0; fits && at < piece.size();) {
    size_t longest = 0;
    int32_t best = -1;
    (at == 0 ? first_ : later_).for_each(piece.substr(at), [&](size_t length, int32_t id) {
      longest = length;
      best = id;
    });
    fits = best >= 0;
    ids.push_back(best);
    at += longest;
  }
  if (fits) return;
  ids.resize(before);
  ids.push_back(unknown_token(unknown_, unknown_name_));
}

WordLevelModel::WordLevelModel(const JsonRef& value, size_t count)
    : vocabulary_(value.at("vocab"), count),
      unknown_name_(value.at("unk_token").string()),
      unknown_(vocabulary_.find(unknown_name_)) {}

void WordLevelModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  const auto id = vocabulary_.find(piece);
  ids.push_back(id ? *id : unknown_token(unknown_, unknown_name_));
}

}  // namespace anyaccel::llm
