// What quantizing a file and quantizing while loading share.
#pragma once

#include <span>
#include <string>

#include "anyaccel/llm/safetensors.h"
#include "base/block_encode.h"
#include "llm/model/decoder_tensors.h"

namespace anyaccel::llm {

// InvalidArgument for a type that encode_blocks() does not make, naming those it does.
const BlockFormat& quantized_type(const std::string& name);

// The format for a matrix with rows of `columns` values when `wanted` was asked for: that, a finer one with smaller
// blocks where rows are not whole blocks, and at least Q6_K for the output matrix; null if no format fits.
const BlockFormat* format_of_matrix(const BlockFormat& wanted, int64_t columns, bool is_output);

// Values of `view` (not quantized) as fp32.
std::vector<float> values_as_floats(const Checkpoint& checkpoint, const TensorView& view);

struct QuantizedError {
  double squared_error = 0;
  double squared_values = 0;
};

// Encodes whole rows on all cores. CheckpointError that names the tensor if a value is not finite.
QuantizedError quantize_rows(const BlockFormat& format, std::span<const float> values, std::span<std::byte> blocks,
                             const std::string& tensor);

}  // namespace anyaccel::llm
