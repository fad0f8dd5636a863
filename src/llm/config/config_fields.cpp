// Reads pieces of config.json. The rules for rotary embeddings are those of transformers' RotaryEmbeddingConfigMixin.
#include "llm/config/config_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "llm/config/config_table.h"

namespace anyaccel::llm {
namespace {

// Limits beyond every realistic value, such that no intermediate result exceeds the range of a float.
constexpr double max_theta = 1e15;
constexpr double max_factor = 1e6;
constexpr double min_theta = 1.0 + 1e-6;

RopeType read_rope_type(const JsonRef& parameters) {
  const bool has_new_name = parameters.has("rope_type");
  if (!has_new_name && !parameters.has("type")) return RopeType::Default;
  const JsonRef value = parameters.at(has_new_name ? "rope_type" : "type");
  for (const RopeType type : {RopeType::Default, RopeType::Linear, RopeType::Dynamic, RopeType::Llama3, RopeType::Yarn,
                              RopeType::Longrope, RopeType::Proportional}) {
    if (value.is_string() && value.string() == rope_type_name(type)) return type;
  }
  value.fail(R"("default", "linear", "dynamic", "llama3", "yarn", "longrope" or "proportional")");
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
  rope.truncate = read_flag_on(parameters, "truncate");
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

std::vector<float> read_factors(const JsonRef& list, int64_t count) {
  if (!list.is_array() || list.size() != static_cast<size_t>(count)) {
    list.fail("a list of " + std::to_string(count) + " numbers, one for each pair of rotating dimensions");
  }
  std::vector<float> factors;
  for (size_t i = 0; i < list.size(); ++i) factors.push_back(static_cast<float>(list[i].number(1e-6, max_factor)));
  return factors;
}

void read_longrope(const JsonRef& parameters, RopeConfig& rope) {
  rope.short_factor = read_factors(parameters.at("short_factor"), rope.rotary_dim / 2);
  rope.long_factor = read_factors(parameters.at("long_factor"), rope.rotary_dim / 2);
  const double attention =
      rope.factor <= 1.0 ? 1.0
                         : std::sqrt(1.0 + std::log(rope.factor) /
                                               std::log(static_cast<double>(rope.original_max_position_embeddings)));
  rope.attention_factor = static_cast<float>(read_number(parameters, "attention_factor", 0.0, max_factor, attention));
  if (!std::isfinite(rope.attention_factor)) {
    parameters.error("original_max_position_embeddings is 1, from which no attention_factor follows");
  }
}

// Null does not mean the default here: transformers computes with the null, and fails.
double read_theta(const JsonRef& object, std::string_view name, double fallback) {
  return object.has(name) ? object.at(name).number(min_theta, max_theta) : fallback;
}

// Returns the quoted names of the object's keys that this type of rope does not use.
std::string unused_keys(const JsonRef& parameters, RopeType type) {
  std::string names;
  const std::span<const std::string_view> used = rope_keys(type);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& key = parameters.key(i);
    // The values of these keys have been read already.
    if (key == "partial_rotary_factor" || key == "mrope_section") continue;
    if (std::find(used.begin(), used.end(), key) == used.end()) names += (names.empty() ? "" : ", ") + quote_text(key);
  }
  return names;
}

// In these families all dimensions of a head rotate. With any other fraction, transformers 5 ignores the field for the
// default type of rope and fails for the others; older releases fail.
void check_partial_rotary_factor(const JsonRef& object) {
  const auto share = object.find("partial_rotary_factor");
  if (share && share->number(0.0, 1e6) != 1.0) {
    share->fail(
        "1 or null: a whole head rotates in models of this type (releases of transformers differ in what they do "
        "with another value)");
  }
}

struct NamedActivation {
  std::string_view name;
  ops::Activation activation;
};
constexpr std::array<NamedActivation, 10> activations = {{{"silu", ops::Activation::Silu},
                                                          {"swish", ops::Activation::Silu},
                                                          {"gelu", ops::Activation::Gelu},
                                                          {"gelu_python", ops::Activation::Gelu},
                                                          {"gelu_new", ops::Activation::GeluTanh},
                                                          {"gelu_fast", ops::Activation::GeluTanh},
                                                          {"gelu_accurate", ops::Activation::GeluTanh},
                                                          {"gelu_pytorch_tanh", ops::Activation::GeluTanh},
                                                          {"gelu_python_tanh", ops::Activation::GeluTanh},
                                                          {"relu", ops::Activation::Relu}}};

}  // namespace

std::optional<ops::Activation> find_activation(std::string_view name) noexcept {
  for (const NamedActivation& known : activations) {
    if (known.name == name) return known.activation;
  }
  return std::nullopt;
}

ops::Activation read_activation(const JsonRef& root, std::string_view field, std::string_view fallback) {
  const auto value = root.find(field);
  if (const auto found = find_activation(value ? std::string_view(value->string()) : fallback)) return *found;
  std::string names;
  for (const NamedActivation& known : activations) {
    names += (names.empty() ? "\"" : ", \"") + std::string(known.name) + "\"";
  }
  root.at(field).fail("one of " + names);
}

std::vector<uint8_t> read_layer_types(const JsonRef& root, size_t layers) {
  const auto types = root.find("layer_types");
  if (!types) return {};
  if (!types->is_array() || types->size() != layers) {
    types->fail("a list with one text for each of the " + std::to_string(layers) + " layers");
  }
  std::vector<uint8_t> has_window;
  for (size_t i = 0; i < layers; ++i) {
    const JsonRef type = (*types)[i];
    const std::string& name = type.string();
    // "attention" is an older name of "full_attention".
    if (name != "sliding_attention" && name != "full_attention" && name != "attention") {
      type.fail("\"full_attention\" or \"sliding_attention\"");
    }
    has_window.push_back(name == "sliding_attention" ? 1 : 0);
  }
  return has_window;
}

void refuse_window(const JsonRef& root, const ModelConfig& config, std::string_view model_type) {
  const auto window = root.find("sliding_window");
  if (!window || window->integer(0, max_positions) >= config.max_position_embeddings) return;
  window->fail("null, or a number from max_position_embeddings (" + std::to_string(config.max_position_embeddings) +
               ") on, in a model of type " + std::string(model_type) + ", whose tokens see all tokens before them");
}

bool read_flag(const JsonRef& object, std::string_view key, bool fallback) {
  const auto value = object.find(key);
  return value ? value->boolean() : fallback;
}

bool read_flag_on(const JsonRef& object, std::string_view key) {
  if (object.has(key) && !object.find(key)) object.at(key).fail("true or false");
  return read_flag(object, key, true);
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

namespace {

// Returns the object that scales rope, and its name; nothing if there is none.
std::optional<JsonRef> rope_object(const JsonRef& root, const RopeRules& rules, std::string& name) {
  name = "rope_scaling";
  auto parameters = root.find(name);
  if (parameters && !parameters->is_object()) parameters->fail("an object or null");
  if (parameters && parameters->size() > 0) {
    const auto newer = root.find("rope_parameters");
    if (!rules.layer_type.empty() && newer && newer->size() > 0) {
      parameters->error(
          "is there beside rope_parameters, with which transformers merges it in models of this type; expected one of "
          "them");
    }
  } else {
    parameters = root.find(name = "rope_parameters");
  }
  if (!parameters) return {};
  if (!rules.layer_type.empty() && parameters->find(rules.layer_type)) {
    parameters = parameters->find(rules.layer_type);
    name += "." + std::string(rules.layer_type);
  } else if (!rules.layer_type.empty() && rules.layer_type != "full_attention") {
    return {};
  }
  for (size_t i = 0; i < parameters->size(); ++i) {
    if (parameters->member(i).is_object()) {
      parameters->member(i).error(
          "rope parameters that differ between layers are not supported for models of this type");
    }
  }
  return parameters;
}

}  // namespace

RopeConfig read_rope(const JsonRef& root, const ModelConfig& config, std::vector<std::string>& notes,
                     const RopeRules& rules) {
  RopeConfig rope;
  rope.theta = read_theta(root, rules.theta_name, rules.theta);
  rope.rotary_dim = config.head_dim;

  std::string name;
  const std::optional<JsonRef> parameters = rope_object(root, rules, name);
  if (parameters) {
    rope.type = read_rope_type(*parameters);
    rope.theta = read_theta(*parameters, "rope_theta", rope.theta);
    if (const auto sections = parameters->find("mrope_section"); sections && sections->size() > 0) {
      sections->fail("null: positions of images and sound are not supported");
    }
    if (const std::string unused = unused_keys(*parameters, rope.type); !unused.empty()) {
      notes.push_back(name + " in config.json has fields that rope of type \"" +
                      std::string(rope_type_name(rope.type)) + "\" does not use, and that are ignored: " + unused);
    }
  }
  if (rules.share > 0.0) {
    double share = read_number(root, rules.share_name, 0.0, 1.0, rules.share);
    if (parameters) share = read_number(*parameters, "partial_rotary_factor", 0.0, 1.0, share);
    rope.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * share);
    if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
      root.error(std::string(rules.share_name) + " makes " + std::to_string(rope.rotary_dim) + " of " +
                 std::to_string(config.head_dim) + " elements of a head rotate; expected an even number from 2 on");
    }
    if (rope.type == RopeType::Proportional) parameters->at("rope_type").fail("another type for a model of this kind");
  }
  if (rope.type == RopeType::Proportional) {
    rope.partial_rotary_factor = read_number(root, "partial_rotary_factor", 0.0, 1.0, 1.0);
    rope.partial_rotary_factor =
        read_number(*parameters, "partial_rotary_factor", 0.0, 1.0, rope.partial_rotary_factor);
    rope.factor = read_number(*parameters, "factor", 1e-6, max_factor, 1.0);
    return rope;
  }
  if (rules.share == 0.0) {
    check_partial_rotary_factor(root);
    if (parameters) check_partial_rotary_factor(*parameters);
  }
  if (rope.type == RopeType::Default) return rope;

  if (rope.type == RopeType::Llama3 || rope.type == RopeType::Yarn || rope.type == RopeType::Longrope) {
    rope.original_max_position_embeddings =
        read_whole(*parameters, "original_max_position_embeddings", 1, max_positions, config.max_position_embeddings);
    rope.original_max_position_embeddings =
        read_whole(root, "original_max_position_embeddings", 1, max_positions, rope.original_max_position_embeddings);
  }
  const bool factor_may_follow =
      (rope.type == RopeType::Yarn && parameters->has("factor")) || rope.type == RopeType::Longrope;
  if (factor_may_follow && !parameters->find("factor")) {
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
  if (rope.type == RopeType::Longrope) read_longrope(*parameters, rope);
  return rope;
}

}  // namespace anyaccel::llm
