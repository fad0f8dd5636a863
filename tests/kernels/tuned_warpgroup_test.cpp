// The primitives of kernels/cuda/warpgroup.h as the simulators execute them on the host, against their definitions, and the
// mistakes that are found. The kernels are tests/kernels/cuda/warpgroup_test.cu.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

constexpr std::size_t rows = 64, depth = 128, columns = 128;

struct Matrix {
  std::vector<std::uint16_t> bits;
  std::vector<double> values;
};

Matrix random_matrix(std::size_t count, bool f16, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix matrix;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    matrix.bits.push_back(f16 ? sim::f16_from_float(value) : sim::bf16_from_float(value));
    float wide;
    const std::uint32_t word = static_cast<std::uint32_t>(matrix.bits.back()) << 16;
    std::memcpy(&wide, &word, sizeof wide);
    matrix.values.push_back(f16 ? sim::float_from_f16(matrix.bits.back()) : wide);
  }
  return matrix;
}

struct Product {
  std::string problem;
  std::vector<float> d;
};
Product run(const std::string& name, const Matrix& a, const Matrix& b, std::int32_t mistake = 0) {
  DeviceArray da(a.bits), db(b.bits), d(std::vector<float>(rows * columns, 1.0f));
  Product product;
  const TunedShape shape = {.block = 128, .shared_bytes = 1024 + (rows + depth) * 256};
  product.problem = run_tuned(name, shape, {out(d), in(da), in(db), number(mistake)});
  product.d = d.read<float>();
  return product;
}

TEST(TunedWarpgroup, ProductsByDescriptors) {
  for (const bool f16 : {false, true}) {
    const Matrix a = random_matrix(rows * depth, f16, 1), b = random_matrix(depth * columns, f16, 2);
    for (const bool by_rows : {true, false}) {
      const Product product =
          run(std::string(by_rows ? "group_rows_" : "group_columns_") + (f16 ? "f16" : "bf16"), a, b);
      ASSERT_EQ(product.problem, "");
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
          double expected = by_rows ? 0 : 1;  // columns are added to what was there
          for (std::size_t k = 0; k < depth; ++k) {
            expected += a.values[i * depth + k] * b.values[by_rows ? j * depth + k : k * columns + j];
          }
          ASSERT_NEAR(product.d[i * columns + j], expected, 1e-4) << by_rows << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(TunedWarpgroup, AnEarlyLookAtAProductShows) {
  const Matrix a = random_matrix(rows * depth, false, 3), b = random_matrix(depth * columns, false, 4);
  const Product early = run("group_rows_bf16", a, b, 1);
  EXPECT_EQ(early.problem, "");
  for (const float value : early.d) EXPECT_TRUE(std::isnan(value));
  const Product right = run("group_columns_bf16", a, b), reused = run("group_columns_bf16", a, b, 1);
  EXPECT_NE(right.d, reused.d);
}

std::string hand_over(std::int32_t mistake, std::vector<std::int32_t>* result = nullptr) {
  constexpr std::int32_t count = 7;
  std::vector<std::int32_t> numbers(count * 32);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i * i % 101);
  DeviceArray x(numbers), y(32 * 4);
  std::string problem = run_tuned("group_phases", {.block = 96}, {out(y), in(x), number(count), number(mistake)});
  const auto got = y.read<std::int32_t>();
  if (result == nullptr) return problem;
  for (std::size_t lane = 0; lane < 32; ++lane) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += numbers[i * 32 + lane] * static_cast<std::int32_t>(i + 1);
    result->push_back(2 * sum - got[31 - lane]);
  }
  return problem;
}

TEST(TunedWarpgroup, PhasesAndBarriersOfSomeWarps) {
  std::vector<std::int32_t> differences;
  EXPECT_EQ(hand_over(0, &differences), "");
  EXPECT_EQ(differences, std::vector<std::int32_t>(32, 0));
}

TEST(TunedWarpgroup, MistakesAreFound) {
  EXPECT_NE(hand_over(1).find("64 wait at barriers of some items"), std::string::npos) << hand_over(1);
  std::vector<std::int32_t> differences;
  EXPECT_TRUE(hand_over(2, &differences) != "" || differences != std::vector<std::int32_t>(32, 0));
  EXPECT_NE(hand_over(3).find("32 wait at barriers of some items"), std::string::npos) << hand_over(3);
  EXPECT_NE(hand_over(4).find("it ends while products run"), std::string::npos) << hand_over(4);
}

}  // namespace
}  // namespace anyaccel::testing
