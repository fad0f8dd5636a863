// Lists the tensors of a decoder's checkpoint: their names in the file, their shapes, and their place in ModelWeights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/model_config.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

enum class TensorKind { Matrix, Norm, Bias };

// The size by which a tensor is sharded over ranks. FirstRank: only rank 0 has the tensor.
enum class SplitBy { Nothing, QueryHeads, KvHeads, Intermediate, Hidden, Vocabulary, FirstRank, Expert, SharedExpert };

// The place of a tensor inside one of the file's: blocks of rows, which are columns if the matrix is transposed.
struct TensorSource {
  Shape shape;  // of the file's tensor, or of one of its matrices
  bool transposed = false;
  int64_t first = 0;   // row at which the first block begins
  int64_t block = 0;   // rows of a block
  int64_t stride = 0;  // rows from the beginning of a block to that of the next
  // Not 0: the first dimension of the file's tensor counts so many tensors of that shape, of which this is number `index`.
  int64_t count = 0;
  int64_t index = 0;

  Shape file_shape() const {
    if (count == 0) return shape;
    std::vector<int64_t> dims = {count};
    dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
    return Shape(dims);
  }
  bool is_one_range(int64_t rows) const noexcept { return !transposed && block == rows; }
};

// Rows of each head, if a file's tensor has only a part of them: [heads, rows, columns], or [heads, columns, rows] if it is
// transposed. The slot's shape is that of all rows.
struct HeadPart {
  int64_t first = 0;  // of a head
  int64_t rows = 0;
  bool transposed = false;
};

struct TensorSlot {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  Shape shape;       // of the whole tensor
  TensorKind kind = TensorKind::Matrix;
  SplitBy split = SplitBy::Nothing;
  int split_dim = 0;   // of the shape
  int64_t layer = -1;  // -1: not of a layer
  Tensor LayerWeights::*layer_member = nullptr;
  Tensor ModelWeights::*model_member = nullptr;
  // For a matrix, the member that holds its format.
  aa_block_format MatrixFormats::*layer_format = nullptr;
  aa_block_format ModelWeights::*model_format = nullptr;
  // If empty, the file's tensor is this one.
  std::optional<TensorSource> source = {};
  int64_t head_size = 0;  // of a tensor that is split by heads; 0: the model's head_dim
  bool adds_one = false;  // 1 is added to the file's values
  std::optional<HeadPart> part = {};
  bool divides_rows = false;  // each row of the file's matrix is divided by its length
  // If expert_member is set, the tensor is one of this expert (LayerWeights::experts), not of the layer itself.
  int64_t expert = 0;
  Tensor ExpertWeights::*expert_member = nullptr;

  bool is_embedding() const noexcept { return model_member == &ModelWeights::embedding; }
  bool is_lm_head() const noexcept { return model_member == &ModelWeights::lm_head; }
  // Returns whether a token's experts or their weights follow from the matrix, which is not quantized while it loads:
  // a small error could choose other experts.
  bool is_of_router() const noexcept {
    return layer_member == &LayerWeights::router || layer_member == &LayerWeights::shared_weight;
  }
  // Returns whether rows have to be collected from different places in the file's tensor, which means a copy.
  bool is_gathered() const noexcept { return part || (source && !source->is_one_range(shape[0])); }
  Shape file_shape() const {
    if (!part) return source ? source->file_shape() : shape;
    const int64_t heads = shape[0] / head_size, columns = shape[1];
    return part->transposed ? Shape{heads, columns, part->rows} : Shape{heads, part->rows, columns};
  }
  // weights.layers must have been sized.
  Tensor& in(ModelWeights& weights) const {
    if (expert_member != nullptr) return expert_in(weights).*expert_member;
    return layer < 0 ? weights.*model_member : weights.layers[static_cast<size_t>(layer)].*layer_member;
  }
  // Only for a matrix.
  aa_block_format& format_in(ModelWeights& weights) const {
    if (expert_member != nullptr) return expert_in(weights).formats.*layer_format;
    return layer < 0 ? weights.*model_format : weights.layers[static_cast<size_t>(layer)].formats.*layer_format;
  }

 private:
  ExpertWeights& expert_in(ModelWeights& weights) const {
    std::vector<ExpertWeights>& experts = weights.layers[static_cast<size_t>(layer)].experts;
    if (experts.size() <= static_cast<size_t>(expert)) experts.resize(static_cast<size_t>(expert) + 1);
    return experts[static_cast<size_t>(expert)];
  }
};

// Returns the range of the slot's split_dim that a rank holds, in elements; all of it if the tensor is not sharded.
Slice held_slice(const TensorSlot& slot, const ModelShard& shard, int64_t head_dim);
// Returns the shape of that part.
Shape held_shape(const TensorSlot& slot, const Slice& held);

// Returns every tensor that a checkpoint of this configuration must have, in the order of their use, without tied
// output weights. whole_rows: o and down are split by rows, see ModelShard::hidden.
std::vector<TensorSlot> decoder_tensors(const ModelConfig& config, bool whole_rows = false);

}  // namespace anyaccel::llm
