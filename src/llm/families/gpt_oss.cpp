// Defines GPT-OSS: sinks and windows in attention, and experts with biases and a limited activation, whose matrices are MXFP4
// in the published files.
#include <array>
#include <string>

#include "llm/config/config_fields.h"
#include "llm/config/weight_quantization.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

void compose_gpt_oss(const JsonRef& root, ModelConfig& config) {
  constexpr std::string_view expert_counts[] = {"num_experts", "num_local_experts"};
  config.qkv_bias = config.o_bias = read_flag_on(root, "attention_bias");
  config.has_sinks = true;
  const int64_t window =
      root.has("sliding_window") ? read_whole(root, "sliding_window", 1, max_positions, 0) : int64_t{128};
  set_windows(root, config, window, [](int64_t layer, int64_t) { return layer % 2 == 0; });
  if (!root.find("rope_scaling") && !root.find("rope_parameters")) {
    root.error("has neither rope_parameters nor rope_scaling, on which the frequencies of these models depend");
  }
  read_experts(root, config, expert_counts, 128, 4, config.intermediate_size);
  ExpertsConfig& experts = config.experts;
  experts.stacked = experts.interleaved = experts.has_biases = true;
  experts.limit = static_cast<float>(read_number(root, "swiglu_limit", 1e-3, 1e6, 7.0));
  experts.gain = static_cast<float>(read_number(root, "swiglu_alpha", 1e-3, 1e3, 1.702));
  if (config.quantization != nullptr && config.quantization->kind != WeightQuantization::Kind::MxFloat4) {
    root.at("quantization_config").fail("MXFP4 (quant_method \"mxfp4\") or no such field in a model of type gpt_oss");
  }
}

// No key gives the limits of the activation, nor that the bounds of yarn's ramp are not whole dimensions.
void describe_gguf_gpt_oss(const GgufFields& file, ModelConfig& config) {
  config.has_sinks = true;
  config.rope.truncate = false;
  config.names.mlp_norm = "post_attention_norm";
  describe_gguf_windows(file, config, 128, 2);
  describe_gguf_experts(file, config);
  config.experts.has_biases = true;
  config.experts.limit = 7.0f;
  config.experts.gain = 1.702f;
}

constexpr std::string_view gpt_oss_fields[] = {"attention_bias",    "sliding_window",       "layer_types",
                                               "num_local_experts", "num_experts",          "num_experts_per_tok",
                                               "swiglu_limit",      "swiglu_alpha",         "rope_theta",
                                               "rope_scaling",      "rope_parameters",      "output_router_logits",
                                               "experts_per_token", "router_aux_loss_coef", "initial_context_length",
                                               "hidden_act"};

}  // namespace

const FamilyDefinition gpt_oss = {
    .family = Family::GptOss,
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    // hidden_act is in the files and not used.
    .sizes = {.activation = ""},
    .defaults = {.kv_heads = 8, .head_dim = 64, .positions = 131072, .rope_theta = 150000.0},
    .names = {.router = "mlp.router", .stacked_router = "mlp.router"},
    .fields = gpt_oss_fields,
    .compose = compose_gpt_oss,
    .gguf_architecture = "gpt-oss",
    .describe_gguf = describe_gguf_gpt_oss};

}  // namespace anyaccel::llm
