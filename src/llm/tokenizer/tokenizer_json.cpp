// Builds a tokenizer from its parts (added tokens, normalizer, pre-tokenizer, model,
// post-processor, decoder), and reads them from a tokenizer.json.
#include <algorithm>

#include "anyaccel/error.h"
#include "base/text/utf8.h"
#include "llm/tokenizer/parts.h"
#include "llm/tokenizer/stream.h"
#include "llm/tokenizer/unigram.h"
#include "llm/tokenizer/word_piece.h"

namespace anyaccel::llm {
namespace {

const JsonValue absent;

// A member that may be missing or null, as a value.
JsonRef member_or_null(const JsonDocument& document, std::string_view key) {
  return document.root().find(key).value_or(JsonRef(document, absent));
}

JsonRef added_list(const JsonDocument& document) {
  static const JsonValue empty = {JsonArray()};
  return document.root().find("added_tokens").value_or(JsonRef(document, empty));
}

// The kind of a model. Older files do not have "type" and are told apart by their fields.
std::string model_type(const JsonRef& model) {
  if (const auto type = model.find("type")) return type->string();
  if (model.has("vocab") && model.at("vocab").is_array()) return "Unigram";
  if (model.has("merges") || !model.has("unk_token")) return "BPE";
  return model.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

class ComposedTokenizer : public Tokenizer {
 public:
  ComposedTokenizer(TokenizerParts parts, const AddedTokenList& added, const TextEnds& ends)
      : parts_(std::move(parts)), added_(added, parts_.normalizer.get(), parts_.split_special) {
    bos_id_ = ends.bos;
    eos_id_ = ends.eos;
  }

  std::vector<int32_t> encode(std::string_view text, bool add_special) const override {
    check_text_size(text);
    const std::string repaired = is_valid_utf8(text) ? std::string() : repair_utf8(text);
    if (!repaired.empty()) text = repaired;
    PatternWork work(text.size());
    std::vector<TextPiece> pieces = added_.split(text, work);
    if (parts_.pre_tokenizer) parts_.pre_tokenizer->apply(pieces, work);
    std::vector<int32_t> ids;
    for (const TextPiece& piece : pieces) {
      if (piece.token >= 0) {
        ids.push_back(piece.token);
      } else {
        parts_.model->encode(piece.text, ids);
      }
    }
    if (parts_.post_processor) parts_.post_processor->apply(ids, add_special);
    return ids;
  }

  int64_t vocab_size() const noexcept override { return std::max(vocabulary().size(), added_.size()); }

  std::optional<std::string> id_to_token(int32_t id) const override {
    const std::string* token = added_.content(id);
    if (token == nullptr) token = vocabulary().token(id);
    if (token == nullptr) return std::nullopt;
    return *token;
  }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (const auto id = added_.find(std::string(token))) return id;
    return vocabulary().find(token);
  }

  std::string token_bytes(int32_t id, bool at_start) const override {
    const std::string* token = added_.decoded(id);
    if (token == nullptr) token = vocabulary().token(id);
    if (token == nullptr || added_.is_special(*token)) return {};
    return parts_.decoders->token_bytes(*token, at_start);
  }

 private:
  class Stream : public TokenTextStream {
   public:
    Stream(const ComposedTokenizer& tokenizer, bool skip_special, bool streaming)
        : tokenizer_(tokenizer), skip_special_(skip_special), run_(*tokenizer.parts_.decoders, streaming) {}
    void push(int32_t id, std::string& out) override {
      const std::string* token = tokenizer_.added_.decoded(id);
      if (token == nullptr) token = tokenizer_.vocabulary().token(id);
      if (token == nullptr || (skip_special_ && tokenizer_.added_.is_special(*token))) return;
      run_.push(*token, out);
    }
    void finish(std::string& out) override { run_.finish(out); }

   private:
    const ComposedTokenizer& tokenizer_;
    bool skip_special_;
    DecoderRun run_;
  };

  const Vocabulary& vocabulary() const { return parts_.model->vocabulary(); }
  std::unique_ptr<TokenTextStream> text_stream(bool skip_special, bool streaming) const override {
    return std::make_unique<Stream>(*this, skip_special, streaming);
  }

  TokenizerParts parts_;
  AddedTokens added_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerParts parts, const AddedTokenList& added, const TextEnds& ends) {
  return std::make_unique<ComposedTokenizer>(std::move(parts), added, ends);
}

std::unique_ptr<TokenModel> read_token_model(const JsonDocument& document, const std::optional<BpeOptions>& options) {
  if (!document.root().is_object()) document.root().fail("an object");
  const JsonRef model = document.root().at("model");
  if (!model.is_object()) model.fail("an object");
  const std::string type = model_type(model);
  const JsonRef vocabulary = model.at("vocab");
  if (options && type != "BPE") {
    vocabulary.error("this is a " + quote_text(type) +
                     " tokenizer, and the class that the files name needs BPE (byte pair encoding)");
  }
  if (type == "Unigram") return std::make_unique<UnigramModel>(model);
  if (type != "BPE" && type != "WordPiece" && type != "WordLevel") {
    model.at("type").error("the model " + quote_text(type) +
                           " is not supported; supported are BPE, Unigram, WordPiece, WordLevel");
  }
  if (!vocabulary.is_object()) vocabulary.fail("an object that maps tokens to ids");
  const size_t count = vocabulary.size() + added_list(document).size();
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(model, count);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(model, count);
  return std::make_unique<BpeModel>(model, count, options);
}

void read_steps(const JsonDocument& document, TokenizerParts& parts) {
  parts.normalizer = read_normalizer(member_or_null(document, "normalizer"));
  parts.pre_tokenizer = read_pre_tokenizer(member_or_null(document, "pre_tokenizer"));
  parts.decoders = std::make_unique<DecoderChain>(member_or_null(document, "decoder"));
}

std::unique_ptr<PostProcessor> read_post_processor(const JsonDocument& document, int64_t max_id) {
  return read_post_processor(member_or_null(document, "post_processor"), max_id);
}

void read_added_tokens(const JsonDocument& document, AddedTokenList& list) { list.add_json(added_list(document)); }

std::unique_ptr<Tokenizer> Tokenizer::parse_json(std::string_view text, std::string_view source) {
  const JsonDocument document = JsonDocument::parse(text, source);
  TokenizerParts parts;
  parts.model = read_token_model(document);
  read_steps(document, parts);
  AddedTokenList added(parts.model->vocabulary());
  read_added_tokens(document, added);
  parts.post_processor = read_post_processor(document, added.size() - 1);
  return make_tokenizer(std::move(parts), added);
}

}  // namespace anyaccel::llm
