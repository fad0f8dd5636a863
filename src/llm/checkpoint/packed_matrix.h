// Reads the matrices of quantized safetensors directories, where several tensors together define the weights of one
// linear layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/llm/safetensors.h"
#include "base/block_format.h"
#include "llm/config/weight_quantization.h"

namespace anyaccel::llm {

// The data of a packed matrix in memory, ready to be decoded.
class PackedValues;

// The rows of a matrix among those of the file's tensors, which hold several matrices.
struct PackedRows {
  int64_t matrices = 0;  // of the tensors' first dimension; 0: they hold one matrix
  int64_t matrix = 0;    // the number of the one whose rows these are
  int64_t rows = 0;      // of each
  int64_t first = 0, step = 1;
};

class PackedMatrix {
 public:
  // Finds the matrix of the layer `module` ("model.layers.0.self_attn.q_proj") with `rows` outputs and `columns`
  // inputs; null if the checkpoint has no quantized tensors of that name. CheckpointError, naming the tensor, for a
  // missing part, a shape or dtype that does not fit, or a permutation with groups that do not exist. If `place` names
  // several matrices, which only MXFP4 has, their tensors are `module` with "_blocks" and "_scales" after it.
  static std::unique_ptr<PackedMatrix> find(const Checkpoint& checkpoint, const std::string& module,
                                            const WeightQuantization& how, int64_t rows, int64_t columns,
                                            const PackedRows& place = {});

  int64_t rows() const noexcept { return rows_; }
  int64_t columns() const noexcept { return columns_; }
  // The size of its tensors in the files.
  uint64_t bytes() const noexcept { return bytes_; }
  // The dtype that represents decoded values exactly: that of the scales, to which these formats define a weight to be
  // rounded.
  DType dtype() const noexcept { return dtype_; }
  // The format whose blocks represent (q - zero) * scale exactly, without that rounding; null if there is none.
  const BlockFormat* block_format() const noexcept { return block_format_; }
  // The names of its tensors.
  std::vector<std::string> tensors() const;

  // Reads the tensors. CheckpointError for a scale that is NaN or infinite.
  std::unique_ptr<PackedValues> read(const Checkpoint& checkpoint) const;

 private:
  friend class PackedValues;
  struct Part {
    std::string name;
    const TensorView* view = nullptr;  // null: there is no such tensor
  };

  PackedMatrix(const WeightQuantization& how, std::string module, int64_t rows, int64_t columns)
      : how_(how), module_(std::move(module)), rows_(rows), columns_(columns) {}
  Part part(const Checkpoint& checkpoint, const char* suffix);
  const TensorView& expect(const Part& part, std::initializer_list<DType> dtypes, std::vector<int64_t> shape) const;
  void find_gptq(const Checkpoint& checkpoint);
  void find_awq(const Checkpoint& checkpoint);
  void find_compressed(const Checkpoint& checkpoint);
  void find_float8(const Checkpoint& checkpoint);
  void find_mxfloat4(const Checkpoint& checkpoint);
  void find_stacked_mxfloat4(const Checkpoint& checkpoint);
  // Reads everything except the packed numbers.
  std::unique_ptr<PackedValues> read_scales(const Checkpoint& checkpoint) const;
  void set_scales(const Part& scales, int64_t row_stride, int64_t group_stride);
  void choose_block_format(const Checkpoint& checkpoint);
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const;

  const WeightQuantization& how_;
  std::string module_;
  int64_t rows_;
  int64_t columns_;
  int64_t groups_ = 1;
  int64_t group_ = 0;  // columns of a group
  uint64_t bytes_ = 0;
  DType dtype_ = DType::F32;
  const BlockFormat* block_format_ = nullptr;
  Part values_, scales_, zeros_, order_;
  PackedRows place_;
  TensorView own_values_, own_scales_;  // of one matrix of several
  // The scale of row n and group g is number n * row_stride_ + g * group_stride_. For Float8 with blocks, n is the row
  // of blocks.
  int64_t row_stride_ = 0;
  int64_t group_stride_ = 0;
};

class PackedValues {
 public:
  // Writes the values of whole rows, as the definition rounds them. Any thread.
  void decode(int64_t first_row, int64_t count, float* out) const;
  // Writes the blocks of whole rows in the matrix's block_format(), which is not null. Any thread.
  void encode(int64_t first_row, int64_t count, std::byte* out) const;

 private:
  friend class PackedMatrix;
  explicit PackedValues(const PackedMatrix& matrix) : matrix_(matrix) {}
  // Returns the stored integer minus the zero point.
  int quantity(int64_t row, int64_t column) const;
  int zero(int64_t row, int64_t group) const;
  float scale(int64_t row, int64_t column) const;
  // Returns the row of the file's matrix.
  int64_t stored_row(int64_t row) const { return matrix_.place_.first + row * matrix_.place_.step; }

  const PackedMatrix& matrix_;
  std::vector<std::byte> values_;
  std::vector<float> scales_;
  std::vector<int16_t> zeros_;     // [row][group]; empty: `middle_` for all
  std::vector<int32_t> group_of_;  // of each column
  int middle_ = 0;
};

}  // namespace anyaccel::llm
