// Defines the families that rotate neighbouring elements of a head: Cohere (Command R) 1 and 2, GLM and GLM 4.
#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

// Both halves of a layer read the same layer norm, which has no bias; the logits are multiplied by a factor.
void cohere_common(const JsonRef& root, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.residual = Residual::ParallelOne;
  config.rope_interleaved = true;
  config.logits_multiplier = static_cast<float>(read_number(root, "logit_scale", 1e-6, 1e6, 0.0625));
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
}

void compose_cohere(const JsonRef& root, ModelConfig& config) {
  cohere_common(root, config);
  const auto parameters = root.find("rope_parameters");
  if (!root.find("rope_theta") && !(parameters && parameters->find("rope_theta"))) {
    root.error(
        "has no rope_theta; expected a number, since releases of transformers differ in what a missing one means");
  }
  if (read_flag(root, "use_qk_norm", false)) config.head_norm = HeadNorm::EachLayer;
}

// Layers without a window do not rotate.
void compose_cohere2(const JsonRef& root, ModelConfig& config) {
  cohere_common(root, config);
  if (root.has("sliding_window") && !root.find("sliding_window")) {
    root.error("sliding_window is null; expected a number in a model of type cohere2");
  }
  set_windows(
      root, config, read_whole(root, "sliding_window", 1, max_positions, 4096),
      [](int64_t layer, int64_t every) { return (layer + 1) % every != 0; },
      read_whole(root, "sliding_window_pattern", 1, max_layers, 4));
  for (const uint8_t has_window : config.layer_has_window) config.layer_without_rope.push_back(has_window != 0 ? 0 : 1);
}

void compose_glm(const JsonRef& root, ModelConfig& config) {
  config.rope_interleaved = true;
  config.eos_token_ids = {151329, 151336, 151338};
  config.qkv_bias = read_flag_on(root, "attention_bias");
}

void compose_glm4(const JsonRef& root, ModelConfig& config) {
  compose_glm(root, config);
  config.norm_place = NormPlace::Both;
}

// -- GGUF
void gguf_cohere_common(const GgufFields& file, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.residual = Residual::ParallelOne;
  config.rope_interleaved = true;
  config.logits_multiplier = file.number("logit_scale", file.known().logits_multiplier, 1.0f);
}
void describe_gguf_cohere(const GgufFields& file, ModelConfig& config) {
  gguf_cohere_common(file, config);
  if (file.layers_have("attn_q_norm.weight", file.known().head_norm == HeadNorm::EachLayer)) {
    config.head_norm = HeadNorm::EachLayer;
  }
}
void describe_gguf_cohere2(const GgufFields& file, ModelConfig& config) {
  gguf_cohere_common(file, config);
  describe_gguf_windows(file, config, 0, 4);
  for (const uint8_t has_window : config.layer_has_window) config.layer_without_rope.push_back(has_window != 0 ? 0 : 1);
}
// ChatGLM 3 and GLM.
void describe_gguf_glm(const GgufFields&, ModelConfig& config) {
  config.rope_interleaved = true;
  config.names.gate_up = "ffn_up";
}
void describe_gguf_glm4(const GgufFields& file, ModelConfig& config) {
  describe_gguf_glm(file, config);
  config.norm_place = NormPlace::Both;
  config.names.attention_norm = "post_attention_norm";
  config.names.mlp_output_norm = "post_ffw_norm";
}

constexpr std::string_view cohere_fields[] = {"logit_scale", "attention_bias", "use_qk_norm",
                                              "rope_theta",  "rope_scaling",   "rope_parameters"};
constexpr std::string_view cohere2_fields[] = {
    "logit_scale", "attention_bias", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
    "layer_types", "rope_theta",     "rope_scaling",   "rope_parameters"};
constexpr std::string_view glm_fields[] = {"attention_bias", "partial_rotary_factor", "rope_theta", "rope_scaling",
                                           "rope_parameters"};

}  // namespace

const FamilyDefinition cohere = {
    .family = Family::Cohere,
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .sizes = {.eps = "layer_norm_eps"},
    .defaults = {.positions = 8192, .rope_theta = 500000.0, .tied = true, .bos = 5, .eos = 255001},
    .fields = cohere_fields,
    .compose = compose_cohere,
    .gguf_architecture = "command-r",
    .describe_gguf = describe_gguf_cohere};
const FamilyDefinition cohere2 = {.family = Family::Cohere2,
                                  .model_type = "cohere2",
                                  .architecture = "Cohere2ForCausalLM",
                                  .sizes = {.head_dim = "", .eps = "layer_norm_eps"},
                                  .defaults = {.positions = 8192, .tied = true, .bos = 5, .eos = 255001},
                                  .fields = cohere2_fields,
                                  .compose = compose_cohere2,
                                  .gguf_architecture = "cohere2",
                                  .describe_gguf = describe_gguf_cohere2};
const FamilyDefinition glm = {
    .family = Family::Glm,
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .defaults = {.kv_heads = 2, .head_dim = 128, .positions = 131072, .eps = 1.5625e-7, .rotary_share = 0.5},
    .names = {.gate_up = "mlp.gate_up_proj"},
    .fields = glm_fields,
    .compose = compose_glm,
    .gguf_architecture = "chatglm",
    .describe_gguf = describe_gguf_glm};
const FamilyDefinition glm4 = {
    .family = Family::Glm4,
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .defaults = {.kv_heads = 2, .head_dim = 128, .positions = 131072, .eps = 1.5625e-7, .rotary_share = 0.5},
    .names = {.attention_norm = "post_self_attn_layernorm",
              .mlp_norm = "post_attention_layernorm",
              .mlp_output_norm = "post_mlp_layernorm",
              .gate_up = "mlp.gate_up_proj"},
    .fields = glm_fields,
    .compose = compose_glm4,
    .gguf_architecture = "glm4",
    .describe_gguf = describe_gguf_glm4};

}  // namespace anyaccel::llm
