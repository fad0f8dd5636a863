// A tokenizer.json put together: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder.
#include <algorithm>

#include "anyaccel/error.h"
#include "anyaccel/llm/tokenizer.h"
#include "llm/tokenizer_added_tokens.h"
#include "llm/tokenizer_bpe.h"
#include "llm/tokenizer_components.h"
#include "llm/tokenizer_decoders.h"
#include "llm/tokenizer_stream.h"
#include "llm/utf8.h"

namespace anyaccel::llm {
namespace {

constexpr size_t max_text_bytes = size_t{1} << 30;
const JsonValue absent;

// A member that may be missing or null, as a value.
JsonRef member_or_null(const JsonDocument& document, std::string_view key) {
  return document.root().find(key).value_or(JsonRef(document, absent));
}

class JsonTokenizer : public Tokenizer {
 public:
  explicit JsonTokenizer(const JsonDocument& document)
      : model_(document.root().at("model"), token_count(document)),
        normalizer_(read_normalizer(member_or_null(document, "normalizer"))),
        pre_tokenizer_(read_pre_tokenizer(member_or_null(document, "pre_tokenizer"))),
        added_(added_list(document), model_.vocabulary(), normalizer_.get()),
        post_processor_(read_post_processor(member_or_null(document, "post_processor"), vocab_size() - 1)),
        decoders_(member_or_null(document, "decoder")) {}

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    if (text.size() > max_text_bytes) {
      throw InvalidArgument("encode: the text has " + std::to_string(text.size()) + " bytes; expected at most " +
                            std::to_string(max_text_bytes));
    }
    const std::string repaired = is_valid_utf8(text) ? std::string() : repair_utf8(text);
    if (!repaired.empty()) text = repaired;
    std::vector<TextPiece> pieces = added_.split(text);
    if (pre_tokenizer_) pre_tokenizer_->apply(pieces);
    std::vector<int32_t> ids;
    for (const TextPiece& piece : pieces) {
      if (piece.token >= 0) {
        ids.push_back(piece.token);
      } else {
        model_.encode(piece.text, ids);
      }
    }
    if (post_processor_) post_processor_->apply(ids, add_special);
    return ids;
  }

  int64_t vocab_size() const noexcept override { return std::max(model_.vocabulary().size(), added_.size()); }

  std::optional<std::string> id_to_token(int32_t id) const override {
    const std::string* token = added_.content(id);
    if (token == nullptr) token = model_.vocabulary().token(id);
    if (token == nullptr) return std::nullopt;
    return *token;
  }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (const auto id = added_.find(std::string(token))) return id;
    return model_.vocabulary().find(token);
  }

 private:
  class Stream : public TokenTextStream {
   public:
    Stream(const JsonTokenizer& tokenizer, bool skip_special, bool streaming)
        : tokenizer_(tokenizer), skip_special_(skip_special), run_(tokenizer.decoders_, streaming) {}
    void push(int32_t id, std::string& out) override {
      const std::string* token = tokenizer_.added_.decoded(id);
      if (token == nullptr) token = tokenizer_.model_.vocabulary().token(id);
      if (token == nullptr || (skip_special_ && tokenizer_.added_.is_special(*token))) return;
      run_.push(*token, out);
    }
    void finish(std::string& out) override { run_.finish(out); }

   private:
    const JsonTokenizer& tokenizer_;
    bool skip_special_;
    DecoderRun run_;
  };

  std::unique_ptr<TokenTextStream> text_stream(bool skip_special, bool streaming) const override {
    return std::make_unique<Stream>(*this, skip_special, streaming);
  }

  static JsonRef added_list(const JsonDocument& document) {
    static const JsonValue empty = {JsonArray()};
    return document.root().find("added_tokens").value_or(JsonRef(document, empty));
  }
  static size_t token_count(const JsonDocument& document) {
    const JsonRef model = document.root().at("model");
    const JsonRef vocabulary = model.at("vocab");
    if (!vocabulary.is_object()) vocabulary.fail("an object that maps tokens to ids");
    return vocabulary.size() + added_list(document).size();
  }

  BpeModel model_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  AddedTokens added_;
  std::unique_ptr<PostProcessor> post_processor_;
  DecoderChain decoders_;
};

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::parse_json(std::string_view text, std::string_view source) {
  const JsonDocument document = JsonDocument::parse(text, source);
  if (!document.root().is_object()) document.root().fail("an object");
  return std::make_unique<JsonTokenizer>(document);
}

}  // namespace anyaccel::llm
