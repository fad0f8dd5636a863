// Reads tokenizers that list their tokens as bytes in the order in which these are formed: tiktoken's files and Mistral's
// tekken.json. Neighbours merge into the token of the lowest rank, and a word that is a token is that token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "llm/tokenizer/bpe.h"
#include "llm/tokenizer/settings.h"

namespace anyaccel::llm {

struct RankedTokens {
  std::vector<std::string> tokens;  // bytes; the index is the rank
  // The ids of the tokens begin here: those before belong to the special tokens.
  int32_t first_id = 0;
  JsonArray special;  // as "added_tokens" of a tokenizer.json
  std::vector<std::string> patterns;
  bool composes = false;  // text is brought to Unicode's form NFC first
  bool splits_as_gpt2 = false;
  std::optional<std::string> bos, eos;
  bool adds_bos = false;
};

// Returns whether the text is a list of tokens in base64 and their ranks, as tiktoken writes it.
bool is_tiktoken(std::string_view text);
// Reads such a list. The name of the file, or else the model's type or class of config.json and tokenizer_config.json,
// says which family's pattern and special tokens apply. CheckpointError for an unknown family, naming the known ones, and
// for a line that cannot be read, with its number.
RankedTokens read_tiktoken(const TokenizerFile& file, const TokenizerFiles& files);
// Reads a tekken.json, by the rules of mistral-common 1.13.
RankedTokens read_tekken(const TokenizerFile& file);

// Returns the model. CheckpointError if a byte has no token, or a token is empty, repeated or longer than 1024 bytes.
std::unique_ptr<BpeModel> make_ranked_model(const RankedTokens& ranked, const std::string& source);

// Returns the steps around byte-level merges, in the form of a tokenizer.json.
JsonDocument byte_level_steps(std::span<const std::string> patterns, bool splits_as_gpt2, bool composes);

}  // namespace anyaccel::llm
