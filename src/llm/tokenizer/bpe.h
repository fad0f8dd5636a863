// Implements byte pair encoding with ranked merges, as tokenizer.json describes it.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/token_model.h"

namespace anyaccel::llm {

struct BpeOptions {
  std::string unknown;         // the token for unknown characters; empty: they are omitted
  std::string prefix;          // of a symbol inside a word
  std::string suffix;          // of the last symbol of a word
  bool fuse_unknown = false;   // adjacent unknown characters are one token
  bool byte_fallback = false;  // characters without a token become their bytes, "<0x41>"
  bool ignore_merges = false;  // a word that is a token becomes that token, whatever the merges would produce
  // The priority of a merge is that of its token: the lower id goes first, and merges into the same one are equal.
  bool rank_is_token = false;
};

class BpeModel : public TokenModel {
 public:
  // Reads the "model" of a tokenizer.json. `count` is the total number of tokens, including added ones. `options`
  // replaces those of the file. CheckpointError for an option with a wrong type, or a merge of parts that are not
  // tokens.
  BpeModel(const JsonRef& value, size_t count, const std::optional<BpeOptions>& options = std::nullopt);
  // `merges` has the ids of two neighbours and of their merged token, highest priority first.
  struct IdMerge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t whole = 0;
  };
  BpeModel(Vocabulary vocabulary, const std::vector<IdMerge>& merges, BpeOptions options);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  // Takes O(n log n) time.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  // Finds merges by the ids of their two parts: a hash table with linear probing and twice as many slots as merges.
  class MergeTable {
   public:
    void reserve(size_t count);
    void put(int32_t left, int32_t right, Merge merge);
    const Merge* find(int32_t left, int32_t right) const;

   private:
    size_t place(uint64_t key) const;
    std::vector<uint64_t> keys_;
    std::vector<Merge> merges_;
    size_t mask_ = 0;
  };
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1;
    int32_t next = -1;
    bool gone = false;
  };

  void prepare();
  void read_merges(const JsonRef& merges);
  void add_unknown(std::vector<int32_t>& ids) const;
  std::vector<int32_t> first_symbols(std::string_view piece) const;
  bool add_bytes(std::string_view character, std::vector<int32_t>& ids) const;
  std::vector<int32_t> merge_all(const std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<int32_t> byte_ids_;  // of "<0x00>" to "<0xFF>", -1 where there is none; empty without byte fallback
  BpeOptions options_;
  std::optional<int32_t> unknown_id_;

  // A cache of encoded words, since words repeat often.
  mutable std::mutex cache_lock_;
  mutable std::unordered_map<std::string, std::vector<int32_t>> cache_;
};

}  // namespace anyaccel::llm
