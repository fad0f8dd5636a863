// Reads a LoRA adapter as PEFT stores it (adapter_config.json and adapter_model.safetensors): for each matrix that it
// changes, two factors of low rank, whose scaled product is added to the matrix while a model loads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "anyaccel/llm/safetensors.h"
#include "anyaccel/tensor.h"
#include "llm/config/lora_config.h"

namespace anyaccel::llm {

class LoraAdapter {
 public:
  // CheckpointError for files that are missing or damaged, and as read_lora_factors() does.
  explicit LoraAdapter(const std::filesystem::path& directory);

  // Returns whether a tensor of a checkpoint, "model.layers.0.self_attn.q_proj.weight", is changed.
  bool changes(const std::string& tensor) const { return factors_.pairs.contains(tensor); }
  std::vector<std::string> tensors() const;
  // Returns the highest rank of its factors.
  int64_t rank() const;
  std::string path() const { return file_->path().string(); }
  // Returns the factors of a tensor that is changed as fp32 on the host: [rank, in], and [out, rank] times the scale.
  std::pair<Tensor, Tensor> factors(const std::string& tensor) const;
  // Checks the factors of a tensor that is changed: for products with [out, in], or [in, out] if `transposed`.
  // CheckpointError that names the adapter's file and both shapes.
  void check_shape(const std::string& tensor, int64_t rows, int64_t columns, bool transposed) const;
  // Adds the product to rows `first` and following of the tensor: fp32 [values.size() / columns, columns] on the host.
  // Uses all cores.
  void add_to(const std::string& tensor, int64_t first, int64_t columns, bool transposed,
              std::span<float> values) const;
  // Returns notes for the user.
  const std::vector<std::string>& notes() const noexcept { return factors_.notes; }

 private:
  std::vector<float> read(const TensorInfo& tensor) const;

  std::shared_ptr<const SafetensorsFile> file_;
  LoraFactors factors_;
};

}  // namespace anyaccel::llm
