// Builds the tokenizer that the keys of a GGUF file describe: byte-level byte pair encoding with merges, or
// SentencePiece's with scores.
#include "llm/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <utility>

#include "anyaccel/error.h"
#include "base/process/all_cores.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/checkpoint/gguf.h"
#include "llm/tokenizer/gguf_word_rules.h"
#include "llm/tokenizer/parts.h"
#include "llm/tokenizer/ranked_tokens.h"

namespace anyaccel::llm {
namespace {

// The kinds of tokens in tokenizer.ggml.token_type.
enum TokenType : int64_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

class TokenizerKeys {
 public:
  explicit TokenizerKeys(const GgufMetadata& metadata)
      : metadata_(metadata), tokens_(list("tokenizer.ggml.tokens")), types_(read_types()) {}

  const std::vector<std::string>& tokens() const { return tokens_; }
  size_t size() const { return tokens_.size(); }
  int64_t type(size_t id) const { return types_ == nullptr ? int64_t{Normal} : (*types_)[id]; }
  const std::vector<std::string>& list(const char* key) const {
    const std::vector<std::string>* texts = metadata_.texts(key);
    if (texts == nullptr) metadata_.error(key, "is missing; expected a list of texts");
    return *texts;
  }

  // Returns the tokens around a text. `adds_bos` applies unless a key says otherwise.
  TextEnds ends(bool adds_bos) const {
    TextEnds ends;
    ends.bos = id_of("bos");
    ends.eos = id_of("eos");
    ends.add_bos = adds("bos", ends.bos, adds_bos);
    ends.add_eos = adds("eos", ends.eos, false);
    return ends;
  }

 private:
  const std::vector<int64_t>* read_types() const {
    const std::vector<int64_t>* types = metadata_.wholes("tokenizer.ggml.token_type");
    if (types != nullptr && types->size() != tokens_.size()) {
      metadata_.error("tokenizer.ggml.token_type", "has " + std::to_string(types->size()) + " elements; expected " +
                                                       std::to_string(tokens_.size()) + ", as many as tokens");
    }
    return types;
  }

  std::optional<int32_t> id_of(const std::string& name) const {
    const auto id =
        metadata_.whole("tokenizer.ggml." + name + "_token_id", 0, static_cast<int64_t>(tokens_.size()) - 1);
    return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
  }

  bool adds(const std::string& name, const std::optional<int32_t>& id, bool by_default) const {
    const std::string key = "tokenizer.ggml.add_" + name + "_token";
    const bool wanted = metadata_.flag(key, by_default);
    if (wanted && !id) metadata_.error(key, "asks for a token that the file does not name; expected its id");
    return wanted;
  }

  const GgufMetadata& metadata_;
  const std::vector<std::string>& tokens_;
  const std::vector<int64_t>* types_;
};

// ---- byte level -----------------------------------------------------------------------------------------------------

JsonDocument steps_of(const WordRule& rule) {
  std::vector<std::string> patterns;
  for (const std::string_view pattern : rule.patterns) {
    if (!pattern.empty()) patterns.emplace_back(pattern);
  }
  return byte_level_steps(patterns, rule.splits_as_gpt2, rule.composes);
}

const WordRule& read_word_rule(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("tokenizer.ggml.pre");
  if (const WordRule* rule = find_word_rule(name)) return *rule;
  metadata.error("tokenizer.ggml.pre",
                 "is " + quote_text(name) + ", which is not known; known are " + word_rule_names());
}

Vocabulary read_vocabulary(const TokenizerKeys& keys, const GgufMetadata& metadata) {
  Vocabulary vocabulary(keys.tokens());
  for (size_t id = 0; id < keys.size(); ++id) {
    const std::string& token = keys.tokens()[id];
    const bool repeated = !vocabulary.is_unique() && vocabulary.find(token) != static_cast<int32_t>(id);
    if (!token.empty() && !repeated && is_valid_utf8(token)) continue;
    metadata.error("tokenizer.ggml.tokens", "has " + quote_text(token) + " as token " + std::to_string(id) +
                                                "; expected texts in UTF-8 that are not empty and occur once");
  }
  return vocabulary;
}

// Finds the ids of the merges from merges[first] on, as many as `ids` has elements.
void find_merges(const std::vector<std::string>& merges, size_t first, const Vocabulary& vocabulary,
                 const GgufMetadata& metadata, std::span<BpeModel::IdMerge> ids) {
  constexpr const char* key = "tokenizer.ggml.merges";
  std::vector<std::string> wholes(ids.size());
  std::vector<std::string_view> texts;  // left, right and whole of each
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& merge = merges[first + i];
    // The left part may begin with a space.
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      metadata.error(key, "has " + quote_text(merge) + "; expected two texts with a space between");
    }
    texts.push_back(std::string_view(merge).substr(0, space));
    texts.push_back(std::string_view(merge).substr(space + 1));
    wholes[i].assign(texts[3 * i]).append(texts[3 * i + 1]);
    texts.push_back(wholes[i]);
  }
  std::vector<int32_t> found(texts.size());
  vocabulary.find_all(texts, found);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (found[i] >= 0) continue;
    metadata.error(key,
                   "has " + quote_text(merges[first + i / 3]) + ", and " + quote_text(texts[i]) + " is not a token");
  }
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = {found[3 * i], found[3 * i + 1], found[3 * i + 2]};
}

std::vector<BpeModel::IdMerge> read_merges(const TokenizerKeys& keys, const Vocabulary& vocabulary,
                                           const GgufMetadata& metadata) {
  constexpr size_t at_once = 4096;
  const std::vector<std::string>& merges = keys.list("tokenizer.ggml.merges");
  std::vector<BpeModel::IdMerge> ids(merges.size());
  std::atomic<size_t> next{0};
  on_all_cores((merges.size() + at_once - 1) / at_once, [&] {
    for (size_t first = next.fetch_add(at_once); first < merges.size(); first = next.fetch_add(at_once)) {
      find_merges(merges, first, vocabulary, metadata,
                  std::span(ids).subspan(first, std::min(at_once, merges.size() - first)));
    }
  });
  return ids;
}

// Adds control and user-defined tokens, and the tokens at the ends of a text.
void add_special(const TokenizerKeys& keys, const GgufMetadata& metadata, const TextEnds& ends, AddedTokenList& list) {
  for (size_t id = 0; id < keys.size(); ++id) {
    const int64_t type = keys.type(id);
    const auto as_id = static_cast<int32_t>(id);
    const bool is_end = ends.bos == as_id || ends.eos == as_id;
    if (!is_end && (type == Normal || type == Unused)) continue;
    if (!is_end && type != Control && type != UserDefined) {
      metadata.error("tokenizer.ggml.token_type",
                     "is " + std::to_string(type) + " for token " + std::to_string(id) +
                         "; expected 1 (normal), 3 (control), 4 (user-defined) or 5 (unused) in a byte-level "
                         "vocabulary");
    }
    AddedToken token;
    token.content = keys.tokens()[id];
    token.normalized = false;
    token.special = is_end || type == Control;
    list.add(token);
  }
}

std::unique_ptr<Tokenizer> load_byte_level(const GgufMetadata& metadata) {
  for (const char* key :
       {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces"}) {
    if (metadata.flag(key, false)) {
      metadata.error(key, "is true, which is not supported in a byte-level vocabulary; expected false or no such key");
    }
  }
  const WordRule& rule = read_word_rule(metadata);
  const TokenizerKeys keys(metadata);
  const TextEnds ends = keys.ends(rule.adds_bos);
  Vocabulary vocabulary = read_vocabulary(keys, metadata);
  const std::vector<BpeModel::IdMerge> merges = read_merges(keys, vocabulary, metadata);
  BpeOptions options;
  options.ignore_merges = rule.takes_whole_words;
  TokenizerParts parts;
  parts.model = std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options));
  read_steps(steps_of(rule), parts);
  AddedTokenList list(parts.model->vocabulary());
  add_special(keys, metadata, ends, list);
  std::vector<int32_t> before, behind;
  if (ends.add_bos) before.push_back(*ends.bos);
  if (ends.add_eos) behind.push_back(*ends.eos);
  parts.post_processor = make_template(std::move(before), std::move(behind));
  return make_tokenizer(std::move(parts), list, ends);
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

std::unique_ptr<Tokenizer> load_by_scores(const GgufMetadata& metadata) {
  for (const char* key : {"tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces"}) {
    if (metadata.flag(key, false)) {
      metadata.error(key, "is true, which is not supported; expected false or no such key");
    }
  }
  const TokenizerKeys keys(metadata);
  const std::vector<double> scores = metadata.numbers("tokenizer.ggml.scores");
  if (scores.size() != keys.size()) {
    metadata.error("tokenizer.ggml.scores", "has " + std::to_string(scores.size()) + " elements; expected " +
                                                std::to_string(keys.size()) + ", one for each token");
  }
  SentencePieceModel model;
  model.model_type = 2;
  model.finds_special = true;
  model.remove_extra_whitespaces = false;
  model.add_dummy_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", true);
  size_t bytes = 0;
  for (size_t id = 0; id < keys.size(); ++id) {
    const std::string& token = keys.tokens()[id];
    const int64_t type = keys.type(id);
    if (token.empty() || !is_valid_utf8(token)) {
      metadata.error("tokenizer.ggml.tokens", "has " + quote_text(token) + " as token " + std::to_string(id) +
                                                  "; expected texts in UTF-8 that are not empty");
    }
    if (type < Normal || type > Byte) {
      metadata.error("tokenizer.ggml.token_type",
                     "is " + std::to_string(type) + " for token " + std::to_string(id) + "; expected 1 to 6");
    }
    if (scores[id] != scores[id]) {
      metadata.error("tokenizer.ggml.scores", "is not a number for token " + std::to_string(id));
    }
    bytes += type == Byte ? 1 : 0;
    model.pieces.push_back({token, static_cast<float>(scores[id]), static_cast<PieceType>(type)});
  }
  model.byte_fallback = bytes == 256;
  return make_sentencepiece(std::move(model), metadata.source(), keys.ends(true));
}

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& path) {
  return make_gguf_tokenizer(open_gguf(path)->metadata());
}

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata) {
  const std::string kind = metadata.required_text("tokenizer.ggml.model");
  if (kind == "gpt2") return load_byte_level(metadata);
  if (kind == "llama") return load_by_scores(metadata);
  metadata.error("tokenizer.ggml.model", "is " + quote_text(kind) +
                                             ", which is not supported; supported are gpt2 (byte-level byte pair "
                                             "encoding) and llama (SentencePiece's byte pair encoding). A directory of "
                                             "the same model with its tokenizer.json can be used");
}

}  // namespace anyaccel::llm
