// Gives the families access to the keys and tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "anyaccel/llm/model_config.h"
#include "llm/checkpoint/gguf.h"

namespace anyaccel::llm {

// Keys are named without the architecture. Errors name the key, like those of GgufMetadata.
class GgufReader {
 public:
  GgufReader(const GgufModel& model, std::string_view architecture)
      : model_(model), prefix_(std::string(architecture) + ".") {}

  const GgufModel& model() const noexcept { return model_; }
  const GgufMetadata& metadata() const { return model_.metadata(); }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return metadata().has(key(name)); }
  float number(std::string_view name, float fallback) const;  // finite
  int64_t whole(std::string_view name, int64_t least, int64_t most, int64_t fallback) const;
  bool flag(std::string_view name, bool fallback) const { return metadata().flag(key(name), fallback); }
  bool has_tensor(std::string_view name) const { return model_.find(name) != nullptr; }
  // Returns whether the first layer has the tensor ("attn_qkv.weight").
  bool layers_have(std::string_view name) const { return has_tensor("blk.0." + std::string(name)); }

 private:
  const GgufModel& model_;
  std::string prefix_;
};

// Sets which layers have a window by attention.sliding_window (`window` if it is missing; 0: none) and
// attention.sliding_window_pattern, a flag for each layer or a number: of so many layers, the last one has none (`every`
// if the key is missing; 0: all layers have one).
void set_gguf_windows(const GgufReader& file, ModelConfig& config, int64_t window, int64_t every);
// Reads the numbers and sizes of experts; all layers have them. Their matrices are one tensor for each of gate, up and down.
void read_gguf_experts(const GgufReader& file, ModelConfig& config);

}  // namespace anyaccel::llm
