// Compares what a GGUF file says of a model with the model, part by part.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "anyaccel/error.h"
#include "llm/quantize/gguf_model_keys.h"

namespace anyaccel::llm {
namespace {

bool near(float a, float b) { return std::abs(a - b) <= 1e-6f * std::max(std::abs(a), std::abs(b)); }

class Comparison {
 public:
  Comparison(std::string architecture, std::string source)
      : architecture_(std::move(architecture)), source_(std::move(source)) {}

  void same(const char* what, bool is_same) const {
    if (!is_same) refuse(what, "");
  }
  void same(const char* what, int64_t wanted, int64_t found) const {
    if (wanted != found) refuse(what, std::to_string(wanted) + "; such files mean " + std::to_string(found));
  }
  void same(const char* what, float wanted, float found) const {
    if (near(wanted, found)) return;
    std::ostringstream text;
    text << wanted << "; such files mean " << found;
    refuse(what, text.str());
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& values) const {
    throw CheckpointError(source_ + ": a GGUF file of the architecture " + architecture_ + " cannot describe " + what +
                          (values.empty() ? "" : " (" + values + ")"));
  }

  std::string architecture_;
  std::string source_;
};

// A window as long as the context is none.
int64_t window(const ModelConfig& config, int64_t layer) {
  const int64_t size = config.window_of_layer(layer);
  return size < config.max_position_embeddings ? size : 0;
}

bool same_rope(const ModelConfig& a, const ModelConfig& b) {
  const RopeFrequencies of_a = rope_inv_freq(a), of_b = rope_inv_freq(b);
  return a.rope.truncate == b.rope.truncate && near(of_a.attention_scale, of_b.attention_scale) &&
         std::ranges::equal(of_a.inv_freq, of_b.inv_freq, near);
}

bool same_ropes(const ModelConfig& config, const ModelConfig& described) {
  if (config.positions != Positions::Rope) return true;
  if (!same_rope(config, described)) return false;
  if (config.sliding_window == 0 || (!config.window_rope && !described.window_rope)) return true;
  ModelConfig a = config, b = described;
  if (a.window_rope) a.rope = *a.window_rope;
  if (b.window_rope) b.rope = *b.window_rope;
  return same_rope(a, b);
}

HeadNorm head_norm(const ModelConfig& config) { return config.qk_norm ? HeadNorm::Rms : config.head_norm; }

void compare_layers(const Comparison& both, const ModelConfig& config, const ModelConfig& described) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string of = " of layer " + std::to_string(layer);
    both.same(("the window of attention" + of).c_str(), window(config, layer), window(described, layer));
    both.same(("whether positions rotate queries and keys" + of).c_str(),
              config.rotates(layer) == described.rotates(layer));
    both.same(("the scale of attention's scores" + of).c_str(), config.scale_of_layer(layer),
              described.scale_of_layer(layer));
    both.same(("whether experts are the feed-forward block" + of).c_str(),
              config.has_experts(layer) == described.has_experts(layer));
  }
}

void compare_experts(const Comparison& both, const ExpertsConfig& experts, const ExpertsConfig& described) {
  if (experts.count == 0 && described.count == 0) return;
  both.same("the number of experts", experts.count, described.count);
  both.same("the number of experts of a token", experts.per_token, described.per_token);
  both.same("the intermediate size of an expert", experts.inner, described.inner);
  both.same("the intermediate size of shared experts", experts.shared_inner, described.shared_inner);
  both.same("the weight of the shared expert", experts.shared_has_weight == described.shared_has_weight);
  both.same("whether the weights of a token's experts are divided by their sum (norm_topk_prob)",
            experts.normalizes == described.normalizes);
  both.same("how experts are scored", experts.uses_sigmoid == described.uses_sigmoid);
  both.same("the bias for choosing experts", experts.has_choice_bias == described.has_choice_bias);
  both.same("the scale of experts' weights", experts.scale, described.scale);
  both.same("groups of experts", experts.groups == described.groups &&
                                     experts.groups_per_token == described.groups_per_token &&
                                     (experts.groups == 1 || experts.groups_by_two == described.groups_by_two));
  both.same("biases of experts", experts.has_biases == described.has_biases);
  both.same("the limit of experts' activation (swiglu_limit)", experts.limit, described.limit);
  if (experts.limit != 0.0f) {
    both.same("the gain of experts' activation (swiglu_alpha)", experts.gain, described.gain);
  }
}

}  // namespace

void check_describes(const ModelConfig& config, const ModelConfig& described, const std::string& architecture,
                     const std::string& source) {
  const Comparison both(architecture, source);
  both.same("the kind of norms", config.norm == described.norm);
  both.same("the place of norms", config.norm_place == described.norm_place);
  both.same("sums with norms (apply_residual_connection_post_layernorm)",
            config.adds_to_normed == described.adds_to_normed);
  both.same("how the halves of a layer are added", config.residual == described.residual);
  both.same("norms of queries and keys", head_norm(config) == head_norm(described));
  both.same("how the model knows positions", config.positions == described.positions);
  both.same("the activation", config.hidden_act == described.hidden_act);
  both.same("feed-forward blocks with or without a gate", config.gated == described.gated);
  both.same("ALiBi's slopes", near(config.alibi_scale, described.alibi_scale) &&
                                  config.rounds_alibi_slopes == described.rounds_alibi_slopes);
  both.same("sinks of attention", config.has_sinks == described.has_sinks);
  both.same("the soft cap of attention's scores", config.attention_softcap, described.attention_softcap);
  both.same("the soft cap of logits", config.logits_softcap, described.logits_softcap);
  both.same("the factor of embeddings", config.embedding_multiplier, described.embedding_multiplier);
  both.same("the factor of each half's result", config.residual_multiplier, described.residual_multiplier);
  both.same("the factor of logits", config.logits_multiplier, described.logits_multiplier);
  both.same("the normalization of the output matrix", config.divides_lm_head_rows == described.divides_lm_head_rows);
  both.same("the sizes of latent attention",
            config.latent.rank == described.latent.rank && config.latent.query_rank == described.latent.query_rank &&
                config.latent.plain == described.latent.plain && config.latent.rotated == described.latent.rotated &&
                config.latent.value == described.latent.value);
  compare_layers(both, config, described);
  compare_experts(both, config.experts, described.experts);
  both.same("this rope", same_ropes(config, described));
  // Rows of a head that rotate as neighbours in the file are those of its two halves, if all of them rotate.
  const bool pairs = described.rope_interleaved && !config.rope_interleaved;
  const bool all_rotate = config.rope.rotary_dim == config.head_dim && config.latent.rank == 0;
  if (config.positions == Positions::Rope) {
    both.same("which elements of a head rotate together",
              config.rope_interleaved == described.rope_interleaved ||
                  (pairs && all_rotate && head_norm(config) == HeadNorm::None));
  }
}

}  // namespace anyaccel::llm
