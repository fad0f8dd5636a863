// Reads the small files that accompany a tokenizer.
#include "llm/tokenizer/settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "base/text/json.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {
namespace {

constexpr std::array<std::string_view, 7> standard_names = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                            "pad_token", "cls_token", "mask_token"};
constexpr int64_t most_ids = int64_t{1} << 28;

bool is_standard(std::string_view name) {
  return std::find(standard_names.begin(), standard_names.end(), name) != standard_names.end();
}

JsonDocument parse_object(const TokenizerFile& file) {
  JsonDocument document = JsonDocument::parse(file.text, file.path);
  if (!document.root().is_object()) document.root().fail("an object");
  return document;
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

// Reads a special token, which is its text or an object with its rules.
AddedToken read_special(const JsonRef& value) {
  AddedToken token;
  if (value.is_object()) {
    token = read_added_token(value);
    if (!value.has("normalized")) token.normalized = false;
  } else {
    token.content = value.string();
    token.normalized = false;
  }
  token.special = true;
  return token;
}

std::optional<bool> optional_flag(const JsonRef& root, std::string_view key) {
  const auto value = root.find(key);
  if (!value) return std::nullopt;
  return value->boolean();
}

// Collects the named tokens: a later value replaces an earlier one, and null removes it.
class NamedTokens {
 public:
  void set(const std::string& name, const AddedToken& token, bool implied = false) {
    remove(name);
    (is_standard(name) ? standard_ : others_).push_back({name, token, implied});
  }
  void remove(std::string_view name) {
    for (auto* list : {&standard_, &others_}) {
      std::erase_if(*list, [&](const NamedToken& token) { return token.name == name; });
    }
  }
  std::vector<NamedToken> in_order() const {
    std::vector<NamedToken> all;
    for (const std::string_view name : standard_names) {
      for (const NamedToken& token : standard_) {
        if (token.name == name) all.push_back(token);
      }
    }
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }

 private:
  std::vector<NamedToken> standard_;
  std::vector<NamedToken> others_;
};

void set_class_tokens(TokenizerClass kind, NamedTokens& named) {
  const auto set = [&](const char* name, const char* content) {
    AddedToken token;
    token.content = content;
    token.normalized = false;
    token.special = true;
    named.set(name, token, true);
  };
  const auto set_all = [&](std::initializer_list<std::pair<const char*, const char*>> tokens) {
    for (const auto& [name, content] : tokens) set(name, content);
  };
  switch (kind) {
    case TokenizerClass::Generic: break;
    case TokenizerClass::Llama: set_all({{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}}); break;
    case TokenizerClass::Qwen2:
      for (const char* name : {"unk_token", "eos_token", "pad_token"}) set(name, "<|endoftext|>");
      break;
    case TokenizerClass::Gpt2:
      for (const char* name : {"unk_token", "bos_token", "eos_token"}) set(name, "<|endoftext|>");
      break;
    case TokenizerClass::GptNeox:
      for (const char* name : {"unk_token", "bos_token", "eos_token"}) set(name, "<|endoftext|>");
      set("pad_token", "<|padding|>");
      break;
    case TokenizerClass::Cohere:
      set_all({{"unk_token", "<UNK>"},
               {"bos_token", "<BOS_TOKEN>"},
               {"eos_token", "<|END_OF_TURN_TOKEN|>"},
               {"pad_token", "<PAD>"},
               {"cls_token", "<CLS>"},
               {"sep_token", "<SEP>"},
               {"mask_token", "<MASK_TOKEN>"}});
      break;
    case TokenizerClass::Gemma:
      set_all({{"unk_token", "<unk>"},
               {"bos_token", "<bos>"},
               {"eos_token", "<eos>"},
               {"pad_token", "<pad>"},
               {"mask_token", "<mask>"}});
      break;
  }
}

// Reads every member called "<something>_token". The values of add_bos_token and add_eos_token are not tokens.
void read_named(const JsonRef& root, NamedTokens& named) {
  for (size_t i = 0; i < root.size(); ++i) {
    const std::string& name = root.key(i);
    const JsonRef value = root.member(i);
    if (!name.ends_with("_token") || value.is_bool()) continue;
    if (value.is_null()) {
      named.remove(name);
    } else if (is_standard(name) || value.is_string() || value.is_object()) {
      named.set(name, read_special(value));
    }
  }
}

// Reads a list of special tokens; in an object, they have names.
std::optional<std::vector<AddedToken>> read_list(const JsonRef& root, std::string_view key, NamedTokens& named) {
  const auto list = root.find(key);
  if (!list) return std::nullopt;
  if (list->is_object()) {
    for (size_t i = 0; i < list->size(); ++i) named.set(list->key(i), read_special(list->member(i)));
    return std::nullopt;
  }
  if (!list->is_array()) list->fail("a list of tokens");
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < list->size(); ++i) tokens.push_back(read_special((*list)[i]));
  return tokens;
}

// Collects tokens by their ids.
class IdMap {
 public:
  explicit IdMap(const std::string& file) : file_(file) {}
  void add(int64_t id, AddedToken token, const JsonRef& place) {
    token.id = static_cast<int32_t>(id);
    if (token.content.empty()) place.fail("a token that is not empty");
    if (const auto other = tokens_.find(token.id); other != tokens_.end()) {
      place.error("the id " + std::to_string(id) + " is also the id of " + quote_text(other->second.content));
    }
    if (!contents_.emplace(token.content, token.id).second) {
      place.error("the token " + quote_text(token.content) + " has the id " + std::to_string(contents_[token.content]) +
                  " too");
    }
    tokens_.emplace(token.id, std::move(token));
  }
  std::vector<DeclaredToken> tokens() const {
    std::vector<DeclaredToken> result;
    for (const auto& [id, token] : tokens_) result.push_back({token, file_});
    return result;
  }

 private:
  std::string file_;
  std::map<int32_t, AddedToken> tokens_;
  std::map<std::string, int32_t> contents_;
};

// Reads {"32000": {"content": "<|im_start|>", ...}, ...}.
std::vector<DeclaredToken> read_decoder(const JsonRef& value, const std::string& file) {
  if (!value.is_object()) value.fail("an object that maps ids to tokens");
  IdMap ids(file);
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string& key = value.key(i);
    const bool is_number = !key.empty() && key.size() <= 9 && (key == "0" || key[0] != '0') &&
                           std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    const int64_t id = is_number ? std::stoll(key) : most_ids;
    if (id >= most_ids) {
      value.member(i).error("the id " + quote_text(key) + " is not a whole number below " + std::to_string(most_ids));
    }
    ids.add(id, read_added_token(value.member(i)), value.member(i));
  }
  return ids.tokens();
}

// Reads {"<|im_start|>": 32000, ...}.
std::vector<DeclaredToken> read_added_tokens_file(const TokenizerFile& file, const TokenizerSettings& settings) {
  const JsonDocument document = parse_object(file);
  const JsonRef root = document.root();
  const auto is_special = [&](const std::string& content) {
    const auto same = [&](const AddedToken& token) { return token.content == content; };
    return std::any_of(settings.named.begin(), settings.named.end(),
                       [&](const NamedToken& named) {
                         return is_standard(named.name) && !named.implied && same(named.token);
                       }) ||
           (settings.extra && std::any_of(settings.extra->begin(), settings.extra->end(), same));
  };
  IdMap ids(file.path);
  for (size_t i = 0; i < root.size(); ++i) {
    AddedToken token;
    token.content = root.key(i);
    token.special = is_special(token.content);
    token.normalized = !token.special;
    ids.add(root.member(i).integer(0, most_ids - 1), token, root.member(i));
  }
  return ids.tokens();
}

struct ClassNames {
  std::string model_type;
  std::string name;  // without "Fast"; empty when no file names one
};

ClassNames read_names(const TokenizerFiles& files, const std::optional<JsonDocument>& config) {
  ClassNames names;
  const auto text = [](const JsonRef& root, std::string_view key) {
    const auto value = root.find(key);
    return value && value->is_string() ? value->string() : std::string();
  };
  if (config) names.name = text(config->root(), "tokenizer_class");
  if (files.config) {
    const JsonDocument model = parse_object(*files.config);
    names.model_type = text(model.root(), "model_type");
    if (names.name.empty()) names.name = text(model.root(), "tokenizer_class");
  }
  names.name = without_fast(names.name);
  return names;
}

// Returns whether transformers heeds fix_mistral_regex: releases before 5 wrote Mistral's tokenizers with a wrong pattern.
bool may_have_wrong_pattern(const TokenizerFiles& files, const std::string& model_type) {
  static constexpr std::string_view types[] = {"mistral", "mistral3", "voxtral", "ministral", "pixtral"};
  if (!files.config || std::ranges::count(types, model_type) == 0) return false;
  const JsonDocument model = parse_object(*files.config);
  const auto version = model.root().find("transformers_version");
  return !version || !version->is_string() || std::atoi(version->string().c_str()) < 5;
}

TokenizerClass class_called(const std::string& name, std::vector<std::string>& notes) {
  if (name == "LlamaTokenizer") return TokenizerClass::Llama;
  if (name == "Qwen2Tokenizer") return TokenizerClass::Qwen2;
  if (name == "GPT2Tokenizer" || name == "CodeGenTokenizer") return TokenizerClass::Gpt2;
  if (name == "GPTNeoXTokenizer") return TokenizerClass::GptNeox;
  if (name == "CohereTokenizer") return TokenizerClass::Cohere;
  if (name == "GemmaTokenizer") return TokenizerClass::Gemma;
  const bool generic = name.empty() || name == "PreTrainedTokenizer" || name == "TokenizersBackend" ||
                       name == "PythonBackend" || name == "BloomTokenizer";
  if (!generic) {
    notes.push_back("tokenizer: rules that the class " + quote_text(name) +
                    " has of its own are not known here; the files count as they are");
  }
  return TokenizerClass::Generic;
}

// Returns the class that transformers registers for the model type; empty if it has none. "TokenizersBackend" stands for
// the steps of tokenizer.json, whichever class the files name.
std::string_view registered_class(std::string_view model_type) {
  struct Families {
    std::string_view name;
    std::array<std::string_view, 12> model_types;
  };
  static constexpr Families families[] = {
      {"TokenizersBackend",
       {"glm", "glm4", "granite", "granitemoe", "granitemoeshared", "internlm3", "ministral", "mistral", "mixtral",
        "olmo2", "phi3", "stablelm"}},
      {"Qwen2Tokenizer", {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}},
      {"GPT2Tokenizer", {"gpt2", "gptj", "opt", "phi", "starcoder2"}},
      {"GPTNeoXTokenizer", {"gpt_neox", "mpt", "olmoe"}},
      {"GemmaTokenizer", {"gemma", "gemma2", "gemma3_text"}},
      {"CohereTokenizer", {"cohere", "cohere2"}},
  };
  if (model_type.empty()) return {};
  for (const Families& family : families) {
    if (std::ranges::count(family.model_types, model_type) > 0) return family.name;
  }
  return {};
}

// Returns the class that transformers' AutoTokenizer would choose for this directory.
TokenizerClass choose_class(const TokenizerFiles& files, const ClassNames& names, std::vector<std::string>& notes) {
  if (!files.tokenizer_json) {
    // Only LlamaTokenizer has rules for tokenizer.model.
    return names.name == "LlamaTokenizer" ? TokenizerClass::Llama : TokenizerClass::Generic;
  }
  const std::string_view registered = registered_class(names.model_type);
  if (registered == "TokenizersBackend") return TokenizerClass::Generic;
  if (names.model_type == "qwen2") return TokenizerClass::Qwen2;
  if (names.name.empty()) return class_called(std::string(registered), notes);
  const bool byte_level = files.tokenizer_json->text.find("\"ByteLevel\"") != std::string::npos;
  if (names.name == "LlamaTokenizer" && byte_level) return TokenizerClass::Generic;
  return class_called(names.name, notes);
}

}  // namespace

std::string_view tokenizer_class_name(TokenizerClass kind) noexcept {
  switch (kind) {
    case TokenizerClass::Generic: return "PreTrainedTokenizerFast";
    case TokenizerClass::Llama: return "LlamaTokenizer";
    case TokenizerClass::Qwen2: return "Qwen2Tokenizer";
    case TokenizerClass::Gpt2: return "GPT2Tokenizer";
    case TokenizerClass::GptNeox: return "GPTNeoXTokenizer";
    case TokenizerClass::Cohere: return "CohereTokenizer";
    case TokenizerClass::Gemma: return "GemmaTokenizer";
  }
  return "unknown";
}

const AddedToken* TokenizerSettings::find_named(std::string_view name) const {
  for (const NamedToken& token : named) {
    if (token.name == name) return &token.token;
  }
  return nullptr;
}

TokenizerSettings read_tokenizer_settings(const TokenizerFiles& files) {
  TokenizerSettings settings;
  NamedTokens named;
  std::optional<JsonDocument> config;
  if (files.tokenizer_config) config = parse_object(*files.tokenizer_config);
  const ClassNames names = read_names(files, config);
  settings.kind = choose_class(files, names, settings.notes);
  settings.names_llama = names.name == "LlamaTokenizer";
  set_class_tokens(settings.kind, named);

  if (config) {
    const JsonRef root = config->root();
    read_named(root, named);
    settings.extra = read_list(root, "extra_special_tokens", named);
    if (!settings.extra || settings.extra->empty()) {
      if (auto additional = read_list(root, "additional_special_tokens", named)) settings.extra = additional;
    }
    // LlamaTokenizer interprets null, like false, as the newer rule.
    settings.legacy = read_flag(root, "legacy", false);
    settings.add_prefix_space = optional_flag(root, "add_prefix_space");
    settings.add_bos = optional_flag(root, "add_bos_token");
    settings.add_eos = optional_flag(root, "add_eos_token");
    settings.split_special = read_flag(root, "split_special_tokens", false);
    settings.removes_spaces = read_flag(root, "clean_up_tokenization_spaces", false);
    settings.removes_spaces_bpe =
        settings.removes_spaces &&
        read_flag(root, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", false);
    settings.mends_mistral =
        read_flag(root, "fix_mistral_regex", false) && may_have_wrong_pattern(files, names.model_type);
    // Null, which transformers rejects, counts as absent here.
    if (const auto decoder = root.find("added_tokens_decoder")) {
      settings.has_decoder = true;
      settings.declared = read_decoder(*decoder, files.tokenizer_config->path);
    }
    if (root.find("auto_map")) {
      settings.notes.push_back(files.tokenizer_config->path +
                               ": names Python code of its own (auto_map), which is not run; the other files count");
    }
  }
  // Older versions wrote these two files; they are not read if there is an added_tokens_decoder.
  if (files.special_tokens_map && !settings.has_decoder) {
    const JsonDocument map = parse_object(*files.special_tokens_map);
    read_named(map.root(), named);
    if (const auto more = read_list(map.root(), "extra_special_tokens", named)) {
      if (!settings.extra) settings.extra.emplace();
      settings.extra->insert(settings.extra->end(), more->begin(), more->end());
    }
    settings.additional = read_list(map.root(), "additional_special_tokens", named).value_or(std::vector<AddedToken>());
  }
  settings.named = named.in_order();
  if (files.added_tokens) {
    (settings.has_decoder ? settings.passed_over : settings.declared) =
        read_added_tokens_file(*files.added_tokens, settings);
  }
  return settings;
}

}  // namespace anyaccel::llm
