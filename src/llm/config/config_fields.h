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
// Far above every real model, far below where products of two could overflow.
constexpr int64_t max_size = int64_t{1} << 24;
constexpr int64_t max_layers = 1 << 14;
constexpr int64_t max_heads = 1 << 14;
constexpr int64_t max_head_dim = 1 << 14;
constexpr int64_t max_vocab = int64_t{1} << 28;

// Each returns `fallback` if the field is absent or null, and throws CheckpointError for another type or range.
bool read_flag(const JsonRef& object, std::string_view key, bool fallback);
int64_t read_whole(const JsonRef& object, std::string_view key, int64_t low, int64_t high, int64_t fallback);
double read_number(const JsonRef& object, std::string_view key, double low, double high, double fallback);

// bos_token_id and eos_token_id (a number or a list). An absent field leaves the value unchanged, null clears it.
void read_special_ids(const JsonRef& object, std::optional<int32_t>& bos, std::vector<int32_t>& eos);

// The activation that a field names; null or missing: `fallback` does. CheckpointError lists those that are known.
ops::Activation read_activation(const JsonRef& root, std::string_view field, std::string_view fallback);
// One flag for each layer: whether it has a window according to layer_types. Empty if there is no such list.
std::vector<uint8_t> read_layer_types(const JsonRef& root, size_t layers);

// How a family has its rotary embeddings. The defaults are Llama's.
struct RopeRules {
  double theta = 10000.0;                      // where the file says nothing
  std::string_view theta_name = "rope_theta";  // beside rope_scaling
  std::string_view share_name = "partial_rotary_factor";
  // Of a head that rotates, where the file says nothing; 0: all of it, and the field may not say otherwise.
  double share = 0.0;
  // Not empty: of objects for single types of layers inside rope_parameters this one is read. Layers other than full ones
  // have no scaling in the older form.
  std::string_view layer_type = {};
};

// Reads rope_parameters, or the older rope_scaling, with rope_theta and partial_rotary_factor next to it. Uses head_dim
// and max_position_embeddings of `config`. Adds a note that names the keys that this type of rope does not use.
RopeConfig read_rope(const JsonRef& root, const ModelConfig& config, std::vector<std::string>& notes,
                     const RopeRules& rules = {});

}  // namespace anyaccel::llm
