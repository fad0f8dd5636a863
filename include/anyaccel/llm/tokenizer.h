// Text to token ids and back, from the tokenizer files of a Hugging Face model directory.
//
// Read are tokenizer.json of the byte pair encoding kind (byte-level as GPT-2, Llama 3 and Qwen use, or with byte
// fallback as Llama 2 and Mistral use) with its normalizers, pre-tokenizers, post-processors and decoders, and
// tokenizer.model of SentencePiece's BPE kind. Ids and texts agree with Hugging Face tokenizers and Google
// sentencepiece.
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

// Loaded once, never changes (a cache of words aside, which is locked): any number of threads may use it at once.
class Tokenizer {
 public:
  // tokenizer.json, else tokenizer.model, with the special tokens and settings of tokenizer_config.json,
  // special_tokens_map.json, added_tokens.json and the class that these and config.json name, as transformers'
  // AutoTokenizer puts them together (docs/tokenizers.md). Throws CheckpointError for a missing or damaged file, files
  // that give a token different ids (naming both), or a component that is not supported (naming it and those that are).
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& dir);
  // The same for the text of a tokenizer.json or the bytes of a tokenizer.model; `source` stands for the file in
  // errors.
  static std::unique_ptr<Tokenizer> parse_json(std::string_view text, std::string_view source);
  static std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, std::string_view source);

  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Token ids of the text. `add_special` adds what the model expects around a text (a beginning-of-text token, mostly);
  // special tokens that are written in the text are found either way. Bytes that are not UTF-8 count as U+FFFD.
  // CheckpointError when a pattern of the tokenizer needs too many steps or the text has a character that the
  // vocabulary has no token for, not even the unknown one; InvalidArgument for more than 1 GiB of text.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special = true) const = 0;
  // Text of the ids, always UTF-8: bytes that form no character become U+FFFD. Ids that stand for no token are left
  // out, special tokens too when `skip_special`.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // The largest id plus one.
  virtual int64_t vocab_size() const noexcept = 0;
  // The token as the vocabulary writes it (byte-level tokens in their printable form); nothing for an unused id.
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Beginning and end of a text, where the files say so.
  std::optional<int32_t> bos_id() const noexcept { return bos_id_; }
  std::optional<int32_t> eos_id() const noexcept { return eos_id_; }
  // What a person should know about the files: where two of them disagree and which one counts.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  // Ids that a model can do without: of the padding token, and of tokens that only a class of transformers names.
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
  // `streaming`: text is wanted soon, see StreamDecoder.
  virtual std::unique_ptr<TokenTextStream> text_stream(bool skip_special, bool streaming) const = 0;
  // What tokenizer_config.json says about tokens around a text. Only tokenizer.model leaves it to that file.
  virtual void set_added_ends(std::optional<bool> add_bos, std::optional<bool> add_eos);
};

// Turns ids into text as they come. Only whole characters come out, and all pieces together are what decode() gives for
// all ids. One exception: tokens that stand for single bytes are held back until their run ends, because one byte that
// does not fit makes all of them U+FFFD; after 64 bytes the characters that are complete come out nevertheless.
class StreamDecoder {
 public:
  // The tokenizer must outlive this object.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that is certain with this id; often empty.
  std::string push(int32_t id);
  // The rest. After that the object is used up.
  std::string finish();

 private:
  std::unique_ptr<TokenTextStream> stream_;
};

}  // namespace anyaccel::llm
