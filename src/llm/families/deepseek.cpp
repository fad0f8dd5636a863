// Defines DeepSeek V2 and V3: attention by a latent vector, and layers of experts after the first few.
#include <algorithm>
#include <cmath>
#include <string>

#include "llm/config/config_fields.h"
#include "llm/families/families.h"

namespace anyaccel::llm {
namespace {

constexpr std::string_view deepseek_counts[] = {"n_routed_experts", "num_local_experts", "num_experts"};

// Refuses a text other than those.
void require_text(const JsonRef& root, std::string_view name, std::initializer_list<std::string_view> known) {
  const auto found = root.find(name);
  if (!found) return;
  std::string names;
  for (const std::string_view each : known) {
    if (found->string() == each) return;
    names += (names.empty() ? "\"" : " or \"") + std::string(each) + "\"";
  }
  found->fail(names);
}

// Scores are scaled with the square of yarn's factor for mscale_all_dim, in addition to the factor of cosines and sines.
double scale_of_scores(const JsonRef& root, const ModelConfig& config) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (config.rope.type == RopeType::Default || config.rope.factor <= 1.0) return scale;
  const auto older = root.find("rope_scaling");
  const JsonRef parameters = older && older->size() > 0 ? *older : root.at("rope_parameters");
  const double all = read_number(parameters, "mscale_all_dim", 0.0, 1e6, 0.0);
  const double factor = 0.1 * all * std::log(config.rope.factor) + 1.0;
  return scale * factor * factor;
}

void compose_latent_attention(const JsonRef& root, ModelConfig& config) {
  LatentConfig& latent = config.latent;
  latent.rank = read_whole(root, "kv_lora_rank", 1, max_size, 512);
  const bool no_query_rank = root.has("q_lora_rank") && !root.find("q_lora_rank");
  latent.query_rank = no_query_rank ? 0 : read_whole(root, "q_lora_rank", 1, max_size, 1536);
  latent.plain = read_whole(root, "qk_nope_head_dim", 1, max_head_dim, 128);
  latent.rotated = read_whole(root, "qk_rope_head_dim", 2, max_head_dim, 64);
  latent.value = read_whole(root, "v_head_dim", 1, max_head_dim, 128);
  config.head_dim = latent.plain + latent.rotated;
  if (latent.rotated % 2 != 0 || config.head_dim % 2 != 0 || config.head_dim > max_head_dim ||
      latent.value > config.head_dim) {
    root.error("qk_nope_head_dim is " + std::to_string(latent.plain) + ", qk_rope_head_dim " +
               std::to_string(latent.rotated) + " and v_head_dim " + std::to_string(latent.value) +
               "; expected even numbers for the second and for its sum with the first, of at most " +
               std::to_string(max_head_dim) + ", and a third of at most that sum");
  }
  if (read_whole(root, "num_key_value_heads", 1, max_heads, config.num_attention_heads) != config.num_attention_heads) {
    root.at("num_key_value_heads")
        .fail("num_attention_heads, which is " + std::to_string(config.num_attention_heads) +
              ", since every head has its own keys and values");
  }
  config.qkv_bias = config.o_bias = read_flag(root, "attention_bias", false);
  ModelConfig rotated = config;
  rotated.head_dim = latent.rotated;
  config.rope = read_rope(root, rotated, config.notes);
  config.attention_scale = static_cast<float>(scale_of_scores(root, config));
}

// The first layers are dense. The shared experts are one of their joint size.
void compose_deepseek_experts(const JsonRef& root, ModelConfig& config, int64_t count, int64_t per_token, int64_t inner,
                              int64_t shared, int64_t first) {
  ExpertsConfig& experts = config.experts;
  read_experts(root, config, deepseek_counts, count, per_token,
               read_whole(root, "moe_intermediate_size", 1, max_size, inner));
  if (root.has("n_shared_experts") && !root.find("n_shared_experts")) {
    root.error("n_shared_experts is null; expected a number");
  }
  experts.shared_inner = experts.inner * read_whole(root, "n_shared_experts", 0, 1024, shared);
  first = read_whole(root, "first_k_dense_replace", 0, max_layers, first);
  for (size_t i = 0; i < experts.in_layer.size() && static_cast<int64_t>(i) < first; ++i) experts.in_layer[i] = 0;
  if (read_whole(root, "moe_layer_freq", 1, max_layers, 1) != 1) {
    root.at("moe_layer_freq").fail("1: transformers gives all layers after the first ones experts");
  }
}

void read_groups(const JsonRef& root, ModelConfig& config, int64_t groups, int64_t per_token) {
  ExpertsConfig& experts = config.experts;
  experts.groups = read_whole(root, "n_group", 1, experts.count, groups);
  experts.groups_per_token = read_whole(root, "topk_group", 1, experts.groups, per_token);
  const int64_t size = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || experts.per_token > experts.groups_per_token * size ||
      (experts.groups_by_two && size < 2)) {
    root.error("n_group is " + std::to_string(experts.groups) + " and topk_group " +
               std::to_string(experts.groups_per_token) + "; expected groups of equal size of the " +
               std::to_string(experts.count) + " experts, and enough of them for the " +
               std::to_string(experts.per_token) + " experts of a token");
  }
}

void compose_deepseek_v2(const JsonRef& root, ModelConfig& config) {
  require_flag(root, "mlp_bias", false, "feed-forward blocks with biases are not supported for this type");
  require_text(root, "scoring_func", {"softmax"});
  require_text(root, "topk_method", {"greedy", "group_limited_greedy"});
  compose_latent_attention(root, config);
  config.rope_interleaved = true;
  compose_deepseek_experts(root, config, 64, 0, 1407, 2, 0);
  ExpertsConfig& experts = config.experts;
  experts.normalizes = false;  // norm_topk_prob has no effect in transformers, and released models have it off
  require_flag(root, "norm_topk_prob", false, "programs differ in what they compute then");
  experts.scale = static_cast<float>(read_number(root, "routed_scaling_factor", 1e-6, 1e6, 1.0));
  const auto method = root.find("topk_method");
  if (method && method->string() == "group_limited_greedy") read_groups(root, config, 1, 1);
}

void compose_deepseek_v3(const JsonRef& root, ModelConfig& config) {
  require_text(root, "scoring_func", {"sigmoid"});
  require_text(root, "topk_method", {"noaux_tc"});
  compose_latent_attention(root, config);
  config.rope_interleaved = read_flag_on(root, "rope_interleave");
  compose_deepseek_experts(root, config, 256, 8, 2048, 1, 3);
  ExpertsConfig& experts = config.experts;
  experts.uses_sigmoid = experts.has_choice_bias = experts.groups_by_two = true;
  experts.normalizes = read_flag_on(root, "norm_topk_prob");
  experts.scale = static_cast<float>(read_number(root, "routed_scaling_factor", 1e-6, 1e6, 2.5));
  read_groups(root, config, 8, 4);
  const int64_t further = read_whole(root, "num_mtp_layers", 0, max_layers, 1);
  config.unused_layers = read_whole(root, "num_nextn_predict_layers", 0, max_layers, further);
}

// -- GGUF

// yarn scales scores by the square of a factor, and not cosines and sines.
void describe_gguf_scale(const GgufFields& file, ModelConfig& config) {
  constexpr const char* key = "rope.scaling.yarn_log_multiplier";
  const double plain = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const RopeConfig& known = file.known().rope;
  const bool is_scaled = known.type == RopeType::Yarn && known.factor > 1.0;
  double scale = 1.0;
  if (file.has(key, is_scaled)) {
    const double factor = file.has("rope.scaling.factor", false)
                              ? static_cast<double>(file.number("rope.scaling.factor", 1.0f, 1.0f))
                              : known.factor;
    const double logarithm = factor > 1.0 ? std::log(factor) : 0.0;
    const double known_scale = std::sqrt(static_cast<double>(file.known().attention_scale) / plain);
    const double written = logarithm > 0.0 ? (known_scale - 1.0) / logarithm : 0.0;
    scale += static_cast<double>(file.number(key, static_cast<float>(written), 0.0f)) * logarithm;
  }
  config.attention_scale = static_cast<float>(scale * scale * plain);
}

// V2 and V3 differ in how experts are chosen. Newer files have the matrix of keys and values in two parts.
void describe_gguf_deepseek(const GgufFields& file, ModelConfig& config) {
  const ModelConfig& known = file.known();
  LatentConfig& latent = config.latent;
  latent.rank = file.required_whole("attention.kv_lora_rank", 1, max_size, known.latent.rank);
  if (file.has("attention.q_lora_rank", known.latent.query_rank > 0)) {
    latent.query_rank = file.whole("attention.q_lora_rank", 0, max_size, known.latent.query_rank, 0);
  }
  latent.rotated = file.required_whole("rope.dimension_count", 2, config.head_dim - 1, known.latent.rotated);
  latent.plain = config.head_dim - latent.rotated;
  latent.apart = file.has("attention.value_length_mla", true);
  // If the parts are there, the keys without "_mla" are those of another way to compute the same.
  const int64_t joint = latent.rank + latent.rotated;
  if (file.has("attention.key_length", latent.apart)) file.whole("attention.key_length", 1, max_size, joint, joint);
  if (latent.apart) file.whole("attention.value_length", 1, max_size, latent.rank, latent.rank);
  latent.value = file.required_whole(latent.apart ? "attention.value_length_mla" : "attention.value_length", 1,
                                     config.head_dim, known.latent.value);
  config.num_key_value_heads = config.num_attention_heads;
  config.rope_interleaved = true;
  describe_gguf_scale(file, config);
  describe_gguf_experts(file, config);
  ExpertsConfig& experts = config.experts;
  const int64_t shared = known.experts.inner > 0 ? known.experts.shared_inner / known.experts.inner : 0;
  experts.shared_inner = experts.inner * file.whole("expert_shared_count", 0, 1024, shared, 0);
  experts.uses_sigmoid = file.whole("expert_gating_func", 1, 2, known.experts.uses_sigmoid ? 2 : 1, 1) == 2;
  experts.normalizes = file.flag("expert_weights_norm", known.experts.normalizes, false);
  experts.scale = file.number("expert_weights_scale", known.experts.scale, 1.0f);
  const int64_t dense = file.whole("leading_dense_block_count", 0, config.num_hidden_layers,
                                   std::ranges::count(known.experts.in_layer, 0), 0);
  std::fill_n(experts.in_layer.begin(), dense, uint8_t{0});
  if (dense < config.num_hidden_layers) {
    experts.has_choice_bias =
        file.has_tensor("blk." + std::to_string(dense) + ".exp_probs_b.bias", known.experts.has_choice_bias);
  }
  experts.groups = file.whole("expert_group_count", 0, experts.count, known.experts.groups, 1);
  experts.groups_per_token =
      file.whole("expert_group_used_count", 0, std::max<int64_t>(experts.groups, 1), known.experts.groups_per_token, 1);
  if (experts.groups == 0) experts.groups = experts.groups_per_token = 1;
  experts.groups_by_two = experts.uses_sigmoid;
  const int64_t size = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || experts.per_token > experts.groups_per_token * size ||
      (experts.groups_by_two && size < 2)) {
    file.error("expert_group_count", "is " + std::to_string(experts.groups) +
                                         "; expected groups of equal size of the " + std::to_string(experts.count) +
                                         " experts, and enough of them for the " + std::to_string(experts.per_token) +
                                         " experts of a token");
  }
}

constexpr std::string_view deepseek_fields[] = {"num_key_value_heads",
                                                "head_dim",
                                                "qk_head_dim",
                                                "kv_lora_rank",
                                                "q_lora_rank",
                                                "qk_nope_head_dim",
                                                "qk_rope_head_dim",
                                                "v_head_dim",
                                                "attention_bias",
                                                "n_routed_experts",
                                                "num_local_experts",
                                                "num_experts",
                                                "num_experts_per_tok",
                                                "n_shared_experts",
                                                "moe_intermediate_size",
                                                "first_k_dense_replace",
                                                "moe_layer_freq",
                                                "norm_topk_prob",
                                                "routed_scaling_factor",
                                                "scoring_func",
                                                "topk_method",
                                                "n_group",
                                                "topk_group",
                                                "mlp_bias",
                                                "rope_interleave",
                                                "num_nextn_predict_layers",
                                                "num_mtp_layers",
                                                "rope_theta",
                                                "rope_scaling",
                                                "rope_parameters",
                                                "output_router_logits",
                                                "aux_loss_alpha",
                                                "seq_aux",
                                                "ep_size"};

constexpr TensorNames deepseek_names = {.shared_gate = "mlp.shared_experts.gate_proj",
                                        .shared_up = "mlp.shared_experts.up_proj",
                                        .shared_down = "mlp.shared_experts.down_proj"};

}  // namespace

const FamilyDefinition deepseek_v2 = {.family = Family::DeepseekV2,
                                      .model_type = "deepseek_v2",
                                      .architecture = "DeepseekV2ForCausalLM",
                                      .sizes = {.kv_heads = "", .head_dim = ""},
                                      .defaults = {.eps = 1e-6, .bos = 1, .eos = 2},
                                      .names = deepseek_names,
                                      .fields = deepseek_fields,
                                      .compose = compose_deepseek_v2,
                                      .gguf_architecture = "deepseek2",
                                      .describe_gguf = describe_gguf_deepseek};
const FamilyDefinition deepseek_v3 = {.family = Family::DeepseekV3,
                                      .model_type = "deepseek_v3",
                                      .architecture = "DeepseekV3ForCausalLM",
                                      .sizes = {.kv_heads = "", .head_dim = ""},
                                      .defaults = {.positions = 4096, .eps = 1e-6, .bos = 0, .eos = 1},
                                      .names = deepseek_names,
                                      .fields = deepseek_fields,
                                      .compose = compose_deepseek_v3,
                                      .gguf_architecture = "deepseek2",
                                      .describe_gguf = describe_gguf_deepseek};

}  // namespace anyaccel::llm
