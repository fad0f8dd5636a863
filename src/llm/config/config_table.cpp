// Lists the fields of config.json. How transformers treats each was tested, not inferred from the name: see
// tools/config_fixtures.py.
#include "llm/config/config_table.h"

#include <algorithm>
#include <array>

#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr FamilySet qwen_sets = qwen2_set | qwen3_set;

constexpr std::string_view left_to_right = "false or null: text is generated from left to right";
constexpr std::string_view decoder_only = "false or null: these models have no encoder";
constexpr std::string_view text_only = "null: only models of text alone are supported";
constexpr std::string_view one_shape = "null: all layers have the same sizes";

constexpr ConfigField fields[] = {
    {"model_type", every_family},
    {"architectures", every_family},
    {"vocab_size", every_family},
    {"hidden_size"},
    {"intermediate_size"},
    {"num_hidden_layers"},
    {"num_attention_heads"},
    {"num_key_value_heads"},
    {"head_dim"},
    {"hidden_act"},
    {"max_position_embeddings"},
    {"rms_norm_eps"},
    {"tie_word_embeddings", every_family},
    {"bos_token_id", every_family},
    {"eos_token_id", every_family},
    {"dtype", every_family},
    {"torch_dtype", every_family},
    {"quantization_config", every_family},
    {"rope_parameters"},
    {"rope_scaling"},
    {"rope_theta"},
    {"original_max_position_embeddings"},
    {"partial_rotary_factor"},
    {"sliding_window"},
    {"layer_types"},
    {"use_sliding_window", qwen_sets},
    {"max_window_layers", qwen_sets},
    {"attention_bias", llama_set | qwen3_set},
    {"attention_bias", mistral_set, FieldUse::Refused, "false or null: Mistral models have no biases"},
    {"attention_bias", qwen2_set, FieldUse::NoEffect},
    {"mlp_bias", llama_set},
    {"mlp_bias", mistral_set | qwen_sets, FieldUse::Refused,
     "false or null: models of this type have no biases in the feed-forward block"},

    {"is_causal", every_family, FieldUse::Refused, "true or null: text is generated from left to right"},
    {"use_bidirectional_attention", every_family, FieldUse::Refused, left_to_right},
    {"is_encoder_decoder", every_family, FieldUse::Refused, decoder_only},
    {"add_cross_attention", every_family, FieldUse::Refused, decoder_only},
    {"cross_attention_hidden_size", every_family, FieldUse::Refused, "null: these models have no encoder"},
    {"tie_encoder_decoder", every_family, FieldUse::Refused, decoder_only},
    {"attention_chunk_size", every_family, FieldUse::Refused, "null: attention in chunks is not supported"},
    {"kv_sharing_modes", every_family, FieldUse::Refused, "null: every layer keeps keys and values of its own"},
    {"per_layer_config", every_family, FieldUse::Refused, one_shape},
    {"pruned_heads", every_family, FieldUse::Refused, "{} or null: models with pruned heads are not supported"},
    {"compression_config", every_family, FieldUse::Refused,
     "null: this is an older name of quantization_config, the only one that is read"},
    {"use_mrope", every_family, FieldUse::Refused, "false or null: positions of images and sound are not supported"},
    {"text_config", every_family, FieldUse::Refused, text_only},
    {"text_encoder", every_family, FieldUse::Refused, text_only},
    {"vision_config", every_family, FieldUse::Refused, text_only},
    {"audio_config", every_family, FieldUse::Refused, text_only},
    {"decoder", every_family, FieldUse::Refused, text_only},
    {"generator", every_family, FieldUse::Refused, text_only},
    {"configuration_files", every_family, FieldUse::Refused,
     "[] or null: a choice of configurations by the version of transformers is not supported"},
    {"transformers_weights", every_family, FieldUse::Refused,
     "null: weights are read from model.safetensors, or the files that model.safetensors.index.json names"},

    {"transformers_version", every_family, FieldUse::NoEffect},
    {"_name_or_path", every_family, FieldUse::NoEffect},
    {"name_or_path", every_family, FieldUse::NoEffect},
    {"_commit_hash", every_family, FieldUse::NoEffect},
    {"_attn_implementation", every_family, FieldUse::NoEffect},
    {"_attn_implementation_autoset", every_family, FieldUse::NoEffect},
    {"_attn_implementation_internal", every_family, FieldUse::NoEffect},
    {"_flash_attn_2_enabled", every_family, FieldUse::NoEffect},
    {"attn_implementation", every_family, FieldUse::NoEffect},
    {"experts_implementation", every_family, FieldUse::NoEffect},
    {"attention_dropout", every_family, FieldUse::NoEffect},
    {"chunk_size_feed_forward", every_family, FieldUse::NoEffect},
    {"decoder_start_token_id", every_family, FieldUse::NoEffect},
    {"finetuning_task", every_family, FieldUse::NoEffect},
    {"fusion_config", every_family, FieldUse::NoEffect},
    {"gradient_checkpointing", every_family, FieldUse::NoEffect},
    {"id2label", every_family, FieldUse::NoEffect},
    {"initializer_range", every_family, FieldUse::NoEffect},
    {"is_decoder", every_family, FieldUse::NoEffect},
    {"label2id", every_family, FieldUse::NoEffect},
    {"num_labels", every_family, FieldUse::NoEffect},
    {"output_attentions", every_family, FieldUse::NoEffect},
    {"output_hidden_states", every_family, FieldUse::NoEffect},
    {"pad_token_id", every_family, FieldUse::NoEffect},
    {"prefix", every_family, FieldUse::NoEffect},
    {"pretraining_tp", every_family, FieldUse::NoEffect},
    {"problem_type", every_family, FieldUse::NoEffect},
    {"return_dict", every_family, FieldUse::NoEffect},
    {"sep_token_id", every_family, FieldUse::NoEffect},
    {"task_specific_params", every_family, FieldUse::NoEffect},
    {"tie_last_hidden_states", every_family, FieldUse::NoEffect},
    {"tokenizer_class", every_family, FieldUse::NoEffect},
    {"torchscript", every_family, FieldUse::NoEffect},
    {"use_bfloat16", every_family, FieldUse::NoEffect},
    {"use_cache", every_family, FieldUse::NoEffect},
    {"output_scores", every_family, FieldUse::NoEffect},
    {"return_dict_in_generate", every_family, FieldUse::NoEffect},
    {"num_assistant_tokens", every_family, FieldUse::NoEffect},
    {"num_assistant_tokens_schedule", every_family, FieldUse::NoEffect},
    {"assistant_confidence_threshold", every_family, FieldUse::NoEffect},
    {"assistant_lookbehind", every_family, FieldUse::NoEffect},
    {"target_lookbehind", every_family, FieldUse::NoEffect},

    {"bad_words_ids", every_family, FieldUse::Generation, "null"},
    {"begin_suppress_tokens", every_family, FieldUse::Generation, "null"},
    {"diversity_penalty", every_family, FieldUse::Generation, "0"},
    {"do_sample", every_family, FieldUse::Generation, "0"},
    {"early_stopping", every_family, FieldUse::Generation, "0"},
    {"encoder_no_repeat_ngram_size", every_family, FieldUse::Generation, "0"},
    {"encoder_repetition_penalty", every_family, FieldUse::Generation, "1"},
    {"epsilon_cutoff", every_family, FieldUse::Generation, "0"},
    {"eta_cutoff", every_family, FieldUse::Generation, "0"},
    {"exponential_decay_length_penalty", every_family, FieldUse::Generation, "null"},
    {"forced_bos_token_id", every_family, FieldUse::Generation, "null"},
    {"forced_eos_token_id", every_family, FieldUse::Generation, "null"},
    {"length_penalty", every_family, FieldUse::Generation, "1"},
    {"max_length", every_family, FieldUse::Generation, "20"},
    {"min_length", every_family, FieldUse::Generation, "0"},
    {"no_repeat_ngram_size", every_family, FieldUse::Generation, "0"},
    {"num_beam_groups", every_family, FieldUse::Generation, "1"},
    {"num_beams", every_family, FieldUse::Generation, "1"},
    {"num_return_sequences", every_family, FieldUse::Generation, "1"},
    {"remove_invalid_values", every_family, FieldUse::Generation, "0"},
    {"repetition_penalty", every_family, FieldUse::Generation, "1"},
    {"suppress_tokens", every_family, FieldUse::Generation, "null"},
    {"temperature", every_family, FieldUse::Generation, "1"},
    {"top_k", every_family, FieldUse::Generation, "50"},
    {"top_p", every_family, FieldUse::Generation, "1"},
    {"typical_p", every_family, FieldUse::Generation, "1"},

    // The field names Python code, whose effect cannot be known; transformers does not run it either, unless told to.
    {"auto_map", every_family},
};

// Returns true for null, false, 0 and anything empty.
bool means_absent(const JsonRef& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.boolean();
  if (value.is_number()) return value.number(-1e308, 1e308) == 0.0;
  if (value.is_string()) return value.string().empty();
  return value.size() == 0;
}

bool is_accepted(const ConfigField& field, const JsonRef& value) {
  if (field.name == "is_causal") return value.is_null() || (value.is_bool() && value.boolean());
  return means_absent(value);
}

// `fallback` is an integer or null. False and true count as 0 and 1.
bool is_default(const JsonRef& value, std::string_view fallback) {
  if (value.is_null()) return true;
  if (fallback == "null") return means_absent(value);
  const double expected = std::stod(std::string(fallback));
  if (value.is_bool()) return (value.boolean() ? 1.0 : 0.0) == expected;
  return value.is_number() && value.number(-1e308, 1e308) == expected;
}

// Returns whether the field is a dropout rate or the like, for which families have many names.
bool is_training_only(std::string_view name) {
  return name.ends_with("dropout") || name.ends_with("_pdrop") || name == "initializer_range" || name == "layerdrop" ||
         name == "init_std" || name.starts_with("summary_");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::span<const ConfigField> config_fields() { return fields; }

const ConfigField* find_config_field(std::string_view name, Family family) {
  for (const ConfigField& field : fields) {
    if (field.name == name && (field.families >> static_cast<int>(family) & 1) != 0) return &field;
  }
  static constexpr ConfigField read = {"", every_family};
  const FamilyDefinition* definition = find_family(family);
  if (definition != nullptr && reads_field(*definition, name)) return &read;
  return nullptr;
}

std::span<const std::string_view> rope_keys(RopeType type) {
  static constexpr std::array<std::string_view, 3> plain = {"rope_type", "type", "rope_theta"};
  static constexpr std::array<std::string_view, 4> factor = {"rope_type", "type", "rope_theta", "factor"};
  static constexpr std::array<std::string_view, 7> llama3 = {"rope_type",
                                                             "type",
                                                             "rope_theta",
                                                             "factor",
                                                             "low_freq_factor",
                                                             "high_freq_factor",
                                                             "original_max_position_embeddings"};
  static constexpr std::array<std::string_view, 11> yarn = {
      "rope_type",        "type",      "rope_theta", "factor",         "original_max_position_embeddings",
      "attention_factor", "beta_fast", "mscale",     "mscale_all_dim", "truncate",
      "beta_slow"};
  static constexpr std::array<std::string_view, 8> longrope = {
      "rope_type",    "type",        "rope_theta",       "factor",
      "short_factor", "long_factor", "attention_factor", "original_max_position_embeddings"};
  switch (type) {
    case RopeType::Default: return plain;
    case RopeType::Linear:
    case RopeType::Dynamic:
    case RopeType::Proportional: return factor;
    case RopeType::Llama3: return llama3;
    case RopeType::Yarn: return yarn;
    case RopeType::Longrope: return longrope;
  }
  return plain;
}

void check_config_fields(const JsonRef& root, Family family, std::vector<std::string>& notes) {
  std::vector<std::string> unknown;
  std::vector<std::string> generation;
  for (size_t i = 0; i < root.size(); ++i) {
    const std::string& name = root.key(i);
    const JsonRef value = root.member(i);
    const ConfigField* field = find_config_field(name, family);
    if (is_training_only(name)) continue;
    if (field == nullptr) {
      unknown.push_back(quote_text(name));
    } else if (field->use == FieldUse::Refused && !is_accepted(*field, value)) {
      value.fail(field->text);
    } else if (field->use == FieldUse::Generation && !is_default(value, field->text)) {
      generation.push_back(quote_text(name));
    }
  }
  if (!unknown.empty()) {
    notes.push_back("config.json has fields that no " + std::string(family_name(family)) +
                    " model of transformers knows, and that are ignored: " + joined(unknown));
  }
  if (!generation.empty()) {
    notes.push_back("config.json has settings of generation, which are read from generation_config.json only: " +
                    joined(generation));
  }
  if (const auto code = root.find("auto_map"); code && code->size() > 0) {
    notes.push_back(
        "config.json names Python code of its own (\"auto_map\"), which is not run: the model is computed as " +
        std::string(family_name(family)));
  }
}

}  // namespace anyaccel::llm
