// Computes the slopes of attention with linear biases (ALiBi, Press et al. 2022).
#include <bit>
#include <cmath>

#include "anyaccel/dtype.h"
#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {

std::vector<float> alibi_slopes(const ModelConfig& config) {
  if (config.positions != Positions::Alibi) return {};
  const auto heads = static_cast<uint64_t>(config.num_attention_heads);
  const uint64_t power = std::bit_floor(heads);
  std::vector<float> slopes;
  for (uint64_t head = 0; head < heads; ++head) {
    // The heads after a power of two take every second slope of the next power.
    const double exponent = head < power
                                ? -8.0 * static_cast<double>(head + 1) / static_cast<double>(power)
                                : -8.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(2 * power);
    auto slope = static_cast<float>(std::exp2(exponent));
    if (config.rounds_alibi_slopes) slope = bf16_to_float(float_to_bf16(slope));
    slopes.push_back(slope * config.alibi_scale);
  }
  return slopes;
}

}  // namespace anyaccel::llm
