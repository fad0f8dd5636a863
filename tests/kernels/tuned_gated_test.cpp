// kernels/cuda/gated.cu on the host, against its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "anyaccel/abi/ops.h"
#include "base/scalar_convert.h"
#include "tests/kernels/tuned_kernel_support.h"

using aa_i32 = std::int32_t;
using aa_i64 = std::int64_t;
#include "kernels/cuda/gated_arguments.h"

namespace anyaccel::testing {
namespace {

size_t size_of(int32_t dtype) { return dtype_size(static_cast<DType>(dtype)); }

std::vector<char> stored(const std::vector<float>& values, int32_t dtype, size_t stride = 1) {
  std::vector<char> bytes(values.size() * stride * size_of(dtype) + 16, '\x7f');
  for (size_t i = 0; i < values.size(); ++i) {
    store_number(bytes.data() + i * stride * size_of(dtype), static_cast<DType>(dtype), static_cast<double>(values[i]));
  }
  return bytes;
}
double loaded(const char* bytes, int32_t dtype, size_t i) {
  return load_floating(bytes + i * size_of(dtype), static_cast<DType>(dtype));
}

double activated(double x, int32_t kind) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case AA_ACTIVATION_GELU_TANH: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case AA_ACTIVATION_RELU: return std::max(x, 0.0);
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

struct GatedCase {
  int64_t rows, columns;
  int32_t out_dtype, gate_bias, up_bias, kind;
  bool wide, in_place;
};

void check(const GatedCase& c, unsigned seed) {
  SCOPED_TRACE("rows " + std::to_string(c.rows) + ", columns " + std::to_string(c.columns) + ", out dtype " +
               std::to_string(c.out_dtype) + ", kind " + std::to_string(c.kind) + (c.wide ? ", wide" : "") +
               (c.in_place ? ", in place" : ""));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  const auto numbers = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = normal(random);
    return values;
  };
  aa_gated g{};
  g.rows = c.rows;
  g.columns = c.columns;
  g.out_inner = c.wide || c.in_place ? 1 : 2;
  // In whole 16 bytes where `wide` promises that.
  g.out_row = (c.columns + 7) / 8 * 8 * g.out_inner + (c.wide ? 8 : 3);
  g.gate_row = c.in_place ? g.out_row : c.columns + (c.wide ? (8 - c.columns % 8) % 8 : 1);
  g.up_row = c.columns + (c.wide ? (8 - c.columns % 8) % 8 : 5);
  g.gate_bias_inner = 1;
  g.up_bias_inner = 3;
  g.out_dtype = c.out_dtype;
  g.gate_bias_dtype = c.gate_bias;
  g.up_bias_dtype = c.up_bias;
  g.kind = c.kind;
  g.wide = c.wide;
  const std::vector<float> gate = numbers(c.rows * g.gate_row), up = numbers(c.rows * g.up_row);
  const std::vector<float> gate_bias = numbers(c.columns), up_bias = numbers(c.columns);
  DeviceArray gate_array(gate), up_array(up);
  DeviceArray out_array(static_cast<size_t>(c.rows * g.out_row) * size_of(c.out_dtype));
  const std::vector<char> out_before = out_array.read<char>();
  DeviceArray gate_bias_array(stored(gate_bias, c.gate_bias ? c.gate_bias : AA_DTYPE_F32));
  DeviceArray up_bias_array(stored(up_bias, c.up_bias ? c.up_bias : AA_DTYPE_F32, 3));
  DeviceArray& result = c.in_place ? gate_array : out_array;
  constexpr int64_t block = AA_GATED_THREADS * AA_GATED_WIDTH;
  const TunedShape shape{.grid = {static_cast<uint32_t>((c.columns + block - 1) / block),
                                  static_cast<uint32_t>(std::min<int64_t>(c.rows, 3)), 1},
                         .block = AA_GATED_THREADS,
                         .overlaps_previous = true};
  ASSERT_EQ(run_tuned("gated_combine", shape,
                      {out(result), in(gate_array), in(up_array), c.gate_bias ? in(gate_bias_array) : none(),
                       c.up_bias ? in(up_bias_array) : none(), number(g)}),
            "");
  const double unit = c.out_dtype == AA_DTYPE_F32 ? 0x1p-24 : c.out_dtype == AA_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t n = 0; n < c.columns; ++n) {
      const auto i = static_cast<size_t>(n);
      double a = static_cast<double>(gate[static_cast<size_t>(r * g.gate_row + n)]);
      double b = static_cast<double>(up[static_cast<size_t>(r * g.up_row + n)]);
      const std::vector<char> gb = c.gate_bias ? stored({gate_bias[i]}, c.gate_bias) : std::vector<char>();
      const std::vector<char> ub = c.up_bias ? stored({up_bias[i]}, c.up_bias) : std::vector<char>();
      if (c.gate_bias) a += loaded(gb.data(), c.gate_bias, 0);
      if (c.up_bias) b += loaded(ub.data(), c.up_bias, 0);
      const double expected = activated(a, c.kind) * b;
      const double found = loaded(result.data(), c.out_dtype, static_cast<size_t>(r * g.out_row + n * g.out_inner));
      ASSERT_NEAR(found, expected, 2e-6 + (unit + 2e-6) * std::fabs(expected)) << "row " << r << ", column " << n;
    }
  }
  if (c.in_place) return;
  // Nothing between the elements was written.
  const std::vector<char> now = result.read<char>();
  for (int64_t e = 0; e < c.rows * g.out_row; ++e) {
    if (e % g.out_row < c.columns * g.out_inner && e % g.out_row % g.out_inner == 0) continue;
    for (size_t b = 0; b < size_of(c.out_dtype); ++b) {
      const size_t byte = static_cast<size_t>(e) * size_of(c.out_dtype) + b;
      ASSERT_EQ(now[byte], out_before[byte]) << "element " << e;
    }
  }
}

TEST(TunedGated, Combine) {
  unsigned seed = 1;
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16, AA_DTYPE_F16}) {
    for (const bool wide : {false, true}) {
      for (const int64_t columns : {1, 8, 20, 2048, 2060}) {
        const int64_t rows = columns > 100 ? 2 : 5;
        check({rows, columns, dtype, 0, 0, AA_ACTIVATION_SILU, wide, false}, seed++);
        check({rows, columns, dtype, AA_DTYPE_BF16, AA_DTYPE_F32, AA_ACTIVATION_GELU, wide, false}, seed++);
      }
    }
  }
  for (int32_t kind = 0; kind <= AA_ACTIVATION_TANH; ++kind) {
    check({3, 40, AA_DTYPE_BF16, AA_DTYPE_F16, 0, kind, true, false}, seed++);
    check({3, 40, AA_DTYPE_F32, 0, AA_DTYPE_F16, kind, false, true}, seed++);
    check({3, 40, AA_DTYPE_F32, 0, 0, kind, true, true}, seed++);
  }
}

// gate and up in bf16, the values of both being exact in it.
void check_bf16(int64_t rows, int64_t columns, int32_t kind, unsigned seed) {
  SCOPED_TRACE("rows " + std::to_string(rows) + ", columns " + std::to_string(columns) + ", kind " +
               std::to_string(kind));
  Random random(seed);
  aa_gated g{};
  g.rows = rows;
  g.columns = columns;
  g.out_row = columns + 16;
  g.gate_row = columns + 8;
  g.up_row = columns;
  g.kind = kind;
  const auto numbers = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = bf16_to_float(float_to_bf16(2 * random.normal()));
    return values;
  };
  std::vector<float> gate = numbers(rows * g.gate_row), up = numbers(rows * g.up_row);
  gate[0] = -std::numeric_limits<float>::infinity();  // as products that overflow are
  gate[1] = -90;
  gate[2] = 200;
  DeviceArray gate_array(stored(gate, AA_DTYPE_BF16)), up_array(stored(up, AA_DTYPE_BF16));
  DeviceArray result(static_cast<size_t>(rows * g.out_row) * 2);
  constexpr int64_t block = AA_GATED_THREADS * AA_GATED_WIDTH;
  // Fewer blocks than rows need: some go on with others.
  const TunedShape shape{.grid = {static_cast<uint32_t>((columns + block - 1) / block), 2, 1},
                         .block = AA_GATED_THREADS,
                         .overlaps_previous = true};
  ASSERT_EQ(run_tuned("gated_combine_bf16", shape, {out(result), in(gate_array), in(up_array), number(g)}), "");
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < g.out_row; ++n) {
      const auto at = static_cast<size_t>(r * g.out_row + n);
      if (n >= columns) {
        ASSERT_EQ(result.read<uint16_t>()[at], 0xa5a5) << "row " << r << ", column " << n << " was written";
        continue;
      }
      const double a = std::max(static_cast<double>(gate[static_cast<size_t>(r * g.gate_row + n)]), -1e3);
      const double b = static_cast<double>(up[static_cast<size_t>(r * g.up_row + n)]);
      const double expected = activated(a, kind) * b;
      ASSERT_NEAR(loaded(result.data(), AA_DTYPE_BF16, at), expected, 2e-6 + (0x1p-8 + 1e-5) * std::fabs(expected))
          << "row " << r << ", column " << n;
    }
  }
}

TEST(TunedGated, CombineBf16) {
  unsigned seed = 1;
  for (const int64_t columns : {8, 40, 2048, 2056}) {
    for (const int64_t rows : {1, 4, 7}) check_bf16(rows, columns, AA_ACTIVATION_SILU, seed++);
  }
  for (int32_t kind = 0; kind <= AA_ACTIVATION_TANH; ++kind) check_bf16(3, 24, kind, seed++);
}

TEST(TunedGated, Widen) {
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16, AA_DTYPE_F16}) {
    constexpr size_t count = 300;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) * 0.5f - 30;
    DeviceArray x(stored(values, dtype, 2)), wide(count * 4);
    ASSERT_EQ(run_tuned("gated_widen", {.grid = {2, 1, 1}, .block = AA_GATED_THREADS, .overlaps_previous = true},
                        {out(wide), in(x), number(aa_i64{2}), number(aa_i64{count}), number(aa_i32{dtype})}),
              "");
    EXPECT_EQ(wide.read<float>(), values);  // all of them exact in every dtype
  }
}

}  // namespace
}  // namespace anyaccel::testing
