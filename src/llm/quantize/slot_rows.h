// Reads rows of a model's tensors from its files, whatever their layout is there.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "anyaccel/llm/model.h"
#include "llm/model/model_files.h"

namespace anyaccel::llm {

// The rows of one tensor, in the order that a model computes with; a tensor of one dimension has one value in a row. Holds
// what is read for any row: a matrix that the file has transposed, or the numbers of one that is quantized in a directory.
class SlotRows {
 public:
  // Keeps references. InvalidArgument for a slot that is a part of each head's rows (TensorSlot::part). CheckpointError.
  SlotRows(const ModelFiles& files, const TensorSlot& slot);
  // Returns rows as fp32; those that are quantized are decoded. One is added to weights of norms that the files hold less
  // one.
  std::vector<float> read(const Slice& rows) const;
  // Writes the blocks of rows that are quantized in a directory (PackedMatrix::block_format).
  void read_blocks(const Slice& rows, std::span<std::byte> blocks) const;

 private:
  std::vector<float> file_rows(int64_t all, const Slice& rows) const;
  std::vector<float> gathered(const Slice& rows) const;

  const ModelFiles& files_;
  const TensorSlot& slot_;
  TensorView view_;
  std::unique_ptr<PackedValues> packed_;
  std::vector<float> transposed_;  // the file's matrix
};

// Returns the head parts of `slot`, which a file has as a tensor of their own: [heads, rows, columns], or
// [heads, columns, rows] if they are transposed. `whole` are all rows.
std::vector<float> head_parts(const TensorSlot& slot, const std::vector<float>& whole);

}  // namespace anyaccel::llm
