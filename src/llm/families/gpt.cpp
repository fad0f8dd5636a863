// Defines families with layer norms and a feed-forward block without a gate: Phi 1, 1.5 and 2, GPT-2, GPT-J, GPT-NeoX
// (Pythia), OPT and Falcon.
#include <cmath>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

void gpt_common(ModelConfig& config, bool biases) {
  config.norm = NormKind::Layer;
  config.norm_has_bias = true;
  config.gated = false;
  config.qkv_bias = config.o_bias = config.mlp_bias = biases;
}

void compose_phi(const JsonRef& root, ModelConfig& config) {
  gpt_common(config, true);
  config.residual = Residual::ParallelOne;
  config.lm_head_bias = true;
  if (read_flag(root, "qk_layernorm", false)) config.head_norm = HeadNorm::Layer;
}

void compose_gpt2(const JsonRef& root, ModelConfig& config) {
  gpt_common(config, true);
  config.positions = Positions::Learned;
  if (!read_flag_on(root, "scale_attn_weights")) config.attention_scale = 1.0f;
  config.scale_by_layer = read_flag(root, "scale_attn_by_inverse_layer_idx", false);
}

void compose_gptj(const JsonRef& root, ModelConfig& config) {
  gpt_common(config, false);
  config.mlp_bias = config.lm_head_bias = true;
  config.residual = Residual::ParallelOne;
  config.rope_interleaved = true;
  const int64_t rotating = root.has("rotary_dim") ? root.at("rotary_dim").integer(2, config.head_dim) : 64;
  if (rotating % 2 != 0 || rotating > config.head_dim) {
    root.error("rotary_dim is " + std::to_string(rotating) + "; expected an even number of at most " +
               std::to_string(config.head_dim) + ", the size of a head");
  }
  config.rope.rotary_dim = rotating;
}

// A layer has two norms of the same hidden state, or one half follows the other.
void compose_gpt_neox(const JsonRef& root, ModelConfig& config) {
  gpt_common(config, true);
  config.qkv_bias = config.o_bias = read_flag_on(root, "attention_bias");
  if (read_flag_on(root, "use_parallel_residual")) config.residual = Residual::ParallelTwo;
  RopeRules rules;
  rules.theta_name = root.has("rotary_emb_base") ? "rotary_emb_base" : "rope_theta";
  rules.share_name = root.has("rotary_pct") ? "rotary_pct" : "partial_rotary_factor";
  rules.share = 0.25;
  config.rope = read_rope(root, config, config.notes, rules);
}

void compose_opt(const JsonRef& root, ModelConfig& config) {
  gpt_common(config, read_flag_on(root, "enable_bias"));
  config.positions = Positions::Learned;
  require_flag(root, "layer_norm_elementwise_affine", true, "norms without weights are not supported");
  require_flag(root, "_remove_final_layer_norm", false, "the last norm cannot be left out");
  if (!read_flag_on(root, "do_layer_norm_before")) {
    config.norm_place = NormPlace::AfterSum;
    config.names.final_norm = {};
  }
  const auto embedding = root.find("word_embed_proj_dim");
  if (embedding && embedding->integer(1, max_size) != config.hidden_size) {
    embedding->fail("hidden_size (" + std::to_string(config.hidden_size) +
                    "): embeddings of another size than the layers' are not supported");
  }
}

// There are three forms: 7B (one key and value for all queries), 40B (two norms, groups) and 11B (one norm, groups).
void compose_falcon(const JsonRef& root, ModelConfig& config) {
  const bool newer = read_flag(root, "new_decoder_architecture", false);
  const bool parallel = read_flag_on(root, "parallel_attn");
  const bool one_key = read_flag_on(root, "multi_query");
  gpt_common(config, read_flag(root, "bias", false));
  if (read_flag(root, "alibi", false)) {
    // transformers scales the sum of the product and the bias, whose slopes it rounds to bf16 in every precision.
    config.positions = Positions::Alibi;
    config.alibi_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
    config.rounds_alibi_slopes = true;
  }
  const int64_t norms = read_whole(root, "num_ln_in_parallel_attn", 1, 2, newer ? 2 : 1);
  if (newer && !parallel) root.error("new_decoder_architecture needs parallel_attn");
  if (!newer && norms == 2) root.error("num_ln_in_parallel_attn is 2; expected 1 without new_decoder_architecture");
  if (parallel) config.residual = newer && norms == 2 ? Residual::ParallelTwo : Residual::ParallelOne;
  if (config.residual == Residual::ParallelTwo) {
    config.names.input_norm = "ln_attn";
    config.names.mlp_norm = "ln_mlp";
  }
  if (newer) {
    config.num_key_value_heads = read_whole(root, "num_kv_heads", 1, max_heads, config.num_attention_heads);
    if (config.num_attention_heads % config.num_key_value_heads != 0) {
      root.at("num_kv_heads").fail("a divisor of num_attention_heads");
    }
  } else if (one_key) {
    config.num_key_value_heads = 1;  // its queries, the key, the value: a single group
  }
}

// -- GGUF
void gguf_gpt_common(const GgufFields&, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.gated = false;
}
void describe_gguf_phi(const GgufFields& file, ModelConfig& config) {
  gguf_gpt_common(file, config);
  config.residual = Residual::ParallelOne;
}
void describe_gguf_gpt2(const GgufFields& file, ModelConfig& config) {
  gguf_gpt_common(file, config);
  config.positions = Positions::Learned;
}
void describe_gguf_gpt_neox(const GgufFields& file, ModelConfig& config) {
  gguf_gpt_common(file, config);
  if (file.flag("use_parallel_residual", file.known().residual != Residual::Serial, true))
    config.residual = Residual::ParallelTwo;
}
// Files of the older forms with two norms or ALiBi cannot be told apart by their keys. Those of 40B have a second norm,
// which is attention's.
void describe_gguf_falcon(const GgufFields& file, ModelConfig& config) {
  gguf_gpt_common(file, config);
  if (const std::string found = file.text("tensor_data_layout", "jploski"); found != "jploski") {
    file.error("tensor_data_layout",
               "is " + quote_text(found) + "; expected \"jploski\", all queries before keys and values");
  }
  config.residual = Residual::ParallelOne;
  if (!file.layers_have("attn_norm_2.weight", file.known().residual == Residual::ParallelTwo)) return;
  config.residual = Residual::ParallelTwo;
  config.names.input_norm = "attn_norm_2";
  config.names.mlp_norm = "attn_norm";
}

constexpr std::string_view phi_fields[] = {"qk_layernorm", "partial_rotary_factor", "rope_theta", "rope_scaling",
                                           "rope_parameters"};
constexpr std::string_view gpt2_fields[] = {"scale_attn_weights", "scale_attn_by_inverse_layer_idx",
                                            "reorder_and_upcast_attn", "n_ctx"};
constexpr std::string_view gptj_fields[] = {"rotary_dim", "n_ctx"};
constexpr std::string_view gpt_neox_fields[] = {
    "attention_bias", "use_parallel_residual", "rotary_emb_base",       "rotary_pct",        "rope_theta",
    "rope_scaling",   "rope_parameters",       "partial_rotary_factor", "classifier_dropout"};
constexpr std::string_view opt_fields[] = {"enable_bias", "layer_norm_elementwise_affine", "_remove_final_layer_norm",
                                           "do_layer_norm_before", "word_embed_proj_dim"};
constexpr std::string_view falcon_fields[] = {"new_decoder_architecture",
                                              "parallel_attn",
                                              "multi_query",
                                              "bias",
                                              "alibi",
                                              "num_ln_in_parallel_attn",
                                              "num_kv_heads",
                                              "rope_theta",
                                              "rope_scaling",
                                              "rope_parameters",
                                              "apply_residual_connection_post_layernorm"};

}  // namespace

const FamilyDefinition phi = {.family = Family::Phi,
                              .model_type = "phi",
                              .architecture = "PhiForCausalLM",
                              .sizes = {.eps = "layer_norm_eps"},
                              .defaults = {.activation = "gelu_new", .rotary_share = 0.5, .bos = 1, .eos = 2},
                              .names = {.o = "self_attn.dense",
                                        .q_norm = "self_attn.q_layernorm",
                                        .k_norm = "self_attn.k_layernorm",
                                        .gate = "",
                                        .up = "mlp.fc1",
                                        .down = "mlp.fc2",
                                        .final_norm = "model.final_layernorm"},
                              .fields = phi_fields,
                              .compose = compose_phi,
                              .gguf_architecture = "phi2",
                              .describe_gguf = describe_gguf_phi};
const FamilyDefinition gpt2 = {.family = Family::Gpt2,
                               .model_type = "gpt2",
                               .architecture = "GPT2LMHeadModel",
                               .sizes = {.hidden = "n_embd",
                                         .inner = "n_inner",
                                         .layers = "n_layer",
                                         .heads = "n_head",
                                         .kv_heads = "",
                                         .head_dim = "",
                                         .positions = "n_positions",
                                         .eps = "layer_norm_epsilon",
                                         .activation = "activation_function"},
                               .defaults = {.inner_is_four_hidden = true,
                                            .positions = 1024,
                                            .activation = "gelu_new",
                                            .tied = true,
                                            .bos = 50256,
                                            .eos = 50256},
                               .names = {.embedding = "transformer.wte",
                                         .positions = "transformer.wpe",
                                         .layer = "transformer.h.",
                                         .input_norm = "ln_1",
                                         .qkv = "attn.c_attn",
                                         .o = "attn.c_proj",
                                         .mlp_norm = "ln_2",
                                         .gate = "",
                                         .up = "mlp.c_fc",
                                         .down = "mlp.c_proj",
                                         .final_norm = "transformer.ln_f",
                                         .transposed = true},
                               .fields = gpt2_fields,
                               .compose = compose_gpt2,
                               .gguf_architecture = "gpt2",
                               .describe_gguf = describe_gguf_gpt2};
const FamilyDefinition gptj = {
    .family = Family::GptJ,
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .sizes = {.hidden = "n_embd",
              .inner = "n_inner",
              .layers = "n_layer",
              .heads = "n_head",
              .kv_heads = "",
              .head_dim = "",
              .positions = "n_positions",
              .eps = "layer_norm_epsilon",
              .activation = "activation_function"},
    .defaults = {.inner_is_four_hidden = true, .activation = "gelu_new", .bos = 50256, .eos = 50256},
    .names = {.embedding = "transformer.wte",
              .layer = "transformer.h.",
              .input_norm = "ln_1",
              .q = "attn.q_proj",
              .k = "attn.k_proj",
              .v = "attn.v_proj",
              .o = "attn.out_proj",
              .gate = "",
              .up = "mlp.fc_in",
              .down = "mlp.fc_out",
              .final_norm = "transformer.ln_f"},
    .fields = gptj_fields,
    .compose = compose_gptj};
const FamilyDefinition gpt_neox = {.family = Family::GptNeoX,
                                   .model_type = "gpt_neox",
                                   .architecture = "GPTNeoXForCausalLM",
                                   .sizes = {.kv_heads = "", .head_dim = "", .eps = "layer_norm_eps"},
                                   .defaults = {.activation = "gelu", .bos = 0, .eos = 2},
                                   .names = {.embedding = "gpt_neox.embed_in",
                                             .layer = "gpt_neox.layers.",
                                             .qkv = "attention.query_key_value",
                                             .o = "attention.dense",
                                             .gate = "",
                                             .up = "mlp.dense_h_to_4h",
                                             .down = "mlp.dense_4h_to_h",
                                             .final_norm = "gpt_neox.final_layer_norm",
                                             .lm_head = "embed_out",
                                             .lm_head_too = "lm_head",
                                             .qkv_layout = QkvLayout::Groups},
                                   .fields = gpt_neox_fields,
                                   .compose = compose_gpt_neox,
                                   .gguf_architecture = "gptneox",
                                   .describe_gguf = describe_gguf_gpt_neox};
const FamilyDefinition opt = {
    .family = Family::Opt,
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .sizes = {.inner = "ffn_dim", .kv_heads = "", .head_dim = "", .eps = "", .activation = "activation_function"},
    .defaults = {.activation = "relu", .tied = true, .bos = 2, .eos = 2},
    .names = {.embedding = "model.decoder.embed_tokens",
              .positions = "model.decoder.embed_positions",
              .layer = "model.decoder.layers.",
              .input_norm = "self_attn_layer_norm",
              .o = "self_attn.out_proj",
              .mlp_norm = "final_layer_norm",
              .gate = "",
              .up = "fc1",
              .down = "fc2",
              .final_norm = "model.decoder.final_layer_norm",
              .skipped_positions = 2},
    .fields = opt_fields,
    .compose = compose_opt};
const FamilyDefinition falcon = {
    .family = Family::Falcon,
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .sizes = {.inner = "ffn_hidden_size",
              .kv_heads = "",
              .head_dim = "",
              .eps = "layer_norm_epsilon",
              .activation = "activation"},
    .defaults = {.inner_is_four_hidden = true, .activation = "gelu", .tied = true, .bos = 11, .eos = 11},
    .names = {.embedding = "transformer.word_embeddings",
              .layer = "transformer.h.",
              .qkv = "self_attention.query_key_value",
              .o = "self_attention.dense",
              .gate = "",
              .up = "mlp.dense_h_to_4h",
              .down = "mlp.dense_4h_to_h",
              .final_norm = "transformer.ln_f",
              .qkv_layout = QkvLayout::Groups},
    .fields = falcon_fields,
    .compose = compose_falcon,
    .gguf_architecture = "falcon",
    .describe_gguf = describe_gguf_falcon};

}  // namespace anyaccel::llm
