// Reads SentencePiece's table of character replacements ("precompiled_charsmap"): a double-array trie over UTF-8, and
// the texts that its leaves point to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/tokenizer/components.h"

namespace anyaccel::llm {

class CharacterMap {
 public:
  // Takes the bytes of a .model file's precompiled_charsmap. CheckpointError, with `source`, for inconsistent sizes,
  // for replacements that are not UTF-8 or longer than 4 KiB, and for text that is not terminated.
  CharacterMap(std::string_view bytes, const std::string& source);

  struct Match {
    size_t length = 0;
    std::string_view replacement;
  };
  // These return the longest entry that `text` begins with (SentencePiece's rule), and the shortest one (the rule of
  // Hugging Face tokenizers). CheckpointError if the table points outside itself.
  std::optional<Match> longest(std::string_view text) const;
  std::optional<Match> shortest(std::string_view text) const;

 private:
  std::optional<Match> find(std::string_view text, bool stop_at_first) const;
  std::string_view replacement(uint32_t offset) const;
  uint32_t unit(size_t index) const;

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
  std::string source_;
};

// Reads the normalizer "Precompiled" of a tokenizer.json, whose table is encoded in base64.
std::unique_ptr<Normalizer> read_precompiled(const JsonRef& value);

}  // namespace anyaccel::llm
