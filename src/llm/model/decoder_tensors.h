// The tensors of a decoder's checkpoint: their names in the file, their shapes, and where they go in ModelWeights.
#pragma once

#include <string>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

enum class TensorKind { Matrix, Norm, Bias };

// Which of a model's sizes a tensor is split by over ranks. FirstRank: rank 0 has it, the others do not.
enum class SplitBy { Nothing, QueryHeads, KvHeads, Intermediate, Vocabulary, FirstRank };

struct TensorSlot {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  Shape shape;       // of the whole tensor
  TensorKind kind = TensorKind::Matrix;
  SplitBy split = SplitBy::Nothing;
  int split_dim = 0;   // of the shape
  int64_t layer = -1;  // -1: not of a layer
  Tensor LayerWeights::*layer_member = nullptr;
  Tensor ModelWeights::*model_member = nullptr;

  // weights.layers must have been sized.
  Tensor& in(ModelWeights& weights) const {
    return layer < 0 ? weights.*model_member : weights.layers[static_cast<size_t>(layer)].*layer_member;
  }
};

// What of the slot's split_dim a rank holds, in elements; all of it when the tensor is not split.
Slice held_slice(const TensorSlot& slot, const ModelShard& shard, int64_t head_dim);
// The shape of that.
Shape held_shape(const TensorSlot& slot, const Slice& held);

// Every tensor that a checkpoint of this configuration must have, in the order of their use. Tied output weights are
// not among them.
std::vector<TensorSlot> decoder_tensors(const ModelConfig& config);

}  // namespace anyaccel::llm
