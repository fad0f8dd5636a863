// Converts a model's configuration to the keys of a GGUF file.
#include "llm/quantize/gguf_model_keys.h"

#include <algorithm>
#include <cmath>

#include "anyaccel/error.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

[[noreturn]] void cannot_describe(const std::string& source, const std::string& what) {
  throw CheckpointError(source + ": a GGUF file cannot describe " + what + " for this kind of model");
}

void add_rope_keys(const ModelConfig& config, const std::string& prefix, const std::string& source, GgufKeys& keys) {
  const RopeConfig& rope = config.rope;
  keys.add_number(prefix + "rope.freq_base", rope.theta);
  keys.add_whole(prefix + "rope.dimension_count", rope.rotary_dim);
  const std::string scaling = prefix + "rope.scaling.";
  switch (rope.type) {
    case RopeType::Default:
    case RopeType::Llama3: return;  // the latter has a tensor
    case RopeType::Linear:
      keys.add_text(scaling + "type", "linear");
      keys.add_number(scaling + "factor", rope.factor);
      return;
    case RopeType::Yarn: {
      keys.add_text(scaling + "type", "yarn");
      keys.add_number(scaling + "factor", rope.factor);
      keys.add_whole(scaling + "original_context_length", rope.original_max_position_embeddings);
      keys.add_number(scaling + "yarn_beta_fast", rope.beta_fast);
      keys.add_number(scaling + "yarn_beta_slow", rope.beta_slow);
      if (!rope.truncate) cannot_describe(source, "yarn with truncate off");
      const double usual = rope.factor > 1.0 ? 1.0 + 0.1 * std::log(rope.factor) : 1.0;
      const double attention = static_cast<double>(rope.attention_factor) / usual;
      if (std::abs(attention - 1.0) > 1e-6) keys.add_number(scaling + "attn_factor", attention);
      return;
    }
    case RopeType::Longrope:
      keys.add_text(scaling + "type", "longrope");
      keys.add_whole(scaling + "original_context_length", rope.original_max_position_embeddings);
      keys.add_number(scaling + "attn_factor", rope.attention_factor);
      return;
    case RopeType::Dynamic:
    case RopeType::Proportional: break;
  }
  cannot_describe(source, "rope of the type " + std::string(rope_type_name(rope.type)));
}

}  // namespace

std::string gguf_architecture(const ModelConfig& config) {
  return std::string(family_name(config.family == Family::Mistral ? Family::Llama : config.family));
}

void add_model_keys(const ModelConfig& config, const std::string& source, GgufKeys& keys) {
  if (!has_first_families_rules(config.family)) {
    cannot_describe(source, "a model of type " + std::string(family_name(config.family)));
  }
  if (config.hidden_act != ops::Activation::Silu) cannot_describe(source, "an activation other than SiLU");
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const int64_t window = config.window_of_layer(layer);
    if (window > 0 && window < config.max_position_embeddings) {
      cannot_describe(source, "a window of attention (" + std::to_string(window) + " tokens)");
    }
  }
  const std::string arch = gguf_architecture(config);
  keys.add_text("general.architecture", arch);
  const std::string prefix = arch + ".";
  keys.add_whole(prefix + "vocab_size", config.vocab_size);
  keys.add_whole(prefix + "block_count", config.num_hidden_layers);
  keys.add_whole(prefix + "context_length", config.max_position_embeddings);
  keys.add_whole(prefix + "embedding_length", config.hidden_size);
  keys.add_whole(prefix + "feed_forward_length", config.intermediate_size);
  keys.add_whole(prefix + "attention.head_count", config.num_attention_heads);
  keys.add_whole(prefix + "attention.head_count_kv", config.num_key_value_heads);
  keys.add_whole(prefix + "attention.key_length", config.head_dim);
  keys.add_whole(prefix + "attention.value_length", config.head_dim);
  keys.add_number(prefix + "attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  add_rope_keys(config, prefix, source, keys);
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
