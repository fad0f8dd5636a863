// Reads and writes the keys that several families share: numbers within bounds, windows of attention, experts.
#include "llm/families/gguf_fields.h"

#include <limits>

#include "anyaccel/error.h"
#include "base/text/json.h"
#include "llm/config/config_fields.h"

namespace anyaccel::llm {

const ModelConfig& GgufFields::defaults() {
  static const ModelConfig config;
  return config;
}

float GgufFields::number(std::string_view name, float written, float fallback) const {
  constexpr double any = std::numeric_limits<float>::max();
  if (model_ != nullptr) {
    return static_cast<float>(metadata().number(key(name), -any, any).value_or(static_cast<double>(fallback)));
  }
  keys_->add_number(key(name), static_cast<double>(written));
  return written;
}

int64_t GgufFields::whole(std::string_view name, int64_t least, int64_t most, int64_t written, int64_t fallback) const {
  if (model_ != nullptr) return metadata().whole(key(name), least, most).value_or(fallback);
  keys_->add_whole(key(name), written);
  return written;
}

int64_t GgufFields::required_whole(std::string_view name, int64_t least, int64_t most, int64_t written) const {
  return model_ != nullptr ? metadata().required_whole(key(name), least, most)
                           : whole(name, least, most, written, written);
}

bool GgufFields::flag(std::string_view name, bool written, bool fallback) const {
  if (model_ != nullptr) return metadata().flag(key(name), fallback);
  keys_->add_flag(key(name), written);
  return written;
}

std::string GgufFields::text(std::string_view name, std::string_view fallback) const {
  if (model_ != nullptr) return metadata().text(key(name)).value_or(std::string(fallback));
  keys_->add_text(key(name), fallback);
  return std::string(fallback);
}

bool GgufFields::has(std::string_view name, bool written) const {
  return model_ != nullptr ? metadata().has(key(name)) : written;
}

bool GgufFields::has_tensor(std::string_view name, bool written) const {
  return model_ != nullptr ? model_->find(name) != nullptr : written;
}

void GgufFields::error(std::string_view name, const std::string& what) const {
  if (model_ != nullptr) metadata().error(key(name), what);
  throw CheckpointError("the key " + quote_text(key(name)) + " " + what);
}

namespace {

bool in_pattern(size_t layer, int64_t every) { return every == 0 || static_cast<int64_t>(layer) % every < every - 1; }

bool follows_pattern(const std::vector<uint8_t>& has_window, int64_t every) {
  for (size_t i = 0; i < has_window.size(); ++i) {
    if ((has_window[i] != 0) != in_pattern(i, every)) return false;
  }
  return true;
}

// Writes no pattern if the layers are those of the family's, a number if they follow another one, else a flag for each.
void write_pattern(const std::vector<uint8_t>& has_window, int64_t every, const std::string& key, GgufKeys& keys) {
  if (follows_pattern(has_window, every)) return;
  for (int64_t other = 0; other <= static_cast<int64_t>(has_window.size()); ++other) {
    if (other != 1 && follows_pattern(has_window, other)) return keys.add_whole(key, other);
  }
  GgufValue flags{true, true, GgufType::Bool, {}};
  flags.elements = std::vector<int64_t>(has_window.begin(), has_window.end());
  keys.add(key, flags);
}

}  // namespace

void describe_gguf_windows(const GgufFields& file, ModelConfig& config, int64_t window, int64_t every) {
  constexpr std::string_view pattern = "attention.sliding_window_pattern";
  const int64_t size = file.whole("attention.sliding_window", 0, max_positions, file.known().sliding_window, window);
  if (file.model_ == nullptr) {
    config.sliding_window = size;
    config.layer_has_window = file.known().layer_has_window;
    if (size > 0) write_pattern(config.layer_has_window, every, file.key(pattern), *file.keys_);
    return;
  }
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const std::vector<uint8_t> flags = file.metadata().flags(file.key(pattern));
  if (!flags.empty() && flags.size() != layers) {
    file.error(pattern, "has " + std::to_string(flags.size()) + " elements; expected " + std::to_string(layers) +
                            ", one for each layer");
  }
  if (flags.empty()) every = file.whole(pattern, 0, max_layers, 0, every);
  if (size == 0) return;
  for (size_t i = 0; i < layers; ++i) {
    const bool has = flags.empty() ? in_pattern(i, every) : flags[i] != 0;
    config.layer_has_window[i] = has ? 1 : 0;
    if (has) config.sliding_window = size;
  }
}

void describe_gguf_experts(const GgufFields& file, ModelConfig& config) {
  constexpr int64_t max_experts = 1 << 14;
  const ExpertsConfig& known = file.known().experts;
  ExpertsConfig& experts = config.experts;
  experts.count = file.required_whole("expert_count", 1, max_experts, known.count);
  experts.per_token = file.required_whole("expert_used_count", 1, experts.count, known.per_token);
  if (file.model_ == nullptr) {
    experts.inner = file.whole("expert_feed_forward_length", 1, max_size, known.inner, known.inner);
  } else {
    experts.inner = file.metadata()
                        .whole_of_layers(file.key("expert_feed_forward_length"), 1, max_size, config.num_hidden_layers)
                        .value_or(config.intermediate_size);
  }
  experts.stacked = true;
  experts.in_layer.assign(static_cast<size_t>(config.num_hidden_layers), 1);
}

}  // namespace anyaccel::llm
