// Converts text to token ids and back, with the tokenizer files of a Hugging Face model directory.
//
// It supports tokenizer.json of the kinds BPE (byte-level as GPT-2, Llama 3 and Qwen use, or with byte fallback as
// Llama 2 and Mistral use), Unigram, WordPiece and WordLevel, with its normalizers, pre-tokenizers, post-processors and
// decoders, tokenizer.model of SentencePiece's BPE and unigram kinds, vocab.json with merges.txt, tiktoken's files and
// tekken.json. Ids and texts agree with Hugging Face tokenizers, Google sentencepiece, tiktoken and mistral-common.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel::llm {

class TokenTextStream;

// Loaded once and never changed (except for a cache of words, which is locked): any number of threads may use it at
// once.
class Tokenizer {
 public:
  // Loads from the keys of a GGUF file if `dir` is one (its name ends in .gguf). Else from the first of tokenizer.json,
  // tokenizer.model, vocab.json with merges.txt, tekken.json and *.tiktoken that exists, with the special tokens and
  // settings of tokenizer_config.json, special_tokens_map.json, added_tokens.json and the class that these and
  // config.json name, combined as transformers' AutoTokenizer does (docs/tokenizers.md). Throws CheckpointError for a
  // missing or damaged file, files that give a token different ids (naming both), or a component that is not supported
  // (naming it and the supported ones).
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& dir);
  // The same, from the text of a tokenizer.json or the bytes of a tokenizer.model; errors use `source` as the file's
  // name.
  static std::unique_ptr<Tokenizer> parse_json(std::string_view text, std::string_view source);
  static std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, std::string_view source);

  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the token ids of the text. `add_special` adds the tokens that the model expects around a text (usually a
  // beginning-of-text token); special tokens that are written in the text are found either way. Bytes that are not
  // UTF-8 count as U+FFFD. Throws CheckpointError if a pattern of the tokenizer needs too many steps, or if the text
  // has a character without a token and the vocabulary has no token for unknown characters; InvalidArgument for more
  // than 1 GiB of text.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special = true) const = 0;
  // Returns the text of the ids, always UTF-8: bytes that do not form a character become U+FFFD. Ids without a token
  // are left out, and special tokens too if `skip_special`.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // Returns the largest id plus one.
  virtual int64_t vocab_size() const noexcept = 0;
  // Returns the token as spelled in the vocabulary (byte-level tokens in their printable form); nothing for an unused
  // id.
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Returns the bytes that the token adds to decode()d text without special tokens, as its first token (`at_start`) or
  // later; they may be a part of a character. Empty for special tokens and unused ids. NotImplementedError if a token's
  // text depends on its neighbours (WordPiece, suffixes of words), naming the decoder.
  virtual std::string token_bytes(int32_t id, bool at_start) const = 0;
  // The tokens at the beginning and the end of a text, if the files define them.
  std::optional<int32_t> bos_id() const noexcept { return bos_id_; }
  std::optional<int32_t> eos_id() const noexcept { return eos_id_; }
  // Returns notes for the user about the files: they name what two of them disagree on, and which one takes precedence.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  // Returns ids that a model's embedding may lack: those of the padding token, and of tokens that only a class of
  // transformers names.
  const std::vector<int32_t>& spare_ids() const noexcept { return spare_ids_; }

 protected:
  Tokenizer() = default;

  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
  std::vector<std::string> notes_;
  std::vector<int32_t> spare_ids_;

 private:
  friend class StreamDecoder;
  friend class TokenizerDirectory;
  // `streaming`: text is returned as early as possible, see StreamDecoder.
  virtual std::unique_ptr<TokenTextStream> text_stream(bool skip_special, bool streaming) const = 0;
  // The settings of tokenizer_config.json for tokens around a text; used with tokenizer.model only.
  virtual void set_added_ends(std::optional<bool> add_bos, std::optional<bool> add_eos);
};

// Converts ids to text one by one. It returns only whole characters, and all pieces together equal decode() of all ids.
// One exception: tokens that stand for single bytes are held back until their run ends, because one invalid byte turns
// all of them into U+FFFD; after 64 bytes the complete characters are returned nevertheless.
class StreamDecoder {
 public:
  // The tokenizer must outlive this object.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // Returns the text that is final after this id; often empty.
  std::string push(int32_t id);
  // Returns the rest. The object must not be used afterwards.
  std::string finish();

 private:
  std::unique_ptr<TokenTextStream> stream_;
};

}  // namespace anyaccel::llm
