// Caches of keys and values in blocks or in floats of 8 bits: "quantized_cache_write" and "quantized_attention" against the CPU's
// references, on every instruction set of the CPU, or on the accelerator that ANYACCEL_TEST_ACCELERATOR names; and the rounding of
// such floats against PyTorch's.
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/block_format.h"
#include "base/simd/cpu_features.h"
#include "ops/e4m3_torch_values.h"
#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing {
namespace {

constexpr int64_t kValues = 32, kBytes = 34;  // of a block
constexpr Tolerance kTolerance{1e-5, 3e-6, 1};

// What the op may round to bf16 is rounded by processors that decode the cache of a single token to bf16, which pays off from some
// number of query heads on.
Tolerance tolerance_of(const OpCase& c, int32_t format) {
  const int64_t group = c.tensors[1].shape()[1] / c.tensors[2].shape()[1];
  const bool rounds = c.tensors[0].dtype() == DType::BF16 && !anyaccel::testing::device_under_test() &&
                      cpu_features().fast_bf16_dot && cpu_features().avx512_vbmi &&
                      group > (format == AA_CACHE_F8_E4M3 ? 2 : 4);
  if (!rounds) return kTolerance;
  return {3 * 0x1p-8, 3 * 0x1p-8, 1};
}

int64_t row_bytes(int64_t size, int32_t format) { return format == AA_CACHE_Q8_0 ? size / kValues * kBytes : size; }

std::vector<float> decoded(const TestTensor& cache) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < cache.count(); ++i) bytes.push_back(static_cast<std::byte>(cache.integer(i)));
  std::vector<float> values(bytes.size() / kBytes * kValues);
  decode_blocks(*find_block_format(AA_BLOCK_Q8_0), bytes, values);
  return values;
}

// A cache, with gaps between rows if wanted, of values of the size of 1; those of `not_seen` (rows) are NaN.
TestTensor cache_of(Random& random, const Shape& shape, int32_t format, const std::function<bool(int64_t)>& not_seen) {
  TestTensor cache(DType::U8, shape);
  const int64_t bytes = shape[3];
  if (format == AA_CACHE_F8_E4M3) {
    cache.fill([&](int64_t i) -> double {
      const bool hidden = not_seen && not_seen(i / bytes);
      return hidden ? 0x7f : static_cast<double>(random.integer(0, 0x40) | random.integer(0, 1) << 7);  // at most 2
    });
    return cache;
  }
  for (int64_t i = 0; i < cache.count(); i += kBytes) {
    const bool hidden = not_seen && not_seen(i / bytes);
    const uint16_t scale = hidden ? uint16_t{0x7e00} : float_to_fp16(0.005f + 0.01f * static_cast<float>(i % 97) / 97);
    cache.set(i, int64_t{scale & 255});
    cache.set(i + 1, int64_t{scale >> 8});
    for (int64_t j = 2; j < kBytes; ++j) cache.set(i + j, random.integer(1, 255));
  }
  return cache;
}

OpCase attention_case(Random& random, int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t size,
                      int64_t sequences, int64_t slots, aa_quantized_attention_params params,
                      const std::function<bool(int64_t)>& not_seen = {}) {
  const Shape cache{sequences, kv_heads, slots, row_bytes(size, params.format)};
  const bool strided = random.chance(0.3);
  const Shape heads{tokens, q_heads, size};
  OpCase c;
  c.op = "quantized_attention";
  c.tensors.push_back(strided ? TestTensor::random_layout(random, random.float_dtype(), heads, false)
                              : TestTensor(random.float_dtype(), heads));
  c.tensors.push_back(strided ? TestTensor::random_layout(random, random.float_dtype(), heads, true)
                              : TestTensor(random.float_dtype(), heads));
  c.tensors[1].fill_normal(random);
  for (int i = 0; i < 2; ++i) c.tensors.push_back(cache_of(random, cache, params.format, not_seen));
  for (int i = 0; i < 2; ++i) c.tensors.emplace_back(DType::I32, Shape{tokens});
  // Slopes and sinks.
  for (int i = 0; i < 2; ++i) {
    c.tensors.push_back(random.chance(0.3) ? TestTensor(DType::F32, {q_heads}).fill_normal(random, 0.2) : TestTensor());
  }
  return c.with(params);
}

constexpr int32_t kFormats[] = {AA_CACHE_Q8_0, AA_CACHE_F8_E4M3};

int32_t any_format(Random& random) { return kFormats[random.integer(0, 1)]; }

aa_quantized_attention_params params_of(int64_t size, int32_t format, int32_t window = 0, float softcap = 0) {
  return {0, 1.0f / std::sqrt(static_cast<float>(size)), window, softcap, format};
}

TEST(QuantizedCache, NewTokens) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 16; ++i) {
      const int64_t kv_heads = random.integer(1, 3), group = random.pick<int64_t>({1, 2, 4, 7, 8});
      const int64_t size = random.pick<int64_t>({32, 64, 96, 128, 160, 256});
      const int64_t sequences = random.integer(1, 3), slots = random.integer(1, 400);
      const int32_t format = any_format(random);
      OpCase c =
          attention_case(random, random.integer(1, 4), kv_heads * group, kv_heads, size, sequences, slots,
                         params_of(size, format, random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0,
                                   random.chance(0.2) ? 5.0f : 0.0f));
      c.tensors[4].fill([&](int64_t) { return static_cast<double>(random.integer(0, sequences - 1)); });
      c.tensors[5].fill([&](int64_t) { return static_cast<double>(random.integer(0, slots - 1)); });
      compare(c, tolerance_of(c, format));
    }
  });
}

// One token, so that its own kernels are used, over numbers of slots around those of their blocks (3, 8, 24, 96 and parts of a context)
// and every number of query heads, with NaN behind what it sees and in a slot that it sees.
TEST(QuantizedCache, ATokenOverBlocksOfSlots) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 60; ++i) {
      const int64_t kv_heads = random.integer(1, 2), group = 1 + i % 12;
      const int64_t size = random.pick<int64_t>({32, 64, 96, 128, 160, 256});
      const int64_t seen = random.pick<int64_t>({1, 2, 7, 22, 23, 24, 25, 47, 95, 96, 97, 119, 193, 500, 801});
      const int64_t slots = seen + random.integer(0, 30);
      const auto window = random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0;
      // A NaN among keys or values that are seen makes results NaN, whatever its place in a block.
      const int64_t nan_at = random.chance(0.2) ? random.integer(0, seen - 1) : -1;
      const auto not_seen = [&](int64_t row) {
        const int64_t slot = row % slots;
        return slot >= seen || slot == nan_at || (window > 0 && slot < seen - window);
      };
      const int32_t format = kFormats[i / 12 % 2];
      OpCase c = attention_case(random, 1, kv_heads * group, kv_heads, size, 1, slots,
                                params_of(size, format, window, random.chance(0.2) ? 5.0f : 0.0f), not_seen);
      c.tensors[5].fill([&](int64_t) { return static_cast<double>(seen - 1); });
      SCOPED_TRACE(c.text() + " seen " + std::to_string(seen) + ", window " + std::to_string(window) + ", NaN at " +
                   std::to_string(nan_at));
      compare(c, tolerance_of(c, format));
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// A NaN of fp8, of either sign, anywhere in a block of keys or values: keys make all results NaN, values those of their element.
TEST(QuantizedCache, ATokenFindsEveryNaN) {
  Random random(6);
  for (int i = 0; i < 40; ++i) {
    constexpr int64_t slots = 110, size = 64;
    OpCase c = attention_case(random, 1, 4, 1, size, 1, slots, params_of(size, AA_CACHE_F8_E4M3));
    c.tensors[5].fill([](int64_t) { return static_cast<double>(slots - 1); });
    c.tensors[2 + static_cast<size_t>(i % 2)].set(random.integer(0, slots * size - 1),
                                                  int64_t{i % 4 < 2 ? 0x7f : 0xff});
    compare(c, tolerance_of(c, AA_CACHE_F8_E4M3));
  }
}

TEST(QuantizedCache, Prompts) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 12; ++i) {
      const int64_t kv_heads = random.integer(1, 2), group = random.pick<int64_t>({1, 2, 4, 8});
      const int64_t size = random.pick<int64_t>({32, 64, 96, 128});
      const int64_t slots = random.integer(1, 150), tokens = random.integer(1, slots);
      const int64_t first = random.integer(0, slots - tokens);
      const auto window = random.chance(0.4) ? static_cast<int32_t>(random.integer(1, 100)) : 0;
      // What no token sees is NaN.
      const auto not_seen = [&](int64_t row) {
        const int64_t slot = row % slots;
        return row / slots / kv_heads == 0 || slot >= first + tokens || (window > 0 && slot <= first - window);
      };
      const int32_t format = any_format(random);
      OpCase c = attention_case(random, tokens, kv_heads * group, kv_heads, size, 2, slots,
                                params_of(size, format, window, random.chance(0.2) ? 3.0f : 0.0f), not_seen);
      c.tensors[4].fill([](int64_t) { return 1.0; });
      c.tensors[5].fill([&](int64_t t) { return static_cast<double>(first + t); });
      // A tile of a prompt may have one token.
      compare(c, tolerance_of(c, format));
    }
  });
}

TEST(QuantizedCache, ALaterTokensNaNDoesNotReachEarlierOnes) {
  Random random(2);
  constexpr int64_t tokens = 20, slots = 40;
  for (const int32_t format : kFormats) {
    OpCase c = attention_case(random, tokens, 4, 2, 64, 1, slots, params_of(64, format),
                              [&](int64_t row) { return row % slots == 30; });
    c.tensors[5].fill([](int64_t t) { return static_cast<double>(t + 15); });
    compare(c, kTolerance);
  }
}

TEST(QuantizedCache, ANewTokenReadsEveryE4m3) {
  Random random(3);
  // The one slot has the weight 1 for each query head, as keys are 0: results are the values, a NaN among them for either sign.
  for (const auto& [group, type] : {std::pair{1, DType::F32}, {4, DType::F32}, {4, DType::BF16}, {8, DType::BF16}}) {
    OpCase c = attention_case(random, 1, group, 1, 256, 1, 1, params_of(256, AA_CACHE_F8_E4M3));
    c.tensors[0] = TestTensor(type, {1, group, 256});
    c.tensors[2].fill([](int64_t) { return 0.0; });
    c.tensors[3].fill([](int64_t code) { return static_cast<double>(code); });
    c.tensors[6] = c.tensors[7] = TestTensor();
    compare(c, {0, 0, 0});
  }
}

TEST(QuantizedCache, OutOfRange) {
  Random random(1);
  OpCase c = attention_case(random, 3, 4, 2, 32, 2, 8, params_of(32, AA_CACHE_F8_E4M3));
  for (const auto& [sequence, position] : {std::pair{2, 0}, {-1, 0}, {0, 8}, {0, -1}}) {
    OpCase bad = c;
    bad.tensors[4].set(1, int64_t{sequence});
    bad.tensors[5].set(1, int64_t{position});
    expect_out_of_range(bad);
  }
}

TEST(QuantizedCache, ByRowDoesNotDependOnTheNumberOfTokens) {
  for (const int32_t format : kFormats) {
    Random random(4);
    const OpCase all = [&] {
      OpCase c = attention_case(random, 40, 8, 2, 64, 1, 300, params_of(64, format));
      c.tensors[0] = TestTensor(DType::F32, {40, 8, 64});
      const TestTensor q = c.tensors[1];
      c.tensors[1] = TestTensor(DType::F32, {40, 8, 64});
      c.tensors[1].fill([&](int64_t i) { return q.number(i); });
      c.tensors[5].fill([](int64_t t) { return static_cast<double>(200 + t); });
      return c;
    }();
    const auto run_rows = [&](int64_t begin, int64_t count) {
      OpCase c = all;
      c.tensors[0] = TestTensor(DType::F32, {count, 8, 64});
      c.tensors[1] = TestTensor(DType::F32, {count, 8, 64});
      c.tensors[1].fill([&](int64_t i) { return all.tensors[1].number(begin * 8 * 64 + i); });
      for (size_t i : {size_t{4}, size_t{5}}) {
        c.tensors[i] = TestTensor(DType::I32, {count});
        c.tensors[i].fill([&](int64_t t) { return all.tensors[i].number(begin + t); });
      }
      run_as("quantized_attention_by_row", c, true);
      return c.tensors[0];
    };
    const TestTensor whole = run_rows(0, 40);
    for (const int64_t begin : {0, 17, 39}) {
      const TestTensor one = run_rows(begin, 1);
      for (int64_t i = 0; i < 8 * 64; ++i) ASSERT_EQ(one.number(i), whole.number(begin * 8 * 64 + i)) << begin;
    }
  }
}

OpCase write_case(Random& random, int32_t format, int64_t tokens, int64_t sequences, int64_t heads, int64_t slots,
                  int64_t size) {
  OpCase c;
  c.op = "quantized_cache_write";
  for (int i = 0; i < 2; ++i) {
    c.tensors.push_back(cache_of(random, {sequences, heads, slots, row_bytes(size, format)}, format, {}));
  }
  for (int i = 0; i < 2; ++i) {
    c.tensors.push_back(TestTensor::random_layout(random, random.float_dtype(), {tokens, heads, size}, true));
    c.tensors.back().fill_normal(random, random.pick({1e-4, 1.0, 300.0}));
  }
  for (const int64_t bound : {sequences, slots}) {
    c.tensors.emplace_back(DType::I32, Shape{tokens});
    c.tensors.back().fill([&](int64_t) { return static_cast<double>(random.integer(0, bound - 1)); });
  }
  return c.with(aa_cache_params{0, format});
}

// The CPU writes the bytes of its reference. Another accelerator may round to the other neighbour where a value of a block is
// close to the middle.
TEST(QuantizedCache, Write) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 20; ++i) {
      const int64_t sequences = random.integer(1, 3), slots = random.integer(1, 30);
      const int32_t format = any_format(random);
      const OpCase c = write_case(random, format, random.integer(0, 9), sequences, random.integer(1, 4), slots,
                                  random.pick<int64_t>({32, 64, 96, 128}));
      if (format == AA_CACHE_F8_E4M3 || !anyaccel::testing::device_under_test()) {
        compare(c, {0, 0, 0});
      } else {
        OpCase expected = c, found = c;
        run(expected, false);
        run(found, true);
        for (size_t tensor : {size_t{0}, size_t{1}}) {
          EXPECT_TRUE(found.tensors[tensor].untouched());
          const std::vector<float> a = decoded(found.tensors[tensor]), b = decoded(expected.tensors[tensor]);
          for (size_t e = 0; e < a.size(); ++e) {
            const auto block = static_cast<ptrdiff_t>(e / kValues * kValues);
            float largest = 0;
            for (int64_t j = 0; j < kValues; ++j)
              largest = std::max(largest, std::fabs(b[static_cast<size_t>(block + j)]));
            ASSERT_NEAR(a[e], b[e], 1.01f * largest / 127 + 1e-7f) << c.text();
          }
        }
      }
      if (c.tensors[4].count() == 0) continue;
      for (size_t tensor : {size_t{4}, size_t{5}}) {
        OpCase bad = c;
        bad.tensors[tensor].set(c.tensors[4].count() - 1, tensor == 4 ? sequences : slots);
        expect_out_of_range(bad);
      }
    }
  });
}

// A value that is not finite, or one too large for a scale in fp16, makes its block NaN and no other; zeros and the smallest
// numbers become zeros.
TEST(QuantizedCache, ExtremesOfBlocks) {
  Random random(3);
  OpCase c = write_case(random, AA_CACHE_Q8_0, 1, 1, 1, 1, 192);
  c.tensors[2] = TestTensor(DType::F32, {1, 1, 192});
  c.tensors[2].fill_normal(random);
  c.tensors[4].set(0, int64_t{0});
  c.tensors[5].set(0, int64_t{0});
  c.tensors[2].set(5, std::numeric_limits<float>::quiet_NaN());
  c.tensors[2].set(40, -std::numeric_limits<float>::infinity());
  c.tensors[2].set(70, 1e8f);
  for (int64_t i = 96; i < 128; ++i) c.tensors[2].set(i, 0.0f);
  for (int64_t i = 128; i < 160; ++i) c.tensors[2].set(i, 1e-9f);
  for_each_isa([&](Isa) {
    OpCase found = c;
    run(found, true);
    const std::vector<float> values = decoded(found.tensors[0]);
    for (size_t i = 0; i < 192; ++i) {
      if (i < 96) {
        ASSERT_TRUE(std::isnan(values[i])) << i;
      } else if (i < 160) {
        ASSERT_EQ(values[i], 0.0f) << i;
      } else {
        ASSERT_NEAR(values[i], c.tensors[2].number(static_cast<int64_t>(i)), 0.02) << i;
      }
    }
  });
}

// A row of values with the bits of `numbers`, written as floats of 8 bits.
std::vector<int64_t> written_as_e4m3(const std::vector<float>& numbers) {
  Random random(5);
  const auto size = static_cast<int64_t>(numbers.size());
  OpCase c = write_case(random, AA_CACHE_F8_E4M3, 1, 1, 1, 1, size);
  c.tensors[2] = TestTensor(DType::F32, {1, 1, size});
  c.tensors[2].fill([&](int64_t i) { return static_cast<double>(numbers[static_cast<size_t>(i)]); });
  c.tensors[4].set(0, int64_t{0});
  c.tensors[5].set(0, int64_t{0});
  run(c, true);
  std::vector<int64_t> bytes;
  for (int64_t i = 0; i < size; ++i) bytes.push_back(c.tensors[0].integer(i));
  return bytes;
}

// Every value of the format, the middles between them and what lies beside those, in whole groups of 32.
TEST(QuantizedCache, E4m3IsRoundedAsPyTorchRoundsIt) {
  std::vector<float> numbers;
  for (const auto& [number, rounded] : ops::torch_values::rounded_to_e4m3)
    numbers.push_back(std::bit_cast<float>(number));
  const size_t count = numbers.size();
  numbers.resize((count + 31) / 32 * 32);
  for_each_isa([&](Isa) {
    const std::vector<int64_t> bytes = written_as_e4m3(numbers);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(bytes[i], ops::torch_values::rounded_to_e4m3[i].rounded) << numbers[i];
    }
  });
}

TEST(QuantizedCache, ExtremesOfE4m3) {
  std::vector<float> numbers(32, 1.0f);
  numbers[0] = std::numeric_limits<float>::quiet_NaN();
  numbers[1] = -std::numeric_limits<float>::infinity();
  numbers[2] = std::numeric_limits<float>::max();
  numbers[3] = -1e-30f;
  for_each_isa([&](Isa) {
    const std::vector<int64_t> bytes = written_as_e4m3(numbers);
    EXPECT_EQ(bytes[0] & 0x7f, 0x7f);
    EXPECT_EQ(bytes[1] & 0x7f, 0x7f);
    EXPECT_EQ(bytes[2], 0x7e);
    EXPECT_EQ(bytes[3], 0x80);
    for (size_t i = 4; i < 32; ++i) EXPECT_EQ(bytes[i], 0x38);
  });
}

}  // namespace
}  // namespace anyaccel::cpu::testing
