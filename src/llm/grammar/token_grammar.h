// Finds the tokens that a grammar allows next: the vocabulary is a trie of bytes, which is walked together with the
// positions of the grammar; the results are remembered.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "anyaccel/llm/grammar.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/grammar/grammar_states.h"

namespace anyaccel::llm {

// Tokens by their bytes.
class TokenTrie {
 public:
  // Keeps those of `tokens`, which are ids, that have bytes; bytes[id] are those of a token.
  TokenTrie(const std::vector<std::string>& bytes, std::vector<int32_t> tokens);

  // In the order of a walk to the depth first.
  struct Node {
    uint8_t byte = 0;
    uint32_t depth = 0;                        // 1: the first byte
    uint32_t behind = 0;                       // the first node that is not below this one
    uint32_t first_token = 0, last_token = 0;  // in tokens(): those that end here
  };
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  size_t deepest() const { return deepest_; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<Node> nodes_;
  size_t deepest_ = 0;
};

// The tokens of a vocabulary, as the first one of a text or as later ones. Tokens without text are left out.
class VocabularyTexts {
 public:
  // Of the first `vocabulary` ids of the tokenizer.
  VocabularyTexts(const Tokenizer& tokenizer, int64_t vocabulary, bool at_start);

  // A plain token consists of at most so many whole characters, none of which is a quote, a backslash or a control:
  // wherever a grammar allows so many of any of those (GrammarMachine::next_character), it allows all plain tokens.
  static constexpr int most_characters = 20;

  const std::string& bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }
  const TokenTrie& all() const { return all_; }
  const TokenTrie& not_plain() const { return not_plain_; }
  // Returns a bit for each id: those of plain tokens.
  const std::vector<uint64_t>& plain() const { return plain_; }

 private:
  std::vector<std::string> bytes_;  // of each id
  std::vector<uint64_t> plain_;
  TokenTrie all_, not_plain_;
};

struct VocabularyTries {
  VocabularyTries(const Tokenizer& tokenizer, int64_t vocabulary_size)
      : vocabulary(vocabulary_size),
        first(tokenizer, vocabulary_size, /*at_start=*/true),
        later(tokenizer, vocabulary_size, /*at_start=*/false) {}
  int64_t vocabulary;
  VocabularyTexts first, later;
};

// Any number of threads may use one at once.
class TokenGrammar {
 public:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTries> tries);

  // The tokens that may come next.
  struct Allowed {
    uint64_t number = 0;  // equal numbers: equal tokens
    bool may_end = false;
    std::vector<uint64_t> bits;
    bool has(size_t id) const { return id / 64 < bits.size() && (bits[id / 64] >> (id % 64) & 1) != 0; }
  };
  // Says how far a text has been read.
  struct Reading {
    GrammarMachine::Position position = 0;
    uint64_t epoch = 0;
    std::string text;  // what was read; positions are found again if the machine has forgotten them
    bool at_start = true;
  };

  Reading start() const;
  // Reads a token's text. InvalidArgument if the grammar does not allow it.
  void read(Reading& reading, int32_t token) const;
  // Returns whether the text is complete and nothing can follow.
  bool is_complete(Reading& reading) const;
  std::shared_ptr<const Allowed> allowed(Reading& reading) const;
  const std::string& source() const { return grammar_->states().source(); }
  // Returns how many nodes of tries and states of the grammar were visited so far.
  uint64_t visits() const;

 private:
  void renew(Reading& reading) const;
  std::shared_ptr<const Allowed> walk(const Reading& reading) const;

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const VocabularyTries> tries_;
  mutable std::mutex lock_;
  mutable GrammarMachine machine_;
  mutable uint64_t epoch_ = 0;  // counts how often the machine has forgotten its positions
  mutable uint64_t walks_ = 0;
  mutable uint64_t nodes_visited_ = 0;
  // Of positions; the key is twice the position, plus 1 at the start of a text.
  mutable std::unordered_map<uint64_t, std::shared_ptr<const Allowed>> known_;
};

}  // namespace anyaccel::llm
