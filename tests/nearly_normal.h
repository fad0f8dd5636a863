// Random numbers for tests that fill large tensors. std::normal_distribution takes a logarithm and a root for every two
// numbers, which was a fifth of the time of such tests, and more under sanitizers.
#pragma once

#include <cstdint>

namespace anyaccel::testing {

// Returns the sum of four uniform numbers: nearly a normal distribution of mean 0 and deviation 1, within 3.47 of 0.
template <class Engine>
double nearly_normal(Engine& engine) {
  static_assert(Engine::word_size == 32 || Engine::word_size == 64);
  uint64_t bits = engine();
  if constexpr (Engine::word_size == 32) bits = bits << 32 | engine();
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<double>(sum) - 2 * 65535.0) / 37837.2;  // 65536 / sqrt(12) is the deviation of one of the four
}

}  // namespace anyaccel::testing
