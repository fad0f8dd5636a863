// Defines Gemma 1, 2 and 3 (text). They have RMS norms whose stored weight is one less, and multiply embeddings by the
// square root of their size; versions 2 and 3 also have norms before and after each half, soft caps, and windows on
// some layers.
#include <cmath>
#include <string>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr TensorNames gemma_names = {.attention_norm = "post_attention_layernorm",
                                     .mlp_norm = "pre_feedforward_layernorm",
                                     .mlp_output_norm = "post_feedforward_layernorm"};
constexpr SizeFields gemma_sizes = {.activation = "hidden_activation"};

void gemma_common(const JsonRef& root, ModelConfig& config) {
  config.norm_adds_one = true;
  config.embedding_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  config.rounds_embedding_multiplier = true;
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
}

// Whatever the file says, "gelu" stands for the approximation by tanh. Older releases of transformers use hidden_activation
// and ignore hidden_act, newer ones the other way round.
void compose_gemma(const JsonRef& root, ModelConfig& config) {
  gemma_common(root, config);
  const auto meant = [](ops::Activation named) {
    return named == ops::Activation::Gelu ? ops::Activation::GeluTanh : named;
  };
  config.hidden_act = meant(config.hidden_act);
  const auto written = root.find("hidden_activation");
  if (!written) return;
  const ops::Activation other = meant(read_activation(root, "hidden_activation", ""));
  if (root.has("hidden_act") && other != config.hidden_act) {
    written->fail("null, or the activation that hidden_act names (" + quote_text(root.at("hidden_act").string()) +
                  "): releases of transformers differ in which of the two fields they use");
  }
  config.hidden_act = other;
}

void gemma_scaled(const JsonRef& root, ModelConfig& config) {
  gemma_common(root, config);
  config.norm_place = NormPlace::Both;
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(read_number(root, "query_pre_attn_scalar", 1e-6, 1e6, 256.0)));
}

void compose_gemma2(const JsonRef& root, ModelConfig& config) {
  gemma_scaled(root, config);
  const auto cap = [&](const char* name, double fallback) {
    return static_cast<float>(root.has(name) ? read_number(root, name, 0.0, 1e6, 0.0) : fallback);
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0);
  config.logits_softcap = cap("final_logit_softcapping", 30.0);
  const int64_t window = root.has("sliding_window") ? read_whole(root, "sliding_window", 1, max_positions, 0) : 4096;
  set_windows(root, config, window, [](int64_t layer, int64_t) { return layer % 2 == 0; });
}

// attn_logit_softcapping is stored, but transformers does not use it.
void compose_gemma3(const JsonRef& root, ModelConfig& config) {
  gemma_scaled(root, config);
  config.qk_norm = true;
  config.logits_softcap = static_cast<float>(read_number(root, "final_logit_softcapping", 0.0, 1e6, 0.0));
  const int64_t window = root.has("sliding_window") ? read_whole(root, "sliding_window", 1, max_positions, 0) : 4096;
  set_windows(
      root, config, window, [](int64_t layer, int64_t every) { return (layer + 1) % every != 0; },
      read_whole(root, "sliding_window_pattern", 1, max_layers, 6));
  RopeRules full;
  full.theta = 1e6;
  full.layer_type = "full_attention";
  config.rope = read_rope(root, config, config.notes, full);
  if (config.sliding_window == 0) return;  // as in transformers, the parameters of windows say nothing without any
  RopeRules windows;
  windows.theta_name = "rope_local_base_freq";
  windows.layer_type = "sliding_attention";
  config.window_rope = read_rope(root, config, config.notes, windows);
  if (const RopeType type = config.window_rope->type; type == RopeType::Dynamic || type == RopeType::Longrope) {
    root.error(
        "rope of type \"" + std::string(rope_type_name(type)) +
        "\" in layers with windows (sliding_attention); expected a type whose frequencies do not depend on the length "
        "of the text");
  }
}

// -- GGUF: the norms' weights are stored whole, and embeddings are multiplied in fp32.
void describe_gguf_gemma(const GgufFields&, ModelConfig& config) {
  config.embedding_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
}

// No key says how scores are scaled: `layers_of_largest` is the number of layers of the version with 27 billion parameters,
// which scales by the share of a head in the hidden size.
void gguf_gemma_scaled(const GgufFields& file, ModelConfig& config, int64_t layers_of_largest) {
  describe_gguf_gemma(file, config);
  config.norm_place = NormPlace::Both;
  config.names.attention_norm = "post_attention_norm";
  config.names.mlp_output_norm = "post_ffw_norm";
  const bool is_largest = config.num_hidden_layers == layers_of_largest;
  const int64_t size = is_largest ? config.hidden_size / config.num_attention_heads : config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(size));
}

void describe_gguf_gemma2(const GgufFields& file, ModelConfig& config) {
  gguf_gemma_scaled(file, config, 46);
  config.attention_softcap = file.number("attn_logit_softcapping", file.known().attention_softcap, 50.0f);
  config.logits_softcap = file.number("final_logit_softcapping", file.known().logits_softcap, 30.0f);
  describe_gguf_windows(file, config, 4096, 2);
}

void describe_gguf_gemma3(const GgufFields& file, ModelConfig& config) {
  gguf_gemma_scaled(file, config, 62);
  config.qk_norm = true;
  if (file.has("final_logit_softcapping", file.known().logits_softcap != 0.0f)) {
    config.logits_softcap = file.number("final_logit_softcapping", file.known().logits_softcap, 0.0f);
  }
  describe_gguf_windows(file, config, 0, 6);
  RopeConfig windows;
  windows.rotary_dim = config.head_dim;
  const auto known = static_cast<float>(file.known().window_rope.value_or(windows).theta);
  windows.theta = static_cast<double>(file.number("rope.freq_base_swa", known, 10000.0f));
  config.window_rope = windows;
}

constexpr std::string_view gemma_fields[] = {"attention_bias", "hidden_activation", "rope_theta", "rope_scaling",
                                             "rope_parameters"};
constexpr std::string_view gemma2_fields[] = {"attention_bias",        "rope_theta",
                                              "rope_scaling",          "rope_parameters",
                                              "query_pre_attn_scalar", "attn_logit_softcapping",
                                              "layer_types",           "final_logit_softcapping",
                                              "sliding_window",        "hidden_act"};
constexpr std::string_view gemma3_fields[] = {"attention_bias",
                                              "rope_theta",
                                              "rope_scaling",
                                              "rope_parameters",
                                              "rope_local_base_freq",
                                              "query_pre_attn_scalar",
                                              "attn_logit_softcapping",
                                              "final_logit_softcapping",
                                              "sliding_window",
                                              "sliding_window_pattern",
                                              "_sliding_window_pattern",
                                              "layer_types",
                                              "hidden_act"};

}  // namespace

const FamilyDefinition gemma = {.family = Family::Gemma,
                                .model_type = "gemma",
                                .architecture = "GemmaForCausalLM",
                                .defaults = {.kv_heads = 16,
                                             .head_dim = 256,
                                             .positions = 8192,
                                             .eps = 1e-6,
                                             .activation = "gelu_pytorch_tanh",
                                             .tied = true,
                                             .bos = 2,
                                             .eos = 1},
                                .fields = gemma_fields,
                                .compose = compose_gemma,
                                .gguf_architecture = "gemma",
                                .describe_gguf = describe_gguf_gemma};
const FamilyDefinition gemma2 = {.family = Family::Gemma2,
                                 .model_type = "gemma2",
                                 .architecture = "Gemma2ForCausalLM",
                                 .sizes = gemma_sizes,
                                 .defaults = {.kv_heads = 4,
                                              .head_dim = 256,
                                              .positions = 8192,
                                              .eps = 1e-6,
                                              .activation = "gelu_pytorch_tanh",
                                              .tied = true,
                                              .bos = 2,
                                              .eos = 1},
                                 .names = gemma_names,
                                 .fields = gemma2_fields,
                                 .compose = compose_gemma2,
                                 .gguf_architecture = "gemma2",
                                 .describe_gguf = describe_gguf_gemma2};
const FamilyDefinition gemma3 = {.family = Family::Gemma3,
                                 .model_type = "gemma3_text",
                                 .architecture = "Gemma3ForCausalLM",
                                 .sizes = gemma_sizes,
                                 .defaults = {.kv_heads = 4,
                                              .head_dim = 256,
                                              .positions = 131072,
                                              .eps = 1e-6,
                                              .activation = "gelu_pytorch_tanh",
                                              .tied = true,
                                              .bos = 2,
                                              .eos = 1},
                                 .names = gemma_names,
                                 .fields = gemma3_fields,
                                 .compose = compose_gemma3,
                                 .gguf_architecture = "gemma3",
                                 .describe_gguf = describe_gguf_gemma3};

}  // namespace anyaccel::llm
