// The kernels of kernels/cuda/decode_quantized.cu and decode_tiles_linear.cu and decode_tiles_gated.cu on the host, against sums in
// double of the weights that the CPU's plain decoder gives, or of weights in bf16: each format, numbers of rows, element types, odd
// sizes, gaps between rows, biases and residuals. (decode_tiles_qkv.cu is tested with the fused ops, on the simulated device.)
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
#include "kernels/cuda/decode_arguments.h"
#include "kernels/cuda/decode_tiles_arguments.h"
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
  KernelArgument reads_early(bool early) { return early ? weights(array_) : reads(); }
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
                                           Format{AA_BLOCK_Q4_K, "q4_k"}, Format{AA_BLOCK_Q6_K, "q6_k"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Rows of weights from random bytes with finite scales of both signs, and bytes between the rows that count for nothing.
class RandomBlocks {
 public:
  RandomBlocks(Random& random, const BlockFormat& format, int64_t n, int64_t k)
      : k_(k),
        row_(k / format.values * format.bytes +
             (format.number == AA_BLOCK_Q6_K ? 2 * random.integer(0, 8) : 16 * random.integer(0, 2))),
        values_(static_cast<size_t>(n * k)) {
    const int64_t row_bytes = k / format.values * format.bytes;
    std::vector<std::byte> bytes(static_cast<size_t>(n * row_));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.integer(0, 255));
    for (int64_t i = 0; i < n; ++i) {
      std::byte* row = bytes.data() + i * row_;
      for (int64_t at = 0; at < row_bytes; at += format.bytes) {
        row[at + (format.number == AA_BLOCK_Q6_K ? 209 : 1)] &= std::byte{0xb3};  // scales below 1
        if (format.number == AA_BLOCK_Q4_K) row[at + 3] &= std::byte{0xb3};
      }
      decode_blocks(format, {row, static_cast<size_t>(row_bytes)},
                    std::span(values_).subspan(static_cast<size_t>(i * k), static_cast<size_t>(k)));
    }
    array_ = DeviceArray(bytes);
  }
  int64_t row() const { return row_; }
  double get(int64_t i, int64_t j) const { return static_cast<double>(values_[static_cast<size_t>(i * k_ + j)]); }
  KernelArgument reads(bool early) { return early ? weights(array_) : in(array_); }

 private:
  int64_t k_, row_;
  std::vector<float> values_;
  DeviceArray array_{std::size_t{0}};
};

// The sum of a row of x and one of weights, and of the terms' magnitudes.
struct Product {
  double sum = 0, size = 0;
};
Product product_of(Matrix& x, int64_t i, const RandomBlocks& w, int64_t j, int64_t k) {
  Product p;
  for (int64_t l = 0; l < k; ++l) {
    const double term = x.get(i, l) * w.get(j, l);
    p.sum += term;
    p.size += std::fabs(term);
  }
  return p;
}

// The division of `units` units among random numbers of blocks.
struct Tiles {
  aa_tiles_x x{};
  uint32_t blocks = 1;
  int64_t columns = 2;

  Tiles(Random& random, Matrix& rows, int64_t m, int64_t k, int64_t units) {
    columns = m == 1 && random.chance(0.8) ? 2 : 8;
    const int64_t tiles = (units + AA_TILES_UNITS - 1) / AA_TILES_UNITS;
    blocks = static_cast<uint32_t>(std::min<int64_t>(tiles, random.integer(1, 4)));
    x.row = rows.row() * size_of(rows.type());
    x.dtype = rows.type();
    x.eps = 1e-5f;
    x.inverse_k = 1.0f / static_cast<float>(k);
    x.m = static_cast<int32_t>(m);
    x.parts = 2 * m <= columns ? 2 : 1;
    x.pieces = static_cast<int32_t>(k / AA_TILES_PIECE);
    x.units = static_cast<int32_t>(units);
    x.tiles_each = static_cast<int32_t>(tiles / blocks);
    x.tiles_more = static_cast<int32_t>(tiles % blocks);
    x.early = random.chance(0.5);
  }
  std::string run(const std::string& kernel, const Format& format, const std::vector<KernelArgument>& arguments) const {
    return run_tuned(kernel + "_" + format.name + (columns == 2 ? "_1" : "_8"),
                     {.grid = {blocks, 1, 1},
                      .block = static_cast<int>(AA_TILES_THREADS(format.number, columns)),
                      .shared_bytes = static_cast<std::size_t>(AA_TILES_SHARED(format.number, columns, x.pieces)),
                      .overlaps_previous = true},
                     arguments);
  }
  // Of a product whose terms' magnitudes have this sum.
  double error(const Format& format, double size) const {
    return (x.parts == 2 ? 0x1p-16 + 4e-6 : 0x1p-8) * size * (format.number == AA_BLOCK_Q4_K ? 4 : 1) + 1e-6;
  }
};

// The weights of decode_tiles_linear, whose rows lie `w_row` bytes apart, with what their results are written to.
aa_decode_part linear_part(int64_t w_row, int64_t n, int32_t units, const Matrix& out, const Matrix& bias) {
  aa_decode_part part{};
  part.w_row = w_row;
  part.out_row = out.row();
  part.out_inner = 1;
  part.bias_inner = 1;
  part.n = static_cast<int32_t>(n);
  part.units = units;
  part.out_dtype = out.type();
  part.bias_dtype = bias.type();
  return part;
}

TEST_P(DecodeQuantized, TilesAgreeWithDecodedWeights) {
  const BlockFormat& format = *find_block_format(GetParam().number);
  for (unsigned seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t m = random.chance(0.4) ? 1 : random.integer(1, AA_TILES_ROWS);
    const int64_t n = random.integer(1, random.chance(0.3) ? 200 : 40), k = 256 * random.integer(1, 9);
    RandomBlocks w(random, format, n, k);
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
    const Tiles tiles(random, x, m, k, (n + 1) / 2);
    const aa_decode_part part = linear_part(w.row(), n, tiles.x.units, out, bias);
    const aa_decode_residual res{residual.row(), 1, residual.type(), 0};
    ASSERT_EQ(tiles.run("decode_tiles_linear", GetParam(),
                        {x.reads(), none(), number(tiles.x), out.writes(), w.reads(tiles.x.early != 0), bias.reads(),
                         number(part), in_place ? out.writes() : residual.reads(), number(res)}),
              "");
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const Product product = product_of(x, i, w, j, k);
        double sum = product.sum;
        if (bias.is_there()) sum += bias.get(0, j);
        if (residual.is_there()) sum += residual.get(i, j);
        const double unit = std::ldexp(1.01, out.type() == F32 ? -24 : out.type() == BF16 ? -8 : -11);
        if (out.type() == F16 && std::fabs(sum) > 60000) continue;
        ASSERT_NEAR(out.get(i, j), sum, tiles.error(GetParam(), product.size) + unit * std::fabs(sum))
            << m << " rows, row " << i << ", column " << j << " of " << n << ", k " << k;
      }
    }
  }
}

TEST_P(DecodeQuantized, GatedTilesAgreeWithDecodedWeights) {
  const BlockFormat& format = *find_block_format(GetParam().number);
  for (unsigned seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t m = random.chance(0.4) ? 1 : random.integer(1, AA_TILES_ROWS);
    const int64_t n = random.integer(1, random.chance(0.3) ? 200 : 40), k = 256 * random.integer(1, 5);
    RandomBlocks gate(random, format, n, k), up(random, format, n, k);
    Matrix x(F32, m, k, 0), norm(random_type(random), 1, k, 0), out(F32, m, n, random.integer(0, 3)),
        bias(BF16, 1, n, 0);
    x.fill(random, m);
    norm.fill(random, 1);
    bias.fill(random, 1);
    Tiles tiles(random, x, m, k, n);
    tiles.x.normed = 1;
    tiles.x.norm_dtype = norm.type();
    aa_decode_part gate_part{}, up_part{};
    gate_part.w_row = gate.row();
    gate_part.out_row = out.row();
    gate_part.out_inner = 1;
    gate_part.out_dtype = out.type();
    up_part.w_row = up.row();
    up_part.bias_inner = 1;
    up_part.bias_dtype = bias.type();
    constexpr aa_i32 relu = AA_ACTIVATION_RELU, zero = 0;
    ASSERT_EQ(tiles.run("decode_tiles_gated", GetParam(),
                        {x.reads(), norm.reads(), number(tiles.x), out.writes(), gate.reads(tiles.x.early != 0),
                         up.reads(tiles.x.early != 0), none(), bias.reads(), number(gate_part), number(up_part),
                         number(relu), number(zero)}),
              "");
    for (int64_t i = 0; i < m; ++i) {
      double square = 0;
      for (int64_t l = 0; l < k; ++l) square += x.get(i, l) * x.get(i, l);
      const double scale = 1 / std::sqrt(square / static_cast<double>(k) + 1e-5);
      for (int64_t j = 0; j < n; ++j) {
        Product left, right;
        for (int64_t l = 0; l < k; ++l) {
          const double v = x.get(i, l) * scale * norm.get(0, l);
          left.sum += v * gate.get(j, l);
          left.size += std::fabs(v * gate.get(j, l));
          right.sum += v * up.get(j, l);
          right.size += std::fabs(v * up.get(j, l));
        }
        right.sum += bias.get(0, j);
        const double a = tiles.error(GetParam(), left.size), b = tiles.error(GetParam(), right.size);
        const double expected = std::max(left.sum, 0.0) * right.sum;
        ASSERT_NEAR(out.get(i, j), expected,
                    a * std::fabs(right.sum) + b * std::fabs(left.sum) + a * b + 1e-6 * std::fabs(expected))
            << m << " rows, row " << i << ", column " << j << " of " << n << ", k " << k;
      }
    }
  }
}

double rounded_to_bf16(double value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(sim::bf16_from_float(static_cast<float>(value))) << 16;
  float result = 0;
  std::memcpy(&result, &bits, 4);
  return static_cast<double>(result);
}

// Rows of x that are in bf16, or that a norm whose result is rounded to it makes.
TEST(DecodeBf16, TilesAreSumsOfExactProducts) {
  constexpr Format format{AA_TILES_BF16, "bf16"};
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t m = random.integer(2, AA_TILES_ROWS);
    const int64_t n = random.integer(1, random.chance(0.3) ? 200 : 40), k = 256 * random.integer(1, 9);
    const bool normed = random.chance(0.5);
    Matrix w(BF16, n, k, 8 * random.integer(0, 2)),
        x(normed ? random_type(random) : BF16, m, k, 4 * random.integer(0, 2));
    Matrix out(random_type(random), m, n, random.integer(0, 3)), norm, bias, residual;
    w.fill(random, n);
    x.fill(random, m);
    if (normed && random.chance(0.7)) {
      norm = Matrix(random_type(random), 1, k, 0);
      norm.fill(random, 1);
    }
    if (random.chance(0.5)) {
      bias = Matrix(random_type(random), 1, n, 0);
      bias.fill(random, 1);
    }
    if (random.chance(0.5)) {
      residual = Matrix(out.type(), m, n, out.row() - n);
      residual.fill(random, m);
    }
    Tiles tiles(random, x, m, k, (n + 1) / 2);
    tiles.x.parts = 1;
    tiles.x.normed = normed ? 1 : 0;
    tiles.x.norm_dtype = norm.type();
    const aa_decode_part part = linear_part(w.row() * size_of(BF16), n, tiles.x.units, out, bias);
    const aa_decode_residual res{residual.row(), 1, residual.type(), 0};
    ASSERT_EQ(tiles.run("decode_tiles_linear", format,
                        {x.reads(), norm.reads(), number(tiles.x), out.writes(), w.reads_early(tiles.x.early != 0),
                         bias.reads(), number(part), residual.reads(), number(res)}),
              "");
    for (int64_t i = 0; i < m; ++i) {
      double square = 0;
      for (int64_t l = 0; l < k; ++l) square += x.get(i, l) * x.get(i, l);
      const double factor = 1 / std::sqrt(square / static_cast<double>(k) + 1e-5);
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, error = 1e-6;
        for (int64_t l = 0; l < k; ++l) {
          double v = x.get(i, l);
          if (normed) {
            v *= factor * (norm.is_there() ? norm.get(0, l) : 1);
            // Near the middle of two numbers the kernel may choose the other one.
            const double low = rounded_to_bf16(v * (1 - 1e-6)), high = rounded_to_bf16(v * (1 + 1e-6));
            error += std::fabs((high - low) * w.get(j, l));
            v = low;
          }
          sum += v * w.get(j, l);
          error += 2e-6 * std::fabs(v * w.get(j, l));
        }
        if (bias.is_there()) sum += bias.get(0, j);
        if (residual.is_there()) sum += residual.get(i, j);
        const double unit = std::ldexp(1.01, out.type() == F32 ? -24 : out.type() == BF16 ? -8 : -11);
        ASSERT_NEAR(out.get(i, j), sum, error + unit * std::fabs(sum))
            << m << " rows, row " << i << ", column " << j << " of " << n << ", k " << k << (normed ? ", normed" : "");
      }
    }
  }
}

TEST_P(DecodeQuantized, AgreesWithDecodedWeights) {
  const BlockFormat& format = *find_block_format(GetParam().number);
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t m = random.chance(0.4) ? 1 : random.integer(1, AA_QUANTIZED_ROWS);
    const int64_t n = random.integer(1, random.chance(0.3) ? 300 : 40), k = 256 * random.integer(1, 11);
    RandomBlocks w(random, format, n, k);
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
                                .w_row = w.row(),
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
                        {x.reads(), out.writes(), w.reads(a.early != 0), bias.reads(),
                         in_place ? out.writes() : residual.reads(), number(a)}),
              "");
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        auto [sum, size] = product_of(x, i, w, j, k);
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
