// Reads the files that accompany tokenizer.json or tokenizer.model: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, and the model type of config.json. The rules are those of transformers 5
// (tokenization_utils_base.py, tokenization_auto.py); docs/tokenizers.md describes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/tokenizer/added_tokens.h"

namespace anyaccel::llm {

struct TokenizerFile {
  std::string path;  // names the file in error messages
  std::string text;
};

// The files of a model directory that describe its tokenizer.
struct TokenizerFiles {
  std::optional<TokenizerFile> tokenizer_json;   // or vocab.json and merges.txt, joined to one
  std::optional<TokenizerFile> tokenizer_model;  // of SentencePiece
  std::optional<TokenizerFile> tiktoken;         // *.tiktoken, or a tokenizer.model in that form
  std::optional<TokenizerFile> tekken;           // tekken.json
  std::optional<TokenizerFile> tokenizer_config;
  std::optional<TokenizerFile> special_tokens_map;
  std::optional<TokenizerFile> added_tokens;
  std::optional<TokenizerFile> config;
};

// Classes of transformers that build their own steps around the vocabulary of a tokenizer.json; all others take the
// steps from the file.
enum class TokenizerClass { Generic, Llama, Qwen2, Gpt2, GptNeox, Cohere, Gemma };
std::string_view tokenizer_class_name(TokenizerClass kind) noexcept;

// A token with the id that a file gives it.
struct DeclaredToken {
  AddedToken token;
  std::string file;
};

// "bos_token", "pad_token" and so on.
struct NamedToken {
  std::string name;
  AddedToken token;
  bool implied = false;  // named by the class, not by a file
};

struct TokenizerSettings {
  TokenizerClass kind = TokenizerClass::Generic;
  bool names_llama = false;  // the files name LlamaTokenizer, which does not always read a tokenizer.json
  bool legacy = false;
  std::optional<bool> add_prefix_space;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  bool split_special = false;
  bool removes_spaces = false;  // clean_up_tokenization_spaces, and the same for BPE, which has a name of its own
  bool removes_spaces_bpe = false;
  bool mends_mistral = false;  // fix_mistral_regex, in a directory whose type and age transformers applies it to

  bool has_decoder = false;                // tokenizer_config.json has added_tokens_decoder
  std::vector<DeclaredToken> declared;     // by id: of added_tokens_decoder, else of added_tokens.json
  std::vector<DeclaredToken> passed_over;  // of an added_tokens.json next to an added_tokens_decoder
  std::vector<NamedToken> named;           // in the order in which they get ids
  // Special tokens without a name: extra_special_tokens or additional_special_tokens of tokenizer_config.json. If it
  // has no such list, not even an empty one, a tokenizer.model's own tokens apply or, with a tokenizer.json,
  // additional_special_tokens of special_tokens_map.json.
  std::optional<std::vector<AddedToken>> extra;
  std::vector<AddedToken> additional;

  std::vector<std::string> notes;  // notes for the user

  const AddedToken* find_named(std::string_view name) const;
};

// Reads the settings. CheckpointError for files that are not such JSON, and for an id that is used twice or out of
// range.
TokenizerSettings read_tokenizer_settings(const TokenizerFiles& files);

}  // namespace anyaccel::llm
