// Computes frequencies of rotary position embeddings as in transformers' modeling_rope_utils.py (version 5): the same
// steps with the same precision, so that positions far into a context agree too.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "anyaccel/llm/model_config.h"

namespace anyaccel::llm {
namespace {

// Returns base ** (2 i / dim). The reference computes the power in single precision; its rounding differs by a unit in
// the last place between its own builds, so the nearest value is the best common answer.
float wave_length_factor(double base, int64_t i, int64_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
}

std::vector<float> plain(double base, int64_t dim) {
  std::vector<float> inv_freq(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) inv_freq[static_cast<size_t>(i)] = 1.0f / wave_length_factor(base, i, dim);
  return inv_freq;
}

// The reference computes with the length as a single precision tensor.
double dynamic_base(const ModelConfig& config, int64_t seq_len) {
  const RopeConfig& rope = config.rope;
  if (seq_len <= config.max_position_embeddings) return rope.theta;
  const auto dim = static_cast<double>(rope.rotary_dim);
  const float stretched = static_cast<float>(rope.factor) * static_cast<float>(seq_len) /
                          static_cast<float>(config.max_position_embeddings);
  const float ratio = stretched - static_cast<float>(rope.factor - 1.0);
  return static_cast<float>(rope.theta) *
         static_cast<float>(
             std::pow(static_cast<double>(ratio), static_cast<double>(static_cast<float>(dim / (dim - 2)))));
}

// Long waves are stretched by the factor, short ones are kept, and those in between are interpolated.
void scale_llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  const auto longest_kept = static_cast<float>(context / rope.high_freq_factor);
  const auto shortest_stretched = static_cast<float>(context / rope.low_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  for (float& f : inv_freq) {
    const float wave_length = static_cast<float>(2.0 * std::numbers::pi) / f;
    if (wave_length > shortest_stretched) {
      f /= factor;
    } else if (!(wave_length < longest_kept)) {
      const float smooth = (static_cast<float>(context) / wave_length - static_cast<float>(rope.low_freq_factor)) /
                           static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

// Scales by YaRN (https://arxiv.org/abs/2309.00071), with a ramp over the dimensions between stretched and kept waves.
void scale_yarn(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const int64_t dim = rope.rotary_dim;
  const auto correction_dim = [&](double rotations) {
    const auto context = static_cast<double>(rope.original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = correction_dim(rope.beta_fast);
  double high = correction_dim(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float wave = wave_length_factor(rope.theta, i, dim);
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float stretched_freq = 1.0f / (static_cast<float>(rope.factor) * wave);
    inv_freq[static_cast<size_t>(i)] = stretched_freq * (1.0f - kept) + 1.0f / wave * kept;
  }
}

// The list is for the whole sequence: a token is not rotated by the list of its own position.
void scale_longrope(const RopeConfig& rope, int64_t seq_len, std::vector<float>& inv_freq) {
  const bool is_long = seq_len > rope.original_max_position_embeddings;
  const std::vector<float>& factors = is_long ? rope.long_factor : rope.short_factor;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = 1.0f / (factors[i] * wave_length_factor(rope.theta, static_cast<int64_t>(i), rope.rotary_dim));
  }
}

// The first pairs rotate as if all did; the others do not rotate.
void scale_proportional(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto turning =
      static_cast<size_t>(std::floor(rope.partial_rotary_factor * static_cast<double>(rope.rotary_dim) / 2.0));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = i < turning ? inv_freq[i] / static_cast<float>(rope.factor) : 0.0f;
  }
}

}  // namespace

RopeFrequencies rope_inv_freq(const ModelConfig& config, int64_t seq_len) {
  const RopeConfig& rope = config.rope;
  const double base = rope.type == RopeType::Dynamic ? dynamic_base(config, seq_len) : rope.theta;
  RopeFrequencies result{plain(base, rope.rotary_dim), rope.attention_factor};
  switch (rope.type) {
    case RopeType::Default:
    case RopeType::Dynamic: break;
    case RopeType::Linear:
      for (float& f : result.inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeType::Llama3: scale_llama3(rope, result.inv_freq); break;
    case RopeType::Yarn: scale_yarn(rope, result.inv_freq); break;
    case RopeType::Longrope: scale_longrope(rope, seq_len, result.inv_freq); break;
    case RopeType::Proportional: scale_proportional(rope, result.inv_freq); break;
  }
  return result;
}

}  // namespace anyaccel::llm
