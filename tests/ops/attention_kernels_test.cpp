// The CPU's kernels of the op "attention" against double precision, each as close as its own rounding allows: single tokens, and
// the matrix unit with its software version. cpu_attention_test.cpp holds the op to its reference on every accelerator.
#include <functional>
#include <limits>

#include "accelerators/cpu/kernels/attention_matrix.h"
#include "accelerators/cpu/kernels/attention_plan.h"
#include "accelerators/cpu/kernels/attention_token.h"
#include "ops/attention_cases.h"
#include "ops/end_of_memory.h"

namespace anyaccel::cpu::testing {
namespace {

using anyaccel::testing::EndOfMemory;

// A token's attention in double precision, and how far from it the result may be. Queries are rounded to bf16 before if `rounds`;
// weights may be off by half a unit of bf16 each then. Each counts for the distance of its value from the result, since
// the weights are divided by their own sum.
struct Attended {
  std::vector<double> out, limit;
};
Attended attended_token(const OpCase& c, const aa_attention_params& params, bool rounds, int64_t token = 0) {
  const TestTensor &q = c.tensors[1], &k = c.tensors[2], &v = c.tensors[3];
  const int64_t heads = q.shape()[1], kv_heads = k.shape()[1], slots = k.shape()[2], size = q.shape()[2];
  const int64_t position = c.tensors[5].integer(token);
  const int64_t begin = params.window > 0 ? std::max<int64_t>(0, position + 1 - params.window) : 0;
  Attended result;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t row = h / (heads / kv_heads) * slots;
    std::vector<double> weights;
    double top = c.tensors[7].present() ? c.tensors[7].number(h) : -std::numeric_limits<double>::infinity();
    double magnitude = 0;  // of the products whose sum is a score
    for (int64_t j = begin; j <= position; ++j) {
      double score = 0, sum_of_magnitudes = 0;
      for (int64_t d = 0; d < size; ++d) {
        const double x = q.number((token * heads + h) * size + d);
        const double product =
            (rounds ? bf16_to_float(float_to_bf16(static_cast<float>(x))) : x) * k.number((row + j) * size + d);
        score += product;
        if (std::isfinite(product)) sum_of_magnitudes += std::fabs(product);
      }
      score *= params.scale;
      if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
      if (c.tensors[6].present()) score += c.tensors[6].number(h) * static_cast<double>(j - position);
      weights.push_back(score);
      top = std::max(top, score);
      magnitude = std::max(magnitude, sum_of_magnitudes * std::fabs(params.scale));
    }
    double total = c.tensors[7].present() ? std::exp(c.tensors[7].number(h) - top) : 0;
    for (double& weight : weights) total += weight = std::exp(weight - top);
    for (int64_t d = 0; d < size; ++d) {
      double sum = 0, distance = 0;
      const auto value = [&](size_t j) { return v.number((row + begin + static_cast<int64_t>(j)) * size + d); };
      for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] * value(j);
      const double out = sum / total;
      for (size_t j = 0; j < weights.size(); ++j) distance += weights[j] * std::fabs(value(j) - out);
      result.out.push_back(out);
      // 2^-8, and a little for the product of two errors; 2^-21 of the sum of products in binary32.
      const double relative = (rounds ? 0.0040 : 0) + 0x1p-21 * (1 + magnitude);
      result.limit.push_back(relative * distance / total + 1e-6 + ulp_of(DType::BF16, out));
    }
  }
  return result;
}

TEST(AttentionKernels, RoundedPairs) {
  for_each_seed([](Random& random) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 27; ++i) {
      const int64_t group = 1 + i % 9, kv_heads = random.integer(1, 2),
                    d = random.pick<int64_t>({32, 64, 96, 128, 256});
      const int64_t slots = i % 3 == 0 ? random.integer(1, 140) : random.integer(141, 1000) / kv_heads;
      const int64_t position = random.integer(std::max<int64_t>(0, slots - 20), slots - 1);
      const aa_attention_params params = params_of(
          d, random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 400)) : 0, random.chance(0.2) ? 5.0f : 0.0f);
      OpCase c = make_case(random, {1, kv_heads * group, kv_heads, d, 1, slots}, false, DType::BF16, params);
      c.tensors[0] = TestTensor(DType::BF16, {1, kv_heads * group, d});
      set_tokens(
          c, [](int64_t) { return 0; }, [&](int64_t) { return position; });
      if (random.chance(0.3)) add_of_heads(random, c);
      const int kind = static_cast<int>(random.integer(0, 3));
      const int64_t begin = params.window > 0 ? std::max<int64_t>(0, position + 1 - params.window) : 0;
      c.tensors[1].fill([&](int64_t e) { return e % d == 0 ? 1.0 : random.normal(); });
      c.tensors[2].fill([&](int64_t e) {
        const int64_t j = e / d % slots;
        if (j > position || j < begin) return infinity - infinity;
        // Some slots have no weight, or one has nearly all of it.
        if (kind == 1 && e % d == 0 && j % 3 == 1) return -infinity;
        return random.normal(kind == 2 ? 300 : 1);
      });
      c.tensors[3].fill([&](int64_t e) {
        const int64_t j = e / d % slots;
        return j > position || j < begin ? infinity : kind == 3 ? 0.703125 : random.normal();
      });
      SCOPED_TRACE(c.text() + " kind " + std::to_string(kind) + ", position " + std::to_string(position) + ", window " +
                   std::to_string(params.window) + ", cap " + std::to_string(params.softcap));
      for_each_isa([&](Isa isa) {
        const Attended expected = attended_token(c, params, isa >= Isa::Avx512 && cpu_features().avx512_bf16);
        OpCase found = c;
        run(found, true);
        EXPECT_TRUE(found.tensors[0].untouched());
        for (int64_t e = 0; e < found.tensors[0].count(); ++e) {
          const auto at = static_cast<size_t>(e);
          if (std::isnan(expected.out[at]) && std::isnan(found.tensors[0].number(e))) continue;
          ASSERT_NEAR(found.tensors[0].number(e), expected.out[at], expected.limit[at]) << "element " << e;
        }
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// The kernels of AVX2 for a token whose caches are bf16: every number of heads, and slots around the 24 that are transposed together,
// the 96 of a block and the 288 that a part has at least. Of heads, those next to one that is not a number must not notice.
TEST(AttentionKernels, ATokenOverTransposedKeys) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for_each_seed([&](Random& random) {
    int64_t transposed = 0;
    for (int i = 0; i < 64; ++i) {
      const int64_t group = 1 + i % 16, kind = random.integer(0, 4);
      const int64_t d = random.pick<int64_t>({32, 64, 64, 96, 128, 160});
      const int64_t slots = random.pick<int64_t>({1, 2, 23, 24, 25, 47, 71, 95, 96, 97, 119, 120, 191, 193, 290, 400});
      const aa_attention_params params = params_of(
          d, random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0, random.chance(0.2) ? 5.0f : 0.0f);
      OpCase c = make_case(random, {1, group, 1, d, 1, slots + 3}, false, DType::BF16, params);
      // Slots that do not follow each other in memory, and values whose elements do not.
      if (const int64_t layout = random.integer(0, 5); layout >= 3) {
        TestTensor& cache = c.tensors[layout == 3 ? 2 : 3];
        cache = TestTensor::with_gaps(DType::BF16, cache.shape(), layout == 5 ? Shape{1, 1, 1, 2} : Shape{1, 1, 2, 1});
      }
      set_tokens(
          c, [](int64_t) { return 0; }, [&](int64_t) { return slots - 1; });
      if (kind < 3 && random.chance(0.3)) add_of_heads(random, c);
      const int64_t begin = params.window > 0 ? std::max<int64_t>(0, slots - params.window) : 0;
      const int64_t odd_head = random.integer(0, group - 1), odd_element = random.integer(0, d - 1);
      c.tensors[1].fill([&](int64_t e) {
        if (e != odd_head * d + odd_element) return random.normal();
        return kind == 1 ? infinity - infinity : kind == 2 ? infinity : 1.0;
      });
      for (const size_t tensor : {size_t{2}, size_t{3}}) {
        c.tensors[tensor].fill([&](int64_t e) {
          const int64_t j = e / d;
          if (j >= slots || j < begin) return e % 2 == 0 ? infinity : infinity - infinity;  // the token does not see it
          if (tensor == 3 && kind == 3 && j == slots - 1) return e % 5 == 0 ? infinity : e % 7 == 0 ? -infinity : 1.0;
          if (tensor == 3 && kind == 4 && j == begin && e % 3 == 0) return infinity - infinity;
          return random.normal();
        });
      }
      transposed += group >= 8 && slots - begin >= 24 ? 1 : 0;
      SCOPED_TRACE(c.text() + " kind " + std::to_string(kind) + ", window " + std::to_string(params.window) + ", cap " +
                   std::to_string(params.softcap));
      for_each_isa([&](Isa isa) {
        if (isa > Isa::Avx2) return;  // queries may be rounded
        const Attended expected = attended_token(c, params, false);
        OpCase found = c;
        run(found, true);
        EXPECT_TRUE(found.tensors[0].untouched());
        const DType out = found.tensors[0].dtype();
        for (int64_t e = 0; e < found.tensors[0].count(); ++e) {
          const auto at = static_cast<size_t>(e);
          const double value = found.tensors[0].number(e);
          if (std::isnan(expected.out[at]) && std::isnan(value)) continue;
          if (expected.out[at] == value) continue;  // infinities
          ASSERT_NEAR(value, expected.out[at], expected.limit[at] + ulp_of(out, expected.out[at])) << "element " << e;
        }
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(transposed, 10);
  });
}

// Runs the tiles of a call one by one by a kernel, as the op does.
void run_tiles(OpCase& c, const aa_attention_params& params, bool by_row,
               const std::function<void(const AttentionCall&, const AttentionTile&)>& run_tile) {
  std::vector<aa_tensor> t;
  for (TestTensor& tensor : c.tensors) t.push_back(tensor.view());
  const AttentionCall call{
      &t[0],        &t[1],          &t[2],         &t[3], &t[4], &t[5], t[1].shape[2], t[1].shape[1] / t[2].shape[1],
      params.scale, params.softcap, params.window, &t[6], &t[7]};
  AttentionPlan plan(call, by_row, matrix_tile_rows(call));
  for (int64_t i = 0; i < plan.tile_count; ++i) {
    const AttentionTile& tile = plan.tiles[i];
    run_tile(call, tile);
    if (tile.merge < 0) continue;
    const AttentionPlan::Merge& merge = plan.merges[tile.merge];
    if (plan.merges[tile.merge].missing.fetch_sub(1) == 1) merge_attention(call, merge.first, merge.count);
  }
}

// A prompt in bf16 of a few tokens, or of `tokens`.
OpCase matrix_case(Random& random, const aa_attention_params& params, int64_t tokens, int64_t group, int64_t size,
                   int64_t first) {
  const int64_t kv_heads = random.integer(1, 2), slots = first + tokens + random.integer(0, 40);
  OpCase c = make_case(random, {tokens, kv_heads * group, kv_heads, size, 1, slots}, false, DType::BF16, params);
  c.tensors[0] = TestTensor(DType::BF16, {tokens, kv_heads * group, size});
  set_tokens(
      c, [](int64_t) { return 0; }, [&](int64_t t) { return first + t; });
  return c;
}

void expect_within(const OpCase& found, const OpCase& c, const aa_attention_params& params) {
  const int64_t per_token = c.tensors[1].shape()[1] * c.tensors[1].shape()[2];
  for (int64_t t = 0; t < c.tensors[1].shape()[0]; ++t) {
    const Attended expected = attended_token(c, params, true, t);
    for (int64_t e = 0; e < per_token; ++e) {
      const auto at = static_cast<size_t>(e);
      const double value = found.tensors[0].number(t * per_token + e);
      if (std::isnan(expected.out[at]) && std::isnan(value)) continue;
      if (expected.out[at] == value) continue;  // infinities
      ASSERT_NEAR(value, expected.out[at], expected.limit[at]) << "token " << t << ", element " << e;
    }
  }
}

// The kernel for the matrix unit, on its software version, and on the unit itself where there is one.
TEST(AttentionKernels, PromptsOnTheMatrixUnit) {
  for_each_seed([](Random& random) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 24; ++i) {
      const int64_t size = random.pick<int64_t>({8, 32, 64, 64, 80, 96, 128, 128, 256});
      const aa_attention_params params =
          params_of(size, random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 100)) : 0,
                    random.chance(0.2) ? 5.0f : 0.0f);
      const int64_t tokens = random.integer(1, 40), first = i % 2 ? random.integer(0, 300) : 0;
      OpCase c = matrix_case(random, params, tokens, random.pick<int64_t>({1, 2, 4, 7}), size, first);
      if (random.chance(0.3)) add_of_heads(random, c);
      const int64_t slots = c.tensors[2].shape()[2];
      const int kind = i % 6;
      c.tensors[2].fill([&](int64_t e) {
        const int64_t j = e / size % slots;
        if (j >= first + tokens) return infinity - infinity;  // nobody sees it
        if (kind == 1 && e % size == 0 && j % 3 == 1) return -infinity;
        return random.normal(kind == 2 ? 300 : 1);  // one slot has nearly all weight
      });
      c.tensors[1].fill([&](int64_t e) { return e % size == 0 ? 1.0 : random.normal(); });
      c.tensors[3].fill([&](int64_t e) {
        const int64_t j = e / size % slots;
        if (j >= first + tokens) return infinity;
        // The last tokens see values that are not finite; the others see none of it.
        if (kind == 4 && j == first + tokens - 2) return e % 5 == 0 ? infinity : e % 7 == 0 ? -infinity : 1.0;
        return kind == 3 ? 0.703125 : random.normal();
      });
      SCOPED_TRACE(c.text() + " kind " + std::to_string(kind) + ", first " + std::to_string(first) + ", window " +
                   std::to_string(params.window) + ", cap " + std::to_string(params.softcap));
      for_each_isa([&](Isa isa) {
        OpCase found = c;
        run_tiles(found, params, i % 4 == 0, run_attention_matrix_emulated);
        EXPECT_TRUE(found.tensors[0].untouched());
        expect_within(found, c, params);
        if (!has_attention_matrix()) return;
        OpCase same = c;
        run_tiles(same, params, i % 4 == 0, run_attention_matrix);
        if (isa == Isa::Amx) {
          EXPECT_TRUE(same.tensors[0].same_bytes(found.tensors[0])) << "the unit and its software version differ";
        } else {
          EXPECT_TRUE(same.tensors[0].untouched());
          expect_within(same, c, params);
        }
      });
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// The same for one new token. Without AVX512_BF16 nothing is rounded, and the unit is not used.
TEST(AttentionKernels, ATokenOnTheMatrixUnit) {
  if (isa() < Isa::Avx512 || !cpu_features().avx512_bf16) GTEST_SKIP() << "AVX512_BF16 is not there or not to be used";
  for_each_seed([](Random& random) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 24; ++i) {
      const int64_t size = random.pick<int64_t>({32, 64, 96, 128, 256}), first = random.integer(63, 700);
      aa_attention_params params =
          params_of(size, random.chance(0.3) ? static_cast<int32_t>(random.integer(64, 400)) : 0);
      if (i % 5 == 4) params.scale = -params.scale;
      OpCase c = matrix_case(random, params, 1, 1 + i % 8, size, first);
      if (random.chance(0.2)) add_of_heads(random, c);
      const int64_t slots = c.tensors[2].shape()[2];
      const int kind = i % 6;
      c.tensors[2].fill([&](int64_t e) {
        const int64_t j = e / size % slots;
        if (j > first) return infinity - infinity;  // the token does not see it
        if (kind == 1 && e % size == 0 && j % 3 == 1) return -infinity;
        return random.normal(kind == 2 ? 300 : 1);  // one slot has nearly all weight
      });
      c.tensors[1].fill([&](int64_t e) { return e % size == 0 ? 1.0 : random.normal(); });
      c.tensors[3].fill([&](int64_t e) {
        const int64_t j = e / size % slots;
        if (j > first) return infinity;
        if (kind == 4 && j == first - 2) return e % 5 == 0 ? infinity : e % 7 == 0 ? -infinity : 1.0;
        return kind == 3 ? 0.703125 : random.normal();
      });
      SCOPED_TRACE(c.text() + " kind " + std::to_string(kind) + ", window " + std::to_string(params.window));
      OpCase found = c;
      run_tiles(found, params, false, [&](const AttentionCall& call, const AttentionTile& tile) {
        const bool by_unit = run_attention_token_emulated(call, tile);
        const bool sees_infinity = kind == 4 && tile.begin <= first - 2 && first - 2 < tile.end;
        const bool finite = !sees_infinity && (kind != 1 || params.scale > 0);  // of scores and values
        EXPECT_EQ(by_unit, finite && tile.end - tile.begin >= 64 && !c.tensors[6].present());
      });
      EXPECT_TRUE(found.tensors[0].untouched());
      expect_within(found, c, params);
      if (isa() == Isa::Amx) {
        OpCase same = c;
        run_tiles(same, params, false, [](const AttentionCall& call, const AttentionTile& tile) {
          run_attention_token(call, tile, nullptr);
        });
        EXPECT_TRUE(same.tensors[0].same_bytes(found.tensors[0])) << "the unit and its software version differ";
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Scores so large that one of them, rounded, is far from itself: the unit's weights would all vanish, so it leaves them.
TEST(AttentionKernels, TheMatrixUnitLeavesHugeScores) {
  if (isa() < Isa::Avx512 || !cpu_features().avx512_bf16) GTEST_SKIP() << "AVX512_BF16 is not there or not to be used";
  Random random(11);
  for (int64_t heads = 1; heads <= 8; ++heads) {
    aa_attention_params params = params_of(64, 0);
    params.scale = heads % 2 ? 1e10f : -1e10f;
    const OpCase c = matrix_case(random, params, 1, heads, 64, 199);
    OpCase found = c;
    run_tiles(found, params, false, run_attention_token_emulated);
    expect_within(found, c, params);
  }
}

// The slots of a short prompt behind a long one are split into parts that end within a block. Of equal values the result is that value.
TEST(AttentionKernels, TheMatrixUnitSplitsSlots) {
  Random random(5);
  int64_t merges = 0;
  for (const int64_t first : {150, 281, 500, 1000}) {
    OpCase c = matrix_case(random, params_of(32), 5, 2, 32, first);
    c.tensors[3].fill([](int64_t) { return 0.703125; });
    std::vector<aa_tensor> t;
    for (TestTensor& tensor : c.tensors) t.push_back(tensor.view());
    const AttentionCall call{&t[0], &t[1], &t[2], &t[3], &t[4], &t[5], 32, 2, 0.2F, 0, 0, &t[6], &t[7]};
    const AttentionPlan plan(call, false, matrix_tile_rows(call));
    for (int64_t i = 0; i < plan.tile_count; ++i) merges += plan.tiles[i].merge >= 0 ? 1 : 0;
    OpCase by_unit = c;
    run_tiles(by_unit, params_of(32), false, run_attention_matrix_emulated);
    run_tiles(c, params_of(32), false, has_attention_matrix() ? run_attention_matrix : run_attention_matrix_emulated);
    for (int64_t e = 0; e < c.tensors[0].count(); ++e) {
      ASSERT_EQ(by_unit.tensors[0].number(e), 0.703125) << first << " slots before, element " << e;
      ASSERT_EQ(c.tensors[0].number(e), 0.703125) << first << " slots before, element " << e;
    }
  }
  EXPECT_GT(merges, 0) << "nothing was split";
}

// The form by row gives a token the same bits in a prompt, in a part of it, and alone.
void compute_by_row(int64_t before, const std::function<void(OpCase&, const aa_attention_params&)>& run) {
  for_each_seed([&](Random& random) {
    for (const int64_t size : {64L, 128L, 96L}) {
      const aa_attention_params params = params_of(size, size == 128 ? 70 : 0);
      OpCase whole = matrix_case(random, params, 90, random.pick<int64_t>({1, 3}), size, before);
      // All scores of a row are some 1000 and a little, so that a difference of their rounding becomes one of weights.
      if (random.chance(0.7)) {
        whole.tensors[1].fill([&](int64_t e) { return e % size == 0 ? 6000.0 : random.normal(); });
        whole.tensors[2].fill([&](int64_t e) { return e % size == 0 ? 1.0 : random.normal(); });
      }
      OpCase first = whole;
      run(first, params);
      const int64_t heads = whole.tensors[1].shape()[1];
      // With 50 tokens before, those from 13 and 77 on end with a block of 64 slots, which the tokens before them in a group do
      // not see to its end.
      for (const auto& [from, count] :
           {std::pair<int64_t, int64_t>{0, 1}, {13, 1}, {12, 2}, {17, 1}, {77, 1}, {30, 41}, {30, 48}, {89, 1}}) {
        OpCase part = whole;
        part.tensors[0] = TestTensor(DType::BF16, {count, heads, size});
        part.tensors[1] = TestTensor(whole.tensors[1].dtype(), {count, heads, size});
        part.tensors[4] = TestTensor(DType::I32, {count});
        part.tensors[5] = TestTensor(DType::I32, {count});
        for (int64_t e = 0; e < count * heads * size; ++e) {
          part.tensors[1].set(e, whole.tensors[1].number(from * heads * size + e));
        }
        for (int64_t t = 0; t < count; ++t) part.tensors[5].set(t, before + from + t);
        run(part, params);
        for (int64_t e = 0; e < count * heads * size; ++e) {
          ASSERT_EQ(part.tensors[0].number(e), first.tensors[0].number(from * heads * size + e))
              << count << " tokens from " << from << ", element " << e;
        }
      }
    }
  });
}

// Heads whose sizes are no multiples of vectors, in caches that end where memory ends.
TEST(AttentionKernels, NothingBehindTheCachesIsRead) {
  Random random(8);
  EndOfMemory key_memory(1 << 16), value_memory(1 << 16);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int64_t size : {8, 20, 42, 96}) {
      for (const int64_t tokens : {1, 3}) {
        OpCase c = make_case(random, {tokens, 2, 1, size, 1, 70}, false, dtype, params_of(size));
        set_tokens(
            c, [](int64_t) { return 0; }, [&](int64_t t) { return 70 - tokens + t; });
        SCOPED_TRACE(c.text());
        for_each_isa([&](Isa) {
          OpCase expected = c;
          run(expected, true);
          std::vector<aa_tensor> views;
          for (TestTensor& tensor : c.tensors) views.push_back(tensor.view());
          const auto bytes = static_cast<size_t>(70 * size) * dtype_size(dtype);
          views[2].data = key_memory.put(views[2].data, bytes);
          views[3].data = value_memory.put(views[3].data, bytes);
          aa_op_call call{};
          call.struct_size = sizeof(call);
          call.tensors = views.data();
          call.tensor_count = static_cast<uint32_t>(views.size());
          call.params = c.params.data();
          run_call("attention", call, true);
          EXPECT_TRUE(c.tensors[0].same_bytes(expected.tensors[0]));
        });
      }
    }
  }
}

TEST(AttentionKernels, TheMatrixUnitComputesByRow) {
  const auto by = [](void (*kernel)(const AttentionCall&, const AttentionTile&)) {
    return [kernel](OpCase& c, const aa_attention_params& params) { run_tiles(c, params, true, kernel); };
  };
  compute_by_row(50, by(run_attention_matrix_emulated));
  if (has_attention_matrix()) compute_by_row(50, by(run_attention_matrix));
}

// Contexts that are long enough to be shared out among threads, which the form by row is not.
TEST(AttentionKernels, TheOpComputesByRow) {
  for_each_isa([](Isa) {
    compute_by_row(700, [](OpCase& c, const aa_attention_params&) { run_as("attention_by_row", c, true); });
  });
}

}  // namespace
}  // namespace anyaccel::cpu::testing
