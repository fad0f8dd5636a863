// Builds the tokenizer that the keys of a GGUF file describe, by writing them as the files of a Hugging Face directory:
// the steps of a tokenizer.json say everything that the keys say.
#include "llm/tokenizer/gguf_tokenizer.h"

#include <array>
#include <string>
#include <unordered_set>
#include <utility>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/tokenizer/directory.h"

namespace anyaccel::llm {
namespace {

// The kinds of tokens in tokenizer.ggml.token_type.
enum TokenType : int64_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

constexpr std::string_view words_of_llama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view words_of_qwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// How the models that a name of tokenizer.ggml.pre stands for split a text, as their tokenizer.json says.
struct WordRule {
  std::string_view name;
  std::string_view pattern;        // splits first; empty: nothing does
  bool splits_as_gpt2 = false;     // after that
  bool takes_whole_words = false;  // a word that is in the vocabulary is not merged
  bool adds_bos = false;           // unless tokenizer.ggml.add_bos_token says otherwise
  bool composes = false;           // to Unicode's form NFC
};

constexpr std::array<WordRule, 6> word_rules = {{{"gpt-2", "", true},
                                                 {"llama-bpe", words_of_llama3, false, true, true},
                                                 {"llama3", words_of_llama3, false, true, true},
                                                 {"llama-v3", words_of_llama3, false, true, true},
                                                 {"qwen2", words_of_qwen2, false, false, false, true},
                                                 {"smollm", "\\p{N}", true}}};

const WordRule& find_word_rule(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("tokenizer.ggml.pre");
  std::string known;
  for (const WordRule& entry : word_rules) {
    if (entry.name == name) return entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  metadata.error("tokenizer.ggml.pre", "is " + quote_text(name) + ", which is not known; known are " + known);
}

JsonValue steps_before(const WordRule& kind) {
  JsonArray steps;
  if (!kind.pattern.empty()) {
    const JsonValue pattern = {{"Regex", kind.pattern}};
    steps.push_back({{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", kind.splits_as_gpt2}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

class TokenizerWriter {
 public:
  explicit TokenizerWriter(const GgufMetadata& metadata)
      : metadata_(metadata), kind_(find_word_rule(metadata)), tokens_(list("tokenizer.ggml.tokens")) {}

  std::string tokenizer_json() {
    JsonValue json = {{"version", "1.0"}, {"added_tokens", added_tokens()}};
    json["normalizer"] = kind_.composes ? JsonValue({{"type", "NFC"}}) : JsonValue();
    json["pre_tokenizer"] = steps_before(kind_);
    json["post_processor"] = ends();
    json["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    JsonValue model = {{"type", "BPE"}, {"ignore_merges", kind_.takes_whole_words}};
    model["vocab"] = vocabulary();
    model["merges"] = merges();
    json["model"] = std::move(model);
    return json_text(json);
  }

  std::string tokenizer_config() const {
    JsonValue json = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    for (const char* name : {"bos", "eos"}) {
      if (const auto id = id_of(name)) json[std::string(name) + "_token"] = tokens_[static_cast<size_t>(*id)];
    }
    return json_text(json);
  }

 private:
  const std::vector<std::string>& list(const char* key) const {
    const std::vector<std::string>* texts = metadata_.texts(key);
    if (texts == nullptr) metadata_.error(key, "is missing; expected a list of texts");
    return *texts;
  }

  std::optional<int64_t> id_of(const std::string& name) const {
    return metadata_.whole("tokenizer.ggml." + name + "_token_id", 0, static_cast<int64_t>(tokens_.size()) - 1);
  }

  JsonMembers vocabulary() const {
    JsonMembers members;
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].empty() || !seen.insert(tokens_[id]).second) {
        metadata_.error("tokenizer.ggml.tokens", "has " + quote_text(tokens_[id]) + " as token " + std::to_string(id) +
                                                     "; expected texts that are not empty and occur once");
      }
      members.push_back({tokens_[id], id});
    }
    return members;
  }

  JsonArray merges() const {
    JsonArray pairs;
    for (const std::string& merge : list("tokenizer.ggml.merges")) {
      // The left part may begin with a space.
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        metadata_.error("tokenizer.ggml.merges",
                        "has " + quote_text(merge) + "; expected two texts with a space between");
      }
      pairs.push_back(JsonArray{merge.substr(0, space), merge.substr(space + 1)});
    }
    return pairs;
  }

  JsonArray added_tokens() const {
    JsonArray added;
    const std::vector<int64_t>* types = metadata_.wholes("tokenizer.ggml.token_type");
    if (types == nullptr) return added;
    if (types->size() != tokens_.size()) {
      metadata_.error("tokenizer.ggml.token_type", "has " + std::to_string(types->size()) + " elements; expected " +
                                                       std::to_string(tokens_.size()) + ", as many as tokens");
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const int64_t type = (*types)[id];
      if (type == Normal || type == Unused) continue;
      if (type != Control && type != UserDefined) {
        metadata_.error("tokenizer.ggml.token_type",
                        "is " + std::to_string(type) + " for token " + std::to_string(id) +
                            "; expected 1 (normal), 3 (control), 4 (user-defined) or 5 (unused) in a byte-level "
                            "vocabulary");
      }
      added.push_back({{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type == Control}});
    }
    return added;
  }

  // The tokens around a text.
  JsonValue ends() const {
    JsonArray single;
    JsonMembers special;
    const auto add = [&](const char* name, bool by_default) {
      const std::string key = "tokenizer.ggml.add_" + std::string(name) + "_token";
      if (!metadata_.flag(key, by_default)) return;
      const auto id = id_of(name);
      if (!id) metadata_.error(key, "asks for a token that the file does not name; expected its id");
      const std::string& token = tokens_[static_cast<size_t>(*id)];
      single.push_back({{"SpecialToken", JsonValue({{"id", token}, {"type_id", 0}})}});
      const bool is_new = special.empty() || special.front().key != token;
      const JsonValue entry = {{"id", token}, {"ids", JsonArray{*id}}, {"tokens", JsonArray{token}}};
      if (is_new) special.push_back({token, entry});
    };
    add("bos", kind_.adds_bos);
    single.push_back({{"Sequence", JsonValue({{"id", "A"}, {"type_id", 0}})}});
    add("eos", false);
    if (special.empty()) return {};
    return {
        {"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", std::move(special)}};
  }

  const GgufMetadata& metadata_;
  const WordRule& kind_;
  const std::vector<std::string>& tokens_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& path) {
  const GgufModel model = open_gguf(path);
  const GgufMetadata& metadata = model.metadata();
  const std::string kind = metadata.required_text("tokenizer.ggml.model");
  if (kind != "gpt2") {
    metadata.error("tokenizer.ggml.model", "is " + quote_text(kind) +
                                               ", which is not supported; supported is gpt2 (byte-level byte pair "
                                               "encoding). A directory of the same model with its tokenizer.model or "
                                               "tokenizer.json can be used");
  }
  for (const char* key :
       {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces"}) {
    if (metadata.flag(key, false))
      metadata.error(key, "is true, which is not supported; expected false or no such key");
  }
  TokenizerWriter writer(metadata);
  TokenizerFiles files;
  files.tokenizer_json = TokenizerFile{path.string(), writer.tokenizer_json()};
  files.tokenizer_config = TokenizerFile{path.string(), writer.tokenizer_config()};
  return load_tokenizer(files, path.string());
}

}  // namespace anyaccel::llm
