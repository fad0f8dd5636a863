// The keys and tensors by which a GGUF file describes a model of a family, in both directions: a family's function that
// names them (FamilyDefinition::describe_gguf) reads a file, or writes the keys of one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "anyaccel/llm/model_config.h"
#include "llm/checkpoint/gguf.h"
#include "llm/checkpoint/gguf_file_writer.h"

namespace anyaccel::llm {

// Keys are named without the architecture. Each function that names a key takes the value to write. If a file is read, it
// returns the file's value, or `fallback` if the key is missing; errors name the key, like those of GgufMetadata. If
// keys are written, it adds the key and returns the value that the file then has.
class GgufFields {
 public:
  // Reads.
  GgufFields(const GgufModel& model, std::string_view architecture)
      : model_(&model), prefix_(std::string(architecture) + ".") {}
  // Writes the keys of `known`.
  GgufFields(const ModelConfig& known, std::string_view architecture, GgufKeys& keys)
      : keys_(&keys), known_(&known), prefix_(std::string(architecture) + ".") {}

  // The model whose keys are written. If a file is read, one of defaults, whose values have no effect.
  const ModelConfig& known() const noexcept { return *known_; }
  float number(std::string_view name, float written, float fallback) const;  // finite
  int64_t whole(std::string_view name, int64_t least, int64_t most, int64_t written, int64_t fallback) const;
  int64_t required_whole(std::string_view name, int64_t least, int64_t most, int64_t written) const;
  bool flag(std::string_view name, bool written, bool fallback) const;
  std::string text(std::string_view name, std::string_view fallback) const;  // which is also what is written
  // Returns whether the key is there; if keys are written, `written` says whether it will be.
  bool has(std::string_view name, bool written) const;
  // Returns whether the file has the tensor; if keys are written, `written` says whether it will have it.
  bool has_tensor(std::string_view name, bool written) const;
  // The same of the first layer ("attn_qkv.weight").
  bool layers_have(std::string_view name, bool written) const {
    return has_tensor("blk.0." + std::string(name), written);
  }
  // CheckpointError that names the key.
  [[noreturn]] void error(std::string_view name, const std::string& what) const;

  friend void describe_gguf_windows(const GgufFields& file, ModelConfig& config, int64_t window, int64_t every);
  friend void describe_gguf_experts(const GgufFields& file, ModelConfig& config);

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufMetadata& metadata() const { return model_->metadata(); }
  static const ModelConfig& defaults();

  const GgufModel* model_ = nullptr;  // null: keys are written
  GgufKeys* keys_ = nullptr;
  const ModelConfig* known_ = &defaults();
  std::string prefix_;
};

// Describes which layers have a window by attention.sliding_window (`window` if it is missing; 0: none) and
// attention.sliding_window_pattern, a flag for each layer or a number: of so many layers, the last one has none (`every`
// if the key is missing; 0: all layers have one).
void describe_gguf_windows(const GgufFields& file, ModelConfig& config, int64_t window, int64_t every);
// Describes the numbers and sizes of experts; all layers have them. Their matrices are one tensor for each of gate, up and
// down.
void describe_gguf_experts(const GgufFields& file, ModelConfig& config);

}  // namespace anyaccel::llm
