// Derives a model's configuration from the keys and tensors of a GGUF file. docs/model_files.md lists the keys.
#include "llm/config/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_names.h"
#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr double any_number = std::numeric_limits<float>::max();

// The family of an architecture whose tensors are renamed.
Family first_family(const GgufMetadata& metadata) {
  const std::string name = metadata.required_text("general.architecture");
  for (const Family family : {Family::Llama, Family::Qwen2, Family::Qwen3}) {
    if (name == family_name(family)) return family;
  }
  if (name == "internlm2") return Family::Llama;
  metadata.error(
      "general.architecture",
      "is " + quote_text(name) +
          ", which is not supported; supported are llama (which Mistral and Mixtral models have too), qwen2, "
          "qwen3, internlm2, " +
          gguf_architectures());
}

// Refuses keys that change the computation and that the family has not read. Each may be missing, or have the value that
// means no change.
void refuse_other_computations(const GgufMetadata& metadata, const std::string& prefix) {
  const std::vector<std::string> unread = metadata.unread(prefix);
  const auto is_unread = [&](std::string_view key) {
    return std::ranges::find(unread, prefix + std::string(key)) != unread.end();
  };
  const auto check_number = [&](std::string_view key, double plain) {
    if (!is_unread(key)) return;
    const auto value = metadata.number(prefix + std::string(key), -any_number, any_number);
    if (value && *value != plain) {
      metadata.error(prefix + std::string(key),
                     "is not supported; expected " + std::to_string(static_cast<int64_t>(plain)) + " or no such key");
    }
  };
  for (const char* key : {"logit_scale", "embedding_scale", "residual_scale", "attention.scale", "expert_weights_scale",
                          "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    check_number(key, 1.0);
  }
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv", "attention.max_alibi_bias",
        "attention.temperature_scale", "rope.scaling.yarn_log_multiplier"}) {
    check_number(key, 0.0);
  }
  for (const std::string_view key :
       {"expert_count", "expert_used_count", "expert_shared_count", "leading_dense_block_count", "nextn_predict_layers",
        "attention.sliding_window", "attention.kv_lora_rank", "attention.q_lora_rank"}) {
    if (!is_unread(key)) continue;
    const auto value = metadata.whole(prefix + std::string(key), 0, max_positions);
    if (value.value_or(0) != 0) {
      metadata.error(prefix + std::string(key),
                     "is " + std::to_string(*value) + ", which is not supported; expected 0 or no such key");
    }
  }
  for (const std::string_view key : {"use_parallel_residual", "expert_weights_norm"}) {
    if (is_unread(key) && metadata.flag(prefix + std::string(key), false)) {
      metadata.error(prefix + std::string(key), "is true, which is not supported; expected false or no such key");
    }
  }
  // Of heads whose positions have several parts, as those of images.
  for (const std::string_view key : {"rope.dimension_sections", "deepstack_mapping"}) {
    if (is_unread(key)) metadata.error(prefix + std::string(key), "is not supported; expected no such key");
  }
  if (!metadata.flag(prefix + "attention.causal", true)) {
    metadata.error(prefix + "attention.causal", "is false, which is not supported; expected true or no such key");
  }
}

// Reads a tensor of factors of the wavelengths, one for each pair of rotating dimensions; nothing if there is none.
std::optional<std::vector<float>> read_factors(const GgufModel& model, const char* name, int64_t pairs) {
  size_t part = 0;
  const GgufTensor* tensor = model.find(name, &part);
  if (tensor == nullptr) return std::nullopt;
  const std::string source = model.paths[part].string() + ": the tensor " + quote_text(name);
  if (tensor->type != 0 || tensor->shape != std::vector<int64_t>{pairs}) {
    throw CheckpointError(source + " is " + ggml_type_name(tensor->type) + " with " +
                          std::to_string(tensor->shape.back()) + " values in a row; expected F32 with " +
                          std::to_string(pairs) + ", half the size of a head");
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  model.files[part].read(tensor->offset, std::as_writable_bytes(std::span(factors)));
  for (const float factor : factors) {
    if (std::isfinite(factor) && factor > 0) continue;
    throw CheckpointError(source + " has the value " + std::to_string(factor) + "; expected finite ones above 0");
  }
  return factors;
}

// A file with scaling of Llama 3's kind stores the factors as a tensor, for sequences of every length. In older files
// the layers have copies of this tensor.
void read_rope_factors(const GgufModel& model, ModelConfig& config) {
  auto factors = read_factors(model, "rope_freqs.weight", config.rope.rotary_dim / 2);
  if (!factors) return;
  if (config.rope.type != RopeType::Default) {
    throw CheckpointError(model.paths[0].string() +
                          ": the tensor \"rope_freqs.weight\" is there beside a rope.scaling.type other than none; "
                          "expected one of them");
  }
  config.rope.type = RopeType::Longrope;
  config.rope.original_max_position_embeddings = config.max_position_embeddings;
  config.rope.long_factor = *factors;
  config.rope.short_factor = std::move(*factors);
}

void read_yarn(const GgufMetadata& metadata, const std::string& prefix, RopeConfig& rope) {
  rope.type = RopeType::Yarn;
  rope.beta_fast = metadata.number(prefix + "yarn_beta_fast", 1e-6, any_number).value_or(32.0);
  rope.beta_slow = metadata.number(prefix + "yarn_beta_slow", 1e-6, any_number).value_or(1.0);
  if (rope.factor > 1.0) rope.attention_factor *= static_cast<float>(1.0 + 0.1 * std::log(rope.factor));
}

void read_longrope(const GgufModel& model, const std::string& key, RopeConfig& rope) {
  rope.type = RopeType::Longrope;
  if (rope.factor != 1.0) {
    model.metadata().error(key, "is " + std::to_string(rope.factor) + " beside longrope; expected 1 or no such key");
  }
  const int64_t pairs = rope.rotary_dim / 2;
  auto long_factors = read_factors(model, "rope_factors_long.weight", pairs);
  auto short_factors = read_factors(model, "rope_factors_short.weight", pairs);
  if (!long_factors || !short_factors) {
    throw CheckpointError(model.paths[0].string() +
                          ": rope.scaling.type is longrope, and the tensors \"rope_factors_long.weight\" and "
                          "\"rope_factors_short.weight\" are not both there");
  }
  rope.long_factor = std::move(*long_factors);
  rope.short_factor = std::move(*short_factors);
}

void read_rope(const GgufModel& model, const std::string& prefix, ModelConfig& config) {
  const GgufMetadata& metadata = model.metadata();
  RopeConfig& rope = config.rope;
  rope.rotary_dim = metadata.whole(prefix + "rope.dimension_count", 2, max_head_dim).value_or(config.head_dim);
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > config.head_dim) {
    metadata.error(prefix + "rope.dimension_count", "is " + std::to_string(rope.rotary_dim) +
                                                        "; expected an even number of at most " +
                                                        std::to_string(config.head_dim) + ", the size of a head");
  }
  if (rope.rotary_dim != config.head_dim && has_first_families_rules(config.family)) {
    metadata.error(prefix + "rope.dimension_count", "is " + std::to_string(rope.rotary_dim) + "; expected " +
                                                        std::to_string(config.head_dim) + ", the size of a head");
  }
  rope.theta = metadata.number(prefix + "rope.freq_base", 1.0, any_number).value_or(10000.0);
  if (!(rope.theta > 1.0)) metadata.error(prefix + "rope.freq_base", "is 1; expected a number above it");
  const std::string scaling = prefix + "rope.scaling.";
  const std::string old_key = prefix + "rope.scale_linear";
  const std::string key = scaling + "factor";
  rope.factor = metadata.number(metadata.has(key) ? key : old_key, 0.0, any_number).value_or(1.0);
  if (rope.factor == 0.0) rope.factor = 1.0;
  const std::string type =
      metadata.text(scaling + "type").value_or(rope.type == RopeType::Longrope ? "longrope" : "linear");
  rope.type = RopeType::Default;
  const bool scales_attention = type == "yarn" || type == "longrope";
  metadata.has(scaling + "original_context_length");  // changes nothing without scaling
  const double attention = metadata.number(scaling + "attn_factor", 0.0, any_number).value_or(1.0);
  if (attention != 1.0 && !scales_attention) {
    metadata.error(scaling + "attn_factor", "is " + std::to_string(attention) + " beside the rope.scaling.type " +
                                                quote_text(type) + "; expected 1 or no such key");
  }
  if (scales_attention) {
    rope.attention_factor = static_cast<float>(attention);
    rope.original_max_position_embeddings =
        metadata.whole(scaling + "original_context_length", 1, max_positions).value_or(config.max_position_embeddings);
  }
  if (type == "none" || (type == "linear" && rope.factor == 1.0)) {
    rope.factor = 1.0;
  } else if (type == "linear") {
    rope.type = RopeType::Linear;
  } else if (type == "yarn") {
    read_yarn(metadata, scaling, rope);
  } else if (type == "longrope") {
    read_longrope(model, key, rope);
  } else {
    metadata.error(scaling + "type", "is " + quote_text(type) +
                                         ", which is not supported; supported are none, linear, yarn and longrope");
  }
  if (type == "longrope") return;
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (model.find(name) != nullptr) {
      throw CheckpointError(model.paths[0].string() + ": has the tensor " + quote_text(name) +
                            " without a rope.scaling.type of longrope");
    }
  }
}

void read_sizes(const GgufModel& model, const std::string& prefix, ModelConfig& config) {
  const GgufMetadata& metadata = model.metadata();
  const int64_t layers = config.num_hidden_layers = metadata.required_whole(prefix + "block_count", 1, max_layers);
  config.hidden_size = metadata.required_whole(prefix + "embedding_length", 1, max_size);
  const auto of_layers = [&](const std::string& key, int64_t most, std::optional<int64_t> fallback) {
    const auto value = metadata.whole_of_layers(prefix + key, 1, most, layers);
    if (value) return *value;
    if (!fallback) metadata.error(prefix + key, "is missing; expected a whole number");
    return *fallback;
  };
  config.intermediate_size = of_layers("feed_forward_length", max_size, std::nullopt);
  config.num_attention_heads = of_layers("attention.head_count", max_heads, std::nullopt);
  config.num_key_value_heads = of_layers("attention.head_count_kv", max_heads, config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    metadata.error(prefix + "attention.head_count_kv", "is " + std::to_string(config.num_key_value_heads) +
                                                           "; expected a divisor of head_count, which is " +
                                                           std::to_string(config.num_attention_heads));
  }
  config.head_dim = gguf_head_size(metadata);
  if (config.head_dim % 2 != 0 || config.head_dim > max_head_dim) {
    metadata.error(prefix + "attention.key_length",
                   "or what follows from the other sizes is " + std::to_string(config.head_dim) +
                       "; expected an even number of at most " + std::to_string(max_head_dim));
  }
  const int64_t value_length = metadata.whole(prefix + "attention.value_length", 1, max_size).value_or(config.head_dim);
  if (value_length != config.head_dim && !metadata.has(prefix + "attention.kv_lora_rank")) {
    metadata.error(prefix + "attention.value_length", "is " + std::to_string(value_length) + "; expected " +
                                                          std::to_string(config.head_dim) + ", the key_length");
  }
  config.max_position_embeddings = metadata.required_whole(prefix + "context_length", 1, max_positions);
  const GgufTensor* embedding = model.find("token_embd.weight");
  if (embedding == nullptr) {
    throw CheckpointError(metadata.source() + ": has no tensor \"token_embd.weight\"; expected the token embedding");
  }
  config.vocab_size = embedding->shape[0];
  const int64_t vocabulary = metadata.whole(prefix + "vocab_size", 1, max_vocab).value_or(config.vocab_size);
  if (vocabulary != config.vocab_size || config.vocab_size > max_vocab) {
    throw CheckpointError(metadata.source() + ": the tensor \"token_embd.weight\" has " +
                          std::to_string(config.vocab_size) + " rows; expected " +
                          std::to_string(std::min(vocabulary, max_vocab)) + ", the vocab_size or its limit");
  }
}

// A file has the biases that the model has.
void read_biases(const GgufModel& model, ModelConfig& config) {
  const auto has = [&](const char* name) { return model.find(name) != nullptr; };
  config.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias") || has("blk.0.attn_kv_a_mqa.bias");
  config.o_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias") || has("blk.0.ffn_gate.bias");
  config.lm_head_bias = has("output.bias");
  config.norm_has_bias = has("blk.0.attn_norm.bias");
}

std::optional<int32_t> read_id(const GgufMetadata& metadata, const std::string& name, const ModelConfig& config) {
  const auto id = metadata.whole("tokenizer.ggml." + name + "_token_id", 0, config.vocab_size - 1);
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

void read_ids(const GgufMetadata& metadata, ModelConfig& config) {
  config.bos_token_id = read_id(metadata, "bos", config);
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id = read_id(metadata, name, config);
    if (id && std::ranges::find(config.eos_token_ids, *id) == config.eos_token_ids.end()) {
      config.eos_token_ids.push_back(*id);
    }
  }
}

}  // namespace

ModelConfig load_gguf_config(const std::filesystem::path& path) {
  const std::shared_ptr<const GgufModel> opened = open_gguf(path);
  const GgufModel& model = *opened;
  const GgufMetadata& metadata = model.metadata();
  ModelConfig config;
  const FamilyDefinition* definition = find_gguf_family(metadata);
  config.family = definition != nullptr ? definition->family : first_family(metadata);
  const std::string architecture = metadata.required_text("general.architecture");
  const std::string prefix = architecture + ".";
  read_sizes(model, prefix, config);
  read_biases(model, config);
  config.tie_word_embeddings = model.find("output.weight") == nullptr;
  config.qk_norm = config.family == Family::Qwen3;
  config.layer_has_window.assign(static_cast<size_t>(config.num_hidden_layers), 0);
  if (definition != nullptr) {
    config.names = gguf_tensor_names;
    if (model.find("blk.0.attn_qkv.weight") != nullptr) config.names.qkv = "attn_qkv";
    if (const auto named = find_activation(definition->defaults.activation)) config.hidden_act = *named;
    definition->describe_gguf(GgufFields(model, architecture), config);
  }
  const char* eps = config.norm == NormKind::Rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  config.rms_norm_eps = static_cast<float>(metadata.required_number(prefix + eps, 0.0, 1.0));
  if (config.positions == Positions::Rope) {
    read_rope(model, prefix, config);
    read_rope_factors(model, config);
    // The scores of such heads are scaled instead.
    if (config.latent.rank > 0) config.rope.attention_factor = 1.0f;
  } else {
    config.rope.rotary_dim = config.head_dim;  // nothing rotates
  }
  refuse_other_computations(metadata, prefix);
  read_ids(metadata, config);
  std::string unread;
  for (const std::string& key : metadata.unread(prefix)) unread += (unread.empty() ? "" : ", ") + key;
  if (!unread.empty()) config.notes.push_back("keys of the file that are ignored: " + unread);
  return config;
}

}  // namespace anyaccel::llm
