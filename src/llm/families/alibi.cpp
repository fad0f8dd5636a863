// Defines families whose only positions are attention's linear biases (ALiBi): BLOOM and MPT. Falcon, which may have them,
// is in gpt.cpp.
#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

void compose_bloom(const JsonRef& root, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.norm_has_bias = true;
  config.gated = false;
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.hidden_act = ops::Activation::GeluTanh;
  config.positions = Positions::Alibi;
  config.adds_to_normed = read_flag(root, "apply_residual_connection_post_layernorm", false);
  if (read_flag(root, "slow_but_exact", false) && read_whole(root, "pretraining_tp", 1, max_size, 1) > 1) {
    root.at("slow_but_exact").fail("false, or pretraining_tp 1: transformers leaves out biases with both");
  }
}

// MosaicML's own code knows more than transformers, which reads those fields and ignores them.
void compose_mpt(const JsonRef& root, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.gated = false;
  config.hidden_act = ops::Activation::Gelu;
  config.positions = Positions::Alibi;
  require_flag(root, "no_bias", true, "biases are not supported in models of type mpt");
  const auto require = [](const JsonRef& object, std::string_view name, double value) {
    const auto found = object.find(name);
    if (found && found->number(-1e9, 1e9) != value) {
      found->fail(std::to_string(static_cast<int64_t>(value)) + " or null: other values are not supported");
    }
  };
  const auto require_null = [](const JsonRef& object, std::string_view name) {
    if (const auto found = object.find(name)) found->fail("null: the field is not supported");
  };
  const auto require_text = [](const JsonRef& object, std::string_view name, std::string_view value) {
    const auto found = object.find(name);
    if (found && found->string() != value) found->fail('"' + std::string(value) + "\" or null");
  };
  require(root, "expansion_ratio", 4);
  require(root, "embedding_fraction", 1);
  require_null(root, "logit_scale");
  require_null(root, "ffn_config");
  if (const auto norm = root.find("norm_type"); norm && !norm->string().ends_with("layernorm")) {
    norm->fail("\"layernorm\" or \"low_precision_layernorm\"");
  }
  const auto attention = root.find("attn_config");
  if (!attention) return;
  if (!attention->is_object()) attention->fail("an object or null");
  require_flag(*attention, "alibi", true, "other positions are not supported in models of type mpt");
  require(*attention, "alibi_bias_max", 8);
  require_flag(*attention, "qk_ln", false, "norms of queries and keys are not supported in models of type mpt");
  require_flag(*attention, "prefix_lm", false, "text is generated from left to right");
  require_flag(*attention, "rope", false, "positions are those of ALiBi");
  require_text(*attention, "attn_type", "multihead_attention");
  require(*attention, "kv_n_heads", static_cast<double>(config.num_attention_heads));
  require(*attention, "sliding_window_size", -1);
  if (const auto clip = attention->find("clip_qkv"); clip && clip->number(-1e9, 1e9) != 0.0) {
    clip->fail("null or 0: limits of queries, keys and values are not supported");
  }
  if (const auto scale = attention->find("softmax_scale")) {
    config.attention_scale = static_cast<float>(scale->number(1e-6, 1e6));
  }
}

// -- GGUF
void gguf_alibi_common(const GgufFields& file, ModelConfig& config) {
  config.norm = NormKind::Layer;
  config.gated = false;
  config.positions = Positions::Alibi;
  const float most = file.number("attention.max_alibi_bias", 8.0f, 8.0f);
  if (most != 8.0f) {
    file.error("attention.max_alibi_bias", "is " + std::to_string(most) + "; expected 8");
  }
}
void describe_gguf_bloom(const GgufFields& file, ModelConfig& config) {
  gguf_alibi_common(file, config);
  config.hidden_act = ops::Activation::GeluTanh;
  config.names.embedding_norm = "token_embd_norm";
}
void describe_gguf_mpt(const GgufFields& file, ModelConfig& config) {
  gguf_alibi_common(file, config);
  config.hidden_act = ops::Activation::Gelu;
}

constexpr std::string_view bloom_fields[] = {"apply_residual_connection_post_layernorm",
                                             "slow_but_exact",
                                             "masked_softmax_fusion",
                                             "attention_softmax_in_fp32",
                                             "bias_dropout_fusion",
                                             "unk_token_id",
                                             "offset_alibi",
                                             "skip_bias_add",
                                             "skip_bias_add_qkv",
                                             "n_inner"};
constexpr std::array<std::string_view, 2> bloom_other_names[] = {
    {"hidden_size", "n_embed"}, {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}};
constexpr std::string_view mpt_fields[] = {"attn_config",  "no_bias",     "expansion_ratio", "embedding_fraction",
                                           "logit_scale",  "norm_type",   "learned_pos_emb", "ffn_config",
                                           "init_device",  "init_config", "emb_pdrop",       "resid_pdrop",
                                           "verbose",      "use_cache",   "tokenizer_name",  "gradient_checkpointing",
                                           "use_norm_bias"};

}  // namespace

const FamilyDefinition bloom = {.family = Family::Bloom,
                                .model_type = "bloom",
                                .architecture = "BloomForCausalLM",
                                .sizes = {.inner = "",
                                          .layers = "n_layer",
                                          .heads = "n_head",
                                          .kv_heads = "",
                                          .head_dim = "",
                                          .positions = "seq_length",
                                          .eps = "layer_norm_epsilon",
                                          .activation = ""},
                                .other_names = bloom_other_names,
                                .defaults = {.inner_is_four_hidden = true, .tied = true, .bos = 1, .eos = 2},
                                .names = {.embedding = "transformer.word_embeddings",
                                          .embedding_norm = "transformer.word_embeddings_layernorm",
                                          .layer = "transformer.h.",
                                          .qkv = "self_attention.query_key_value",
                                          .o = "self_attention.dense",
                                          .gate = "",
                                          .up = "mlp.dense_h_to_4h",
                                          .down = "mlp.dense_4h_to_h",
                                          .final_norm = "transformer.ln_f",
                                          .qkv_layout = QkvLayout::Groups},
                                .fields = bloom_fields,
                                .compose = compose_bloom,
                                .gguf_architecture = "bloom",
                                .describe_gguf = describe_gguf_bloom};
const FamilyDefinition mpt = {.family = Family::Mpt,
                              .model_type = "mpt",
                              .architecture = "MptForCausalLM",
                              .sizes = {.hidden = "d_model",
                                        .inner = "",
                                        .layers = "n_layers",
                                        .heads = "n_heads",
                                        .kv_heads = "",
                                        .head_dim = "",
                                        .positions = "max_seq_len",
                                        .eps = "layer_norm_epsilon",
                                        .activation = ""},
                              .defaults = {.inner_is_four_hidden = true, .tied = true},
                              .names = {.embedding = "transformer.wte",
                                        .layer = "transformer.blocks.",
                                        .input_norm = "norm_1",
                                        .qkv = "attn.Wqkv",
                                        .o = "attn.out_proj",
                                        .mlp_norm = "norm_2",
                                        .gate = "",
                                        .up = "ffn.up_proj",
                                        .down = "ffn.down_proj",
                                        .final_norm = "transformer.norm_f"},
                              .fields = mpt_fields,
                              .compose = compose_mpt,
                              .gguf_architecture = "mpt",
                              .describe_gguf = describe_gguf_mpt};

}  // namespace anyaccel::llm
