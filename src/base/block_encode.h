// Makes blocks of quantized weights (base/block_format.h) from numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/block_format.h"

namespace anyaccel {

// True for the formats that encode_blocks() makes: all but TQ1_0 and TQ2_0.
bool can_encode(const BlockFormat& format) noexcept;

// Encodes whole blocks: values.size() is a multiple of format.values, and `out` has format.bytes for each block. The
// scales of a block are those, among a few candidates around the largest value, with the least sum of squared errors of
// what the block decodes to. Values must be finite; those whose scale is beyond fp16 are limited. Any thread.
void encode_blocks(const BlockFormat& format, std::span<const float> values, std::span<std::byte> out);

// "q4_0" or "Q4_0" to the format; null for another word.
const BlockFormat* find_block_format(std::string_view name) noexcept;

}  // namespace anyaccel
