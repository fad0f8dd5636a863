// Converts a directory's tokenizer to the keys of a GGUF file, and checks that they describe the same tokenizer.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "anyaccel/error.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "base/text/utf8.h"
#include "llm/quantize/gguf_model_keys.h"
#include "llm/tokenizer/directory.h"
#include "llm/tokenizer/gguf_tokenizer.h"
#include "llm/tokenizer/gguf_word_rules.h"
#include "llm/tokenizer/sentencepiece_model.h"

namespace anyaccel::llm {
namespace {

struct PreTokenizerSteps {
  std::vector<std::string> patterns;
  bool is_byte_level = false;
  bool splits_as_gpt2 = false;
  bool is_other = false;  // there is a step that no rule has
};

void collect_steps(const JsonRef& value, PreTokenizerSteps& steps) {
  if (!value.is_object()) return;
  const std::string& type = component_type(value);
  if (type == "Sequence") {
    const JsonRef list = value.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) collect_steps(list[i], steps);
  } else if (type == "Split") {
    const auto regex = value.at("pattern").find("Regex");
    const bool inverted = value.find("invert") && value.at("invert").boolean();
    const std::string& behavior = value.at("behavior").string();
    // Removing the text between matches is equivalent if the pattern matches everything.
    steps.is_other |= !regex || !((behavior == "Isolated" && !inverted) || (behavior == "Removed" && inverted));
    if (regex) steps.patterns.push_back(regex->string());
  } else if (type == "Digits") {
    const auto each = value.find("individual_digits");
    steps.is_other |= !each || !each->boolean();
    steps.patterns.emplace_back("\\p{N}");
  } else if (type == "ByteLevel") {
    const auto prefix = value.find("add_prefix_space");
    const auto regex = value.find("use_regex");
    steps.is_byte_level = true;
    steps.splits_as_gpt2 = !regex || regex->boolean();
    steps.is_other |= prefix && prefix->boolean();
  } else {
    steps.is_other = true;
  }
}

// Returns the merges of a tokenizer.json as GGUF stores them: two texts with a space between.
std::vector<std::string> merge_texts(const JsonRef& merges) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonRef merge = merges[i];
    if (merge.is_array()) {
      texts.push_back(merge[0].string() + " " + merge[1].string());
    } else if (!merge.string().starts_with("#version")) {
      texts.push_back(merge.string());
    }
  }
  return texts;
}

// Returns scores that make SentencePiece merge in the order of the merges: the earlier a merge, the better the score of
// its result.
std::vector<float> scores_of_merges(const std::vector<std::string>& merges, const std::vector<std::string>& tokens) {
  std::map<std::string, size_t, std::less<>> rank;
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string whole = merges[i];
    const size_t space = whole.find(' ', 1);
    if (space != std::string::npos) whole.erase(space, 1);
    rank.emplace(std::move(whole), i);
  }
  std::vector<float> scores;
  for (const std::string& token : tokens) {
    const auto found = rank.find(token);
    scores.push_back(found == rank.end() ? 0.0F : -static_cast<float>(found->second + 1));
  }
  return scores;
}

enum GgufTokenType : int32_t { NormalToken = 1, UnknownToken, ControlToken, UserToken, UnusedToken, ByteToken };

class TokenizerKeysWriter {
 public:
  TokenizerKeysWriter(const std::filesystem::path& directory, const Tokenizer& tokenizer, const ModelConfig& config,
                      GgufKeys& keys, std::vector<std::string>& notes)
      : directory_(directory.string()),
        tokenizer_(tokenizer),
        config_(config),
        keys_(keys),
        notes_(notes),
        files_(read_tokenizer_files(directory)) {}

  void write() {
    for (int64_t id = 0; id < config_.vocab_size; ++id) {
      const auto token = tokenizer_.id_to_token(static_cast<int32_t>(id));
      // A model's embedding may have more rows than there are tokens.
      tokens_.push_back(token ? *token : "[PAD" + std::to_string(id) + "]");
      types_.push_back(token ? NormalToken : UnusedToken);
    }
    if (files_.tokenizer_json) {
      from_json();
    } else {
      from_sentencepiece();
    }
    keys_.add_texts("tokenizer.ggml.tokens", tokens_);
    keys_.add_wholes("tokenizer.ggml.token_type", types_);
    add_ends();
    check();
    add_chat_template();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError(directory_ + ": the tokenizer " + what + ", which the keys of a GGUF file cannot describe");
  }

  void set_type(int64_t id, int32_t type) {
    if (id >= 0 && id < static_cast<int64_t>(types_.size())) types_[static_cast<size_t>(id)] = type;
  }

  void from_json() {
    const JsonDocument document = JsonDocument::parse(files_.tokenizer_json->text, files_.tokenizer_json->path);
    const JsonRef model = document.root().at("model");
    const std::vector<std::string> merges = merge_texts(model.at("merges"));
    if (const auto added = document.root().find("added_tokens")) {
      for (size_t i = 0; i < added->size(); ++i) {
        const auto special = (*added)[i].find("special");
        set_type((*added)[i].at("id").integer(0, INT32_MAX), special && special->boolean() ? ControlToken : UserToken);
      }
    }
    const TokenizerSettings settings = read_tokenizer_settings(files_);
    mark_named(settings);
    // Some tokenizer classes have their own steps, whatever the file says.
    const bool generic = settings.kind == TokenizerClass::Generic;
    std::optional<JsonDocument> of_class;
    if (!generic) of_class.emplace(class_steps(settings.kind, settings));
    const JsonRef around = generic ? document.root() : of_class->root();
    PreTokenizerSteps steps;
    if (const auto pre = around.find("pre_tokenizer")) collect_steps(*pre, steps);
    if (steps.is_byte_level) {
      const auto whole = model.find("ignore_merges");
      return write_byte_level(around, steps, generic && whole && whole->boolean(), merges);
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].size() == 6 && tokens_[id].starts_with("<0x") && types_[id] == NormalToken)
        types_[id] = ByteToken;
    }
    const auto unknown = model.find("unk_token");
    const auto id = unknown ? tokenizer_.token_to_id(unknown->string()) : std::nullopt;
    if (!id) refuse("has merges of characters and no token for unknown ones");
    set_type(*id, UnknownToken);
    write_scores(scores_of_merges(merges, tokens_));
  }

  // Marks special tokens that only the settings name.
  void mark_named(const TokenizerSettings& settings) {
    for (const NamedToken& named : settings.named) {
      const auto id = tokenizer_.token_to_id(named.token.content);
      if (id && !named.implied) set_type(*id, ControlToken);
    }
  }

  void write_byte_level(const JsonRef& around, const PreTokenizerSteps& steps, bool whole_words,
                        const std::vector<std::string>& merges) {
    const auto normalizer = around.find("normalizer");
    const bool composes = normalizer && component_type(*normalizer) == "NFC";
    if (normalizer && !composes) refuse("has a normalizer");
    const auto find = [&](bool also_composes) {
      return steps.is_other ? nullptr
                            : find_word_rule(steps.patterns, steps.splits_as_gpt2, whole_words, also_composes);
    };
    const WordRule* rule = find(composes);
    if (rule == nullptr && composes) {
      rule = find(false);
      loses_composing_ = rule != nullptr;
    }
    if (loses_composing_) {
      notes_.push_back(
          "readers of the file do not normalize text to NFC, as the directory's tokenizer does: text with "
          "letters and accents apart gets other ids");
    }
    if (rule == nullptr) refuse("splits a text into words in a way that has no name there");
    keys_.add_text("tokenizer.ggml.model", "gpt2");
    keys_.add_text("tokenizer.ggml.pre", rule->names.front());
    keys_.add_texts("tokenizer.ggml.merges", merges);
  }

  void from_sentencepiece() {
    const SentencePieceModel model =
        parse_sentencepiece_model(files_.tokenizer_model->text, files_.tokenizer_model->path);
    std::vector<float> scores(tokens_.size(), 0.0F);
    for (size_t id = 0; id < std::min(model.pieces.size(), tokens_.size()); ++id) {
      scores[id] = model.pieces[id].score;
      types_[id] = static_cast<int32_t>(model.pieces[id].type);
    }
    for (const DeclaredToken& declared : read_tokenizer_settings(files_).declared) {
      if (declared.token.id >= static_cast<int32_t>(model.pieces.size())) {
        set_type(declared.token.id, declared.token.special ? ControlToken : UserToken);
      }
    }
    write_scores(scores);
  }

  void write_scores(const std::vector<float>& scores) {
    constexpr std::string_view space = "\xE2\x96\x81";
    keys_.add_text("tokenizer.ggml.model", "llama");
    keys_.add_text("tokenizer.ggml.pre", "default");
    keys_.add_numbers("tokenizer.ggml.scores", scores);
    const std::vector<int32_t> ids = tokenizer_.encode("a", false);
    const auto first = ids.empty() ? std::nullopt : tokenizer_.id_to_token(ids[0]);
    keys_.add_flag("tokenizer.ggml.add_space_prefix", first && first->starts_with(space));
  }

  void add_ends() {
    const std::vector<int32_t> with = tokenizer_.encode("a", true);
    const std::vector<int32_t> without = tokenizer_.encode("a", false);
    const auto at = std::search(with.begin(), with.end(), without.begin(), without.end());
    const auto before = at - with.begin();
    const auto behind = with.end() - at - static_cast<ptrdiff_t>(without.size());
    if (without.empty() || at == with.end() || before > 1 || behind > 1) {
      refuse("puts other tokens around a text than one before and one behind it");
    }
    const auto bos = before == 1           ? std::optional(with.front())
                     : tokenizer_.bos_id() ? tokenizer_.bos_id()
                                           : config_.bos_token_id;
    if (bos && *bos < config_.vocab_size) keys_.add_whole("tokenizer.ggml.bos_token_id", *bos);
    std::vector<int32_t> ends = config_.eos_token_ids;
    if (behind == 1) std::erase(ends, with.back()), ends.insert(ends.begin(), with.back());
    const char* const names[] = {"eos", "eot", "eom"};
    if (ends.size() > std::size(names)) {
      throw CheckpointError(directory_ + ": the model has " + std::to_string(ends.size()) +
                            " ends of text; a GGUF file can name 3");
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      keys_.add_whole("tokenizer.ggml." + std::string(names[i]) + "_token_id", ends[i]);
    }
    keys_.add_flag("tokenizer.ggml.add_bos_token", before == 1);
    keys_.add_flag("tokenizer.ggml.add_eos_token", behind == 1);
  }

  // The template is stored for programs that render chats.
  void add_chat_template() {
    const std::filesystem::path path = std::filesystem::path(directory_) / "chat_template.jinja";
    constexpr size_t most = size_t{16} << 20;
    if (has_name(path)) {
      keys_.add_text("tokenizer.chat_template", read_whole_file(path, most));
    } else if (files_.tokenizer_config) {
      const JsonDocument document = JsonDocument::parse(files_.tokenizer_config->text, files_.tokenizer_config->path);
      const auto found = document.root().find("chat_template");
      if (found && found->is_string()) keys_.add_text("tokenizer.chat_template", found->string());
    }
  }

  // Reads the keys back and compares the ids of both tokenizers.
  void check() const {
    std::string file = "GGUF";
    const auto put = [&file](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(uint32_t{3});
    put(uint64_t{0});
    put(keys_.count());
    file += keys_.bytes();
    const GgufHeader header = parse_gguf_header(
        [&file](uint64_t offset, std::span<std::byte> out) {
          std::memcpy(out.data(), file.data() + offset, out.size());
        },
        file.size(), directory_);
    const std::unique_ptr<Tokenizer> described = make_gguf_tokenizer(header.metadata);
    for (const std::string& text : sample_texts()) {
      const std::vector<int32_t> ids = tokenizer_.encode(text);
      // Decoding gives the text in NFC.
      if (described->encode(loses_composing_ ? tokenizer_.decode(ids) : text) == ids) continue;
      refuse("gives other ids for " + quote_text(text) + " than the nearest one that can be described");
    }
  }

  // Returns fixed texts of several kinds, and the vocabulary's own words side by side.
  std::vector<std::string> sample_texts() const {
    std::vector<std::string> texts = {
        "",
        "Hello, world! It's 2024, isn't it? I'LL see: 1234567890.",
        "  two spaces,\ttabs\n\nlines\r\n and   more  ",
        "def f(x_1, y):\n    return x_1**2 != y // 3  # comment",
        "Ünïcödé e\xCC\x81 ὈΔΥΣΣΕΎΣ Привет, мир!",
        "日本語のテキスト、中文字符。한국어 문장",
        "नमस्ते दुनिया العربية ไทย 🙂👍🏽 ½ Ⅷ ٣٤٥"};
    const size_t step = std::max<size_t>(tokens_.size() / 2000, 1);
    std::string text;
    for (size_t id = 0; id < tokens_.size(); id += step) {
      if (types_[id] != NormalToken) continue;
      const auto as_id = static_cast<int32_t>(id);
      text += tokenizer_.decode({&as_id, 1}, false);
      if (id / step % 8 == 7) texts.push_back(std::exchange(text, {}));
    }
    std::erase_if(texts, [](const std::string& one) { return !is_valid_utf8(one); });
    return texts;
  }

  std::string directory_;
  const Tokenizer& tokenizer_;
  const ModelConfig& config_;
  GgufKeys& keys_;
  std::vector<std::string>& notes_;
  bool loses_composing_ = false;
  TokenizerFiles files_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

void add_tokenizer_keys(const std::filesystem::path& directory, const Tokenizer& tokenizer, const ModelConfig& config,
                        GgufKeys& keys, std::vector<std::string>& notes) {
  TokenizerKeysWriter(directory, tokenizer, config, keys, notes).write();
}

}  // namespace anyaccel::llm
