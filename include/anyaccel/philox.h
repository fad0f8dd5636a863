// Philox 4x32-10, the counter-based random number generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3" (SC 2011; Random123). The ops "random" and "sample" and the host generator all draw from it, so
// the same seed gives the same numbers on every accelerator.
#pragma once

#include <array>
#include <cstdint>

namespace anyaccel {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;

// Returns four random words for one counter value. Distinct counters with one key give independent words.
constexpr std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kPhiloxMultiplier0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kPhiloxMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// The form the ops use: a 64-bit seed and a 64-bit counter, low words first, the upper half of the counter zero.
constexpr std::array<uint32_t, 4> philox_words(uint64_t seed, uint64_t counter) noexcept {
  return philox4x32_10({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                       {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// Converts a word to a number in [0, 1): its upper 24 bits, which are exact in binary32.
constexpr float philox_unit(uint32_t word) noexcept { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace anyaccel
