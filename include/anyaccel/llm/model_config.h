// Reads config.json of a Hugging Face model directory: the architecture and sizes of a decoder model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel::llm {

// Architectures, named as config.json's model_type. src/llm/families has a file for each or for a group of similar
// ones, except for the first four.
enum class Family {
  Llama,
  Mistral,
  Qwen2,
  Qwen3,
  Gemma,
  Gemma2,
  Gemma3,
  Phi,
  Phi3,
  StableLm,
  Olmo2,
  SmolLm3,
  Granite,
  InternLm3,
  Cohere,
  Cohere2,
  Starcoder2,
  Glm,
  Glm4,
  Gpt2,
  GptJ,
  GptNeoX,
  Opt,
  Falcon,
  Mixtral,
  Qwen2Moe,
  Qwen3Moe,
  Olmoe,
  GraniteMoe,
  GraniteMoeShared,
  DeepseekV2,
  DeepseekV3,
  Bloom,
  Mpt,
  GptOss,
  Baichuan
};
// Returns the model_type: "llama", "mistral", "qwen2", "qwen3", ...
std::string_view family_name(Family family) noexcept;

// The ways to change the frequencies of rotary position embeddings for longer contexts.
enum class RopeType { Default, Linear, Dynamic, Llama3, Yarn, Longrope, Proportional };
// Returns "default", "linear", "dynamic", "llama3", "yarn", "longrope" or "proportional".
std::string_view rope_type_name(RopeType type) noexcept;

// The parameters of transformers' modeling_rope_utils. A comment names the types that use a parameter.
struct RopeConfig {
  RopeType type = RopeType::Default;
  double theta = 10000.0;              // base of the wave lengths; above 1
  double factor = 1.0;                 // all but default
  int64_t rotary_dim = 0;              // number of rotated elements of a head, from its first; even
  double partial_rotary_factor = 1.0;  // proportional: share of the dimension pairs that are rotated
  // llama3, yarn and longrope: the context before stretching, in tokens.
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: the bounds of the ramp are whole dimensions
  // longrope, rotary_dim / 2 values each: factors of the wave lengths, in sequences of up to
  // original_max_position_embeddings tokens and in longer ones.
  std::vector<float> short_factor, long_factor;
  // longrope: a generated text's cache is computed anew once, with the long factors, when it outgrows the short ones.
  bool renews_cache = false;
  // Factor of cosines and sines: 1 for all types but yarn and longrope.
  float attention_factor = 1.0f;
};

// The parts that a layer is composed of. The first enumerator of each type is Llama's.
enum class NormKind { Rms, Layer };
// The place of the norms in each half f of a layer (attention, then the feed-forward block).
enum class NormPlace {
  Before,    // x += f(norm(x))
  After,     // x += norm(f(x))
  Both,      // x += norm'(f(norm(x)))
  AfterSum,  // x = norm(x + f(x))
};
enum class Residual {
  Serial,       // attention, then the feed-forward block on its result
  ParallelOne,  // x += attention(norm(x)) + feed_forward(norm(x))
  ParallelTwo,  // the same with a norm for each
};
// Norms of queries and keys before they are rotated.
enum class HeadNorm {
  None,
  Rms,        // RMS norm of each head, with one weight [D] for all
  Layer,      // layer norm of each head, with one weight and bias [D] for all
  EachLayer,  // layer norm of each head, with a weight for each head
  Whole,      // RMS norm of all heads together
};
enum class Positions {
  Rope,
  Learned,
  Alibi,  // a score falls linearly with the distance, by a slope of its head (alibi_slopes)
};
// The order of the rows of queries, keys and values in a combined matrix of the files.
enum class QkvLayout {
  Blocks,  // all queries, all keys, all values
  Groups,  // for each key/value head: its queries, the key, the value
};

// The names of a decoder's tensors in the files, without ".weight" and ".bias"; names of a layer's tensors follow
// `layer` and a number. Empty: the family has no such tensor.
struct TensorNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = {};
  std::string_view embedding_norm = {};
  std::string_view layer = "model.layers.";
  std::string_view input_norm = "input_layernorm";  // before attention, or after the sum
  std::string_view attention_norm = {};             // of attention's result
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string_view qkv = {};  // in place of the three
  std::string_view o = "self_attn.o_proj";
  // Of latent attention: queries and what keys and values are computed from; q is the matrix after q_a, if that is
  // there.
  std::string_view q_a = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm", q_b = "self_attn.q_b_proj";
  std::string_view kv_a = "self_attn.kv_a_proj_with_mqa", kv_a_norm = "self_attn.kv_a_layernorm";
  std::string_view kv_b = "self_attn.kv_b_proj";
  std::string_view k_b = {}, v_b = {};         // in place of it, if LatentConfig::apart
  std::string_view sinks = "self_attn.sinks";  // the whole name
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string_view mlp_norm = "post_attention_layernorm";  // before the feed-forward block, or after the sum
  std::string_view mlp_output_norm = {};
  std::string_view gate = "mlp.gate_proj", up = "mlp.up_proj";
  std::string_view gate_up = {};  // in place of the two: the rows of gate, then those of up
  std::string_view down = "mlp.down_proj";
  // Of layers whose feed-forward block consists of experts. An expert's matrices follow `expert`, its number and a dot.
  std::string_view router = "mlp.gate";
  std::string_view choice_bias = "mlp.gate.e_score_correction_bias";
  std::string_view expert = "mlp.experts.";
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  // Other names that files use for these three.
  std::string_view expert_gate_too = {}, expert_up_too = {}, expert_down_too = {};
  // In place of those, without ".weight" after them: gate and up of all experts [E, 2 I, H], and down [E, H, I].
  std::string_view stacked_gate_up = "mlp.experts.gate_up_proj", stacked_down = "mlp.experts.down_proj";
  // If not empty, these are there in place of stacked_gate_up: [E, I, H] each, without and with ".weight" like the
  // others.
  std::string_view stacked_gate = {}, stacked_up = {};
  std::string_view stacked_router = "mlp.gate";
  // Of the shared expert; its gate and up may be one matrix, too.
  std::string_view shared_gate = {}, shared_up = {}, shared_down = {};
  std::string_view shared_gate_up = {};
  std::string_view shared_weight = {};
  std::string_view final_norm = "model.norm";
  std::string_view lm_head = "lm_head";
  std::string_view lm_head_too = {};  // another name that files use for it
  QkvLayout qkv_layout = QkvLayout::Blocks;
  bool transposed = false;        // a layer's matrices are [inputs, outputs]
  int64_t skipped_positions = 0;  // rows of the positions' matrix before that of position 0
};

// The experts of a feed-forward block: each token is computed by a few of them, and the results are summed with weights
// that a router chooses. A shared expert computes every token.
struct ExpertsConfig {
  int64_t count = 0;               // E; 0: no layer has experts
  int64_t per_token = 0;           // that compute a token
  int64_t inner = 0;               // intermediate size of each
  int64_t shared_inner = 0;        // that of the shared expert; 0: there is none
  bool shared_has_weight = false;  // sigmoid of a product; else 1
  bool normalizes = true;          // the weights of a token's experts are divided by their sum
  bool uses_sigmoid = false;       // scores are sigmoids of the logits, else a softmax of them
  bool has_choice_bias = false;    // the router chooses by the scores plus a bias
  float scale = 1.0f;              // of the weights
  // Experts are chosen from the best groups of equal size. A group's score is its best one, or the sum of its best two.
  int64_t groups = 1, groups_per_token = 1;
  bool groups_by_two = false;
  bool stacked = false;      // the files have one tensor for the matrices of all experts
  bool interleaved = false;  // and those are [inputs, outputs], with gate's outputs and up's in turns
  bool has_biases = false;   // of experts and of the router
  // Not 0: experts compute (up + 1) * gate * sigmoid(gain * gate), with gate at most this, and up within it on both
  // sides.
  float limit = 0.0f;
  float gain = 1.0f;
  std::vector<uint8_t> in_layer;  // a flag for each layer
};

// Attention whose keys and values are computed from a vector of few elements for each token (multi-head latent
// attention). A head's queries and keys are `plain` elements, then `rotated` ones, which all keys of a token share.
struct LatentConfig {
  int64_t rank = 0;        // of keys and values; 0: attention is an ordinary one
  int64_t query_rank = 0;  // 0: queries are a product of the hidden state
  int64_t plain = 0, rotated = 0;
  int64_t value = 0;  // elements of a head's value, at most plain + rotated
  // The files have two tensors in place of kv_b: that of keys, transposed [heads, rank, plain], and that of values
  // [heads, value, rank].
  bool apart = false;
};

struct WeightQuantization;  // llm/config/weight_quantization.h

struct ModelConfig {
  Family family = Family::Llama;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // even
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;  // tokens of context that the model was trained for
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  ops::Activation hidden_act = ops::Activation::Silu;  // of the gated feed-forward block
  bool tie_word_embeddings = false;                    // the output matrix is the embedding
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;       // RMS norm of each query and key head
  DType dtype = DType::None;  // in config.json; the weights' file takes precedence
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;

  // The number of latest tokens that a token of this layer attends to, including itself; 0: all.
  int64_t window_of_layer(int64_t layer) const noexcept;

  int64_t sliding_window = 0;             // of the layers that have a window; 0: none has
  std::vector<uint8_t> layer_has_window;  // num_hidden_layers flags

  // -- differences between Llama and the families after the first four; all defaults are Llama's
  TensorNames names;
  NormKind norm = NormKind::Rms;  // rms_norm_eps is the eps of either kind
  bool norm_has_bias = false;
  bool norm_adds_one = false;  // the files hold a norm's weight less one
  NormPlace norm_place = NormPlace::Before;
  bool adds_to_normed =
      false;  // NormPlace::Before, and each half's result is added to the norm: x = norm(x) + f(norm(x))
  Residual residual = Residual::Serial;
  HeadNorm head_norm = HeadNorm::None;
  Positions positions = Positions::Rope;
  bool rope_interleaved = false;            // elements 2 i and 2 i + 1 of a head are rotated together
  std::optional<RopeConfig> window_rope;    // of the layers with a window, if theirs differs
  std::vector<uint8_t> layer_without_rope;  // a flag for each layer; empty: all rotate
  float attention_scale = 0.0f;             // 0: 1 / sqrt(head_dim)
  bool scale_by_layer = false;              // the scale of layer i is divided by i + 1
  float alibi_scale = 1.0f;                 // factor of ALiBi's slopes
  bool rounds_alibi_slopes = false;         // to bf16, before the factor
  bool has_sinks = false;                   // a score of each head without a value, in the softmax
  float attention_softcap = 0.0f;           // 0: none, else scores are softcap * tanh(score / softcap)
  bool gated = true;                        // false: down(act(up(x))), without a gate
  float embedding_multiplier = 1.0f;
  bool rounds_embedding_multiplier = false;  // to the weights' dtype
  float residual_multiplier = 1.0f;          // of each half's result
  float logits_multiplier = 1.0f;
  float logits_softcap = 0.0f;  // 0: none
  bool lm_head_bias = false;
  bool divides_lm_head_rows = false;  // each row of the files' output matrix is divided by its length
  ExpertsConfig experts;
  LatentConfig latent;        // head_dim is that of queries and keys
  int64_t unused_layers = 0;  // after the others in the files, which predict further tokens

  // True if the layer's feed-forward block consists of experts.
  bool has_experts(int64_t layer) const noexcept;
  // True if layers are computed as Llama's are, with or without biases, norms of heads and windows.
  bool is_plain() const noexcept;
  // True if queries and keys of a layer are rotated.
  bool rotates(int64_t layer) const noexcept;
  float scale_of_layer(int64_t layer) const noexcept;

  // The quantization that config.json declares for the matrices; null: none (a GGUF file declares it for each tensor).
  std::shared_ptr<const WeightQuantization> quantization;

  // Notes for the user: names of fields that were ignored.
  std::vector<std::string> notes;
};

// Reads and checks `dir`/config.json. Throws CheckpointError that names the file, the field, what was expected and what
// was found: for a missing or damaged file, an architecture that is not supported (the message lists those that are), a
// wrong type, a number out of range, sizes that do not match each other, an unknown method of quantization, an adapter
// in the model's directory, or any other field that requires an unsupported computation. docs/model_files.md lists the
// fields. If `dir` is a GGUF file (its name ends in .gguf), the configuration comes from its keys and tensors.
ModelConfig load_model_config(const std::filesystem::path& dir);
// The same, from text; errors use `source_name` as the file's name.
ModelConfig parse_model_config(std::string_view json_text, std::string_view source_name);

struct RopeFrequencies {
  // rope.rotary_dim / 2 values; dimension pair i is rotated by position * inv_freq[i] radians.
  std::vector<float> inv_freq;
  // rope.attention_factor.
  float attention_scale = 1.0f;
};
// Returns the frequencies as transformers' modeling_rope_utils computes them, in single precision where it uses that.
// `seq_len`, the length of the sequence in tokens, matters for dynamic (from max_position_embeddings on) and longrope
// (from original_max_position_embeddings on) only; 0 is a short one.
RopeFrequencies rope_inv_freq(const ModelConfig& config, int64_t seq_len = 0);

// Returns the slope of each query head with which its scores fall as slots are further away; empty unless positions are
// Positions::Alibi.
std::vector<float> alibi_slopes(const ModelConfig& config);

}  // namespace anyaccel::llm
