// Finds the added tokens of a tokenizer in a text, which happens before any other step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/components.h"
#include "llm/tokenizer/prefix_index.h"
#include "llm/tokenizer/vocabulary.h"

namespace anyaccel::llm {

struct AddedToken {
  std::string content;
  int32_t id = -1;           // -1: the next free id
  bool single_word = false;  // only if the adjacent characters do not belong to a word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // searched for in the normalized text, in its normalized form
  bool special = false;      // left out of decoded text
};

// Reads an object {"content": ..., "lstrip": ...}; its id is not read.
AddedToken read_added_token(const JsonRef& value);

// Collects added tokens from several files, by the rules of Hugging Face tokenizers: a later definition of a token
// replaces its rules and keeps its id, and a special token stays special.
class AddedTokenList {
 public:
  explicit AddedTokenList(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // Adds the "added_tokens" of a tokenizer.json. CheckpointError for an id that is taken or out of range.
  void add_json(const JsonRef& list);
  // Adds a token with the id that its text already has, else the id after all others. Empty texts are ignored.
  void add(const AddedToken& token);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const AddedToken* find(const std::string& content) const;
  // Looks in the tokens and in the vocabulary.
  std::optional<int32_t> id_of(const std::string& content) const;
  // Returns one more than the largest id of the vocabulary and the tokens.
  int64_t size() const noexcept { return std::max(vocabulary_.size(), int64_t{next_id_}); }
  // Returns the text of an id; nothing if the id is free.
  std::optional<std::string> text_of(int32_t id) const;

 private:
  void put(AddedToken token);

  const Vocabulary& vocabulary_;
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  int32_t next_id_ = 0;  // of added tokens
};

class AddedTokens {
 public:
  // With `split_special`, special tokens in a text are treated as ordinary text.
  AddedTokens(const AddedTokenList& list, const Normalizer* normalizer, bool split_special = false);
  AddedTokens(const AddedTokens&) = delete;  // the indices have views of the tokens
  AddedTokens& operator=(const AddedTokens&) = delete;

  // Splits the text (valid UTF-8) at the added tokens; the text between them is normalized.
  std::vector<TextPiece> split(std::string_view text, PatternWork& work) const;

  // Returns one more than the largest id; 0 if there are no tokens.
  int64_t size() const noexcept { return size_; }
  // Returns null for other ids.
  const std::string* content(int32_t id) const;
  // Returns the token for decoders, in its normalized form.
  const std::string* decoded(int32_t id) const;
  bool is_special(const std::string& token) const { return special_.contains(token); }
  std::optional<int32_t> find(const std::string& content) const;

 private:
  struct Token : AddedToken {
    std::string normalized_content;
  };
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = -1;
  };
  std::vector<Match> matches(std::string_view text, const PrefixIndex& index) const;

  const Normalizer* normalizer_;
  bool split_special_;
  std::vector<Token> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_set<std::string> special_;
  PrefixIndex as_written_;  // searched for in the original text
  PrefixIndex normalized_;  // searched for after normalization
  int64_t size_ = 0;
};

}  // namespace anyaccel::llm
