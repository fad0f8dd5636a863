// The primitives of kernels/cuda/warp.h as the simulators execute them on the host, against their definitions, and the mistakes
// of kernels that are found. The kernels are tests/kernels/cuda/warp_test.cu.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "simulators/engine/warp.h"
#include "tests/kernels/tuned_kernel_support.h"

namespace anyaccel::testing {
namespace {

using Half = std::uint16_t;

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(random);
  return values;
}

TEST(TunedWarp, Shuffles) {
  const std::vector<float> in_values = random_floats(64, 1);
  std::vector<std::uint32_t> words(64);
  for (std::uint32_t i = 0; i < 64; ++i) words[i] = 0xdead0000u + i;
  DeviceArray x(in_values), w(words), y(4 * 64 * 4), z(2 * 64 * 4);
  ASSERT_EQ(run_tuned("warp_shuffles", {.block = 64}, {out(y), in(x), in(w), out(z)}), "");
  const auto result = y.read<float>();
  const auto word_result = z.read<std::uint32_t>();
  for (std::size_t t = 0; t < 64; ++t) {
    const std::size_t first = t / 32 * 32, lane = t % 32;
    float most = -10;
    double sum = 0;
    for (std::size_t i = first; i < first + 32; ++i) {
      most = std::max(most, in_values[i]);
      sum += in_values[i];
    }
    EXPECT_EQ(result[4 * t], in_values[first + (lane ^ 5)]);
    EXPECT_EQ(result[4 * t + 1], in_values[first + (lane + 7) % 32]);
    EXPECT_NEAR(result[4 * t + 2], sum, 1e-4);
    EXPECT_EQ(result[4 * t + 3], most);
    EXPECT_EQ(word_result[2 * t], words[first + (lane ^ 16)]);
    EXPECT_EQ(word_result[2 * t + 1], words[first + 3 + t / 32]);
  }
}

TEST(TunedWarp, MatricesOfLocalMemory) {
  std::vector<Half> rows(32 * 8);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Half>(1000 + i);
  DeviceArray x(rows), r(32 * 8 * 4);
  ASSERT_EQ(run_tuned("warp_matrices", {.block = 32}, {out(r), in(x)}), "");
  const auto words = r.read<std::uint32_t>();
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t m = 0; m < 4; ++m) {
      for (std::size_t k = 0; k < 2; ++k) {
        const std::size_t row = lane / 4, column = 2 * (lane % 4) + k;
        const auto shift = static_cast<unsigned>(16 * k);
        EXPECT_EQ(words[8 * lane + m] >> shift & 0xffffu, rows[64 * m + 8 * row + column]);
        EXPECT_EQ(words[8 * lane + 4 + m] >> shift & 0xffffu, rows[64 * m + 8 * column + row]);
      }
    }
  }
}

TEST(TunedWarp, ProductsOfMatrices) {
  for (const int bf16 : {0, 1}) {
    const auto round = [bf16](float v) { return bf16 ? sim::bf16_from_float(v) : sim::f16_from_float(v); };
    const auto widen = [bf16](Half h) {
      if (!bf16) return sim::float_from_f16(h);
      const std::uint32_t bits = static_cast<std::uint32_t>(h) << 16;
      float v;
      std::memcpy(&v, &bits, 4);
      return v;
    };
    const std::vector<float> a = random_floats(256, 2), b = random_floats(128, 3), d = random_floats(128, 4);
    std::vector<Half> ha(256), hb(128);
    for (std::size_t i = 0; i < 256; ++i) ha[i] = round(a[i]);
    for (std::size_t i = 0; i < 128; ++i) hb[i] = round(b[i]);
    DeviceArray da(ha), db(hb), dd(d);
    ASSERT_EQ(run_tuned("warp_products", {.block = 32}, {out(dd), in(da), in(db), number(std::int32_t{bf16})}), "");
    const auto result = dd.read<float>();
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 8; ++j) {
        double expected = d[8 * i + j];
        for (std::size_t k = 0; k < 16; ++k) {
          expected += static_cast<double>(widen(ha[16 * i + k])) * widen(hb[16 * j + k]);
        }
        EXPECT_NEAR(result[8 * i + j], expected, 1e-5) << i << " " << j;
      }
    }
  }
}

TEST(TunedWarp, EveryHalfBecomesItsFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<Half>(bits);
    _Float16 value;
    std::memcpy(&value, &half, 2);
    const float wide = sim::float_from_f16(half);
    if (std::isnan(static_cast<float>(value))) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_EQ(sim::f16_from_float(wide), 0x7fff);
    } else {
      ASSERT_EQ(wide, static_cast<float>(value)) << bits;
      ASSERT_EQ(std::signbit(wide), std::signbit(static_cast<float>(value)));
      ASSERT_EQ(sim::f16_from_float(wide), half);
    }
  }
}

TEST(TunedWarp, Conversions) {
  DeviceArray bits(5 * 4);
  ASSERT_EQ(run_tuned("warp_conversions", {}, {out(bits), number(1.0f + 0x1p-8f), number(-65520.0f)}), "");
  auto words = bits.read<std::uint32_t>();
  EXPECT_EQ(words[0], 0xc7803f80u);  // to even; -65520 goes up to -65536
  EXPECT_EQ(words[1], 0xfc003c04u);  // overflows to -inf
  EXPECT_EQ(words[2], 0x3f808000u);
  EXPECT_EQ(words[3], 0xff800000u);
  ASSERT_EQ(run_tuned("warp_conversions", {}, {out(bits), number(-3.0f), number(std::nanf(""))}), "");
  words = bits.read<std::uint32_t>();
  EXPECT_EQ(words[0], 0x7fffc040u);
  EXPECT_EQ(words[1], 0x7fffc200u);
  EXPECT_EQ(words[4], 0x3e000000u);  // 2^-3
}

std::vector<std::uint8_t> copied(int wait, int barrier, std::string& problem) {
  std::vector<std::uint8_t> bytes(3 * 1024);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i / 16);
  DeviceArray x(bytes), y(3 * 1024);
  problem = run_tuned("warp_copies", {.block = 64, .shared_bytes = 3 * 1024},
                      {out(y), in(x), number(std::int32_t{wait}), number(std::int32_t{barrier})});
  return y.read<std::uint8_t>();
}

TEST(TunedWarp, AsynchronousCopiesArriveWhenWaitedFor) {
  for (int wait = 0; wait <= 3; ++wait) {
    std::string problem;
    const auto y = copied(wait, 1, problem);
    ASSERT_EQ(problem, "");
    for (int group = 0; group < 3; ++group) {
      for (int t = 0; t < 64; ++t) {
        const std::uint8_t there = group == 2 ? 0 : static_cast<std::uint8_t>(64 * group + 63 - t);
        ASSERT_EQ(y[static_cast<std::size_t>(1024 * group + 16 * t)], group < wait ? there : 0xFF);
      }
    }
  }
}

TEST(TunedWarp, AMissingBarrierShows) {
  std::string problem;
  copied(3, 0, problem);
  EXPECT_EQ(problem.substr(0, 6), "order:") << problem;
}

TEST(TunedWarp, TheLastBlockFinishes) {
  const std::vector<float> values = random_floats(7 * 32, 5);
  double expected = 0;
  for (const float v : values) expected += v;
  DeviceArray x(values), parts(7 * 4), counter(std::vector<std::uint32_t>{0}), sum(4);
  EXPECT_EQ(run_tuned("warp_last_block", {.grid = {7, 1, 1}, .block = 32, .overlaps_previous = true},
                      {out(sum), out(parts), out(counter), in(x)}),
            "");
  EXPECT_NEAR(sum.read<float>()[0], expected, 1e-4);
  EXPECT_EQ(counter.read<std::uint32_t>()[0], 0u);
}

std::string with_mistake(int mistake, bool overlaps = false) {
  DeviceArray x(random_floats(256, 6)), y(1024);
  return run_tuned("warp_mistakes", {.block = 64, .shared_bytes = 16, .overlaps_previous = overlaps},
                   {out(y), in(x), number(std::int32_t{mistake})});
}

TEST(TunedWarp, MistakesAreFound) {
  EXPECT_EQ(with_mistake(0), "");
  const std::vector<std::pair<int, std::string>> kinds = {
      {1, "divergent-barrier: "}, {2, "divergent-barrier: "}, {3, "divergent-barrier: "}, {4, "out-of-bounds: "},
      {5, "out-of-bounds: "},     {6, "out-of-bounds: "},     {7, "out-of-bounds: "},     {8, "local-memory: "},
      {9, "local-memory: "},      {10, "local-memory: "},     {11, "local-memory: "},     {12, "order: "}};
  for (const auto& [mistake, kind] : kinds) {
    const std::string problem = with_mistake(mistake);
    EXPECT_EQ(problem.substr(0, kind.size()), kind) << mistake << ": " << problem;
  }
  EXPECT_NE(with_mistake(1).find("16 of the 32 items of sub-group 0 are there"), std::string::npos) << with_mistake(1);
  EXPECT_NE(with_mistake(3).find("meet in different ones"), std::string::npos) << with_mistake(3);
}

TEST(TunedWarp, OverlapWithTheKernelBefore) {
  EXPECT_EQ(with_mistake(0, true), "");
  EXPECT_EQ(with_mistake(13, true).substr(0, 14), "kernel-state: ") << with_mistake(13, true);
  EXPECT_EQ(with_mistake(14, true).substr(0, 7), "early: ") << with_mistake(14, true);
}

TEST(TunedWarp, LaunchesThatNoDeviceAllows) {
  DeviceArray x(random_floats(256, 6)), y(1024);
  const std::vector<KernelArgument> arguments = {out(y), in(x), number(std::int32_t{0})};
  for (const int block : {0, 48, 96}) {
    // 0 means the kernel's own size in the engine.
    const std::string problem = run_tuned("warp_mistakes", {.block = block, .shared_bytes = 16}, arguments);
    EXPECT_EQ(problem.substr(0, 14), block == 0 ? "" : "kernel-state: ") << block;
  }
  EXPECT_EQ(run_tuned("warp_mistakes", {.block = 64, .shared_bytes = 226 * 1024}, arguments), "");
  EXPECT_EQ(run_tuned("warp_mistakes", {.block = 64, .shared_bytes = 227 * 1024}, arguments).substr(0, 14),
            "local-memory: ");  // 1 KiB is static
  EXPECT_EQ(run_tuned("warp_mistakes", {.block = 64, .shared_bytes = 16}, {out(y), in(x)}).substr(0, 11),
            "arguments: ");
}

// About what a product for one token does, and a figure: what a block of 256 threads costs.
TEST(TunedWarp, BlocksOfAProduct) {
  constexpr std::int64_t kColumns = 2048;
  constexpr std::uint32_t kBlocks = 50;
  std::vector<Half> weight(kBlocks * kColumns), vector(kColumns);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = sim::bf16_from_float(static_cast<float>(i % 7) - 3);
  for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = sim::bf16_from_float(static_cast<float>(i % 5) - 2);
  DeviceArray w(weight), x(vector), y(kBlocks * 4);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run_tuned("warp_sums", {.grid = {kBlocks, 1, 1}, .block = 256}, {out(y), in(w), in(x), number(kColumns)}),
            "");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("microseconds_a_block", std::to_string(1e6 * seconds / (2 * kBlocks)));
  const auto result = y.read<float>();
  for (std::size_t block = 0; block < kBlocks; ++block) {
    float expected = 0;                              // whole numbers: exact in any order
    for (std::size_t c = 0; c < kColumns; c += 2) {  // the kernel takes the low half of each word
      expected += (static_cast<float>((block * kColumns + c) % 7) - 3) * (static_cast<float>(c % 5) - 2);
    }
    ASSERT_EQ(result[block], expected);
  }
}

}  // namespace
}  // namespace anyaccel::testing
