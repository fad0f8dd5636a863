// The tensors of a decoder's checkpoint: their names in the file, their shapes, and where they go in ModelWeights.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

enum class TensorKind { Matrix, Norm, Bias };

struct TensorSlot {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  Shape shape;
  TensorKind kind = TensorKind::Matrix;
  int64_t layer = -1;  // -1: not of a layer
  Tensor LayerWeights::*layer_member = nullptr;
  Tensor ModelWeights::*model_member = nullptr;

  // weights.layers must have been sized.
  Tensor& in(ModelWeights& weights) const {
    return layer < 0 ? weights.*model_member : weights.layers[static_cast<size_t>(layer)].*layer_member;
  }
};

// Every tensor that a checkpoint of this configuration must have, in the order of their use. Tied output weights are
// not among them.
std::vector<TensorSlot> decoder_tensors(const ModelConfig& config);

}  // namespace anyaccel::llm
