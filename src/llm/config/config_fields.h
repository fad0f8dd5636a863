// Reads pieces of config.json: optional fields with a default, special token ids, and the parameters of rotary
// embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyaccel/llm/model_config.h"
#include "base/text/json.h"

namespace anyaccel::llm {

// The largest value of a field that counts positions.
constexpr int64_t max_positions = int64_t{1} << 31;
// Far above every real model, and far below the size at which products of two could overflow.
constexpr int64_t max_size = int64_t{1} << 24;
constexpr int64_t max_layers = 1 << 14;
constexpr int64_t max_heads = 1 << 14;
constexpr int64_t max_head_dim = 1 << 14;
constexpr int64_t max_vocab = int64_t{1} << 28;

// Each returns `fallback` if the field is absent or null, and throws CheckpointError for another type or range.
bool read_flag(const JsonRef& object, std::string_view key, bool fallback);
int64_t read_whole(const JsonRef& object, std::string_view key, int64_t low, int64_t high, int64_t fallback);
double read_number(const JsonRef& object, std::string_view key, double low, double high, double fallback);
// Returns true if the field is absent, and throws CheckpointError for null, which transformers takes for false.
bool read_flag_on(const JsonRef& object, std::string_view key);

// Reads bos_token_id and eos_token_id (a number or a list). An absent field leaves the value unchanged; null clears it.
void read_special_ids(const JsonRef& object, std::optional<int32_t>& bos, std::vector<int32_t>& eos);

// Returns the activation of a name in config.json; nothing for an unknown one.
std::optional<ops::Activation> find_activation(std::string_view name) noexcept;
// Returns the activation that a field names; `fallback` names it if the field is null or missing. CheckpointError lists
// the known ones.
ops::Activation read_activation(const JsonRef& root, std::string_view field, std::string_view fallback);
// Refuses a window of a model whose family has none. transformers ignores the field in the model and uses it for the cache
// all the same: the prompt attends to everything, but generated tokens only to the window.
void refuse_window(const JsonRef& root, const ModelConfig& config, std::string_view model_type);
// Returns one flag for each layer: 1 if layer_types gives it a window. Empty if there is no such list.
std::vector<uint8_t> read_layer_types(const JsonRef& root, size_t layers);

// The rules of a family for rotary embeddings. The defaults are Llama's.
struct RopeRules {
  double theta = 10000.0;                      // if the file does not give it
  std::string_view theta_name = "rope_theta";  // next to rope_scaling
  std::string_view share_name = "partial_rotary_factor";
  // The fraction of a head that rotates if the file does not give it; 0: all of it, and the field must not differ.
  double share = 0.0;
  // If not empty, rope_parameters may hold an object for each type of layer, of which this one is read. In the older
  // form, only layers with full attention have scaling.
  std::string_view layer_type = {};
};

// Reads rope_parameters, or the older rope_scaling, with rope_theta and partial_rotary_factor next to it. Uses head_dim
// and max_position_embeddings of `config`. Adds a note that names the keys that this type of rope does not use.
RopeConfig read_rope(const JsonRef& root, const ModelConfig& config, std::vector<std::string>& notes,
                     const RopeRules& rules = {});

}  // namespace anyaccel::llm
