// Formats of quantized weights. A block holds a fixed number of consecutive values of a row as small integers, with the
// scales that turn them into numbers. The layouts are those of ggml (ggml-common.h and ggml-quants.c of
// https://github.com/ggml-org/ggml), which GGUF files use; include/anyaccel/abi/ops.h describes them (aa_block_format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace anyaccel {

struct BlockFormat {
  std::string_view name;  // "Q4_K"
  uint32_t number = 0;    // in GGUF files; an aa_block_format
  uint32_t values = 0;    // of a block
  uint32_t bytes = 0;     // of a block; blocks follow each other without padding, at any address
  void (*decode)(const uint8_t* block, float* values) = nullptr;
};

std::span<const BlockFormat> block_formats() noexcept;
// Returns null for any other number.
const BlockFormat* find_block_format(uint32_t number) noexcept;

// Decodes whole blocks: blocks.size() is a multiple of format.bytes, and `out` has format.values for each block. Every
// result has the bits that ggml's own decoder gives, whatever the bytes are: products are exact in fp32, and formats
// with a minimum round once. Any thread.
void decode_blocks(const BlockFormat& format, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace anyaccel
