// Defines relatives of Llama that differ in a few parts: Phi 3 and 4, StableLM, OLMo 2, SmolLM3, Granite, InternLM 3,
// StarCoder 2.
#include <string>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

// -- Phi 3, 3.5 and 4: queries, keys and values are in one matrix, gate and up in another.
void compose_phi3(const JsonRef& root, ModelConfig& config) {
  set_window_of_all(root, config, 0);
  RopeRules rules;
  rules.share = 1.0;
  config.rope = read_rope(root, config, config.notes, rules);
  config.rope.renews_cache = true;
  if (config.rope.type == RopeType::Longrope && !root.find("original_max_position_embeddings")) {
    root.error(
        "has no original_max_position_embeddings beside the parameters of rope, on which the choice between the "
        "factors "
        "of longrope depends; expected a number (transformers takes 4096, whatever the parameters say)");
  }
  if (config.rope.type != RopeType::Default && config.rope.type != RopeType::Longrope) {
    root.error("rope of type \"" + std::string(rope_type_name(config.rope.type)) +
               "\" in a model of type phi3; expected \"default\" or \"longrope\"");
  }
}
// Files of long contexts have factors of wavelengths and no type of scaling. A window of 0 means none.
void describe_gguf_phi3(const GgufFields& file, ModelConfig& config) {
  config.names.gate_up = "ffn_up";
  config.rope.renews_cache = true;
  describe_gguf_windows(file, config, 0, 0);
  const bool is_long = file.known().rope.type == RopeType::Longrope;
  if (file.has_tensor("rope_factors_long.weight", is_long)) config.rope.type = RopeType::Longrope;
}
constexpr std::string_view phi3_fields[] = {"sliding_window",        "rope_theta",
                                            "rope_scaling",          "rope_parameters",
                                            "partial_rotary_factor", "original_max_position_embeddings"};

// -- StableLM: it has layer norms, a quarter of a head rotates, and the halves run one after the other or in parallel.
void compose_stablelm(const JsonRef& root, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.norm_has_bias = true;
  config.qkv_bias = read_flag(root, "use_qkv_bias", false);
  if (read_flag(root, "use_parallel_residual", false)) config.residual = Residual::ParallelOne;
  require_flag(root, "qk_layernorm", false, "norms with a tensor for each head are not supported");
}
void describe_gguf_stablelm(const GgufFields& file, ModelConfig& config) {
  config.norm = NormKind::Layer;
  const bool is_serial = file.known().residual == Residual::Serial;
  const bool has_second_norm = file.layers_have("ffn_norm.weight", is_serial);
  if (file.flag("use_parallel_residual", !is_serial, !has_second_norm) == has_second_norm) {
    file.error("use_parallel_residual", has_second_norm
                                            ? "is true, and the layers have the norm ffn_norm; expected one of them"
                                            : "is false, and the layers have no norm ffn_norm; expected one of them");
  }
  if (!has_second_norm) config.residual = Residual::ParallelOne;
}
constexpr std::string_view stablelm_fields[] = {"use_qkv_bias",         "use_parallel_residual", "qk_layernorm",
                                                "rope_theta",           "rope_scaling",          "rope_parameters",
                                                "partial_rotary_factor"};

// -- OLMo 2: each half's result is normalized, and so are all queries (keys) of a token together.
void compose_olmo2(const JsonRef& root, ModelConfig& config) {
  config.norm_place = NormPlace::After;
  config.head_norm = HeadNorm::Whole;
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
}
void describe_gguf_olmo2(const GgufFields&, ModelConfig& config) {
  config.norm_place = NormPlace::After;
  config.head_norm = HeadNorm::Whole;
  config.names.attention_norm = "post_attention_norm";
  config.names.mlp_output_norm = "post_ffw_norm";
}
constexpr std::string_view olmo2_fields[] = {"attention_bias", "rope_theta", "rope_scaling", "rope_parameters"};

// -- SmolLM3: some layers do not rotate. A 1 in no_rope_layers means that the layer does.
void compose_smollm3(const JsonRef& root, ModelConfig& config) {
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
  config.mlp_bias = read_flag(root, "mlp_bias", false);
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const int64_t every = read_whole(root, "no_rope_layer_interval", 1, max_layers, 4);
  const auto list = root.find("no_rope_layers");
  if (list && list->size() != layers) list->fail("a list with one number for each of the layers");
  for (size_t i = 0; i < layers; ++i) {
    const bool rotates = list ? (*list)[i].integer(0, 1) != 0 : (static_cast<int64_t>(i) + 1) % every != 0;
    config.layer_without_rope.push_back(rotates ? 0 : 1);
  }
  const bool windows = read_flag(root, "use_sliding_window", false);
  const std::vector<uint8_t> by_list = read_layer_types(root, layers);
  for (size_t i = 0; windows && i < layers; ++i) {
    config.layer_has_window[i] = by_list.empty() ? config.layer_without_rope[i] : by_list[i];
    if (config.layer_has_window[i] != 0) config.sliding_window = root.at("sliding_window").integer(1, max_positions);
  }
  for (size_t i = 0; !windows && i < by_list.size(); ++i) {
    if (by_list[i] != 0) root.at("layer_types")[i].fail("\"full_attention\", because use_sliding_window is not true");
  }
}
// Every fourth layer does not rotate; no key says so.
void describe_gguf_smollm3(const GgufFields&, ModelConfig& config) {
  config.rope_interleaved = true;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) config.layer_without_rope.push_back((i + 1) % 4 == 0 ? 1 : 0);
}
constexpr std::string_view smollm3_fields[] = {
    "attention_bias", "mlp_bias",    "no_rope_layers", "no_rope_layer_interval", "use_sliding_window",
    "sliding_window", "layer_types", "rope_theta",     "rope_scaling",           "rope_parameters"};

// -- Granite: embeddings, each half's result, scores and logits are multiplied by factors.
void compose_granite(const JsonRef& root, ModelConfig& config) {
  read_granite_multipliers(root, config);
  config.mlp_bias = read_flag(root, "mlp_bias", false);
}
void describe_gguf_granite(const GgufFields& file, ModelConfig& config) {
  describe_gguf_granite_multipliers(file, config);
}
constexpr std::string_view granite_fields[] = {"embedding_multiplier", "residual_multiplier", "attention_multiplier",
                                               "logits_scaling",       "attention_bias",      "mlp_bias",
                                               "rope_theta",           "rope_scaling",        "rope_parameters"};

// -- InternLM 3: Llama with its own names for the flags of biases, in addition to Llama's, which transformers writes.
void compose_internlm3(const JsonRef& root, ModelConfig& config) {
  const bool attention = read_flag(root, "qkv_bias", read_flag(root, "attention_bias", false));
  const bool others = read_flag(root, "bias", read_flag(root, "mlp_bias", false));
  if (attention != others) {
    root.error(
        "the flags of biases (qkv_bias or attention_bias, bias or mlp_bias) differ; expected the same of both, "
        "since programs differ in what they mean then");
  }
  config.qkv_bias = config.o_bias = config.mlp_bias = attention;
}
constexpr std::string_view internlm3_fields[] = {"qkv_bias",   "bias",         "attention_bias", "mlp_bias",
                                                 "rope_theta", "rope_scaling", "rope_parameters"};

// -- StarCoder 2: it has layer norms, and a feed-forward block without a gate.
void compose_starcoder2(const JsonRef& root, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.norm_has_bias = true;
  config.gated = false;
  config.qkv_bias = config.o_bias = config.mlp_bias = read_flag_on(root, "use_bias");
  set_window_of_all(root, config, 0);
}
void describe_gguf_starcoder2(const GgufFields&, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.gated = false;
}
constexpr std::string_view starcoder2_fields[] = {"use_bias", "sliding_window", "rope_theta", "rope_scaling",
                                                  "rope_parameters"};

}  // namespace

void read_granite_multipliers(const JsonRef& root, ModelConfig& config) {
  const auto multiplier = [&](const char* name) { return static_cast<float>(read_number(root, name, 1e-6, 1e6, 1.0)); };
  config.embedding_multiplier = multiplier("embedding_multiplier");
  config.residual_multiplier = multiplier("residual_multiplier");
  config.attention_scale = multiplier("attention_multiplier");
  config.logits_multiplier = 1.0f / multiplier("logits_scaling");
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
}

void describe_gguf_granite_multipliers(const GgufFields& file, ModelConfig& config) {
  const ModelConfig& known = file.known();
  const auto multiplier = [&](const char* name, float written) {
    const float value = file.number(name, written, 1.0f);
    if (!(value > 0.0f)) file.error(name, "is not above 0; expected a number above it");
    return value;
  };
  config.rope_interleaved = true;
  config.embedding_multiplier = multiplier("embedding_scale", known.embedding_multiplier);
  config.residual_multiplier = multiplier("residual_scale", known.residual_multiplier);
  config.logits_multiplier = 1.0f / multiplier("logit_scale", 1.0f / known.logits_multiplier);
  if (file.has("attention.scale", known.attention_scale > 0.0f)) {
    config.attention_scale = multiplier("attention.scale", known.attention_scale);
  }
}

const FamilyDefinition phi3 = {.family = Family::Phi3,
                               .model_type = "phi3",
                               .architecture = "Phi3ForCausalLM",
                               .defaults = {.positions = 4096, .bos = 1, .eos = 32000},
                               .names = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"},
                               .fields = phi3_fields,
                               .compose = compose_phi3,
                               .gguf_architecture = "phi3",
                               .describe_gguf = describe_gguf_phi3};
const FamilyDefinition stablelm = {
    .family = Family::StableLm,
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .sizes = {.head_dim = "", .eps = "layer_norm_eps"},
    .defaults = {.kv_heads = 32, .positions = 4096, .rotary_share = 0.25, .bos = 0, .eos = 0},
    .fields = stablelm_fields,
    .compose = compose_stablelm,
    .gguf_architecture = "stablelm",
    .describe_gguf = describe_gguf_stablelm};
const FamilyDefinition olmo2 = {
    .family = Family::Olmo2,
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .defaults = {.eos = 50279},
    .names = {.attention_norm = "post_attention_layernorm", .mlp_output_norm = "post_feedforward_layernorm"},
    .fields = olmo2_fields,
    .compose = compose_olmo2,
    .gguf_architecture = "olmo2",
    .describe_gguf = describe_gguf_olmo2};
const FamilyDefinition smollm3 = {
    .family = Family::SmolLm3,
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .defaults =
        {.kv_heads = 4, .positions = 32768, .eps = 1e-6, .rope_theta = 2e6, .tied = true, .bos = 128000, .eos = 128001},
    .fields = smollm3_fields,
    .compose = compose_smollm3,
    .gguf_architecture = "smollm3",
    .describe_gguf = describe_gguf_smollm3};
const FamilyDefinition granite = {.family = Family::Granite,
                                  .model_type = "granite",
                                  .architecture = "GraniteForCausalLM",
                                  .defaults = {.eps = 1e-6, .bos = 1, .eos = 2},
                                  .fields = granite_fields,
                                  .compose = compose_granite,
                                  .gguf_architecture = "granite",
                                  .describe_gguf = describe_gguf_granite};
const FamilyDefinition internlm3 = {
    .family = Family::InternLm3,
    .model_type = "internlm3",
    .architecture = "InternLM3ForCausalLM",
    .defaults = {.kv_heads = 2, .head_dim = 128, .positions = 32768, .bos = 1, .eos = 2},
    .fields = internlm3_fields,
    .compose = compose_internlm3};
const FamilyDefinition starcoder2 = {
    .family = Family::Starcoder2,
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .sizes = {.eps = "norm_epsilon"},
    .defaults =
        {.kv_heads = 2, .positions = 4096, .activation = "gelu_pytorch_tanh", .tied = true, .bos = 50256, .eos = 50256},
    .names = {.gate = "", .up = "mlp.c_fc", .down = "mlp.c_proj"},
    .fields = starcoder2_fields,
    .compose = compose_starcoder2,
    .gguf_architecture = "starcoder2",
    .describe_gguf = describe_gguf_starcoder2};

}  // namespace anyaccel::llm
