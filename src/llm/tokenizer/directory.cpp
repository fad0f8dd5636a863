// Builds a tokenizer from the files of a directory, as transformers' AutoTokenizer does.
#include "llm/tokenizer/directory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "anyaccel/error.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "llm/checkpoint/hub_folder.h"
#include "llm/tokenizer/merges_file.h"
#include "llm/tokenizer/parts.h"
#include "llm/tokenizer/ranked_tokens.h"

namespace anyaccel::llm {

// Has access to the members of a tokenizer that loading sets.
class TokenizerDirectory {
 public:
  static void set_ends(Tokenizer& tokenizer, const TokenizerSettings& settings) {
    const auto id_of = [&](std::string_view name) {
      const AddedToken* token = settings.find_named(name);
      return token == nullptr ? std::nullopt : tokenizer.token_to_id(token->content);
    };
    if (settings.find_named("bos_token") != nullptr) tokenizer.bos_id_ = id_of("bos_token");
    if (settings.find_named("eos_token") != nullptr) tokenizer.eos_id_ = id_of("eos_token");
  }
  static void set_added_ends(Tokenizer& tokenizer, const TokenizerSettings& settings) {
    tokenizer.set_added_ends(settings.add_bos, settings.add_eos);
  }
  static void set_notes(Tokenizer& tokenizer, std::vector<std::string> notes) { tokenizer.notes_ = std::move(notes); }
  static void set_spare(Tokenizer& tokenizer, const TokenizerSettings& settings) {
    for (const NamedToken& named : settings.named) {
      const auto id = tokenizer.token_to_id(named.token.content);
      if (id && (named.implied || named.name == "pad_token")) tokenizer.spare_ids_.push_back(*id);
    }
  }
};

namespace {

constexpr size_t max_tokenizer_bytes = 512 << 20;
constexpr size_t max_settings_bytes = 16 << 20;

constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|)"
    R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";

}  // namespace

JsonDocument class_steps(TokenizerClass kind, const TokenizerSettings& settings) {
  const bool prefix = settings.add_prefix_space.value_or(kind == TokenizerClass::Llama);
  const std::string flag = prefix ? "true" : "false";
  std::string text;
  if (kind == TokenizerClass::Llama) {
    const std::string scheme = !prefix ? "never" : settings.legacy ? "always" : "first";
    text = R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "split": false, "prepend_scheme": ")" +
           scheme + R"("}, "decoder": {"type": "Sequence", "decoders": [)" +
           R"({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, )" +
           R"({"type": "Fuse"})" + (prefix ? R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0})" : "") +
           "]}}";
  } else if (kind == TokenizerClass::Qwen2) {
    text = R"({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" +
           std::string(R"({"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex": ")") +
           std::string(qwen2_pattern) + R"("}}, {"type": "ByteLevel", "use_regex": false, "add_prefix_space": )" +
           flag + R"(}]}, "decoder": {"type": "ByteLevel"}})";
  } else if (kind == TokenizerClass::Gemma) {
    text = R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, )"
           R"("decoder": {"type": "Sequence", "decoders": [)"
           R"({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, )"
           R"({"type": "Fuse"}]}})";
  } else {
    const bool composes = kind != TokenizerClass::Gpt2;
    const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": )" + flag + "}";
    const std::string digits =
        R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, )" + bytes + "]}";
    text = R"({"normalizer": )" + std::string(composes ? R"({"type": "NFC"})" : "null") + R"(, "pre_tokenizer": )" +
           (kind == TokenizerClass::Cohere ? digits : bytes) + R"(, "decoder": {"type": "ByteLevel"}})";
  }
  return JsonDocument::parse(text, tokenizer_class_name(kind));
}

namespace {

constexpr std::string_view mistral_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int64_t least_mistral_size = 100001;  // transformers leaves smaller vocabularies alone

// Puts Mistral's pattern in the place of the first step of a sequence, or before a single step, as transformers does.
std::unique_ptr<PreTokenizer> with_mistral_pattern(const JsonDocument& document) {
  const JsonRef steps = document.root().at("pre_tokenizer");
  const std::string& type = steps.at("type").string();
  JsonArray mended = {{{"type", "Split"},
                       {"pattern", JsonMembers{{"Regex", mistral_pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}}};
  if (type == "Sequence") {
    const JsonRef list = steps.at("pretokenizers");
    for (size_t i = 1; i < list.size(); ++i) mended.push_back(list[i].value());
  } else if (type == "Metaspace") {
    mended.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  } else {
    mended.push_back(steps.value());
  }
  const JsonDocument text =
      JsonDocument::parse(json_text({{"type", "Sequence"}, {"pretokenizers", std::move(mended)}}), document.source());
  return read_pre_tokenizer(text.root());
}

std::optional<BpeOptions> class_options(const TokenizerSettings& settings) {
  if (settings.kind == TokenizerClass::Generic) return std::nullopt;
  BpeOptions options;
  const bool gemma = settings.kind == TokenizerClass::Gemma;
  options.fuse_unknown = options.byte_fallback = gemma || settings.kind == TokenizerClass::Llama;
  const AddedToken* unknown = settings.find_named("unk_token");
  if (gemma && unknown != nullptr) options.unknown = unknown->content;
  return options;
}

std::map<int32_t, AddedToken> by_id(const std::vector<DeclaredToken>& tokens) {
  std::map<int32_t, AddedToken> map;
  for (const DeclaredToken& declared : tokens) map.emplace(declared.token.id, declared.token);
  return map;
}

// Adds the tokens of the settings in transformers' order, which determines which new token gets which id.
void add_tokens(const TokenizerSettings& settings, const std::map<int32_t, AddedToken>& declared,
                const std::vector<AddedToken>& extra, AddedTokenList& list) {
  std::vector<AddedToken> added;
  const auto is_named = [&](const std::string& content) {
    return std::any_of(settings.named.begin(), settings.named.end(),
                       [&](const NamedToken& named) { return named.token.content == content; });
  };
  std::unordered_set<std::string> known;
  for (const AddedToken& token : list.tokens()) known.insert(token.content);
  for (const auto& [id, token] : declared) {
    known.insert(token.content);
    added.push_back(token);
    added.back().special = token.special || is_named(token.content);
  }
  // If two settings name the same new token, the later one's rules apply.
  const auto add_unknown = [&](const AddedToken& token) {
    if (!known.contains(token.content)) added.push_back(token);
  };
  for (const NamedToken& named : settings.named) add_unknown(named.token);
  for (const AddedToken& token : extra) add_unknown(token);
  for (const AddedToken& token : added) list.add(token);
  if (settings.kind != TokenizerClass::Qwen2) return;
  // This class adds its special tokens once more, without the rules that files gave them.
  const auto add_plain = [&](const AddedToken& token) {
    AddedToken plain;
    plain.content = token.content;
    plain.normalized = false;
    plain.special = true;
    list.add(plain);
  };
  for (const NamedToken& named : settings.named) add_plain(named.token);
  for (const AddedToken& token : extra) add_plain(token);
}

// Checks that the ids in every file are those of the tokens. `base` has the tokens that `source`, the tokenizer's main
// file, defines.
void check_ids(const std::vector<DeclaredToken>& declared, const AddedTokenList& list, const AddedTokenList& base,
               const std::string& source) {
  for (const auto& [token, file] : declared) {
    const auto id = list.id_of(token.content);
    if (id == token.id) continue;
    const auto in_base = base.id_of(token.content);
    const auto other = base.text_of(token.id);
    std::string message =
        file + ": the token " + quote_text(token.content) + " has the id " + std::to_string(token.id) + " there, but ";
    if (in_base && in_base != token.id) {
      message += std::to_string(*in_base) + " in " + source;
    } else if (other && *other != token.content) {
      message += "in " + source + " that is the id of " + quote_text(*other);
    } else if (id) {
      message += "the next free id behind those of " + source + " is " + std::to_string(*id);
    } else {
      message += "it gets none beside " + source;
    }
    throw CheckpointError(message + "; expected all files to agree, and no free ids between new tokens");
  }
}

std::string name_of(const AddedToken* token, const char* fallback) {
  return token == nullptr ? fallback : quote_text(token->content);
}

// Adds notes about BOS and EOS. If there is a tokenizer.json, transformers 4 obeyed add_bos_token, but transformers 5
// obeys the file.
void note_ends(const TokenizerSettings& settings, const TokenizerFiles& files, const PostProcessor* post_processor,
               const AddedTokenList& list, std::vector<std::string>& notes) {
  std::vector<int32_t> around = {-1};
  if (post_processor != nullptr) post_processor->apply(around, true);
  const auto compare = [&](const char* flag, const std::optional<bool>& wanted, const char* name, int32_t end,
                           const char* where) {
    if (!wanted) return;
    const AddedToken* token = settings.find_named(name);
    const bool is_added = end >= 0 && (token == nullptr || list.id_of(token->content) == end);
    if (*wanted == is_added || (*wanted && token == nullptr)) return;
    notes.push_back(files.tokenizer_config->path + ": " + flag + " is " + (*wanted ? "true" : "false") + ", and " +
                    files.tokenizer_json->path + " puts " + (is_added ? "" : "no ") + name_of(token, name) + " " +
                    where + " a text; tokenizer.json counts");
  };
  compare("add_bos_token", settings.add_bos, "bos_token", around.front(), "before");
  compare("add_eos_token", settings.add_eos, "eos_token", around.back(), "behind");
}

void note_passed_over(const TokenizerSettings& settings, const TokenizerFiles& files, const AddedTokenList& list,
                      std::vector<std::string>& notes) {
  for (const auto& [token, file] : settings.passed_over) {
    if (list.id_of(token.content) == token.id) continue;
    notes.push_back(file + ": the token " + quote_text(token.content) + " with the id " + std::to_string(token.id) +
                    " is not used, because " + files.tokenizer_config->path + " has its own added_tokens_decoder");
    return;  // one note is enough
  }
}

std::unique_ptr<Tokenizer> finish(std::unique_ptr<Tokenizer> tokenizer, const TokenizerSettings& settings,
                                  std::vector<std::string> notes) {
  TokenizerDirectory::set_ends(*tokenizer, settings);
  TokenizerDirectory::set_spare(*tokenizer, settings);
  TokenizerDirectory::set_notes(*tokenizer, std::move(notes));
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_json(const TokenizerFiles& files) {
  const TokenizerSettings settings = read_tokenizer_settings(files);
  const JsonDocument document = JsonDocument::parse(files.tokenizer_json->text, files.tokenizer_json->path);
  const bool generic = settings.kind == TokenizerClass::Generic;
  TokenizerParts parts;
  parts.model = read_token_model(document, class_options(settings));
  if (generic) {
    read_steps(document, parts);
  } else {
    read_steps(class_steps(settings.kind, settings), parts);
  }
  parts.split_special = settings.split_special;

  AddedTokenList in_file(parts.model->vocabulary());
  read_added_tokens(document, in_file);
  AddedTokenList list(parts.model->vocabulary());
  if (generic) read_added_tokens(document, list);
  // If there is an added_tokens_decoder, it is the whole list; otherwise that of tokenizer.json is part of it.
  std::map<int32_t, AddedToken> declared = by_id(settings.declared);
  if (!settings.has_decoder) {
    for (const AddedToken& token : in_file.tokens()) declared.insert_or_assign(token.id, token);
  }
  add_tokens(settings, declared, settings.extra.value_or(settings.additional), list);
  if (settings.mends_mistral && parts.pre_tokenizer && list.size() >= least_mistral_size) {
    parts.pre_tokenizer =
        generic ? with_mistral_pattern(document) : with_mistral_pattern(class_steps(settings.kind, settings));
  }
  check_ids(settings.declared, list, in_file, files.tokenizer_json->path);

  std::vector<std::string> notes = settings.notes;
  if (const auto dropout = document.root().at("model").find("dropout");
      generic && dropout && dropout->number(0, 1) > 0) {
    notes.push_back(files.tokenizer_json->path +
                    ": merges are left out at random (dropout of the model), which is for training; here all count");
  }
  const bool is_bpe = dynamic_cast<const BpeModel*>(parts.model.get()) != nullptr;
  if (is_bpe ? settings.removes_spaces_bpe : settings.removes_spaces) {
    notes.push_back(
        files.tokenizer_config->path +
        ": asks for texts without spaces before punctuation (clean_up_tokenization_spaces); they stay here");
  }
  std::vector<DeclaredToken> of_file;
  for (const AddedToken& token : in_file.tokens()) {
    if (list.find(token.content) != nullptr) {
      of_file.push_back({token, files.tokenizer_json->path});
    } else {
      notes.push_back(files.tokenizer_json->path + ": the added token " + quote_text(token.content) +
                      " is not used, because the added_tokens_decoder of " + files.tokenizer_config->path +
                      " does not have it");
    }
  }
  // Only the list of another file can give these tokens different ids.
  check_ids(of_file, list, list, files.tokenizer_config ? files.tokenizer_config->path : files.tokenizer_json->path);
  parts.post_processor = read_post_processor(document, list.size() - 1);
  note_ends(settings, files, parts.post_processor.get(), list, notes);
  note_passed_over(settings, files, list, notes);
  return finish(make_tokenizer(std::move(parts), list), settings, std::move(notes));
}

JsonValue json_of(const std::vector<DeclaredToken>& declared) {
  JsonArray list;
  for (const auto& [token, file] : declared) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

void imply(TokenizerSettings& settings, const char* name, const std::string& content) {
  if (settings.find_named(name) != nullptr) return;
  AddedToken token;
  token.content = content;
  token.normalized = false;
  token.special = true;
  settings.named.push_back({name, token, true});
}

std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerFiles& files) {
  const std::string& path = files.tokenizer_model->path;
  const SentencePieceModel model = parse_sentencepiece_model(files.tokenizer_model->text, path);
  TokenizerSettings settings = read_tokenizer_settings(files);
  std::vector<std::string> notes = settings.notes;
  const bool llama = settings.kind == TokenizerClass::Llama;
  check_sentencepiece_model(model, path);
  const auto has_piece = [&](const std::string& text, PieceType type) {
    return std::any_of(model.pieces.begin(), model.pieces.end(),
                       [&](const SentencePiece& piece) { return piece.text == text && piece.type == type; });
  };
  // A rule that only Google's way of reading the file has; the merges that are derived below do not support it.
  std::string own_rule;
  if (model.model_type == 1) own_rule = "is a Unigram model";
  if (!model.charsmap.empty()) own_rule = "changes characters (precompiled_charsmap)";
  if (model.whitespace_as_suffix) own_rule = "puts white space behind words (treat_whitespace_as_suffix)";
  if (llama && !own_rule.empty()) {
    throw CheckpointError(path + ": " + own_rule +
                          ", which LlamaTokenizer does not read; expected a BPE model without that");
  }
  if (model.remove_extra_whitespaces) own_rule = "removes extra white space (remove_extra_whitespaces)";
  if (!llama && !own_rule.empty()) {
    if (!settings.declared.empty()) {
      throw CheckpointError(path + ": " + own_rule + ", which is not supported together with the added tokens of " +
                            settings.declared[0].file);
    }
    std::unique_ptr<Tokenizer> tokenizer = Tokenizer::parse_sentencepiece(files.tokenizer_model->text, path);
    TokenizerDirectory::set_added_ends(*tokenizer, settings);
    return finish(std::move(tokenizer), settings, std::move(notes));
  }
  if (!llama) {
    // Without a tokenizer class, the model's own settings apply, and a text begins with its BOS.
    settings.kind = TokenizerClass::Llama;
    if (!settings.add_bos) settings.add_bos = true;
    if (!settings.add_prefix_space) settings.add_prefix_space = model.add_dummy_prefix;
    if (has_piece(model.unk_piece, PieceType::Unknown)) imply(settings, "unk_token", model.unk_piece);
    if (has_piece(model.bos_piece, PieceType::Control)) imply(settings, "bos_token", model.bos_piece);
    if (has_piece(model.eos_piece, PieceType::Control)) imply(settings, "eos_token", model.eos_piece);
  } else if (!settings.add_bos) {
    notes.push_back((files.tokenizer_config ? files.tokenizer_config->path : path) +
                    ": says nothing about add_bos_token, so nothing is put before a text");
  }
  BpeOptions options;
  options.unknown = llama ? std::string() : model.unk_piece;
  options.fuse_unknown = true;
  options.byte_fallback = llama || model.byte_fallback;

  TokenizerParts parts;
  parts.model = make_bpe(model, path, options);
  read_steps(class_steps(TokenizerClass::Llama, settings), parts);
  parts.split_special = settings.split_special;
  AddedTokenList list(parts.model->vocabulary());
  std::vector<AddedToken> extra;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type != PieceType::Control && piece.type != PieceType::UserDefined) continue;
    AddedToken token;
    token.content = piece.text;
    token.normalized = false;
    token.special = piece.type == PieceType::Control;
    extra.push_back(std::move(token));
  }
  add_tokens(settings, by_id(settings.declared), settings.extra.value_or(extra), list);
  check_ids(settings.declared, list, AddedTokenList(parts.model->vocabulary()), path);
  const auto end = [&](const std::optional<bool>& wanted, const char* name) {
    std::vector<int32_t> ids;
    const AddedToken* token = settings.find_named(name);
    if (wanted.value_or(false) && token != nullptr) ids.push_back(*list.id_of(token->content));
    return ids;
  };
  parts.post_processor = make_template(end(settings.add_bos, "bos_token"), end(settings.add_eos, "eos_token"));
  note_passed_over(settings, files, list, notes);
  return finish(make_tokenizer(std::move(parts), list), settings, std::move(notes));
}

// Loads tiktoken's files and tekken.json.
std::unique_ptr<Tokenizer> load_ranked(const TokenizerFiles& files) {
  const TokenizerFile& file = files.tiktoken ? *files.tiktoken : *files.tekken;
  const RankedTokens ranked = files.tiktoken ? read_tiktoken(file, files) : read_tekken(file);
  TokenizerSettings settings = read_tokenizer_settings(files);
  std::vector<std::string> notes = settings.notes;
  if (ranked.bos) imply(settings, "bos_token", *ranked.bos);
  if (ranked.eos) imply(settings, "eos_token", *ranked.eos);
  TokenizerParts parts;
  parts.model = make_ranked_model(ranked, file.path);
  read_steps(byte_level_steps(ranked.patterns, ranked.splits_as_gpt2, ranked.composes), parts);
  parts.split_special = settings.split_special;
  AddedTokenList list(parts.model->vocabulary());
  // The tokens of tokenizer_config.json or added_tokens.json replace the family's.
  const JsonDocument special = JsonDocument::parse(
      json_text(settings.declared.empty() ? JsonValue(ranked.special) : json_of(settings.declared)), file.path);
  list.add_json(special.root());
  const AddedTokenList base = list;
  add_tokens(settings, {}, settings.extra.value_or(settings.additional), list);
  for (const NamedToken& named : settings.named) {
    if (named.implied || base.id_of(named.token.content)) continue;
    notes.push_back(file.path + ": has no token " + quote_text(named.token.content) + ", which the files name as " +
                    named.name + "; it gets the next free id");
  }
  const AddedToken* bos = settings.find_named("bos_token");
  std::vector<int32_t> before;
  if (settings.add_bos.value_or(ranked.adds_bos) && bos != nullptr) before.push_back(*list.id_of(bos->content));
  std::vector<int32_t> after;
  const AddedToken* eos = settings.find_named("eos_token");
  if (settings.add_eos.value_or(false) && eos != nullptr) after.push_back(*list.id_of(eos->content));
  parts.post_processor = make_template(std::move(before), std::move(after));
  note_passed_over(settings, files, list, notes);
  return finish(make_tokenizer(std::move(parts), list), settings, std::move(notes));
}

// Returns the first file whose name ends in .tiktoken, by name.
std::optional<std::filesystem::path> find_tiktoken(const std::filesystem::path& dir) {
  std::optional<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".tiktoken" && (!found || entry.path() < *found)) found = entry.path();
  }
  return found;
}

}  // namespace

TokenizerFiles read_tokenizer_files(const std::filesystem::path& dir) {
  const auto read = [&](const char* name, size_t max_bytes) -> std::optional<TokenizerFile> {
    const std::filesystem::path path = dir / name;
    if (!has_name(path)) return std::nullopt;
    return TokenizerFile{path.string(), read_whole_file(path, max_bytes)};
  };
  TokenizerFiles files;
  files.tokenizer_json = read("tokenizer.json", max_tokenizer_bytes);
  if (!files.tokenizer_json) files.tokenizer_model = read("tokenizer.model", max_tokenizer_bytes);
  if (files.tokenizer_model && is_tiktoken(files.tokenizer_model->text)) {
    files.tiktoken = std::exchange(files.tokenizer_model, std::nullopt);
  }
  if (!files.tokenizer_json && !files.tokenizer_model && !files.tiktoken) {
    const auto vocabulary = read("vocab.json", max_tokenizer_bytes), merges = read("merges.txt", max_tokenizer_bytes);
    if (vocabulary && merges) files.tokenizer_json = join_merges(*vocabulary, *merges);
    if (!files.tokenizer_json) files.tekken = read("tekken.json", max_tokenizer_bytes);
    const auto path = files.tokenizer_json || files.tekken ? std::nullopt : find_tiktoken(dir);
    if (path) files.tiktoken = TokenizerFile{path->string(), read_whole_file(*path, max_tokenizer_bytes)};
  }
  files.tokenizer_config = read("tokenizer_config.json", max_settings_bytes);
  files.special_tokens_map = read("special_tokens_map.json", max_settings_bytes);
  files.added_tokens = read("added_tokens.json", max_settings_bytes);
  files.config = read("config.json", max_settings_bytes);
  return files;
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerFiles& files, const std::string& dir) {
  if (files.tokenizer_json) return load_json(files);
  if (files.tiktoken || files.tekken) return load_ranked(files);
  if (!files.tokenizer_model) {
    refuse_hub_folder(dir);
    throw CheckpointError(dir +
                          ": has no tokenizer; expected tokenizer.json, tokenizer.model, vocab.json with merges.txt, "
                          "tekken.json, or a file *.tiktoken");
  }
  // Without other files, the model is read as by Google's library: names of its control tokens in a text are plain
  // text.
  if (!files.tokenizer_config && !files.special_tokens_map && !files.added_tokens && !files.config) {
    return Tokenizer::parse_sentencepiece(files.tokenizer_model->text, files.tokenizer_model->path);
  }
  return load_sentencepiece(files);
}

}  // namespace anyaccel::llm
