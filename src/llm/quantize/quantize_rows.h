// Declares functions shared by quantizing a file and quantizing while loading.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/safetensors.h"
#include "base/block_encode.h"
#include "llm/model/decoder_tensors.h"

namespace anyaccel::llm {

// The type to which the matrices of a model are quantized.
struct MatrixType {
  const BlockFormat* format = nullptr;
  // Of "q4_k_m" and "q5_k_m": the matrices whose errors matter most get more bits, as in files of these names by llama.cpp.
  bool mixed = false;
  // Of "int8" and "int4": the matrices of layers become whole numbers, as in a directory that quantize_model() writes
  // (whole_numbers.h), and all others stay as they are.
  bool whole_numbers = false;
};

// Returns the type of the matrices in a GGUF file: a block format, or F32, F16 or BF16 without one. InvalidArgument for
// an unknown one, naming those that there are.
struct FileType {
  const BlockFormat* format = nullptr;
  bool mixed = false;         // as above
  DType dtype = DType::None;  // if there is no format
};
FileType type_to_write(const std::string& name);

// Returns the type for LoadOptions::quantize. InvalidArgument for an unknown one, naming those that there are.
MatrixType type_to_load(const std::string& name);

// Returns the format for the matrix of a slot, with rows of `columns` values, when `wanted` was requested: that one, a finer
// one with smaller blocks if rows are not whole blocks, at least Q6_K for the output matrix, and more bits for some matrices of a
// mixed type; null if no format fits. The slots of one tensor of a file get the same one.
const BlockFormat* format_of_matrix(const BlockFormat& wanted, bool mixed, const TensorSlot& slot, int64_t columns,
                                    const ModelConfig& config);

// Returns the values of `view` as fp32; those of a quantized matrix (TensorView::format) are decoded.
std::vector<float> values_as_floats(const Checkpoint& checkpoint, const TensorView& view);

// CheckpointError that names the tensor if a value is NaN or infinite.
void check_finite(std::span<const float> values, const std::string& tensor);

// Sums over weights. The weighted ones count each weight as its column's importance says.
struct QuantizedError {
  double squared_error = 0;
  double squared_values = 0;
  double weighted_error = 0;
  double weighted_values = 0;

  // Adds values that became `found`. `weights` are empty if all count alike.
  void add(std::span<const float> values, std::span<const float> found, std::span<const float> weights);
  QuantizedError& operator+=(const QuantizedError& other);
  // Returns the root of the mean squared error over the root of the mean square.
  double relative() const;
  double relative_weighted() const;
};

// The way to quantize the rows of one matrix.
struct RowQuantization {
  const BlockFormat& format;
  // Set: the blocks have whole numbers under scales in this dtype (whole_numbers.h).
  std::optional<DType> number_scales;
  // A factor above 0 for each column, by which squared errors count; empty: all count alike.
  std::span<const float> importance;
};

// Encodes whole rows on all cores. CheckpointError that names the tensor if a value is not finite.
QuantizedError quantize_rows(const RowQuantization& how, std::span<const float> values, std::span<std::byte> blocks,
                             const std::string& tensor);

}  // namespace anyaccel::llm
