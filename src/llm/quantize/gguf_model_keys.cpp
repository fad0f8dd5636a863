// Converts a model's configuration to the keys of a GGUF file.
#include "llm/quantize/gguf_model_keys.h"

#include <algorithm>
#include <cmath>

#include "anyaccel/error.h"
#include "llm/checkpoint/gguf_names.h"
#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

void add_yarn_keys(const ModelConfig& config, const std::string& scaling, GgufKeys& keys) {
  const RopeConfig& rope = config.rope;
  keys.add_text(scaling + "type", "yarn");
  keys.add_number(scaling + "factor", rope.factor);
  keys.add_whole(scaling + "original_context_length", rope.original_max_position_embeddings);
  keys.add_number(scaling + "yarn_beta_fast", rope.beta_fast);
  keys.add_number(scaling + "yarn_beta_slow", rope.beta_slow);
  if (config.latent.rank > 0) return;  // scores are scaled instead
  const double usual = rope.factor > 1.0 ? 1.0 + 0.1 * std::log(rope.factor) : 1.0;
  const double attention = static_cast<double>(rope.attention_factor) / usual;
  if (std::abs(attention - 1.0) > 1e-6) keys.add_number(scaling + "attn_factor", attention);
}

void add_rope_keys(const ModelConfig& config, const std::string& prefix, const std::string& source, GgufKeys& keys) {
  const RopeConfig& rope = config.rope;
  keys.add_number(prefix + "rope.freq_base", rope.theta);
  if (config.latent.rank == 0) keys.add_whole(prefix + "rope.dimension_count", rope.rotary_dim);
  const std::string scaling = prefix + "rope.scaling.";
  switch (rope.type) {
    case RopeType::Default:
    case RopeType::Llama3: return;  // the latter has a tensor
    case RopeType::Linear:
      keys.add_text(scaling + "type", "linear");
      keys.add_number(scaling + "factor", rope.factor);
      return;
    case RopeType::Yarn: return add_yarn_keys(config, scaling, keys);
    case RopeType::Longrope:
      keys.add_text(scaling + "type", "longrope");
      keys.add_whole(scaling + "original_context_length", rope.original_max_position_embeddings);
      keys.add_number(scaling + "attn_factor", rope.attention_factor);
      return;
    case RopeType::Dynamic:
    case RopeType::Proportional: break;
  }
  throw CheckpointError(source + ": a GGUF file cannot describe rope of the type " +
                        std::string(rope_type_name(rope.type)));
}

// Returns what any file says by its sizes and by the tensors that it has.
ModelConfig with_sizes(const ModelConfig& config, Family family) {
  ModelConfig described;
  described.family = family;
  described.hidden_size = config.hidden_size;
  described.intermediate_size = config.intermediate_size;
  described.num_hidden_layers = config.num_hidden_layers;
  described.num_attention_heads = config.num_attention_heads;
  described.num_key_value_heads = config.num_key_value_heads;
  described.head_dim = config.head_dim;
  described.vocab_size = config.vocab_size;
  described.max_position_embeddings = config.max_position_embeddings;
  described.rms_norm_eps = config.rms_norm_eps;
  described.qkv_bias = config.qkv_bias;
  described.o_bias = config.o_bias;
  described.mlp_bias = config.mlp_bias;
  described.lm_head_bias = config.lm_head_bias;
  described.norm_has_bias = config.norm_has_bias;
  described.tie_word_embeddings = config.tie_word_embeddings;
  described.layer_has_window.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  described.names = gguf_tensor_names;
  return described;
}

void add_size_keys(const ModelConfig& config, const std::string& prefix, GgufKeys& keys) {
  keys.add_whole(prefix + "vocab_size", config.vocab_size);
  keys.add_whole(prefix + "block_count", config.num_hidden_layers);
  keys.add_whole(prefix + "context_length", config.max_position_embeddings);
  keys.add_whole(prefix + "embedding_length", config.hidden_size);
  keys.add_whole(prefix + "feed_forward_length", config.intermediate_size);
  keys.add_whole(prefix + "attention.head_count", config.num_attention_heads);
  if (config.latent.rank > 0) {
    keys.add_whole(prefix + "attention.head_count_kv", 1);  // all heads share what keys are computed from
    keys.add_whole(prefix + "attention.key_length_mla", config.head_dim);
    return;
  }
  keys.add_whole(prefix + "attention.head_count_kv", config.num_key_value_heads);
  keys.add_whole(prefix + "attention.key_length", config.head_dim);
  keys.add_whole(prefix + "attention.value_length", config.head_dim);
}

}  // namespace

ModelConfig add_model_keys(const ModelConfig& config, const std::string& source, GgufKeys& keys) {
  const Family family = gguf_family(config.family);
  const FamilyDefinition* definition = find_family(family);
  const std::string arch(definition != nullptr ? definition->gguf_architecture : family_name(family));
  if (arch.empty()) {
    throw CheckpointError(source + ": no GGUF architecture describes a model of type " +
                          std::string(family_name(config.family)) +
                          "; expected another type, or a directory as output");
  }
  keys.add_text("general.architecture", arch);
  const std::string prefix = arch + ".";
  add_size_keys(config, prefix, keys);
  ModelConfig described = with_sizes(config, family);
  if (definition != nullptr) {
    if (const auto named = find_activation(definition->defaults.activation)) described.hidden_act = *named;
    definition->describe_gguf(GgufFields(config, arch, keys), described);
  } else {
    described.qk_norm = family == Family::Qwen3;
    described.rope_interleaved = family == Family::Llama;
  }
  // Rows that are paired cannot follow one another in a matrix of all three.
  if (!config.names.qkv.empty() && described.rope_interleaved == config.rope_interleaved) {
    described.names.qkv = "attn_qkv";
  }
  const bool is_rms = described.norm == NormKind::Rms;
  keys.add_number(prefix + (is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
                  config.rms_norm_eps);
  const bool truncates = described.rope.truncate;
  described.rope = config.rope;
  described.rope.truncate = truncates;
  if (described.latent.rank > 0) described.rope.attention_factor = 1.0f;
  if (described.positions == Positions::Rope) add_rope_keys(config, prefix, source, keys);
  check_describes(config, described, arch, source);
  return described;
}

std::vector<RopeTensor> rope_tensors(const ModelConfig& config) {
  if (config.rope.type == RopeType::Longrope) {
    return {{"rope_factors_short.weight", config.rope.short_factor},
            {"rope_factors_long.weight", config.rope.long_factor}};
  }
  if (config.rope.type != RopeType::Llama3) return {};
  // The factors say how much longer each wave is than without scaling.
  ModelConfig plain = config;
  plain.rope.type = RopeType::Default;
  const std::vector<float> from = rope_inv_freq(plain).inv_freq;
  const std::vector<float> to = rope_inv_freq(config).inv_freq;
  std::vector<float> factors(from.size());
  std::ranges::transform(from, to, factors.begin(), [](float a, float b) { return a / b; });
  return {{"rope_freqs.weight", std::move(factors)}};
}

}  // namespace anyaccel::llm
