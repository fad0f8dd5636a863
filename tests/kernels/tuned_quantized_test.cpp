// The kernels of kernels/cuda/decode_quantized.cu on the host, against sums in double of the weights that the CPU's plain decoder
// gives: each format, numbers of rows, element types, odd sizes, gaps between rows, biases and residuals.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "base/block_format.h"
#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

using aa_i32 = int32_t;
using aa_i64 = int64_t;
#include "kernels/cuda/quantized_arguments.h"

enum Type : int32_t { none_type = 0, F16 = 7, BF16 = 8, F32 = 9 };
int64_t size_of(Type type) { return type == F32 ? 4 : 2; }

Type random_type(Random& random) { return static_cast<Type>(random.integer(F16, F32)); }

// A matrix of floats of a type whose rows lie `row` elements apart.
class Matrix {
 public:
  Matrix() : array_(std::size_t{0}) {}
  Matrix(Type type, int64_t rows, int64_t columns, int64_t gap)
      : type_(type), row_(columns + gap), array_(static_cast<std::size_t>(rows * row_ * size_of(type))) {}
  Matrix& fill(Random& random, int64_t rows) {
    for (int64_t i = 0; i < rows * row_; ++i) put(i, random.normal());
    return *this;
  }
  double get(int64_t i, int64_t j) { return take(i * row_ + j); }
  bool is_there() const { return type_ != none_type; }
  Type type() const { return type_; }
  int64_t row() const { return row_; }
  KernelArgument reads() { return is_there() ? in(array_) : none(); }
  KernelArgument writes() { return out(array_); }

 private:
  void put(int64_t at, float v) {
    const std::uint16_t half = type_ == F16 ? sim::f16_from_float(v) : sim::bf16_from_float(v);
    std::memcpy(array_.data() + at * size_of(type_), type_ == F32 ? static_cast<const void*>(&v) : &half,
                static_cast<std::size_t>(size_of(type_)));
  }
  double take(int64_t at) {
    if (type_ == F32) {
      float v = 0;
      std::memcpy(&v, array_.data() + at * 4, 4);
      return static_cast<double>(v);
    }
    std::uint16_t half = 0;
    std::memcpy(&half, array_.data() + at * 2, 2);
    if (type_ == F16) return static_cast<double>(sim::float_from_f16(half));
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float v = 0;
    std::memcpy(&v, &bits, 4);
    return static_cast<double>(v);
  }

  Type type_ = none_type;
  int64_t row_ = 0;
  DeviceArray array_;
};

struct Format {
  uint32_t number;
  const char* name;
};

class DecodeQuantized : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, DecodeQuantized,
                         ::testing::Values(Format{AA_BLOCK_Q4_0, "q4_0"}, Format{AA_BLOCK_Q8_0, "q8_0"},
                                           Format{AA_BLOCK_Q4_K, "q4_k"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DecodeQuantized, AgreesWithDecodedWeights) {
  const BlockFormat& format = *find_block_format(GetParam().number);
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t m = random.chance(0.4) ? 1 : random.integer(1, AA_QUANTIZED_ROWS);
    const int64_t n = random.integer(1, random.chance(0.3) ? 300 : 40), k = 256 * random.integer(1, 11);
    // Rows of weights from random bytes with finite scales of both signs, and bytes between the rows that count for nothing.
    const int64_t row_bytes = k / format.values * format.bytes, gap = 16 * random.integer(0, 2);
    std::vector<std::byte> bytes(static_cast<size_t>(n * (row_bytes + gap)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.integer(0, 255));
    std::vector<float> values(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n; ++i) {
      std::byte* row = bytes.data() + i * (row_bytes + gap);
      for (int64_t at = 0; at < row_bytes; at += format.bytes) {
        row[at + 1] &= std::byte{0xb3};  // scales below 1
        if (format.number == AA_BLOCK_Q4_K) row[at + 3] &= std::byte{0xb3};
      }
      decode_blocks(format, {row, static_cast<size_t>(row_bytes)},
                    std::span(values).subspan(static_cast<size_t>(i * k), static_cast<size_t>(k)));
    }
    DeviceArray w(bytes);
    Matrix x(random_type(random), m, k, 4 * random.integer(0, 2));
    x.fill(random, m);
    Matrix out(random_type(random), m, n, random.integer(0, 3)), bias, residual;
    if (random.chance(0.5)) {
      bias = Matrix(random_type(random), 1, n, 0);
      bias.fill(random, 1);
    }
    const bool in_place = random.chance(0.3);
    if (in_place || random.chance(0.5)) {
      residual = Matrix(out.type(), m, n, out.row() - n);
      residual.fill(random, m);
    }
    if (in_place) out = residual;
    const aa_quantized_decode a{.x_row = x.row() * size_of(x.type()),
                                .w_row = row_bytes + gap,
                                .out_row = out.row(),
                                .out_inner = 1,
                                .bias_inner = 1,
                                .residual_row = residual.row(),
                                .residual_inner = 1,
                                .m = static_cast<int32_t>(m),
                                .n = static_cast<int32_t>(n),
                                .pieces = static_cast<int32_t>(k / AA_QUANTIZED_PIECE),
                                .x_dtype = x.type(),
                                .out_dtype = out.type(),
                                .bias_dtype = bias.type(),
                                .residual_dtype = residual.type(),
                                .early = random.chance(0.5)};
    const int64_t rows = m <= 2 ? m : m <= 4 ? 4 : AA_QUANTIZED_ROWS;
    ASSERT_EQ(run_tuned(std::string("decode_quantized_") + GetParam().name + "_" + std::to_string(rows),
                        {.grid = {static_cast<uint32_t>(random.integer(1, 3)), 1, 1},
                         .block = static_cast<int>(AA_QUANTIZED_THREADS(rows)),
                         .shared_bytes = static_cast<std::size_t>(AA_QUANTIZED_SHARED(GetParam().number)),
                         .overlaps_previous = true},
                        {x.reads(), out.writes(), a.early != 0 ? weights(w) : in(w), bias.reads(),
                         in_place ? out.writes() : residual.reads(), number(a)}),
              "");
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double term = x.get(i, l) * static_cast<double>(values[static_cast<size_t>(j * k + l)]);
          sum += term;
          size += std::fabs(term);
        }
        // What a minimum takes off is part of the error: its numbers are larger than the decoded values.
        if (format.number == AA_BLOCK_Q4_K) size *= 4;
        if (bias.is_there()) sum += bias.get(0, j);
        if (residual.is_there()) sum += residual.get(i, j);
        const double unit = std::ldexp(1.01, out.type() == F32 ? -24 : out.type() == BF16 ? -8 : -11);
        if (out.type() == F16 && std::fabs(sum) > 60000) continue;
        ASSERT_NEAR(out.get(i, j), sum, 4e-6 * size + unit * std::fabs(sum) + 1e-6)
            << m << " rows, row " << i << ", column " << j << " of " << n << ", k " << k;
      }
    }
  }
}

}  // namespace
}  // namespace anyaccel::testing
