// The tokens of a tokenizer and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"

namespace anyaccel::llm {

class Vocabulary {
 public:
  Vocabulary() = default;
  // {"token": id, ...} for at most `count` tokens in all, added ones included. CheckpointError for an id that is taken,
  // negative, or so large that the vocabulary would consist mostly of gaps.
  Vocabulary(const JsonRef& tokens, size_t count);
  // Tokens whose ids are their places. Of equal ones find() returns the first.
  explicit Vocabulary(std::vector<std::string> tokens);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // The largest id plus one.
  int64_t size() const noexcept { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> find(std::string_view token) const;
  // The same for many, which overlaps their waits for memory; -1 for a text that is no token. Any thread.
  void find_all(std::span<const std::string_view> tokens, std::span<int32_t> ids) const;
  // Null for an id without a token.
  const std::string* token(int32_t id) const noexcept;
  // True if every token occurs once.
  bool is_unique() const noexcept { return is_unique_; }

 private:
  void index();

  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free
  };
  size_t place(std::string_view token, uint64_t hash) const;

  std::vector<std::string> tokens_;  // by id
  std::vector<bool> used_;
  // A hash table with linear probing, at most half full: a tokenizer's merges are looked up in it, a million times for a
  // vocabulary of 128k tokens.
  std::vector<Slot> slots_ = std::vector<Slot>(2);
  bool is_unique_ = true;
};

// The ids of "<0x00>" to "<0xFF>", which stand for bytes; -1 where there is none.
std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

// Upper bound of the ids of a vocabulary of `count` tokens: gaps are allowed, but must not waste memory.
int64_t id_limit(size_t count) noexcept;

}  // namespace anyaccel::llm
