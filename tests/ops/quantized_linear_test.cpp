// Products and rows of quantized weights against the CPU's references, a test for each format: of the CPU, on every instruction
// set, or of the accelerator that ANYACCEL_TEST_ACCELERATOR names.
#include <algorithm>
#include <cmath>
#include <limits>

#include "accelerators/cpu/kernels/quantized_bytes.h"
#include "accelerators/cpu/kernels/quantized_row.h"
#include "accelerators/cpu/kernels/quantized_tiles.h"
#include "accelerators/cpu/kernels/quantized_unit.h"
#include "base/block_format.h"
#include "ops/end_of_memory.h"
#include "ops/op_test_support.h"
#include "ops/quant_test_support.h"

namespace anyaccel::cpu::testing {
namespace {

constexpr int64_t kCases = 60;

// Random blocks whose values are finite and below 64; with some gaps between rows. Bytes are 255 with a chance of
// `full`, but for the first and the last four, among which most formats have scales.
TestTensor random_blocks(Random& random, const BlockFormat& format, int64_t rows, int64_t k, double full = 0) {
  const int64_t per_row = k / format.values;
  TestTensor w(DType::U8, {rows, per_row * format.bytes});
  std::vector<float> values(format.values);
  std::vector<std::byte> block(format.bytes);
  for (int64_t i = 0; i < rows * per_row; ++i) {
    bool good = false;
    while (!good) {
      for (size_t b = 0; b < block.size(); ++b) {
        const bool inside = b >= 4 && b + 4 < block.size();
        block[b] = static_cast<std::byte>(inside && random.chance(full) ? 255 : random.integer(0, 255));
      }
      decode_blocks(format, block, values);
      good = std::all_of(values.begin(), values.end(), [](float v) { return std::fabs(v) < 64; });
    }
    for (int64_t b = 0; b < format.bytes; ++b) {
      w.set(i * format.bytes + b, static_cast<int64_t>(block[static_cast<size_t>(b)]));
    }
  }
  return w;
}

std::vector<float> decoded(const TestTensor& w, const BlockFormat& format) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < w.count(); ++i) bytes.push_back(static_cast<std::byte>(w.integer(i)));
  std::vector<float> values(bytes.size() / format.bytes * format.values);
  decode_blocks(format, bytes, values);
  return values;
}

// Six times the standard deviation of what rounding x by groups, to so many steps of each sign (0: to bf16), and weights to bf16,
// does to any element. Weights that differ little may all be rounded by half a step; errors of x are spread evenly over a step.
double rounding_error(const TestTensor& x, const std::vector<float>& w, int64_t n, double steps, bool bf16_weights) {
  const int64_t m = x.shape()[0], k = x.shape()[1];
  double most = 0;
  std::vector<double> of_row(static_cast<size_t>(k));
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t i = 0; i < k; ++i) of_row[static_cast<size_t>(i)] = x.number(row * k + i);
    for (int64_t column = 0; column < n; ++column) {
      double variance = 0;
      for (int64_t g = 0; g < k; g += 32) {
        double largest = 0;
        for (int64_t i = g; i < g + 32; ++i) largest = std::max(largest, std::fabs(of_row[static_cast<size_t>(i)]));
        for (int64_t i = g; i < g + 32; ++i) {
          const double weight = static_cast<double>(w[static_cast<size_t>(column * k + i)]);
          const double number = of_row[static_cast<size_t>(i)];
          const double of_x = steps == 0 ? number / 128 : largest / steps;
          const double of_w = bf16_weights ? number / 256 : 0;
          variance += weight * weight * (of_x * of_x / 12 + of_w * of_w / 4);
        }
      }
      most = std::max(most, variance);
    }
  }
  return 6 * std::sqrt(most);
}

class Quantized : public ::testing::TestWithParam<BlockFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, Quantized, ::testing::ValuesIn(block_formats().begin(), block_formats().end()),
                         [](const auto& info) { return std::string(info.param.name); });

const std::vector<int64_t> kAnyRows = {0, 1, 1, 2, 3, 5, 7, 8, 9, 31, 33, 40};

// Random products of so many rows and columns; on the software version of the matrix unit all of them are rounded.
void compare_products(const BlockFormat& format, bool on_unit, const std::vector<int64_t>& rows = kAnyRows,
                      const std::vector<int64_t>& columns = {1, 3, 8, 17, 70}, int64_t cases = kCases / 6) {
  for_each_seed([&](Random& random) {
    for (int64_t i = 0; i < cases; ++i) {
      const int64_t m = rows[static_cast<size_t>(random.integer(0, static_cast<int64_t>(rows.size()) - 1))];
      const int64_t n = columns[static_cast<size_t>(random.integer(0, static_cast<int64_t>(columns.size()) - 1))];
      const int64_t k =
          format.values == 32 && random.chance(0.6) ? 32 * random.integer(0, 36) : 256 * random.integer(0, 5);
      const bool rounded = on_unit || random.chance(0.6);
      OpCase c;
      c.op = "quantized_linear";
      c.tensors.push_back(TestTensor::random_layout(random, random.float_dtype(), {m, n}, false));
      c.tensors.push_back(TestTensor::random_layout(random, random.float_dtype(), {m, k}, true).fill_normal(random));
      c.tensors.push_back(random_blocks(random, format, n, k));
      for (const Shape& shape : {Shape{n}, Shape{m, n}}) {
        c.tensors.push_back(random.chance(0.5) ? TestTensor::random_layout(random, random.float_dtype(), shape, true)
                                               : TestTensor());
        if (c.tensors.back().present()) c.tensors.back().fill_normal(random);
      }
      c.with(aa_quantized_params{0, static_cast<int32_t>(format.number),
                                 rounded ? AA_QUANTIZED_ROUNDED : AA_QUANTIZED_EXACT});
      const std::vector<float> w = decoded(c.tensors[2], format);
      double magnitude = 0;  // of a sum, at most
      std::vector<double> of_row(static_cast<size_t>(k));
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t j = 0; j < k; ++j) of_row[static_cast<size_t>(j)] = c.tensors[1].number(row * k + j);
        for (int64_t column = 0; column < n; ++column) {
          double sum = 0;
          for (int64_t j = 0; j < k; ++j) {
            sum +=
                std::fabs(of_row[static_cast<size_t>(j)] * static_cast<double>(w[static_cast<size_t>(column * k + j)]));
          }
          magnitude = std::max(magnitude, sum);
        }
      }
      // With few rows, the CPU rounds x to 16 bits for weights of 8.
      const bool fine = format.number == AA_BLOCK_Q8_0 && m <= 16 && !anyaccel::testing::device_under_test();
      const double steps = on_unit ? 0 : fine ? 127 * 256 : 127;
      const double error = rounded ? rounding_error(c.tensors[1], w, n, steps, on_unit || !fine) : 0;
      // Where all elements of a row of x are one number (a stride of 0), errors of weights that are alike all go one way.
      const bool may_be_on_unit = on_unit || (rounded && is_isa_available(Isa::Amx));
      const bool one_number = may_be_on_unit && m > 0 && k > 1 && c.tensors[1].at(0) == c.tensors[1].at(1);
      const double one_way = one_number ? 0x1p-7 * magnitude : 0;
      compare(c, {error + one_way + 1e-6 * magnitude + 1e-5, 0, 1});
    }
  });
}

TEST_P(Quantized, LinearAgreesWithItsReference) { compare_products(GetParam(), false); }

// So many columns are shared by threads: a part for each, and pieces.
TEST_P(Quantized, LinearOfFewRowsAndManyColumnsAgreesWithItsReference) {
  for (const int threads : anyaccel::testing::thread_counts()) {
    const anyaccel::testing::ThreadCount count(threads);
    compare_products(GetParam(), false, {1}, {515, 774, 1001}, 4);
    if (anyaccel::testing::device_under_test() == nullptr)
      compare_products(GetParam(), false, {2, 3, 4, 5, 6}, {331}, 2);
  }
}

// Makes products run on the software version of the matrix unit.
struct Emulation {
  Emulation() { emulate_unit(true); }
  ~Emulation() { emulate_unit(false); }
};

TEST_P(Quantized, LinearOnTheMatrixUnitAgreesWithItsReference) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const Emulation emulation;
  compare_products(GetParam(), true);
}

// Makes products of a few rows with weights of Q8_0 run on the software version of the matrix unit.
struct BytesEmulation {
  BytesEmulation() { emulate_bytes(true); }
  ~BytesEmulation() { emulate_bytes(false); }
};

TEST(QuantizedLinear, FewRowsOnTheMatrixUnitAgreeWithTheirReference) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BytesEmulation emulation;
  compare_products(*find_block_format(AA_BLOCK_Q8_0), false, {2, 3, 5, 7, 8, 9, 12, 15, 16});
}

// On the matrix unit, on its software version with any instruction set, and by other instructions: the bits are the same.
TEST(QuantizedLinear, FewRowsOnTheMatrixUnitHaveTheBitsOfOtherProducts) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BlockFormat& format = *find_block_format(AA_BLOCK_Q8_0);
  for_each_seed([&](Random& random) {
    for (const int64_t m : {7, 8, 9, 15}) {  // fewer rows have other kernels elsewhere
      const int64_t n = random.pick<int64_t>({16, 31, 64, 150, 300}), k = 32 * random.integer(1, 40);
      OpCase c;
      c.op = "quantized_linear";
      c.tensors = {TestTensor(DType::F32, {m, n}), TestTensor(random.float_dtype(), {m, k}).fill_normal(random),
                   random_blocks(random, format, n, k), TestTensor(), TestTensor()};
      c.with(aa_quantized_params{0, AA_BLOCK_Q8_0, AA_QUANTIZED_ROUNDED});
      std::vector<OpCase> found;
      for_each_isa([&](Isa) {
        {
          const BytesEmulation emulation;
          found.push_back(c);
          run(found.back(), true);
        }
        if (!takes_tiles(AA_BLOCK_Q8_0) || takes_few_rows(AA_BLOCK_Q8_0, m, k)) return;
        found.push_back(c);
        run(found.back(), true);
      });
      for (const OpCase& other : found) {
        for (int64_t i = 0; i < m * n; ++i) {
          ASSERT_EQ(other.tensors[0].number(i), found[0].tensors[0].number(i))
              << m << " rows, " << k << " columns, row " << i / n << ", " << i % n;
        }
      }
    }
  });
}

// So many rows of weights are decoded in two pieces on the CPU. Whole numbers and powers of two make the sums exact.
TEST(QuantizedLinear, LargeWeightsAreDecodedInPieces) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  constexpr int64_t m = 33, k = 8192, n = 576, blocks = k / 32;
  Random random(9);
  TestTensor x(DType::F32, {m, k}), w(DType::U8, {n, blocks * 34}), bias(DType::F32, {n}), residual(DType::F32, {m, n});
  const auto value = [](int64_t j) { return j * 5 % 9 - 4; };
  std::vector<int64_t> sums(m);
  for (int64_t i = 0; i < m * k; ++i) {
    const int64_t number = random.integer(-3, 3);
    x.set(i, static_cast<double>(number));
    sums[static_cast<size_t>(i / k)] += number * value(i % 32);
  }
  for (int64_t i = 0; i < n * blocks; ++i) {
    w.set(i * 34 + 1, 0x30 + 4 * (i / blocks % 3));  // the upper byte of 1/8, 1/4 or 1/2 as a half
    for (int64_t j = 0; j < 32; ++j) w.set(i * 34 + 2 + j, value(j) & 255);
  }
  for (int64_t i = 0; i < n; ++i) bias.set(i, static_cast<double>(i));
  for (int64_t i = 0; i < m * n; ++i) residual.set(i, static_cast<double>(i % 101));
  OpCase c;
  c.op = "quantized_linear";
  c.tensors = {TestTensor(DType::F32, {m, n}), x, w, bias, residual};
  c.with(aa_quantized_params{0, AA_BLOCK_Q8_0, AA_QUANTIZED_EXACT});
  run(c, true);
  for (int64_t i = 0; i < m * n; ++i) {
    const double scale = std::ldexp(0.125, static_cast<int>(i % n % 3));
    const double product = scale * static_cast<double>(sums[static_cast<size_t>(i / n)]);
    ASSERT_EQ(c.tensors[0].number(i), product + static_cast<double>(i % n + i % 101))
        << "row " << i / n << ", " << i % n;
  }
}

// The largest products of integers do not overflow where they are added: x is 1 or -1, which rounds to the largest number, in whole
// groups or halves, and most of the weights' bits are set.
TEST_P(Quantized, LargestProductsAreAddedWhole) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BlockFormat& format = GetParam();
  for_each_seed([&](Random& random) {
    for (const int64_t m : {1, 2, 3, 4, 9}) {
      const int64_t n = 33, k = 512;
      OpCase c;
      c.op = "quantized_linear";
      TestTensor x(DType::F32, {m, k});
      for (int64_t i = 0; i < m * k; i += 16) {
        const double number = random.chance(0.5) ? 1 : -1;
        for (int64_t j = i; j < i + 16; ++j) x.set(j, number);
      }
      c.tensors = {TestTensor(DType::F32, {m, n}), x, random_blocks(random, format, n, k, 0.95), TestTensor(),
                   TestTensor()};
      c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
      const std::vector<float> w = decoded(c.tensors[2], format);
      double magnitude = 0;
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += std::fabs(static_cast<double>(w[static_cast<size_t>(column * k + i)]));
        magnitude = std::max(magnitude, sum);
      }
      // On the matrix unit, weights are rounded to bf16.
      const double of_unit = is_isa_available(Isa::Amx) ? 0x1p-8 : 0;
      compare(c, {(of_unit + 1e-6) * magnitude, 0, 1});
    }
  });
}

// Threads share the rows of a large matrix in pieces: each result is that of four rows alone.
TEST(QuantizedLinear, OneRowTimesManyRowsIsThatOfAFew) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  Random random(11);
  const BlockFormat& format = *find_block_format(AA_BLOCK_Q4_0);
  constexpr int64_t n = 2100, k = 256;
  const TestTensor x = TestTensor(DType::F32, {1, k}).fill_normal(random), w = random_blocks(random, format, n, k);
  const auto products = [&](int64_t begin, int64_t count) {
    TestTensor part(DType::U8, {count, w.shape()[1]});
    for (int64_t i = 0; i < part.count(); ++i) part.set(i, w.integer(begin * w.shape()[1] + i));
    OpCase c;
    c.op = "quantized_linear";
    c.tensors = {TestTensor(DType::F32, {1, count}), x, part, TestTensor(), TestTensor()};
    c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
    run(c, true);
    return c.tensors[0];
  };
  const TestTensor whole = products(0, n);
  for (int64_t row = 0; row < n; row += 28) {
    const TestTensor four = products(row, 4);
    for (int64_t i = 0; i < 4; ++i) ASSERT_EQ(whole.number(row + i), four.number(i)) << "row " << row + i;
  }
}

// A row's bits do not depend on how many rows share its kernel. The longer rows are rounded by several threads, and five and six of
// them are too large for the kernel of few rows.
TEST_P(Quantized, RowsOfAProductHaveTheBitsOfFewerRows) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BlockFormat& format = GetParam();
  Random random(17);
  constexpr int64_t most = 19;
  for (const int64_t k : {1024, 1184, 8192}) {
    if (k % format.values != 0) continue;
    const int64_t n = k == 8192 ? 20 : 131;
    const TestTensor w = random_blocks(random, format, n, k), x = TestTensor(DType::F32, {most, k}).fill_normal(random);
    const auto products = [&](int64_t begin, int64_t count) {
      TestTensor part(DType::F32, {count, k});
      for (int64_t i = 0; i < count * k; ++i) part.set(i, x.number(begin * k + i));
      OpCase c;
      c.op = "quantized_linear";
      c.tensors = {TestTensor(DType::F32, {count, n}), part, w, TestTensor(), TestTensor()};
      c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
      run(c, true);
      return c.tensors[0];
    };
    for_each_isa([&](Isa isa) {
      if (isa == Isa::Amx && format.number == AA_BLOCK_Q8_0) return;  // the matrix unit multiplies some numbers of rows
      const int64_t m = isa == Isa::Amx ? 15 : most;  // the matrix unit multiplies 16 rows and more of some formats
      const auto compare_rows = [&](int64_t few, int64_t many) {
        const TestTensor whole = products(0, many);
        for (const int64_t begin : {int64_t{0}, many - few}) {
          const TestTensor part = products(begin, few);
          for (int64_t i = 0; i < few * n; ++i) {
            ASSERT_EQ(whole.number(begin * n + i), part.number(i))
                << few << " of " << many << " rows of " << k << ", from row " << begin;
          }
        }
      };
      for (const int64_t many : {2, 4, 6}) {
        if (takes_few_rows(format.number, many, k)) compare_rows(1, many);
      }
      for (const int64_t few : {2, 3, 5, 6, 7, 9, 10, 12, 13}) {
        if (!takes_few_rows(format.number, few, k)) compare_rows(few, m);
      }
    });
  }
}

// Whatever the number of rows, a row's sums have one order; so many columns that threads share them in pieces, and few.
void compare_by_row(const BlockFormat& format, int64_t m, int64_t n, int64_t k) {
  Random random(5);
  const TestTensor w = random_blocks(random, format, n, k);
  const TestTensor x = TestTensor(DType::F32, {m, k}).fill_normal(random);
  for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
    const auto rows = [&](int64_t begin, int64_t count) {
      OpCase c;
      TestTensor part(DType::F32, {count, k});
      for (int64_t i = 0; i < count * k; ++i) part.set(i, x.number(begin * k + i));
      c.tensors = {TestTensor(DType::F32, {count, n}), part, w, TestTensor(), TestTensor()};
      c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), rounding});
      run_as("quantized_linear_by_row", c, true);
      return c.tensors[0];
    };
    const auto compare_rows = [&] {
      const TestTensor whole = rows(0, m);
      for (const int64_t begin : {int64_t{0}, m / 9, m * 3 / 4, m - 1}) {
        const TestTensor one = rows(begin, 1);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(one.number(i), whole.number(begin * n + i)) << format.name << " row " << begin << " column " << i;
        }
      }
    };
    if (anyaccel::testing::device_under_test() != nullptr) {
      compare_rows();
    } else {
      for_each_isa([&](Isa) { compare_rows(); });
    }
  }
}
TEST_P(Quantized, LinearByRowDoesNotDependOnTheNumberOfRows) { compare_by_row(GetParam(), 41, 33, 512); }
TEST_P(Quantized, LinearByRowOfManyColumnsDoesNotDependOnTheNumberOfRows) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BlockFormat& format = GetParam();
  const anyaccel::testing::ThreadCount two(2);
  for (const int64_t m : {9, 33}) compare_by_row(format, m, 1500, format.values == 32 ? 288 : 256);
}

// Reads nothing behind the weights: the page there must not be read.
TEST_P(Quantized, NothingBehindTheWeightsIsRead) {
  if (anyaccel::testing::device_under_test() != nullptr) GTEST_SKIP() << "is about the kernels of the CPU";
  const BlockFormat& format = GetParam();
  Random random(12);
  anyaccel::testing::EndOfMemory memory(size_t{64} << 10);
  for (const int64_t k : {static_cast<int64_t>(format.values), int64_t{512} + (format.values == 32 ? 96 : 0)}) {
    for (const int64_t n : {1, 5, 21}) {
      const TestTensor w = random_blocks(random, format, n, k);
      std::vector<uint8_t> bytes;
      for (int64_t i = 0; i < w.count(); ++i) bytes.push_back(static_cast<uint8_t>(w.integer(i)));
      void* at_the_end = memory.put(bytes.data(), bytes.size());
      for (const int64_t m : {1, 2, 5, 9, 17, 33}) {
        const TestTensor x = TestTensor(DType::F32, {m, k}).fill_normal(random);
        for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
          const auto products = [&](const char* op) {
            OpCase expected;
            expected.op = "quantized_linear";
            expected.tensors = {TestTensor(DType::F32, {m, n}), x, w, TestTensor(), TestTensor()};
            expected.with(aa_quantized_params{0, static_cast<int32_t>(format.number), rounding});
            OpCase found = expected;
            run_as(op, expected, true);
            std::vector<aa_tensor> views;
            for (TestTensor& t : found.tensors) views.push_back(t.view());
            views[2].data = at_the_end;
            aa_op_call call{};
            call.struct_size = sizeof call;
            call.tensors = views.data();
            call.tensor_count = static_cast<uint32_t>(views.size());
            call.params = found.params.data();
            call.params_size = static_cast<uint32_t>(found.params.size());
            run_call(op, call, true);
            for (int64_t i = 0; i < m * n; ++i) {
              ASSERT_EQ(found.tensors[0].number(i), expected.tensors[0].number(i))
                  << op << ", " << m << " rows of " << k;
            }
          };
          for_each_isa([&](Isa) {
            products("quantized_linear");
            products("quantized_linear_by_row");
            if (rounding != AA_QUANTIZED_ROUNDED) return;
            const Emulation emulation;
            products("quantized_linear");
          });
        }
      }
    }
  }
}

// Every result keeps the bound that rounding the numbers of its own row allows: rows of x differ by fifty powers of ten, groups of 32
// by six, some have one number that is far larger than the others, and some are zero.
TEST_P(Quantized, RowsOfEveryMagnitudeKeepTheirOwnBounds) {
  const BlockFormat& format = GetParam();
  Random random(23);
  const int64_t n = 35, k = format.values == 32 ? 1184 : 1280;
  const TestTensor w = random_blocks(random, format, n, k);
  const std::vector<float> weights = decoded(w, format);
  std::vector<double> largest_of_block;  // of which the parts that a kernel adds are a few times as large at most
  for (size_t i = 0; i < weights.size(); i += format.values) {
    double largest = 0;
    for (size_t j = i; j < i + format.values; ++j) largest = std::max(largest, std::fabs(double{weights[j]}));
    largest_of_block.push_back(largest);
  }
  for (const int64_t m : {1, 2, 5, 9, 16, 33}) {
    TestTensor x(DType::F32, {m, k});
    std::vector<double> numbers(static_cast<size_t>(m * k)), largest_of_group(static_cast<size_t>(m * k / 32));
    for (int64_t row = 0; row < m; ++row) {
      const double of_row = m > 2 && row % 5 == 3 ? 0 : std::pow(10.0, static_cast<double>(random.integer(-30, 20)));
      for (int64_t i = 0; i < k; i += 32) {
        const double of_group =
            random.chance(0.1) ? 0 : of_row * std::pow(10.0, static_cast<double>(random.integer(-3, 3)));
        const int64_t huge = random.chance(0.3) ? i + random.integer(0, 31) : -1;
        for (int64_t j = i; j < i + 32; ++j) {
          x.set(row * k + j, of_group * random.normal() * (j == huge ? 1e5 : 1));
          const double number = x.number(row * k + j);
          numbers[static_cast<size_t>(row * k + j)] = number;
          double& largest = largest_of_group[static_cast<size_t>((row * k + j) / 32)];
          largest = std::max(largest, std::fabs(number));
        }
      }
    }
    std::vector<double> exact, bounds;
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0, rounding = 0, parts = 0, any = 0;
      for (int64_t j = 0; j < k; ++j) {
        const auto at_x = static_cast<size_t>(i / n * k + j), at_w = static_cast<size_t>(i % n * k + j);
        const double number = numbers[at_x], weight = std::fabs(double{weights[at_w]});
        sum += number * double{weights[at_w]};
        // Half of a step, or the halves of two units in the last place of bf16.
        rounding +=
            weight * std::max(largest_of_group[at_x / 32] / 254 * 1.001, std::fabs(number) * (0x1p-7 + 0x1p-15));
        parts += std::fabs(number) * largest_of_block[at_w / format.values];
        any = std::max(any, std::fabs(number));
      }
      exact.push_back(sum);
      // Products of the smallest numbers are subnormal.
      const double least = any == 0 ? 0 : double{std::numeric_limits<float>::min()} * 64 * static_cast<double>(k);
      bounds.push_back(rounding + 0x1p-16 * parts + least);
    }
    OpCase c;
    c.op = "quantized_linear";
    c.tensors = {TestTensor(DType::F32, {m, n}), x, w, TestTensor(), TestTensor()};
    c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
    const auto expect_bounds = [&](const char* op) {
      OpCase found = c;
      run_as(op, found, true);
      for (int64_t i = 0; i < m * n; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_LE(std::fabs(found.tensors[0].number(i) - exact[at]), bounds[at])
            << op << " of " << m << " rows, row " << i / n << ", column " << i % n << ": " << found.tensors[0].number(i)
            << ", exactly " << exact[at];
      }
    };
    for_each_isa([&](Isa) {
      expect_bounds("quantized_linear");
      if (anyaccel::testing::device_under_test() != nullptr) return;
      expect_bounds("quantized_linear_by_row");
      const Emulation unit;
      const BytesEmulation bytes;
      expect_bounds("quantized_linear");
    });
  }
}

// A NaN or an infinity in x reaches every sum that it is part of, also where x is rounded.
TEST_P(Quantized, NumbersThatAreNoneStayVisible) {
  Random random(6);
  const BlockFormat& format = GetParam();
  const int64_t k = 512, n = 9;
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (const int64_t m : {1, 3, 40}) {
      OpCase c;
      c.op = "quantized_linear";
      TestTensor x = TestTensor(DType::F32, {m, k}).fill_normal(random);
      x.set((m - 1) * k + 300, bad);
      c.tensors = {TestTensor(DType::F32, {m, n}), x, random_blocks(random, format, n, k), TestTensor(), TestTensor()};
      c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
      for_each_isa([&](Isa) {
        OpCase found = c;
        run(found, true);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_FALSE(std::isfinite(found.tensors[0].number((m - 1) * n + i))) << format.name << " of " << m;
          if (m == 1) continue;
          ASSERT_TRUE(std::isfinite(found.tensors[0].number(i))) << format.name << " of " << m;
        }
      });
    }
  }
}

// Scales that are NaN reach the sums of their own row and no others, also where a row ends within what a kernel takes at once.
TEST(QuantizedLinear, ScalesOfTheNextRowDoNotMatter) {
  Random random(8);
  for (const BlockFormat& format : block_formats()) {
    if (format.values != 32 || format.number == AA_BLOCK_MXFP4) continue;  // a scale of MXFP4 is always a number
    for (const int64_t k : {224, 288, 512}) {
      for (const int64_t m : {1, 2, 6, 9}) {
        const int64_t n = 9, bad = 4, bytes_of_row = k / 32 * format.bytes;
        OpCase c;
        c.op = "quantized_linear";
        c.tensors = {TestTensor(DType::F32, {m, n}), TestTensor(DType::F32, {m, k}).fill_normal(random),
                     random_blocks(random, format, n, k), TestTensor(), TestTensor()};
        for (int64_t i = 0; i < k / 32; ++i) {  // a half that is NaN
          c.tensors[2].set(bad * bytes_of_row + i * format.bytes, 0);
          c.tensors[2].set(bad * bytes_of_row + i * format.bytes + 1, 0x7e);
        }
        c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_ROUNDED});
        for_each_isa([&](Isa) {
          OpCase found = c;
          run(found, true);
          for (int64_t i = 0; i < m * n; ++i) {
            ASSERT_EQ(std::isfinite(found.tensors[0].number(i)), i % n != bad)
                << format.name << ", " << m << " rows of " << k << ", column " << i % n;
          }
        });
      }
    }
  }
}

TEST_P(Quantized, EmbeddingIsTheDecodedRow) {
  Random random(7);
  const BlockFormat& format = GetParam();
  const int64_t k = format.values * 2, rows = 7, t = 5;
  OpCase c;
  c.op = "quantized_embedding";
  c.tensors = {TestTensor::random_layout(random, random.float_dtype(), {t, k}, false),
               random_blocks(random, format, rows, k), TestTensor(random.pick({DType::I32, DType::I64}), {t})};
  c.tensors[2].fill([&](int64_t) { return static_cast<double>(random.integer(0, rows - 1)); });
  c.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_EXACT});
  compare(c, {0, 0, 0});
  c.tensors[2].set(4, rows);
  expect_out_of_range(c);
}

// The sum of the parts of a table over ranks is the whole table's row.
TEST_P(Quantized, EmbeddingOfAPartGivesZerosElsewhere) {
  Random random(8);
  const BlockFormat& format = GetParam();
  const int64_t k = format.values * 2, rows = 7, t = 9;
  for (const int64_t first : {0, 5}) {
    OpCase c;
    c.op = "quantized_embedding_shard";
    c.tensors = {TestTensor::random_layout(random, random.float_dtype(), {t, k}, false),
                 random_blocks(random, format, rows, k), TestTensor(DType::I64, {t})};
    c.tensors[2].fill([&](int64_t i) { return static_cast<double>(first - 1 + i); });
    c.tensors[2].set(8, static_cast<double>(std::numeric_limits<int32_t>::min()));
    c.with(aa_quantized_shard_params{0, static_cast<int32_t>(format.number), first});
    compare(c, {0, 0, 0});
    OpCase whole = c;
    whole.op = "quantized_embedding";
    whole.with(aa_quantized_params{0, static_cast<int32_t>(format.number), AA_QUANTIZED_EXACT});
    whole.tensors[2].fill([&](int64_t i) { return static_cast<double>(i % rows); });
    run(whole, true);
    run(c, true);
    for (int64_t i = 0; i < t; ++i) {
      const bool here = i >= 1 && i <= rows;
      for (int64_t j = 0; j < k; ++j) {
        ASSERT_EQ(c.tensors[0].number(i * k + j), here ? whole.tensors[0].number((i - 1) * k + j) : 0) << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace anyaccel::cpu::testing
