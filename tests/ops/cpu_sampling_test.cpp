// The CPU's argmax, sample and random.
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "accelerators/cpu/kernels/sampling.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/philox.h"
#include "ops/op_test_support.h"
#include "test_paths.h"

namespace anyaccel::cpu::testing {
namespace {

TEST(CpuArgmax, AgainstReference) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 60; ++i) {
      const int64_t rows = random.integer(0, 4), v = random.pick<int64_t>({1, 2, 15, 16, 33, 500, 2048, 2049, 9000});
      OpCase c;
      c.op = "argmax";
      c.tensors.push_back(TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {rows}, false));
      c.tensors.push_back(TestTensor::random_layout(random, random.float_dtype(), {rows, v}, true));
      // Few different values, so that there are equal maxima; now and then a NaN, or nothing but -infinity.
      const bool lowest = random.chance(0.1), with_nan = random.chance(0.2);
      c.tensors[1].fill([&](int64_t) {
        if (lowest) return -std::numeric_limits<double>::infinity();
        if (with_nan && random.chance(0.01)) return std::nan("");
        return static_cast<double>(random.integer(-30, 5));
      });
      compare(c, {0, 0, 0});
    }
  });
}

OpCase sample_case(TestTensor logits, aa_sample_params params, int64_t seed, int64_t offset, bool seen) {
  const int64_t rows = logits.shape()[0];
  OpCase c;
  c.op = "sample";
  c.tensors.push_back(TestTensor(DType::I64, {rows}));
  c.tensors.push_back(std::move(logits));
  c.tensors.push_back(TestTensor(DType::I64, {2}));
  c.tensors[2].set(0, seed);
  c.tensors[2].set(1, offset);
  c.tensors.push_back(seen ? TestTensor(DType::U8, c.tensors[1].shape()) : TestTensor());
  return c.with(params);
}

// Returns whether `sample` may choose this token for a row: whether a change of at most 1e-5 in the drawn number, in
// top_p and in min_p would make the reference give it. The fast version has binary32 weights.
bool is_allowed(int64_t token, const TestTensor& logits, int64_t row, const aa_sample_params& p, double u) {
  const int64_t v = logits.shape()[1];
  std::vector<int64_t> order(static_cast<size_t>(v));
  std::iota(order.begin(), order.end(), row * v);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits.number(a) > logits.number(b); });
  if (p.top_k > 0 && p.top_k < v) order.resize(static_cast<size_t>(p.top_k));
  std::vector<double> weight;
  for (int64_t i : order) weight.push_back(std::exp((logits.number(i) - logits.number(order[0])) / p.temperature));
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (double top_p : {p.top_p - 1e-5, p.top_p + 1e-5}) {
    for (double min_p : {p.min_p * (1 - 1e-5), p.min_p * (1 + 1e-5)}) {
      double total = all;
      size_t kept = weight.size();
      if (p.top_p < 1) {
        double sum = 0;
        for (kept = 0; kept < weight.size() && sum < top_p * all;) sum += weight[kept++];
        total = sum;
      }
      if (min_p > 0) {
        while (kept > 1 && weight[kept - 1] < min_p) --kept;
        total = std::accumulate(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
      }
      double sum = 0;
      for (size_t i = 0; i < kept; ++i) {
        const double before = sum;
        sum += weight[i];
        if (order[i] - row * v != token) continue;
        if (before <= (u + 1e-5) * total && (sum >= (u - 1e-5) * total || i + 1 == kept)) return true;
      }
    }
  }
  return false;
}

TEST(CpuSample, AgainstReference) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 150; ++i) {
      const int64_t rows = random.integer(1, 5);
      const int64_t v = i % 30 == 0 ? 40000 : random.pick<int64_t>({1, 2, 16, 50, 333, 3000});
      const aa_sample_params params{
          0, random.pick({0.1f, 0.7f, 1.0f, 3.0f}), random.pick<int32_t>({0, 0, 1, 3, 40, 1000, 50000}),
          random.pick({1.0f, 1.0f, 0.95f, 0.5f, 0.01f}), random.pick({0.0f, 0.0f, 1e-9f, 0.01f, 0.2f, 1.0f})};
      TestTensor logits = TestTensor::random_layout(random, random.float_dtype(), {rows, v}, true);
      // Flat, peaked, with many equal logits, and with most tokens forbidden.
      const int kind = static_cast<int>(random.integer(0, 3));
      logits.fill([&](int64_t) {
        switch (kind) {
          case 0: return random.normal(0.5);
          case 1: return random.normal(8);
          case 2: return static_cast<double>(random.integer(-3, 3));
          default: return random.chance(0.9) ? -std::numeric_limits<double>::infinity() : random.normal(2);
        }
      });
      const int64_t seed = random.integer(-1000, 1000), offset = random.integer(0, 1000);
      OpCase c = sample_case(logits, params, seed, offset, random.chance(0.5));
      if (c.tensors[3].present()) c.tensors[3] = TestTensor::random_layout(random, DType::U8, {rows, v}, false);
      SCOPED_TRACE(c.text() + " temperature " + std::to_string(params.temperature) + " top_k " +
                   std::to_string(params.top_k) + " top_p " + std::to_string(params.top_p) + " min_p " +
                   std::to_string(params.min_p));
      OpCase expected = c;
      run(expected, false);
      for_each_isa([&](Isa) {
        OpCase found = c;
        run(found, true);
        EXPECT_TRUE(found.tensors[0].untouched());
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t token = found.tensors[0].integer(r);
          if (expected.tensors[0].integer(r) == -1) {  // all are forbidden
            ASSERT_EQ(token, -1);
            continue;
          }
          ASSERT_TRUE(token >= 0 && token < v) << token;
          EXPECT_TRUE(!found.tensors[3].present() || found.tensors[3].integer(r * v + token) == 1);
          if (token == expected.tensors[0].integer(r)) continue;
          const uint64_t n = static_cast<uint64_t>(r);
          const float u =
              philox_unit(philox_words(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset) + n / 4)[n % 4]);
          EXPECT_TRUE(is_allowed(token, logits, r, params, u))
              << "row " << r << ": " << token << ", expected " << expected.tensors[0].integer(r);
        }
      });
    }
  });
}

// Tokens far below the most likely ones, of which there are so many that most draws fall on one of them, are drawn if min_p keeps
// them; if not, they take no part in the draws of the others. A min_p of 1 keeps what is as likely as the first, and nothing else.
TEST(CpuSample, MinPOfManyUnlikelyTokens) {
  const bool is_device = anyaccel::testing::device_under_test() != nullptr;  // of which a simulated one is slow
  const int64_t rows = is_device ? 4 : 16, v = is_device ? 2000 : 20000;
  for (const float min_p : {0.0f, 1e-9f, 0.0005f, 0.01f, 1.0f}) {
    TestTensor logits(DType::F32, {rows, v});
    logits.fill([&](int64_t i) {
      const int64_t at = i % v;
      return at == 3 || at == 5 ? 0.0 : at == 4 ? -0.001 : at == 6 ? -7.0 : -8.5;
    });
    OpCase c = sample_case(logits, {0, 1.0f, 0, 1.0f, min_p}, 17, 0, false);
    run(c, true);
    int64_t unlikely = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = c.tensors[0].integer(r);
      const auto n = static_cast<uint64_t>(r);
      EXPECT_TRUE(is_allowed(token, logits, r, {0, 1.0f, 0, 1.0f, min_p}, philox_unit(philox_words(17, n / 4)[n % 4])))
          << "min_p " << min_p << ": " << token << " in row " << r;
      unlikely += token < 3 || token > 6;
    }
    if (is_device) continue;
    // Their share is 0.58.
    EXPECT_EQ(unlikely > rows / 4, min_p < 0.0001f) << "min_p " << min_p << ": " << unlikely;
  }
}

// Of a distribution like a language model's, as many tokens are looked at one by one in a vocabulary eight times as large.
// Counts work, not time.
TEST(CpuSample, LooksAtFewTokensOfALargeVocabulary) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "counts the work of the CPU's kernel";
  const auto candidates = [](int64_t v, int32_t top_k) {
    TestTensor logits(DType::F32, {1, v});
    logits.fill([](int64_t i) { return -2.0 * std::log(static_cast<double>(i + 1)); });
    const int64_t before = drawn_candidates();
    for (int64_t offset = 0; offset < 32; ++offset) {
      OpCase c = sample_case(logits, {0, 1.0f, top_k, 0.95f, 0.0f}, 7, offset, false);
      run(c, true);
    }
    return drawn_candidates() - before;
  };
  for (const int32_t top_k : {0, 50}) {
    const int64_t few = candidates(16000, top_k), many = candidates(128000, top_k);
    EXPECT_LE(many, few + few / 8) << "top_k " << top_k;
    EXPECT_LE(many, 32 * 200) << "top_k " << top_k;
  }
}

// The passes over a row are shared among threads; the token does not depend on their number.
TEST(CpuSample, AnyNumberOfThreadsDrawsTheSameToken) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "the threads are those of the CPU's kernel";
  WorkerPool& pool = WorkerPool::instance();
  const int threads = pool.size();
  Random random(3);
  for (int i = 0; i < 40; ++i) {
    const int64_t v = random.pick<int64_t>({8191, 8193, 50000, 100003});
    TestTensor logits(random.float_dtype(), {1, v});
    const double spread = random.pick({0.3, 2.0, 6.0});
    logits.fill([&](int64_t) { return random.normal(spread); });
    const aa_sample_params params{0, random.pick({0.0f, 0.7f, 1.0f}), random.pick<int32_t>({0, 0, 40, 3000}),
                                  random.pick({1.0f, 0.95f, 0.3f}), random.pick({0.0f, 0.05f})};
    std::vector<int64_t> tokens;
    for (const int count : {1, 2, 3, 5}) {
      pool.set_size(count);
      OpCase c = sample_case(logits, params, 11, i, false);
      run(c, true);
      tokens.push_back(c.tensors[0].integer(0));
    }
    EXPECT_EQ(tokens, std::vector<int64_t>(4, tokens[0])) << "case " << i;
  }
  pool.set_size(threads);
}

TEST(CpuSample, TemperatureZeroIsArgmax) {
  Random random(5);
  TestTensor logits = TestTensor(DType::F32, {3, 1000}).fill_normal(random);
  OpCase c = sample_case(logits, {0, 0.0f, 5, 0.5f, 0.0f}, 1, 2, true);
  compare(c, {0, 0, 0});
}

// A NaN anywhere, an infinite maximum, or nothing but -infinity: -1, and nothing is marked. A single -infinity, with which
// masks forbid a token, is no such row. Rows of 40 take an accelerator's portable kernel, longer ones its own.
TEST(CpuSample, ARowWithoutAFiniteMaximumHasNoToken) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const int64_t v : {40, 5000}) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const float temperature : {0.0f, 1.0f}) {
        for (const int32_t top_k : {0, 1, 5}) {
          TestTensor logits(dtype, {7, v});
          logits.fill([&](int64_t i) {
            const int64_t row = i / v, at = i % v;
            switch (row) {
              case 0: return at == v - 3 ? nan : -1.0;
              case 1: return at == 7 || at == v - 10 ? infinity : 1.0;
              case 2: return -infinity;
              case 3: return at == 11 ? nan : at == 5 ? infinity : -infinity;
              case 4: return at == 9 ? -nan : 2.0;
              case 5: return at == 13 ? 1.0 : -infinity;
              default: return at == 0 ? -infinity : at == 17 ? 100.0 : 1.0;
            }
          });
          OpCase c = sample_case(logits, {0, temperature, top_k, 1.0f, 0.0f}, 1, 2, true);
          SCOPED_TRACE(c.text());
          compare(c, {0, 0, 0});
          run(c, false);
          for (int64_t row = 0; row < 7; ++row) {
            const int64_t expected = row == 5 ? 13 : row == 6 ? 17 : -1;
            EXPECT_EQ(c.tensors[0].integer(row), expected) << "row " << row;
            for (int64_t i = 0; i < v; ++i) ASSERT_EQ(c.tensors[3].integer(row * v + i), i == expected) << row;
          }
        }
      }
    }
  }
}

TEST(CpuSample, FollowsTheDistribution) {
  // 20000 draws over four tokens of probabilities 0.1, 0.2, 0.3, 0.4, and top_p 0.65, which keeps the last two.
  const int64_t rows = 20000;
  TestTensor logits(DType::F32, {rows, 4});
  logits.fill([](int64_t i) { return std::log(0.1 * static_cast<double>(i % 4 + 1)); });
  for (float top_p : {1.0f, 0.65f}) {
    OpCase c = sample_case(logits, {0, 1.0f, 0, top_p, 0.0f}, 42, 0, false);
    run(c, true);
    double count[4] = {};
    for (int64_t r = 0; r < rows; ++r) count[c.tensors[0].integer(r)] += 1.0 / static_cast<double>(rows);
    for (int token = 0; token < 4; ++token) {
      const double expected = top_p == 1.0f ? 0.1 * (token + 1) : token < 2 ? 0 : 0.1 * (token + 1) / 0.7;
      EXPECT_NEAR(count[token], expected, 0.015) << token;
    }
  }
}

// The probabilities that transformers' processors leave (tests/data/generation_settings.json), as the share of draws.
TEST(CpuSample, FollowsTheProcessorsOfTransformers) {
  const auto data = nlohmann::json::parse(std::ifstream(anyaccel::testing::test_data() + "/generation_settings.json"));
  for (const auto& given : data.at("distributions")) {
    const auto& settings = given.at("settings");
    const auto values = given.at("logits").get<std::vector<double>>();
    const auto probabilities = given.at("probabilities").get<std::vector<double>>();
    const auto v = static_cast<int64_t>(values.size());
    const int64_t rows = 8000;
    TestTensor logits(DType::F32, {rows, v});
    logits.fill([&](int64_t i) { return values[static_cast<size_t>(i % v)]; });
    const aa_sample_params params{0, settings.value("temperature", 1.0f), settings.value("top_k", 0),
                                  settings.value("top_p", 1.0f), settings.value("min_p", 0.0f)};
    OpCase c = sample_case(logits, params, 42, 0, false);
    run(c, true);
    std::vector<double> share(values.size());
    for (int64_t r = 0; r < rows; ++r) {
      share[static_cast<size_t>(c.tensors[0].integer(r))] += 1.0 / static_cast<double>(rows);
    }
    for (size_t token = 0; token < share.size(); ++token) {
      if (probabilities[token] == 0) {
        EXPECT_EQ(share[token], 0) << settings << " token " << token;
      } else {
        EXPECT_NEAR(share[token], probabilities[token], 0.025) << settings << " token " << token;
      }
    }
  }
}

TEST(CpuRandom, AgainstReference) {
  constexpr DType kAll[] = {DType::Bool, DType::U8,   DType::I8,  DType::I16, DType::I32,    DType::I64,
                            DType::F16,  DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2};
  for_each_seed([&](Random& random) {
    for (DType dtype : kAll) {
      for (int32_t kind : {AA_RANDOM_BITS, AA_RANDOM_UNIFORM, AA_RANDOM_NORMAL}) {
        if (kind == AA_RANDOM_BITS && (is_floating(dtype) || dtype == DType::Bool)) continue;
        for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7, 5}, Shape{2500}, Shape{3, 1, 43}}) {
          OpCase c;
          c.op = "random";
          c.tensors.push_back(TestTensor::random_layout(random, dtype, shape, false));
          const uint64_t offset = random.chance(0.5) ? 0xfffffffeu : static_cast<uint64_t>(random.integer(0, 1 << 20));
          c.with(aa_random_params{0, kind, 0x123456789abcdef0u, offset, -3.5, 9.25});
          // A device's logarithm and cosine may differ from ours in the last place, which only F64 can show.
          const bool other_math = anyaccel::testing::device_under_test() && dtype == DType::F64;
          compare(c, other_math && kind == AA_RANDOM_NORMAL ? Tolerance{1e-14, 1e-15, 2} : Tolerance{0, 0, 0});
        }
      }
    }
  });
}

TEST(CpuRandom, Moments) {
  for (int32_t kind : {AA_RANDOM_UNIFORM, AA_RANDOM_NORMAL}) {
    OpCase c;
    c.op = "random";
    c.tensors.push_back(TestTensor(DType::F32, {100000}));
    c.with(aa_random_params{0, kind, 7, 0, 2.0, 5.0});
    run(c, true);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 100000; ++i) {
      const double x = c.tensors[0].number(i);
      sum += x;
      squares += x * x;
      if (kind == AA_RANDOM_UNIFORM) {
        ASSERT_GE(x, 2.0);
        ASSERT_LE(x, 5.0);
      }
    }
    const double mean = sum / 1e5, deviation = std::sqrt(squares / 1e5 - mean * mean);
    EXPECT_NEAR(mean, kind == AA_RANDOM_UNIFORM ? 3.5 : 2.0, 0.06);
    EXPECT_NEAR(deviation, kind == AA_RANDOM_UNIFORM ? 3 / std::sqrt(12.0) : 5.0, 0.05);
  }
}

}  // namespace
}  // namespace anyaccel::cpu::testing
