// Generates normally distributed weights as fast as a disk can write them, in any float dtype, the same on every
// machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "anyaccel/dtype.h"

namespace anyaccel::llm {

class RandomWeights {
 public:
  // Values have mean 0 and the given standard deviation; dtype BF16, F16 or F32.
  RandomWeights(uint64_t seed, DType dtype, float standard_deviation);

  // Writes values [first, first + count) of an endless sequence; `stream` chooses the sequence. `first` is a multiple
  // of values_per_counter. `destination` holds count elements of the dtype.
  void fill(void* destination, uint64_t stream, uint64_t first, size_t count) const;

  // One Philox counter yields four 32-bit words, and each half of a word selects a value.
  static constexpr uint64_t values_per_counter = 8;

 private:
  uint64_t seed_;
  size_t element_size_;
  // The value for each of the 65536 equally likely choices: quantiles of the normal distribution, already in the dtype.
  std::vector<uint16_t> table16_;
  std::vector<float> table32_;
};

}  // namespace anyaccel::llm
