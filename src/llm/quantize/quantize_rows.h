// Declares functions shared by quantizing a file and quantizing while loading.
#pragma once

#include <span>
#include <string>

#include "anyaccel/llm/safetensors.h"
#include "base/block_encode.h"
#include "llm/model/decoder_tensors.h"

namespace anyaccel::llm {

// Returns the format of that name. InvalidArgument for one that encode_blocks() cannot write, naming those it can.
const BlockFormat& quantized_type(const std::string& name);

// Returns the format for a matrix with rows of `columns` values when `wanted` was requested: that one, a finer one with
// smaller blocks if rows are not whole blocks, and at least Q6_K for the output matrix; null if no format fits.
const BlockFormat* format_of_matrix(const BlockFormat& wanted, int64_t columns, bool is_output);

// Returns the values of `view` as fp32; those of a quantized matrix (TensorView::format) are decoded.
std::vector<float> values_as_floats(const Checkpoint& checkpoint, const TensorView& view);

// CheckpointError that names the tensor if a value is NaN or infinite.
void check_finite(std::span<const float> values, const std::string& tensor);

struct QuantizedError {
  double squared_error = 0;
  double squared_values = 0;
};

// Encodes whole rows on all cores. CheckpointError that names the tensor if a value is not finite.
QuantizedError quantize_rows(const BlockFormat& format, std::span<const float> values, std::span<std::byte> blocks,
                             const std::string& tensor);

}  // namespace anyaccel::llm
