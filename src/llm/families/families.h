// Describes a family of decoders by data: the names of its sizes in config.json, the defaults of missing fields, the
// names of its tensors, and the parts that its layers are composed of (ModelConfig). Each other file in this folder has
// a family, or a few close relatives.
//
// Llama, Mistral, Qwen2 and Qwen3 came first, and are in llm/config/model_config.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "base/text/json.h"
#include "llm/families/gguf_fields.h"

namespace anyaccel::llm {

// The names of sizes in config.json. An empty name means that the family has no such field.
struct SizeFields {
  std::string_view hidden = "hidden_size";
  std::string_view inner = "intermediate_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view head_dim = "head_dim";
  std::string_view positions = "max_position_embeddings";
  std::string_view eps = "rms_norm_eps";
  std::string_view activation = "hidden_act";
};

// The values of missing fields, which are the defaults of transformers' class.
struct SizeDefaults {
  int64_t kv_heads = 0;               // 0: as many as heads
  int64_t head_dim = 0;               // 0: hidden / heads
  bool inner_is_four_hidden = false;  // else the inner size is required
  int64_t positions = 2048;
  double eps = 1e-5;
  std::string_view activation = "silu";
  double rope_theta = 10000.0;
  double rotary_share = 0.0;  // fraction of a head; 0: all of it rotates, and partial_rotary_factor is not read
  bool tied = false;
  std::optional<int32_t> bos = {};
  std::optional<int32_t> eos = {};
};

struct FamilyDefinition {
  Family family = Family::Llama;
  std::string_view model_type;
  std::string_view architecture;
  SizeFields sizes = {};
  // Other names that files use for sizes, each after the one in `sizes`, before which it takes precedence.
  std::span<const std::array<std::string_view, 2>> other_names = {};
  SizeDefaults defaults = {};
  TensorNames names = {};
  // The fields that `compose` reads.
  std::span<const std::string_view> fields = {};
  // Reads the parts of the layers; sizes, names and the activation are already in `config`. CheckpointError for a value
  // that is not supported.
  void (*compose)(const JsonRef& root, ModelConfig& config) = nullptr;
  // general.architecture of the family's GGUF files; empty: there are none.
  std::string_view gguf_architecture = {};
  // Does for a GGUF file what `compose` does for config.json, and the inverse: it sets what the file says of a model, or
  // will say when its keys are written. `config` has the sizes, the names of gguf_tensor_names, the biases that the file
  // has tensors for, and the activation of `defaults`; rope is read afterwards, and takes rope.type for what a missing type
  // of scaling means.
  void (*describe_gguf)(const GgufFields& file, ModelConfig& config) = nullptr;
};

extern const FamilyDefinition gemma, gemma2, gemma3;
extern const FamilyDefinition phi, phi3, stablelm, olmo2, smollm3, granite, internlm3, starcoder2;
extern const FamilyDefinition cohere, cohere2, glm, glm4;
extern const FamilyDefinition gpt2, gptj, gpt_neox, opt, falcon;
extern const FamilyDefinition bloom, mpt, gpt_oss, baichuan;
extern const FamilyDefinition mixtral, qwen2_moe, qwen3_moe, olmoe, granite_moe, granite_moe_shared;
extern const FamilyDefinition deepseek_v2, deepseek_v3;

std::span<const FamilyDefinition* const> family_definitions();
// Returns null for the first four families.
const FamilyDefinition* find_family(Family family) noexcept;
// Returns the family of a GGUF file's architecture; null for the first four families and unknown ones.
const FamilyDefinition* find_gguf_family(const GgufMetadata& metadata);
// Returns the architectures of GGUF files of all families but the first four, for messages.
std::string gguf_architectures();
// Returns the family as which a GGUF file describes models of this one: llama's files hold those of Mistral and InternLM 3.
Family gguf_family(Family family) noexcept;
inline bool has_first_families_rules(Family family) noexcept { return find_family(family) == nullptr; }
// Returns whether this field of config.json is read for the family.
bool reads_field(const FamilyDefinition& family, std::string_view name);

// Reads everything except special tokens and the dtype, which are the same in all families.
void read_family_config(const JsonRef& root, const FamilyDefinition& family, ModelConfig& config);

// -- Functions for `compose`.

// Sets which layers have a window: by layer_types, else those for which `is_window` returns true.
void set_windows(const JsonRef& root, ModelConfig& config, int64_t window,
                 bool (*is_window)(int64_t layer, int64_t every), int64_t every = 0);
// Gives all layers the window sliding_window, or none if that is null; `fallback` if it is missing (0: none).
void set_window_of_all(const JsonRef& root, ModelConfig& config, int64_t fallback);
// Sets the multipliers of Granite models, and the biases of their attention.
void read_granite_multipliers(const JsonRef& root, ModelConfig& config);
// Describes the multipliers of Granite models by the keys of a GGUF file, in which heads rotate neighbours.
void describe_gguf_granite_multipliers(const GgufFields& file, ModelConfig& config);
// Reads the number of experts, by the first of the names that is there, and how many of them compute a token. `inner` is
// the intermediate size of each. The other arguments are defaults; 0: the field is required. All layers have experts.
void read_experts(const JsonRef& root, ModelConfig& config, std::span<const std::string_view> names, int64_t count,
                  int64_t per_token, int64_t inner);
// Refuses a flag with another value than this one, which is also the value of a missing field.
void require_flag(const JsonRef& root, std::string_view name, bool value, std::string_view why);

}  // namespace anyaccel::llm
