// Defines families whose feed-forward blocks consist of experts: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, and Granite's.
#include <algorithm>
#include <string>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr int64_t max_experts = 1 << 14;
// Releases of transformers write either.
constexpr std::string_view expert_counts[] = {"num_experts", "num_local_experts"};

// Qwen's layers are dense if mlp_only_layers names them, or if their number, from 1, is not a multiple of
// decoder_sparse_step.
void choose_dense_layers(const JsonRef& root, ModelConfig& config) {
  const int64_t every = read_whole(root, "decoder_sparse_step", 1, max_layers, 1);
  std::vector<uint8_t>& in_layer = config.experts.in_layer;
  for (size_t i = 0; i < in_layer.size(); ++i) in_layer[i] = (static_cast<int64_t>(i) + 1) % every == 0 ? 1 : 0;
  if (const auto dense = root.find("mlp_only_layers")) {
    for (size_t i = 0; i < dense->size(); ++i) {
      const auto layer = static_cast<size_t>((*dense)[i].integer(0, max_layers));
      if (layer < in_layer.size()) in_layer[layer] = 0;
    }
  }
}

// Returns whether the weights of a token's experts are divided by their sum. The key is read and not written, since llama.cpp
// computes these architectures with `fallback` whatever it says.
bool divides_by_sum(const GgufFields& file, bool fallback) {
  return file.has("expert_weights_norm", false) ? file.flag("expert_weights_norm", fallback, fallback) : fallback;
}

// -- Mixtral: all layers have experts, and intermediate_size is that of each.
void compose_mixtral(const JsonRef& root, ModelConfig& config) {
  require_flag(root, "attention_bias", false, "Mixtral models have no biases");
  read_experts(root, config, expert_counts, 8, 2, config.intermediate_size);
  set_window_of_all(root, config, 0);
}
void describe_gguf_mixtral(const GgufFields& file, ModelConfig& config) {
  config.rope_interleaved = true;
  describe_gguf_experts(file, config);
}
constexpr std::string_view mixtral_fields[] = {"attention_bias",      "num_local_experts",   "num_experts",
                                               "num_experts_per_tok", "sliding_window",      "rope_theta",
                                               "rope_scaling",        "rope_parameters",     "output_router_logits",
                                               "router_jitter_noise", "router_aux_loss_coef"};

// -- Qwen2-MoE: a shared expert, multiplied by the sigmoid of a product, computes every token.
void compose_qwen2_moe(const JsonRef& root, ModelConfig& config) {
  config.qkv_bias = read_flag_on(root, "qkv_bias");
  read_experts(root, config, expert_counts, 60, 4, read_whole(root, "moe_intermediate_size", 1, max_size, 1408));
  config.experts.normalizes = read_flag(root, "norm_topk_prob", false);
  config.experts.shared_inner = read_whole(root, "shared_expert_intermediate_size", 1, max_size, 5632);
  config.experts.shared_has_weight = true;
  choose_dense_layers(root, config);
  const bool windows = read_flag(root, "use_sliding_window", false);
  const std::vector<uint8_t> by_list = read_layer_types(root, static_cast<size_t>(config.num_hidden_layers));
  if (windows && by_list.empty()) {
    root.error(
        "use_sliding_window is true and layer_types is missing; expected the list, since releases of transformers "
        "differ in which layers have windows then");
  }
  for (size_t i = 0; i < by_list.size(); ++i) {
    if (by_list[i] == 0) continue;
    if (!windows) {
      root.at("layer_types")[i].fail("\"full_attention\", because use_sliding_window is not true");
    }
    config.layer_has_window[i] = 1;
    config.sliding_window = read_whole(root, "sliding_window", 1, max_positions, 4096);
  }
}
void describe_gguf_qwen2_moe(const GgufFields& file, ModelConfig& config) {
  describe_gguf_experts(file, config);
  config.experts.normalizes = divides_by_sum(file, false);
  config.experts.shared_inner =
      file.required_whole("expert_shared_feed_forward_length", 1, max_size, file.known().experts.shared_inner);
  config.experts.shared_has_weight = true;
}
constexpr std::string_view qwen2_moe_fields[] = {"qkv_bias",
                                                 "num_experts",
                                                 "num_local_experts",
                                                 "num_experts_per_tok",
                                                 "moe_intermediate_size",
                                                 "shared_expert_intermediate_size",
                                                 "norm_topk_prob",
                                                 "mlp_only_layers",
                                                 "decoder_sparse_step",
                                                 "use_sliding_window",
                                                 "sliding_window",
                                                 "max_window_layers",
                                                 "layer_types",
                                                 "rope_theta",
                                                 "rope_scaling",
                                                 "rope_parameters",
                                                 "output_router_logits",
                                                 "router_aux_loss_coef"};

// -- Qwen3-MoE: Qwen3's attention, no shared expert; if there are windows, all layers have them.
void compose_qwen3_moe(const JsonRef& root, ModelConfig& config) {
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
  config.head_norm = HeadNorm::Rms;
  read_experts(root, config, expert_counts, 128, 8, read_whole(root, "moe_intermediate_size", 1, max_size, 768));
  config.experts.normalizes = read_flag(root, "norm_topk_prob", false);
  choose_dense_layers(root, config);
  if (read_flag(root, "use_sliding_window", false)) set_window_of_all(root, config, 4096);
}
// Released models divide the weights of a token's experts by their sum.
void describe_gguf_qwen3_moe(const GgufFields& file, ModelConfig& config) {
  config.head_norm = HeadNorm::Rms;
  describe_gguf_experts(file, config);
  config.experts.normalizes = divides_by_sum(file, true);
}
constexpr std::string_view qwen3_moe_fields[] = {
    "attention_bias",        "num_experts",     "num_local_experts",    "num_experts_per_tok",
    "moe_intermediate_size", "norm_topk_prob",  "mlp_only_layers",      "decoder_sparse_step",
    "use_sliding_window",    "sliding_window",  "max_window_layers",    "rope_theta",
    "rope_scaling",          "rope_parameters", "output_router_logits", "router_aux_loss_coef"};

// -- OLMoE: all queries (keys) of a token are normed together, as in OLMo 2, but the norms of halves come first.
void compose_olmoe(const JsonRef& root, ModelConfig& config) {
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
  config.head_norm = HeadNorm::Whole;
  if (const auto clip = root.find("clip_qkv")) clip->fail("null: queries, keys and values are not clipped");
  read_experts(root, config, expert_counts, 64, 8, config.intermediate_size);
  config.experts.normalizes = read_flag(root, "norm_topk_prob", false);
}
void describe_gguf_olmoe(const GgufFields& file, ModelConfig& config) {
  config.head_norm = HeadNorm::Whole;
  describe_gguf_experts(file, config);
  config.experts.normalizes = divides_by_sum(file, false);
}
constexpr std::string_view olmoe_fields[] = {
    "attention_bias",      "clip_qkv",   "num_experts",  "num_local_experts", "num_experts_per_tok",
    "norm_topk_prob",      "rope_theta", "rope_scaling", "rope_parameters",   "output_router_logits",
    "router_aux_loss_coef"};

// -- Granite's mixtures: Granite's multipliers; the matrices of all experts are one tensor.
void compose_granite_moe(const JsonRef& root, ModelConfig& config) {
  read_granite_multipliers(root, config);
  read_experts(root, config, expert_counts, 8, 2, config.intermediate_size);
  config.experts.stacked = true;
}
void compose_granite_moe_shared(const JsonRef& root, ModelConfig& config) {
  compose_granite_moe(root, config);
  config.experts.shared_inner = read_whole(root, "shared_intermediate_size", 0, max_size, 0);
}
// Files of both kinds have the same architecture.
void describe_gguf_granite_moe(const GgufFields& file, ModelConfig& config) {
  describe_gguf_granite_multipliers(file, config);
  describe_gguf_experts(file, config);
  const int64_t shared = file.known().experts.shared_inner;
  if (file.has("expert_shared_feed_forward_length", shared > 0)) {
    config.experts.shared_inner = file.whole("expert_shared_feed_forward_length", 0, max_size, shared, 0);
  }
}
constexpr std::string_view granite_moe_fields[] = {
    "embedding_multiplier", "residual_multiplier",     "attention_multiplier",
    "logits_scaling",       "attention_bias",          "num_local_experts",
    "num_experts",          "num_experts_per_tok",     "rope_theta",
    "rope_scaling",         "rope_parameters",         "output_router_logits",
    "router_aux_loss_coef", "shared_intermediate_size"};

constexpr TensorNames granite_names = {.stacked_gate_up = "block_sparse_moe.input_linear.weight",
                                       .stacked_down = "block_sparse_moe.output_linear.weight",
                                       .stacked_router = "block_sparse_moe.router.layer",
                                       .shared_down = "shared_mlp.output_linear",
                                       .shared_gate_up = "shared_mlp.input_linear"};

}  // namespace

void read_experts(const JsonRef& root, ModelConfig& config, std::span<const std::string_view> names, int64_t count,
                  int64_t per_token, int64_t inner) {
  ExpertsConfig& experts = config.experts;
  std::string_view name = names.front();
  for (const std::string_view other : names) {
    if (!root.find(other)) continue;
    if (!root.find(name)) name = other;
    if (root.at(other).integer(1, max_experts) != root.at(name).integer(1, max_experts)) {
      root.error(std::string(name) + " and " + std::string(other) +
                 " differ; expected one of them, or the same number");
    }
  }
  experts.count = read_whole(root, name, 1, max_experts, count);
  experts.per_token = per_token > 0 ? read_whole(root, "num_experts_per_tok", 1, max_experts, per_token)
                                    : root.at("num_experts_per_tok").integer(1, max_experts);
  if (experts.per_token > experts.count) {
    root.error("num_experts_per_tok is " + std::to_string(experts.per_token) + "; expected at most " +
               std::string(name) + ", which is " + std::to_string(experts.count));
  }
  experts.inner = inner;
  experts.in_layer.assign(static_cast<size_t>(config.num_hidden_layers), 1);
}

const FamilyDefinition mixtral = {
    .family = Family::Mixtral,
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .defaults = {.kv_heads = 8, .positions = 131072, .rope_theta = 1e6, .bos = 1, .eos = 2},
    .names = {.router = "block_sparse_moe.gate",
              .expert = "block_sparse_moe.experts.",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2",
              .expert_gate_too = "gate_proj",
              .expert_up_too = "up_proj",
              .expert_down_too = "down_proj"},
    .fields = mixtral_fields,
    .compose = compose_mixtral,
    .gguf_architecture = "llama",
    .describe_gguf = describe_gguf_mixtral};
const FamilyDefinition qwen2_moe = {.family = Family::Qwen2Moe,
                                    .model_type = "qwen2_moe",
                                    .architecture = "Qwen2MoeForCausalLM",
                                    .defaults = {.kv_heads = 16, .positions = 32768, .eps = 1e-6},
                                    .names = {.shared_gate = "mlp.shared_expert.gate_proj",
                                              .shared_up = "mlp.shared_expert.up_proj",
                                              .shared_down = "mlp.shared_expert.down_proj",
                                              .shared_weight = "mlp.shared_expert_gate"},
                                    .fields = qwen2_moe_fields,
                                    .compose = compose_qwen2_moe,
                                    .gguf_architecture = "qwen2moe",
                                    .describe_gguf = describe_gguf_qwen2_moe};
const FamilyDefinition qwen3_moe = {.family = Family::Qwen3Moe,
                                    .model_type = "qwen3_moe",
                                    .architecture = "Qwen3MoeForCausalLM",
                                    .defaults = {.kv_heads = 4, .positions = 32768, .eps = 1e-6},
                                    .fields = qwen3_moe_fields,
                                    .compose = compose_qwen3_moe,
                                    .gguf_architecture = "qwen3moe",
                                    .describe_gguf = describe_gguf_qwen3_moe};
const FamilyDefinition olmoe = {.family = Family::Olmoe,
                                .model_type = "olmoe",
                                .architecture = "OlmoeForCausalLM",
                                .defaults = {.positions = 4096, .eos = 50279},
                                .fields = olmoe_fields,
                                .compose = compose_olmoe,
                                .gguf_architecture = "olmoe",
                                .describe_gguf = describe_gguf_olmoe};
const FamilyDefinition granite_moe = {.family = Family::GraniteMoe,
                                      .model_type = "granitemoe",
                                      .architecture = "GraniteMoeForCausalLM",
                                      .defaults = {.eps = 1e-6, .bos = 1, .eos = 2},
                                      .names = granite_names,
                                      .fields = std::span(granite_moe_fields).first(13),
                                      .compose = compose_granite_moe,
                                      .gguf_architecture = "granitemoe",
                                      .describe_gguf = describe_gguf_granite_moe};
const FamilyDefinition granite_moe_shared = {.family = Family::GraniteMoeShared,
                                             .model_type = "granitemoeshared",
                                             .architecture = "GraniteMoeSharedForCausalLM",
                                             .defaults = {.eps = 1e-6, .bos = 1, .eos = 2},
                                             .names = granite_names,
                                             .fields = granite_moe_fields,
                                             .compose = compose_granite_moe_shared,
                                             .gguf_architecture = "granitemoe",
                                             .describe_gguf = describe_gguf_granite_moe};

}  // namespace anyaccel::llm
