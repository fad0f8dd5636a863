// Encodes numbers as blocks of quantized weights (base/block_format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/block_format.h"

namespace anyaccel {

// True for the formats that encode_blocks() supports: all except TQ1_0 and TQ2_0.
bool can_encode(const BlockFormat& format) noexcept;

// Encodes whole blocks: values.size() is a multiple of format.values, and `out` has format.bytes for each block. The
// scales of a block are those, among a few candidates around the largest value, with the least sum of squared errors of
// the decoded block. Values must be finite; values whose scale would exceed fp16 are clamped. Any thread.
// `weights` is empty, or has a factor above 0 for each value, by which its squared error is multiplied.
void encode_blocks(const BlockFormat& format, std::span<const float> values, std::span<std::byte> out,
                   std::span<const float> weights = {});

// Writes a block of Q4_0 or Q8_0 from its 32 numbers (-8 to 7, or -128 to 127) and the bits of its scale, a half.
void encode_numbers(const BlockFormat& format, uint16_t scale, std::span<const int> numbers, std::byte* out);

// Returns the format of a name such as "q4_0" or "Q4_0"; null for any other text.
const BlockFormat* find_block_format(std::string_view name) noexcept;

}  // namespace anyaccel
