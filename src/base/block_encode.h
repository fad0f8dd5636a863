// Encodes numbers as blocks of quantized weights (base/block_format.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/block_format.h"

namespace anyaccel {

// True for the formats that encode_blocks() supports: all except TQ1_0 and TQ2_0.
bool can_encode(const BlockFormat& format) noexcept;

// Encodes whole blocks: values.size() is a multiple of format.values, and `out` has format.bytes for each block. The
// scales of a block are those, among a few candidates around the largest value, with the least sum of squared errors of
// the decoded block. Values must be finite; values whose scale would exceed fp16 are clamped. Any thread.
void encode_blocks(const BlockFormat& format, std::span<const float> values, std::span<std::byte> out);

// Returns the format of a name such as "q4_0" or "Q4_0"; null for any other text.
const BlockFormat* find_block_format(std::string_view name) noexcept;

}  // namespace anyaccel
