// Implements the WordPiece and WordLevel models of a tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/prefix_index.h"
#include "llm/tokenizer/token_model.h"

namespace anyaccel::llm {

// Takes the longest token at the beginning of a word, then the longest one that continues it, and so on. A word with a
// remainder that has no token, or with more characters than max_input_chars_per_word, becomes the unknown token as a
// whole.
class WordPieceModel : public TokenModel {
 public:
  // `count` is as for BpeModel. CheckpointError for a field with a wrong type.
  WordPieceModel(const JsonRef& value, size_t count);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  PrefixIndex first_;  // all tokens
  PrefixIndex later_;  // those with the prefix of a continuation, without it
  std::string unknown_name_;
  std::optional<int32_t> unknown_;
  int64_t most_characters_ = 0;
};

// Makes each piece one token, or the unknown token.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(const JsonRef& value, size_t count);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  std::string unknown_name_;
  std::optional<int32_t> unknown_;
};

}  // namespace anyaccel::llm
