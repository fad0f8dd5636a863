// The added tokens of a tokenizer.json: they are found in a text before anything else happens to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "llm/json.h"
#include "llm/tokenizer_components.h"
#include "llm/tokenizer_vocabulary.h"

namespace anyaccel::llm {

// Finds the longest of several texts at a place.
class TextTrie {
 public:
  void add(std::string_view text, size_t value);
  // Length of the longest text that `text` begins with (0: none) and its value.
  std::pair<size_t, size_t> longest(std::string_view text) const;

 private:
  static constexpr uint32_t none = ~uint32_t{0};
  struct Node {
    size_t value = ~size_t{0};
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::unordered_map<uint64_t, uint32_t> children_;  // by node * 256 + byte
};

class AddedTokens {
 public:
  // `list` is the "added_tokens" of the file. CheckpointError for an id that is taken or out of range.
  AddedTokens(const JsonRef& list, const Vocabulary& vocabulary, const Normalizer* normalizer);

  // Cuts the text (valid UTF-8) at the added tokens; what lies between them comes out normalized.
  std::vector<TextPiece> split(std::string_view text) const;

  // The largest id plus one; 0 without tokens.
  int64_t size() const noexcept { return size_; }
  // Null for other ids.
  const std::string* content(int32_t id) const;
  // The token as decoders get it: in its normalized form.
  const std::string* decoded(int32_t id) const;
  bool is_special(const std::string& token) const { return special_.contains(token); }
  std::optional<int32_t> find(const std::string& content) const;

 private:
  struct Token {
    std::string content;
    std::string normalized_content;
    int32_t id = 0;
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
  };
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = -1;
  };
  std::vector<Match> matches(std::string_view text, const TextTrie& trie) const;

  const Normalizer* normalizer_;
  std::vector<Token> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_set<std::string> special_;
  TextTrie as_written_;  // found in the text as it is
  TextTrie normalized_;  // found after normalization
  int64_t size_ = 0;
};

}  // namespace anyaccel::llm
