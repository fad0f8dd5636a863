// Reads the keys that several families share: numbers within bounds, windows of attention, experts.
#include "llm/families/gguf_reader.h"

#include <limits>

#include "llm/config/config_fields.h"

namespace anyaccel::llm {

float GgufReader::number(std::string_view name, float fallback) const {
  constexpr double any = std::numeric_limits<float>::max();
  return static_cast<float>(metadata().number(key(name), -any, any).value_or(static_cast<double>(fallback)));
}

int64_t GgufReader::whole(std::string_view name, int64_t least, int64_t most, int64_t fallback) const {
  return metadata().whole(key(name), least, most).value_or(fallback);
}

void set_gguf_windows(const GgufReader& file, ModelConfig& config, int64_t window, int64_t every) {
  constexpr std::string_view pattern = "attention.sliding_window_pattern";
  const int64_t size = file.whole("attention.sliding_window", 0, max_positions, window);
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const std::vector<uint8_t> flags = file.metadata().flags(file.key(pattern));
  if (!flags.empty() && flags.size() != layers) {
    file.metadata().error(file.key(pattern), "has " + std::to_string(flags.size()) + " elements; expected " +
                                                 std::to_string(layers) + ", one for each layer");
  }
  if (flags.empty()) every = file.whole(pattern, 0, max_layers, every);
  if (size == 0) return;
  for (size_t i = 0; i < layers; ++i) {
    const auto number = static_cast<int64_t>(i);
    const bool has = flags.empty() ? every == 0 || number % every < every - 1 : flags[i] != 0;
    config.layer_has_window[i] = has ? 1 : 0;
    if (has) config.sliding_window = size;
  }
}

void read_gguf_experts(const GgufReader& file, ModelConfig& config) {
  constexpr int64_t max_experts = 1 << 14;
  const GgufMetadata& metadata = file.metadata();
  ExpertsConfig& experts = config.experts;
  experts.count = metadata.required_whole(file.key("expert_count"), 1, max_experts);
  experts.per_token = metadata.required_whole(file.key("expert_used_count"), 1, experts.count);
  experts.inner =
      metadata.whole_of_layers(file.key("expert_feed_forward_length"), 1, max_size, config.num_hidden_layers)
          .value_or(config.intermediate_size);
  experts.stacked = true;
  experts.in_layer.assign(static_cast<size_t>(config.num_hidden_layers), 1);
}

}  // namespace anyaccel::llm
