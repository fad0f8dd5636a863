// Decides how a rank holds each tensor of a model that is being loaded: in which dtype or block format, and which part of
// the file's tensor it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/safetensors.h"
#include "llm/checkpoint/packed_matrix.h"
#include "llm/model/decoder_tensors.h"
#include "llm/model/model_files.h"
#include "llm/quantize/quantize_rows.h"

namespace anyaccel {
class Accelerator;
struct BlockFormat;
namespace ops {
class Inference;
}
}  // namespace anyaccel

namespace anyaccel::llm {

// InvalidArgument, which lists the possible dtypes, if the accelerator does not compute with this one. None is allowed.
void check_computes(const Accelerator& accelerator, DType dtype);

// Returns the type of LoadOptions::quantize, without a format if that is empty. InvalidArgument for an unknown type,
// together with a dtype, or on an accelerator without ops for quantized weights.
MatrixType quantization_asked_for(const LoadOptions& options, const Accelerator& accelerator,
                                  const ops::Inference& ops);

inline bool is_quantized(const TensorView& view) { return view.format != nullptr || view.packed != nullptr; }

// Returns the block format that a quantized matrix has in its file, or to which it can be repacked without loss; null
// if there is none.
inline const BlockFormat* block_format(const TensorView& view) {
  return view.packed != nullptr ? view.packed->block_format() : view.format;
}

// Returns a range of rows of a tensor whose first dimension is `rows`.
TensorView row_slice(TensorView view, int64_t rows, const Slice& held);

class LoadPlan {
 public:
  // Chooses the model's dtype and the ranks' shards. Keeps references to all arguments but the last; `model` has its
  // configuration, group, shards and device. `wanted` is the result of quantization_asked_for().
  LoadPlan(const ModelFiles& files, const LoadOptions& options, const ops::Inference& ops, const Model& model,
           const MatrixType& wanted);

  DType dtype() const noexcept { return dtype_; }
  // Returns the shards of all ranks, with borders where blocks of quantized rows end.
  const std::vector<ModelShard>& shards() const noexcept { return shards_; }
  // Returns the formats of the matrices that are held quantized, such as "Q4_K, Q6_K", and adds notes about the memory
  // that quantized and decoded matrices take. InvalidArgument if activations in bf16 were asked for with such formats.
  std::string describe(std::vector<std::string>& notes) const;

  // Returns the dtype in which the model holds a tensor. Norms and biases are small; in fp32 they need no conversion in
  // every step.
  DType held_dtype(const TensorSlot& slot) const { return slot.kind == TensorKind::Matrix ? dtype_ : DType::F32; }

  // Returns the range of the slot's split_dim that the rank holds.
  Slice held(const TensorSlot& slot) const { return held_slice(slot, shards_[rank_], model_.config().head_dim); }
  // Returns the bytes of the file that contain this rank's part of the tensor: its rows, or all rows if the part is
  // columns. Empty if the rank holds nothing of it.
  TensorView part_to_read(const TensorSlot& slot) const;
  // Returns whether this rank's columns of a matrix are used from the mapped file, between those of the other ranks: these
  // are on the same host and use theirs, so that it has one copy of the matrix.
  bool uses_columns_in_place(const TensorSlot& slot) const;
  // Prevents the other ranks' parts from being mapped together with neighbouring pages that this rank accesses.
  void set_apart_the_rest(const TensorSlot& slot) const;

  // Returns whether the model computes directly with the blocks of a quantized matrix: the accelerator supports it, no
  // dtype was requested, and this rank's part consists of whole blocks.
  bool stays_quantized(const TensorView& view, const TensorSlot& slot) const;
  // Returns the format to which a matrix is quantized while it loads. Null if it is not quantized then:
  // LoadOptions::quantize is empty, the matrix is quantized already, no format fits its rows, or this rank would hold
  // parts of blocks.
  const BlockFormat* format_to_make(const TensorView& view, const TensorSlot& slot) const;
  // Returns the format whose numbers a matrix gets although it is held decoded, because this rank would hold parts of
  // blocks; null for other matrices. The ranks then compute with the numbers of a single process.
  const BlockFormat* format_to_round_to(const TensorView& view, const TensorSlot& slot) const;
  // Returns the dtype of the scales of a matrix that format_to_make() or format_to_round_to() names, if it gets whole
  // numbers (RowQuantization::number_scales).
  std::optional<DType> number_scales(const TensorView& view) const;
  // Returns whether the rows of a layer's queries and keys, which the file stores as pairs, keep their order: rotating
  // neighbours instead of halves then gives the same result, since keys are multiplied only with queries. Both must be
  // quantized, and nothing else may apply to single rows of a head.
  bool rotates_pairs(const TensorSlot& of) const;

 private:
  // Moves the borders between the ranks' parts of the feed-forward blocks to where blocks of the second matrix's rows
  // end: a rank would have to decode parts of blocks.
  void align_shards();
  bool holds_whole_blocks(const TensorSlot& slot, const BlockFormat& format) const;
  // Returns the format that LoadOptions::quantize gives a matrix, whichever part of it the rank holds; null if none.
  const BlockFormat* format_asked_for(const TensorView& view, const TensorSlot& slot) const;
  // Chooses the dtype that most of the matrices' bytes have, unless another is requested or needed.
  void choose_dtype();

  const ModelFiles& files_;
  const LoadOptions& options_;
  const Model& model_;
  MatrixType wanted_;  // of LoadOptions::quantize
  bool takes_blocks_;  // the accelerator computes with quantized weights
  DType dtype_ = DType::None;
  std::vector<ModelShard> shards_;
  size_t rank_;
};

}  // namespace anyaccel::llm
