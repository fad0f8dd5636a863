// Shared by the tests of the attention builders: inputs that tools/make_attention_values.py knows too, comparisons, and
// finite differences in double precision.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "ops/attention_torch_values.h"
#include "ops/quant_test_support.h"

namespace anyaccel::testing {

using Doubles = std::vector<double>;

// Input number n of tools/make_attention_values.py.
inline std::vector<float> stored_input(int64_t n, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t mixed = i * 7919 + n * 104729 + i * i % 8191 * 31;
    numbers.push_back(static_cast<float>(static_cast<double>(mixed % 2003 - 1001) / 1001));
  }
  return numbers;
}

// The 2-norm and 24 elements, as the script stores them.
inline void expect_stored(const Tensor& found, std::span<const double> stored, double tolerance,
                          const std::string& what) {
  const Doubles values = found.to_vector<double>();
  double norm = 0;
  for (const double v : values) norm += v * v;
  EXPECT_NEAR(std::sqrt(norm), stored[0], tolerance * stored[0]) << what;
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(values[i * values.size() / 24], stored[i + 1], tolerance) << what << ", element " << i << " of 24";
  }
}

inline void expect_close(const Tensor& found, const Doubles& expected, double tolerance, const std::string& what) {
  const Doubles values = found.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::isnan(expected[i])
                    ? std::isnan(values[i])
                    : std::fabs(values[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i])))
        << what << "[" << i << "] is " << values[i] << ", not " << expected[i];
  }
}

// The numbers that a tensor of that dtype keeps.
inline Doubles kept_numbers(const std::vector<float>& numbers, DType dtype) {
  Doubles kept_values;
  for (const float x : numbers) kept_values.push_back(kept(x, dtype));
  return kept_values;
}

// The derivative of `loss` by each element of x, by central differences.
inline Doubles differences(Doubles& x, const std::function<double()>& loss) {
  constexpr double step = 1e-5;
  Doubles gradient;
  for (double& element : x) {
    const double before = element;
    element = before + step;
    const double above = loss();
    element = before - step;
    gradient.push_back((above - loss()) / (2 * step));
    element = before;
  }
  return gradient;
}

inline double weighted_sum(const Doubles& values, const Doubles& weights) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

inline double tolerance_of(DType dtype) { return dtype == DType::F32 ? 2e-5 : dtype == DType::F16 ? 4e-3 : 3e-2; }

}  // namespace anyaccel::testing
