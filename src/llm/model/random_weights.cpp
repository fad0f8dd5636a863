// Generates normal random weights with Philox 4x32-10 (anyaccel/philox.h) for several counters at once, and a table of
// normal quantiles: a look-up instead of a logarithm and a cosine for each value.
#include "llm/model/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "anyaccel/philox.h"

namespace anyaccel::llm {

namespace {

constexpr size_t choices = 65536;
// Number of counters that are processed together, so that the compiler can use vector instructions.
constexpr size_t lanes = 16;

using Words = std::array<std::array<uint32_t, lanes>, 4>;

// Runs philox4x32_10() of anyaccel/philox.h with the counters {first_counter + i, stream}, each 64 bits with the low
// word first.
Words philox_lanes(uint64_t seed, uint64_t stream, uint64_t first_counter) {
  Words words;
  for (size_t i = 0; i < lanes; ++i) {
    words[0][i] = static_cast<uint32_t>(first_counter + i);
    words[1][i] = static_cast<uint32_t>((first_counter + i) >> 32);
    words[2][i] = static_cast<uint32_t>(stream);
    words[3][i] = static_cast<uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < lanes; ++i) {
      const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * words[0][i];
      const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * words[2][i];
      words[0][i] = static_cast<uint32_t>(product1 >> 32) ^ words[1][i] ^ key0;
      words[2][i] = static_cast<uint32_t>(product0 >> 32) ^ words[3][i] ^ key1;
      words[1][i] = static_cast<uint32_t>(product1);
      words[3][i] = static_cast<uint32_t>(product0);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return words;
}

// Returns the x for which a standard normal variable is below x with probability p, for p <= 1/2, by Newton's method.
double normal_quantile(double p) {
  double x = -std::sqrt(std::max(0.0, -2.0 * std::log(2.0 * p)));  // beyond the root, where Newton's steps are safe
  for (int i = 0; i < 60; ++i) {
    const double error = 0.5 * std::erfc(-x / std::numbers::sqrt2) - p;
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    // Halley's correction, which keeps the far tail from overshooting.
    const double newton = error / density;
    const double change = newton / (1.0 + 0.5 * x * newton);
    x -= change;
    if (std::abs(change) < 1e-13) break;
  }
  return x;
}

template <class T>
void look_up(T* out, const Words& words, const T* table, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = words[(i / 2) % 4][i / 8];
    out[i] = table[i % 2 == 0 ? word & 0xffffu : word >> 16];
  }
}

}  // namespace

RandomWeights::RandomWeights(uint64_t seed, DType dtype, float standard_deviation)
    : seed_(seed), element_size_(dtype_size(dtype)) {
  std::vector<float> values(choices);
  for (size_t i = 0; i < choices / 2; ++i) {
    const double quantile = normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(choices));
    values[i] = static_cast<float>(quantile * static_cast<double>(standard_deviation));
    values[choices - 1 - i] = -values[i];
  }
  if (dtype == DType::F32) {
    table32_ = std::move(values);
    return;
  }
  table16_.reserve(choices);
  for (const float value : values) {
    table16_.push_back(dtype == DType::BF16 ? float_to_bf16(value) : float_to_fp16(value));
  }
}

void RandomWeights::fill(void* destination, uint64_t stream, uint64_t first, size_t count) const {
  auto* bytes = static_cast<unsigned char*>(destination);
  uint64_t counter = first / values_per_counter;
  while (count > 0) {
    const size_t now = std::min(count, lanes * values_per_counter);
    const Words words = philox_lanes(seed_, stream, counter);
    if (element_size_ == sizeof(float)) {
      look_up(reinterpret_cast<float*>(bytes), words, table32_.data(), now);
    } else {
      look_up(reinterpret_cast<uint16_t*>(bytes), words, table16_.data(), now);
    }
    bytes += now * element_size_;
    counter += lanes;
    count -= now;
  }
}

}  // namespace anyaccel::llm
