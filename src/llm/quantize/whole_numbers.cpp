// Implements whole_numbers.h.
#include "llm/quantize/whole_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/block_encode.h"

namespace anyaccel::llm {
namespace {

// Q8_0 has more bytes than values.
bool has_eight_bits(const BlockFormat& format) { return format.bytes > format.values; }

float rounded_scale(float scale, DType dtype) {
  const float stored = dtype == DType::BF16 ? bf16_to_float(float_to_bf16(scale)) : scale;
  return fp16_to_float(float_to_fp16(std::clamp(stored, -65504.0F, 65504.0F)));
}

}  // namespace

const BlockFormat* whole_number_format(std::string_view type) {
  if (type == "int8") return find_block_format(std::string_view("q8_0"));
  if (type == "int4") return find_block_format(std::string_view("q4_0"));
  return nullptr;
}

DType scale_dtype(DType weights) { return weights == DType::BF16 || weights == DType::F16 ? weights : DType::F32; }

// The numbers that encode_blocks() finds have a scale of least squares, which is rounded, and then the numbers are rounded again.
NumberGroup quantize_group(const BlockFormat& format, DType scale_dtype, std::span<const float> values,
                           std::span<const float> weights) {
  std::array<std::byte, number_group + 2> block{};
  const std::span<std::byte> bytes = std::span(block).first(format.bytes);
  std::array<float, number_group> decoded{};
  encode_blocks(format, values, bytes, weights);
  decode_blocks(format, bytes, decoded);
  double with_values = 0;
  double squares = 0;
  for (size_t i = 0; i < number_group; ++i) {
    const double weighted = static_cast<double>(weights.empty() ? 1.0F : weights[i]) * static_cast<double>(decoded[i]);
    with_values += weighted * static_cast<double>(values[i]);
    squares += weighted * static_cast<double>(decoded[i]);
  }
  uint16_t half = 0;
  std::memcpy(&half, block.data(), sizeof half);
  const double better = squares > 0 ? with_values / squares : 1.0;
  NumberGroup group;
  group.scale = rounded_scale(static_cast<float>(better * static_cast<double>(fp16_to_float(half))), scale_dtype);
  const float most = has_eight_bits(format) ? 127.0F : 7.0F;
  for (size_t i = 0; i < number_group; ++i) {
    const float number = group.scale == 0 ? 0.0F : std::nearbyint(values[i] / group.scale);
    group.numbers[i] = static_cast<int>(std::clamp(number, -most - 1, most));
  }
  return group;
}

}  // namespace anyaccel::llm
