// Maps the tokens of a tokenizer to their ids and back.
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
  // Reads {"token": id, ...}, for at most `count` tokens in total, including added ones. CheckpointError for an id that
  // is taken, negative, or so large that the vocabulary would consist mostly of gaps.
  Vocabulary(const JsonRef& tokens, size_t count);
  // The ids of these tokens are their indices. If a token occurs several times, find() returns the last.
  explicit Vocabulary(std::vector<std::string> tokens);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Returns one more than the largest id.
  int64_t size() const noexcept { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> find(std::string_view token) const;
  // Does the same for many tokens, and overlaps their waits for memory; -1 for a text that is not a token. Any thread.
  void find_all(std::span<const std::string_view> tokens, std::span<int32_t> ids) const;
  // Returns null for an id without a token.
  const std::string* token(int32_t id) const noexcept;
  // Returns whether every token occurs only once.
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
  // A hash table with linear probing, at most half full. Reading a tokenizer's merges looks up a million tokens for a
  // vocabulary of 128k tokens.
  std::vector<Slot> slots_ = std::vector<Slot>(2);
  bool is_unique_ = true;
};

// Returns the ids of "<0x00>" to "<0xFF>", which stand for bytes; -1 if there is no such token.
std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

// Returns an upper bound for the ids of a vocabulary of `count` tokens: gaps are allowed, but must not waste memory.
int64_t id_limit(size_t count) noexcept;

}  // namespace anyaccel::llm
