// Quantizes weights as the types "int8" and "int4" do: 32 neighbouring values of a row become whole numbers of 8 or 4 bits under
// one scale. A directory that quantize_model() writes has them, and so does a model that is quantized to such a type while it loads.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "anyaccel/dtype.h"
#include "base/block_format.h"

namespace anyaccel::llm {

inline constexpr size_t number_group = 32;  // values that share a scale

// Returns the block format that represents the numbers of a type exactly: Q8_0 for "int8", Q4_0 for "int4"; null for any
// other text.
const BlockFormat* whole_number_format(std::string_view type);

// Returns the dtype in which the scales of a matrix of the dtype are stored: F16, BF16 or F32.
DType scale_dtype(DType weights);

struct NumberGroup {
  float scale = 0;  // representable in the dtype of the scales and in fp16, so that a block has it too
  std::array<int, number_group> numbers{};
};

// Returns the numbers of 32 finite values, from -8 to 7 or -128 to 127, under the scale of least squares. `weights` are those of
// encode_blocks().
NumberGroup quantize_group(const BlockFormat& format, DType scale_dtype, std::span<const float> values,
                           std::span<const float> weights);

}  // namespace anyaccel::llm
