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

// Architectures, by config.json's model_type.
enum class Family { Llama, Mistral, Qwen2, Qwen3 };
// "llama", "mistral", "qwen2", "qwen3".
std::string_view family_name(Family family) noexcept;

// The ways to change the frequencies of rotary position embeddings for longer contexts.
enum class RopeType { Default, Linear, Dynamic, Llama3, Yarn, Longrope, Proportional };
// "default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional".
std::string_view rope_type_name(RopeType type) noexcept;

// The parameters of transformers' modeling_rope_utils. A type uses only those it names.
struct RopeConfig {
  RopeType type = RopeType::Default;
  double theta = 10000.0;              // base of the wave lengths; above 1
  double factor = 1.0;                 // all but default
  int64_t rotary_dim = 0;              // of a head, from its first; even
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
  // Factor of cosines and sines: 1 for all types but yarn and longrope.
  float attention_factor = 1.0f;
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
  int64_t max_position_embeddings = 0;  // tokens of context the model was made for
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

  // How config.json says that matrices are quantized; null: they are not (a GGUF file says it tensor by tensor).
  std::shared_ptr<const WeightQuantization> quantization;

  // Notes for the user: names of fields that were ignored.
  std::vector<std::string> notes;
};

// Reads and checks `dir`/config.json. Throws CheckpointError that names the file, the field, what was expected and what
// was found: for a missing or damaged file, an architecture that is not supported (the message lists those that are), a
// wrong type, a number out of range, sizes that do not fit each other, a way of quantizing that is not known, an adapter in the model's
// directory, or any other field that requires an unsupported computation. docs/model_files.md lists the fields.
// If `dir` is a GGUF file (its name ends in .gguf), the configuration comes from its keys and tensors.
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

}  // namespace anyaccel::llm
