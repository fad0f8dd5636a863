// Pieces of config.json. The rules for rotary embeddings are those of transformers' RotaryEmbeddingConfigMixin.
#include "llm/config_fields.h"

#include <cmath>
#include <string>

namespace anyaccel::llm {
namespace {

// Above and below every real value, and such that no intermediate result leaves the range of a float.
constexpr double max_theta = 1e15;
constexpr double max_factor = 1e6;
constexpr double min_theta = 1.0 + 1e-6;
constexpr int64_t max_positions = int64_t{1} << 31;

RopeType read_rope_type(const JsonRef& parameters) {
  auto value = parameters.find("rope_type");
  if (!value) value = parameters.find("type");
  if (!value) return RopeType::Default;
  for (const RopeType type :
       {RopeType::Default, RopeType::Linear, RopeType::Dynamic, RopeType::Llama3, RopeType::Yarn}) {
    if (value->string() == rope_type_name(type)) return type;
  }
  value->fail("\"default\", \"linear\", \"dynamic\", \"llama3\" or \"yarn\"");
}

double yarn_mscale(double scale, double mscale) { return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0; }

void read_yarn(const JsonRef& parameters, RopeConfig& rope) {
  // Zero means the default, as in transformers.
  rope.beta_fast = read_number(parameters, "beta_fast", 0.0, max_factor, 0.0);
  rope.beta_slow = read_number(parameters, "beta_slow", 0.0, max_factor, 0.0);
  if (rope.beta_fast == 0.0) rope.beta_fast = 32.0;
  if (rope.beta_slow == 0.0) rope.beta_slow = 1.0;
  if (rope.beta_fast < rope.beta_slow) {
    parameters.error("beta_fast is " + std::to_string(rope.beta_fast) + " and beta_slow " +
                     std::to_string(rope.beta_slow) + "; expected beta_fast to be the larger");
  }
  rope.truncate = read_flag(parameters, "truncate", true);
  const double mscale = read_number(parameters, "mscale", 0.0, max_factor, 0.0);
  const double mscale_all_dim = read_number(parameters, "mscale_all_dim", 0.0, max_factor, 0.0);
  double attention = mscale != 0.0 && mscale_all_dim != 0.0
                         ? yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all_dim)
                         : yarn_mscale(rope.factor, 1.0);
  attention = read_number(parameters, "attention_factor", 0.0, max_factor, attention);
  rope.attention_factor = static_cast<float>(attention);
}

void read_llama3(const JsonRef& parameters, RopeConfig& rope) {
  rope.low_freq_factor = parameters.at("low_freq_factor").number(1e-6, max_factor);
  rope.high_freq_factor = parameters.at("high_freq_factor").number(1e-6, max_factor);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    parameters.at("high_freq_factor").fail("a number above low_freq_factor");
  }
}

}  // namespace

bool read_flag(const JsonRef& object, std::string_view key, bool fallback) {
  const auto value = object.find(key);
  return value ? value->boolean() : fallback;
}

int64_t read_whole(const JsonRef& object, std::string_view key, int64_t low, int64_t high, int64_t fallback) {
  const auto value = object.find(key);
  return value ? value->integer(low, high) : fallback;
}

double read_number(const JsonRef& object, std::string_view key, double low, double high, double fallback) {
  const auto value = object.find(key);
  return value ? value->number(low, high) : fallback;
}

void read_special_ids(const JsonRef& object, std::optional<int32_t>& bos, std::vector<int32_t>& eos) {
  const auto id = [](const JsonRef& value) { return static_cast<int32_t>(value.integer(0, INT32_MAX)); };
  if (object.has("bos_token_id")) {
    bos.reset();
    if (const auto value = object.find("bos_token_id")) bos = id(*value);
  }
  if (!object.has("eos_token_id")) return;
  eos.clear();
  const auto value = object.find("eos_token_id");
  if (!value) return;
  if (value->is_array()) {
    for (size_t i = 0; i < value->size(); ++i) eos.push_back(id((*value)[i]));
  } else {
    eos.push_back(id(*value));
  }
}

RopeConfig read_rope(const JsonRef& root, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = read_number(root, "rope_theta", min_theta, max_theta, rope.theta);
  rope.partial_rotary_factor = read_number(root, "partial_rotary_factor", 0.0, 1.0, 1.0);

  auto parameters = root.find("rope_scaling");
  if (parameters && !parameters->is_object()) parameters->fail("an object or null");
  if (!parameters || parameters->size() == 0) parameters = root.find("rope_parameters");
  if (parameters) {
    for (const std::string_view nested : {"full_attention", "sliding_attention"}) {
      if (parameters->has(nested)) parameters->error("rope parameters that differ between layers are not supported");
    }
    rope.type = read_rope_type(*parameters);
    rope.theta = read_number(*parameters, "rope_theta", min_theta, max_theta, rope.theta);
    rope.partial_rotary_factor =
        read_number(*parameters, "partial_rotary_factor", 0.0, 1.0, rope.partial_rotary_factor);
  }
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * rope.partial_rotary_factor);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    root.error("head_dim " + std::to_string(config.head_dim) + " times partial_rotary_factor " +
               std::to_string(rope.partial_rotary_factor) + " rotates " + std::to_string(rope.rotary_dim) +
               " dimensions; expected an even number of at least 2");
  }
  if (rope.type == RopeType::Default) return rope;

  if (rope.type == RopeType::Llama3 || rope.type == RopeType::Yarn) {
    rope.original_max_position_embeddings =
        read_whole(*parameters, "original_max_position_embeddings", 1, max_positions, config.max_position_embeddings);
    rope.original_max_position_embeddings =
        read_whole(root, "original_max_position_embeddings", 1, max_positions, rope.original_max_position_embeddings);
  }
  const bool factor_may_follow =
      rope.type == RopeType::Yarn && parameters->has("factor") && !parameters->find("factor");
  if (factor_may_follow) {
    rope.factor = static_cast<double>(config.max_position_embeddings) /
                  static_cast<double>(rope.original_max_position_embeddings);
  } else {
    rope.factor = parameters->at("factor").number(1e-6, max_factor);
  }
  if (rope.type == RopeType::Dynamic) {
    if (rope.factor < 1.0) parameters->at("factor").fail("a number of at least 1");
    if (rope.rotary_dim < 4) parameters->error("dynamic scaling needs at least 4 rotating dimensions");
  }
  if (rope.type == RopeType::Llama3) read_llama3(*parameters, rope);
  if (rope.type == RopeType::Yarn) read_yarn(*parameters, rope);
  return rope;
}

}  // namespace anyaccel::llm
