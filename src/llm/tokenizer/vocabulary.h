// The tokens of a tokenizer and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text/json.h"

namespace anyaccel::llm {

class Vocabulary {
 public:
  Vocabulary() = default;
  // {"token": id, ...} for at most `count` tokens in all, added ones included. CheckpointError for an id that is taken,
  // negative, or so large that the vocabulary would consist mostly of gaps.
  Vocabulary(const JsonRef& tokens, size_t count);
  // Tokens whose ids are their places. They must differ.
  explicit Vocabulary(std::vector<std::string> tokens);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // The largest id plus one.
  int64_t size() const noexcept { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> find(std::string_view token) const;
  // Null for an id without a token.
  const std::string* token(int32_t id) const noexcept;

 private:
  void index();

  std::vector<std::string> tokens_;  // by id
  std::vector<bool> used_;
  std::unordered_map<std::string_view, int32_t> ids_;  // keys point into tokens_
};

// Upper bound of the ids of a vocabulary of `count` tokens: gaps are allowed, but must not waste memory.
int64_t id_limit(size_t count) noexcept;

}  // namespace anyaccel::llm
