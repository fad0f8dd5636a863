// Reads the adapter_config.json of a LoRA adapter, and matches it with the tensors of its adapter_model.safetensors.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/llm/safetensors.h"
#include "base/text/json.h"

namespace anyaccel::llm {

struct LoraPair {
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
  float scale = 0.0f;             // of their product
};

struct LoraFactors {
  std::map<std::string, LoraPair> pairs;  // by the name of the changed tensor, "model.layers.0.mlp.up_proj.weight"
  std::vector<std::string> notes;         // for the user
};

// `source` names the file of the tensors. CheckpointError for a kind of adapter that adds anything else (DoRA, changed
// embeddings, biases, ...), naming the field or the tensor, and for factors that do not belong together.
LoraFactors read_lora_factors(const JsonDocument& config, std::span<const TensorInfo> tensors,
                              const std::string& source);

}  // namespace anyaccel::llm
