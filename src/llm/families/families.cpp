// Reads the configuration that all families have, by the names and defaults of each.
#include "llm/families/families.h"

#include <algorithm>
#include <array>

#include "llm/config/config_fields.h"

namespace anyaccel::llm {
namespace {

constexpr const FamilyDefinition* known_definitions[] = {&gemma,       &gemma2,
                                                         &gemma3,      &phi,
                                                         &phi3,        &stablelm,
                                                         &olmo2,       &smollm3,
                                                         &granite,     &internlm3,
                                                         &cohere,      &cohere2,
                                                         &starcoder2,  &glm,
                                                         &glm4,        &gpt2,
                                                         &gptj,        &gpt_neox,
                                                         &opt,         &falcon,
                                                         &mixtral,     &qwen2_moe,
                                                         &qwen3_moe,   &olmoe,
                                                         &granite_moe, &granite_moe_shared,
                                                         &deepseek_v2, &deepseek_v3,
                                                         &bloom,       &mpt,
                                                         &gpt_oss,     &baichuan};

constexpr std::string_view SizeFields::*size_members[] = {
    &SizeFields::hidden,   &SizeFields::inner,     &SizeFields::layers, &SizeFields::heads,     &SizeFields::kv_heads,
    &SizeFields::head_dim, &SizeFields::positions, &SizeFields::eps,    &SizeFields::activation};

// Returns the names of the sizes in this file.
SizeFields names_in(const JsonRef& root, const FamilyDefinition& family) {
  SizeFields names = family.sizes;
  for (const auto& [name, other] : family.other_names) {
    if (!root.find(other)) continue;
    for (const auto member : size_members) {
      if (names.*member == name) names.*member = other;
    }
  }
  return names;
}

void read_head_sizes(const JsonRef& root, const FamilyDefinition& family, const SizeFields& names,
                     ModelConfig& config) {
  config.num_key_value_heads = config.num_attention_heads;
  if (!names.kv_heads.empty()) {
    const int64_t fallback = root.has(names.kv_heads) || family.defaults.kv_heads == 0 ? config.num_attention_heads
                                                                                       : family.defaults.kv_heads;
    config.num_key_value_heads = read_whole(root, names.kv_heads, 1, max_heads, fallback);
    if (config.num_attention_heads % config.num_key_value_heads != 0) {
      root.error(std::string(names.kv_heads) + " is " + std::to_string(config.num_key_value_heads) +
                 "; expected a divisor of " + std::string(names.heads) + ", which is " +
                 std::to_string(config.num_attention_heads));
    }
  }
  int64_t size = 0;
  if (!names.head_dim.empty()) {
    const int64_t fallback = root.has(names.head_dim) ? 0 : family.defaults.head_dim;
    size = read_whole(root, names.head_dim, 1, max_head_dim, fallback);
  }
  if (size == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      root.at(names.heads)
          .fail("a divisor of " + std::string(names.hidden) + ", which is " + std::to_string(config.hidden_size));
    }
    size = config.hidden_size / config.num_attention_heads;
  }
  // transformers computes frequencies with it in families that have no such field.
  if (const auto other = root.find("head_dim"); other && !reads_field(family, "head_dim")) {
    if (other->integer(1, max_head_dim) != size) {
      other->fail("null or " + std::to_string(size) + ", " + std::string(names.hidden) + " divided by " +
                  std::string(names.heads) + ", in a model of type " + std::string(family.model_type));
    }
  }
  if (size % 2 != 0 || size > max_head_dim) {
    root.error("the size of a head is " + std::to_string(size) + "; expected an even number of at most " +
               std::to_string(max_head_dim));
  }
  config.head_dim = size;
}

}  // namespace

std::span<const FamilyDefinition* const> family_definitions() { return known_definitions; }

const FamilyDefinition* find_family(Family family) noexcept {
  for (const FamilyDefinition* known : known_definitions) {
    if (known->family == family) return known;
  }
  return nullptr;
}

const FamilyDefinition* find_gguf_family(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("general.architecture");
  // Mixtral models are llama files with experts.
  if (name == "llama" && metadata.whole("llama.expert_count", 0, max_size).value_or(0) == 0) return nullptr;
  for (const FamilyDefinition* known : known_definitions) {
    if (known->gguf_architecture == name) return known;
  }
  return nullptr;
}

std::string gguf_architectures() {
  std::string names;
  for (const FamilyDefinition* known : known_definitions) {
    const std::string name(known->gguf_architecture);
    if (name.empty() || name == "llama" || (", " + names + ",").find(", " + name + ",") != std::string::npos) continue;
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

Family gguf_family(Family family) noexcept {
  return family == Family::Mistral || family == Family::InternLm3 ? Family::Llama : family;
}

bool reads_field(const FamilyDefinition& family, std::string_view name) {
  for (const auto member : size_members) {
    if (name == family.sizes.*member) return true;
  }
  for (const auto& [first, other] : family.other_names) {
    if (name == first || name == other) return true;
  }
  return std::ranges::find(family.fields, name) != family.fields.end();
}

void read_family_config(const JsonRef& root, const FamilyDefinition& family, ModelConfig& config) {
  const SizeFields names = names_in(root, family);
  const SizeDefaults& defaults = family.defaults;
  config.names = family.names;
  config.vocab_size = root.at("vocab_size").integer(1, max_vocab);
  config.hidden_size = root.at(names.hidden).integer(1, max_size);
  config.num_hidden_layers = root.at(names.layers).integer(1, max_layers);
  config.num_attention_heads = root.at(names.heads).integer(1, max_heads);
  if (defaults.inner_is_four_hidden) {
    config.intermediate_size = names.inner.empty() ? 4 * config.hidden_size
                                                   : read_whole(root, names.inner, 1, max_size, 4 * config.hidden_size);
  } else {
    config.intermediate_size = root.at(names.inner).integer(1, max_size);
  }
  read_head_sizes(root, family, names, config);
  config.max_position_embeddings = names.positions.empty()
                                       ? defaults.positions
                                       : read_whole(root, names.positions, 1, max_positions, defaults.positions);
  config.rms_norm_eps =
      static_cast<float>(names.eps.empty() ? defaults.eps : read_number(root, names.eps, 0.0, 1.0, defaults.eps));
  if (!names.activation.empty()) config.hidden_act = read_activation(root, names.activation, defaults.activation);
  config.tie_word_embeddings = read_flag(root, "tie_word_embeddings", defaults.tied);
  config.layer_has_window.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  config.bos_token_id = defaults.bos;
  if (defaults.eos) config.eos_token_ids = {*defaults.eos};
  if (!reads_field(family, "sliding_window")) refuse_window(root, config, family.model_type);
  family.compose(root, config);
  if (config.positions == Positions::Rope && config.rope.rotary_dim == 0) {
    RopeRules rules;
    rules.theta = defaults.rope_theta;
    rules.share = defaults.rotary_share;
    config.rope = read_rope(root, config, config.notes, rules);
  } else if (config.rope.rotary_dim == 0) {
    config.rope.rotary_dim = config.head_dim;  // nothing rotates
  }
  if (config.quantization != nullptr &&
      (!config.names.qkv.empty() || !config.names.gate_up.empty() || config.names.transposed ||
       (config.experts.stacked && !config.experts.interleaved))) {
    root.at("quantization_config")
        .fail("no such field in a model of type " + std::string(family.model_type) +
              ", whose matrices of several parts are read in 32 or 16 bits only");
  }
}

void set_windows(const JsonRef& root, ModelConfig& config, int64_t window, bool (*is_window)(int64_t, int64_t),
                 int64_t every) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const std::vector<uint8_t> by_list = read_layer_types(root, layers);
  for (size_t i = 0; i < layers; ++i) {
    const bool has = by_list.empty() ? is_window(static_cast<int64_t>(i), every) : by_list[i] != 0;
    if (has && window == 0) {
      root.error("layer " + std::to_string(i) + " has a window, and sliding_window is null; expected a number");
    }
    config.layer_has_window[i] = has ? 1 : 0;
    if (has) config.sliding_window = window;
  }
}

void set_window_of_all(const JsonRef& root, ModelConfig& config, int64_t fallback) {
  const int64_t window =
      root.has("sliding_window") ? read_whole(root, "sliding_window", 1, max_positions, 0) : fallback;
  if (window == 0) return;
  config.sliding_window = window;
  config.layer_has_window.assign(static_cast<size_t>(config.num_hidden_layers), 1);
}

void require_flag(const JsonRef& root, std::string_view name, bool value, std::string_view why) {
  const auto found = root.find(name);
  if (found && found->boolean() != value)
    found->fail(std::string(value ? "true" : "false") + " or null: " + std::string(why));
}

}  // namespace anyaccel::llm
