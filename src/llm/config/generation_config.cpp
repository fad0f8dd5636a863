// Reads generation_config.json. Every field of transformers' GenerationConfig (version 5.23) is in one of the lists
// below; any other field causes a warning that it is unknown.
#include "anyaccel/llm/generation_config.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "anyaccel/llm/model_config.h"
#include "base/files/open_file.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {

namespace {

constexpr size_t max_generation_config_bytes = size_t{16} << 20;

// Fields that are read below.
constexpr std::string_view honoured[] = {"bos_token_id",
                                         "eos_token_id",
                                         "do_sample",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "min_p",
                                         "typical_p",
                                         "repetition_penalty",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "max_new_tokens",
                                         "max_length",
                                         "stop_strings",
                                         "length_penalty",
                                         "early_stopping",
                                         "sequence_bias",
                                         "bad_words_ids",
                                         "no_repeat_ngram_size",
                                         "min_length",
                                         "min_new_tokens",
                                         "forced_bos_token_id",
                                         "forced_eos_token_id",
                                         "suppress_tokens",
                                         "begin_suppress_tokens"};

// Fields about speed, memory, results other than the text, or details of a feature in warned_about.
constexpr std::string_view without_effect[] = {"_from_model_config",
                                               "transformers_version",
                                               "pad_token_id",
                                               "decoder_start_token_id",
                                               "renormalize_logits",
                                               "low_memory",
                                               "use_cache",
                                               "cache_implementation",
                                               "cache_config",
                                               "max_cache_len",
                                               "prefill_chunk_size",
                                               "compile_config",
                                               "disable_compile",
                                               "continuous_batching_config",
                                               "return_dict_in_generate",
                                               "output_attentions",
                                               "output_hidden_states",
                                               "output_scores",
                                               "output_logits",
                                               "is_assistant",
                                               "num_assistant_tokens",
                                               "num_assistant_tokens_schedule",
                                               "assistant_confidence_threshold",
                                               "assistant_early_exit",
                                               "assistant_ensemble_weight",
                                               "assistant_lookbehind",
                                               "target_lookbehind",
                                               "prompt_lookup_num_tokens",
                                               "max_matching_ngram_size",
                                               "speculation_type",
                                               "use_mtp"};

struct Ignored {
  std::string_view name;
  double neutral;  // the value (for a flag: 0 or 1) that has no effect; null has no effect either
  std::string_view why;
};
constexpr double never = -1;
constexpr Ignored warned_about[] = {
    {"num_beams", 1, "one answer is followed unless a beam search is asked for (--beams, GenerateOptions::beams)"},
    {"num_beam_groups", 1, "groups of beams are not implemented"},
    {"diversity_penalty", 0, "groups of beams are not implemented"},
    {"constraints", never, "constrained beam search is not implemented"},
    {"force_words_ids", never, "constrained beam search is not implemented"},
    {"penalty_alpha", 0, "contrastive search is not implemented"},
    {"dola_layers", never, "DoLa decoding is not implemented"},
    {"top_h", never, "top-h sampling is not implemented"},
    {"epsilon_cutoff", 0, "epsilon sampling is not implemented"},
    {"eta_cutoff", 0, "eta sampling is not implemented"},
    {"encoder_repetition_penalty", 1, "the penalty is not implemented"},
    {"encoder_no_repeat_ngram_size", 0, "the rule is not implemented"},
    {"exponential_decay_length_penalty", never, "the penalty is not implemented"},
    {"guidance_scale", 1, "classifier-free guidance is not implemented"},
    {"watermarking_config", never, "watermarking is not implemented"},
    {"remove_invalid_values", 0, "logits that hold a NaN or an infinity end the generation with an error"},
    {"token_healing", 0, "token healing is not implemented"},
    {"num_return_sequences", 1, "one answer is generated for a prompt"},
    {"max_time", never, "time does not end an answer"},
};

bool is_neutral(const JsonRef& value, double neutral) {
  if (value.is_null()) return true;
  if (value.is_bool()) return static_cast<double>(value.boolean()) == neutral;
  return value.is_number() && value.number(-1e300, 1e300) == neutral;
}

std::vector<std::string> warnings_about(const JsonRef& root, std::string_view source) {
  const auto in = [](const auto& list, std::string_view name) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  std::vector<std::string> warnings;
  for (size_t i = 0; i < root.size(); ++i) {
    const std::string& name = root.key(i);
    if (in(honoured, name) || in(without_effect, name)) continue;
    const std::string field = std::string(source) + ": the field " + quote_text(name) + " is ";
    const auto* const found = std::find_if(std::begin(warned_about), std::end(warned_about),
                                           [&](const Ignored& ignored) { return ignored.name == name; });
    if (found == std::end(warned_about)) {
      warnings.push_back(field + "not known and is ignored");
    } else if (!is_neutral(root.member(i), found->neutral)) {
      warnings.push_back(field + "ignored: " + std::string(found->why));
    }
  }
  return warnings;
}

// Reads token ids; in some files -1 stands for none.
std::vector<int32_t> read_ids(const JsonRef& list, int64_t lowest) {
  std::vector<int32_t> ids;
  if (!list.is_array()) list.fail("a list of token ids");
  for (size_t i = 0; i < list.size(); ++i) ids.push_back(static_cast<int32_t>(list[i].integer(lowest, INT32_MAX)));
  return ids;
}

std::vector<int32_t> read_one_or_more_ids(const JsonRef& value) {
  if (value.is_array()) return read_ids(value, 0);
  return {static_cast<int32_t>(value.integer(0, INT32_MAX))};
}

void read_rules(const JsonRef& root, TokenRules& rules) {
  if (const auto list = root.find("sequence_bias")) {
    if (!list->is_array()) list->fail("a list of pairs: token ids and a bias");
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonRef pair = (*list)[i];
      if (!pair.is_array() || pair.size() != 2) pair.fail("a pair: token ids and a bias");
      SequenceBias entry{read_ids(pair[0], 0), static_cast<float>(pair[1].number(-1e30, 1e30))};
      if (entry.ids.empty()) pair.fail("at least one token id");
      rules.sequence_bias.push_back(std::move(entry));
    }
  }
  if (const auto list = root.find("bad_words_ids")) {
    if (!list->is_array()) list->fail("a list of lists of token ids");
    for (size_t i = 0; i < list->size(); ++i) {
      rules.bad_words_ids.push_back(read_ids((*list)[i], 0));
      if (rules.bad_words_ids.back().empty()) (*list)[i].fail("at least one token id");
    }
  }
  rules.no_repeat_ngram_size = read_whole(root, "no_repeat_ngram_size", 0, INT32_MAX, 0);
  rules.min_length = read_whole(root, "min_length", 0, INT32_MAX, 0);
  if (const auto value = root.find("min_new_tokens")) rules.min_new_tokens = value->integer(0, INT32_MAX);
  if (const auto value = root.find("forced_bos_token_id")) {
    rules.forced_bos_token_id = static_cast<int32_t>(value->integer(0, INT32_MAX));
  }
  if (const auto value = root.find("forced_eos_token_id")) rules.forced_eos_token_ids = read_one_or_more_ids(*value);
  if (const auto value = root.find("suppress_tokens")) rules.suppress_tokens = read_ids(*value, -1);
  if (const auto value = root.find("begin_suppress_tokens")) rules.begin_suppress_tokens = read_ids(*value, -1);
}

GenerationConfig read_generation(const JsonRef& root, std::string_view source, GenerationConfig config) {
  if (!root.is_object()) root.fail("an object");
  read_special_ids(root, config.bos_token_id, config.eos_token_ids);
  config.do_sample = read_flag(root, "do_sample", config.do_sample);
  const auto number = [&](const char* name, double low, double high, double fallback) {
    return static_cast<float>(read_number(root, name, low, high, fallback));
  };
  config.temperature = number("temperature", 0.0, 1e4, 1.0);
  const int64_t all = 0;
  config.top_k =
      static_cast<int32_t>(root.has("top_k") ? read_whole(root, "top_k", 0, INT32_MAX, all) : int64_t{config.top_k});
  // With 0 transformers keeps the most likely token; so does any probability below that token's.
  config.top_p = std::max(number("top_p", 0.0, 1.0, 1.0), 1e-6f);
  config.min_p = number("min_p", 0.0, 1.0, 0.0);
  config.typical_p = number("typical_p", 1e-6, 1.0, 1.0);  // transformers refuses 0 as well
  config.repetition_penalty = number("repetition_penalty", 1e-4, 1e4, 1.0);
  config.presence_penalty = number("presence_penalty", -2.0, 2.0, 0.0);
  config.frequency_penalty = number("frequency_penalty", -2.0, 2.0, 0.0);
  const auto length = [&](const char* name) -> std::optional<int64_t> {
    const auto value = root.find(name);
    return value ? std::optional(value->integer(1, INT64_MAX)) : std::nullopt;
  };
  config.max_new_tokens = length("max_new_tokens");
  config.max_length = length("max_length");
  if (const auto value = root.find("stop_strings")) {
    if (value->is_array()) {
      for (size_t i = 0; i < value->size(); ++i) config.stop_strings.push_back((*value)[i].string());
    } else {
      config.stop_strings.push_back(value->string());
    }
  }
  config.beams.length_penalty = number("length_penalty", -100.0, 100.0, 1.0);
  if (const auto value = root.find("early_stopping")) {
    if (value->is_bool()) {
      config.beams.early_stopping = value->boolean() ? EarlyStopping::Yes : EarlyStopping::No;
    } else if (value->string() == "never") {
      config.beams.early_stopping = EarlyStopping::Never;
    } else {
      value->fail("true, false or \"never\"");
    }
  }
  read_rules(root, config.rules);
  config.warnings = warnings_about(root, source);
  return config;
}

}  // namespace

GenerationConfig load_generation_config(const std::filesystem::path& dir) {
  GenerationConfig config;
  std::error_code error;
  int64_t vocabulary = std::numeric_limits<int64_t>::max();
  if (is_gguf(dir) || std::filesystem::exists(dir / "config.json", error)) {
    const ModelConfig model = load_model_config(dir);
    config.bos_token_id = model.bos_token_id;
    config.eos_token_ids = model.eos_token_ids;
    vocabulary = model.vocab_size;
  }
  const std::filesystem::path path = dir / "generation_config.json";
  if (has_name(path)) {
    const JsonDocument document = JsonDocument::load(path, max_generation_config_bytes);
    config = read_generation(document.root(), document.source(), std::move(config));
  }
  for (const int32_t id : config.eos_token_ids) {
    if (id < vocabulary) continue;
    config.warnings.push_back(dir.string() + ": the end token " + std::to_string(id) +
                              " (eos_token_id) is not in the vocabulary of " + std::to_string(vocabulary) +
                              " tokens, so no answer ends with it");
  }
  return config;
}

GenerationConfig parse_generation_config(std::string_view json_text, std::string_view source_name) {
  const JsonDocument document = JsonDocument::parse(json_text, source_name);
  return read_generation(document.root(), document.source(), GenerationConfig());
}

}  // namespace anyaccel::llm
