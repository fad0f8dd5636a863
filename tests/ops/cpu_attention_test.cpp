// The op "attention" of the CPU against its reference: decoding, prompts, mixed steps, windows, soft caps, slopes, sinks,
// strides.
#include <functional>
#include <limits>

#include "accelerators/cpu/kernels/attention_matrix.h"
#include "accelerators/cpu/kernels/attention_plan.h"
#include "accelerators/cpu/kernels/attention_token.h"
#include "ops/op_test_support.h"
#include "this_build.h"

namespace anyaccel::cpu::testing {
namespace {

// Weights are sums of up to a few hundred terms in binary32; values are of the size of 1.
constexpr Tolerance kTolerance{3e-6, 3e-6, 1};

double largest_magnitude(const TestTensor& t) {
  double largest = 0;
  for (int64_t i = 0; i < t.count(); ++i) largest = std::max(largest, std::fabs(t.number(i)));
  return largest;
}

// The rounding of sums of unlike products mostly cancels, and kTolerance has room for it. Where the elements of a query and
// those of a key are one number each (strides of 0), the products of a score are equal, and each addition to their sum, one
// after the other, may round in the same direction, by 2^-24 of half of the sum on average. A score is the exponent of its
// weight, and the weights are those of values up to twice the largest apart.
double rounding_of_equal_products(const OpCase& c) {
  const TestTensor &q = c.tensors[1], &k = c.tensors[2];
  const int64_t size = q.shape()[2];
  if (size < 2 || q.at(0) != q.at(1) || k.at(0) != k.at(1)) return 0;
  const double score = std::sqrt(static_cast<double>(size)) * largest_magnitude(q) * largest_magnitude(k);
  return static_cast<double>(size) / 2 * 0x1p-24 * score * 2 * largest_magnitude(c.tensors[3]);
}

// What the op may round to 16 bits where caches and result are of that type, the queries and the softmax, is rounded by cuda and
// npu for the queries of a prompt, for single tokens by processors with dot products of bf16, and for all others where a kernel for
// the matrix unit runs. (RoundedPairs and PromptsOnTheMatrixUnit, below, and tests/kernels/tuned_attention_test.cpp bound it more closely.)
// Everything else is held to fp32.
Tolerance tolerance_of(const OpCase& c) {
  const DriverAccelerator* device = anyaccel::testing::device_under_test();
  const DType type = c.tensors[0].dtype();
  Tolerance in_fp32 = kTolerance;
  in_fp32.absolute += rounding_of_equal_products(c);
  if (type == DType::F32 || c.tensors[2].dtype() != type) return in_fp32;
  const bool host_rounds = type == DType::BF16 && (has_attention_matrix() || is_isa_available(Isa::Amx) ||
                                                   (cpu_features().avx512_bf16 && c.tensors[0].shape()[2] % 32 == 0));
  const bool is_npu = device != nullptr && device->name() == "npu";  // leaves soft caps and the like to the host
  const bool device_rounds = device != nullptr && (is_npu || device->name() == "cuda") && c.tensors[0].shape()[0] >= 32;
  if (!device_rounds && !(host_rounds && (device == nullptr || is_npu))) return in_fp32;
  const double unit = type == DType::BF16 ? 0x1p-8 : 0x1p-11;
  return {3 * unit + in_fp32.absolute, 3 * unit, 1};
}

struct Geometry {
  int64_t tokens, q_heads, kv_heads, head_size, sequences, slots;
};

OpCase make_case(Random& random, const Geometry& g, bool any_layout, DType cache_dtype, aa_attention_params params) {
  const auto tensor = [&](DType dtype, Shape shape, bool input) {
    return any_layout ? TestTensor::random_layout(random, dtype, std::move(shape), input)
                      : TestTensor(dtype, std::move(shape));
  };
  OpCase c;
  c.op = "attention";
  c.tensors.push_back(tensor(random.float_dtype(), {g.tokens, g.q_heads, g.head_size}, false));
  c.tensors.push_back(tensor(random.float_dtype(), {g.tokens, g.q_heads, g.head_size}, true));
  c.tensors.push_back(tensor(cache_dtype, {g.sequences, g.kv_heads, g.slots, g.head_size}, true));
  c.tensors.push_back(tensor(cache_dtype, {g.sequences, g.kv_heads, g.slots, g.head_size}, true));
  c.tensors.push_back(TestTensor(DType::I32, {g.tokens}));
  c.tensors.push_back(TestTensor(DType::I32, {g.tokens}));
  for (size_t i = 1; i < 4; ++i) c.tensors[i].fill_normal(random);
  c.tensors.resize(8);  // neither slopes nor sinks
  return c.with(params);
}

// Adds slopes, sinks or both.
void add_of_heads(Random& random, OpCase& c) {
  const int64_t heads = c.tensors[1].shape()[1], which = random.integer(1, 3);
  for (const int64_t bit : {1, 2}) {
    if ((which & bit) == 0) continue;
    TestTensor& t = c.tensors[static_cast<size_t>(5 + bit)];
    t = random.chance(0.3) ? TestTensor::random_layout(random, DType::F32, {heads}, true)
                           : TestTensor(DType::F32, {heads});
    // Steep slopes leave the weight of a few slots, gentle ones that of many; one head has none.
    t.fill([&](int64_t i) { return bit == 2 ? random.normal(2) : i == 1 ? 0.0 : std::exp2(-random.normal(2) - 4); });
  }
}

void set_tokens(OpCase& c, const std::function<int64_t(int64_t)>& sequence,
                const std::function<int64_t(int64_t)>& position) {
  for (int64_t t = 0; t < c.tensors[4].count(); ++t) {
    c.tensors[4].set(t, sequence(t));
    c.tensors[5].set(t, position(t));
  }
}

aa_attention_params params_of(int64_t head_size, int32_t window = 0, float softcap = 0) {
  return {0, 1.0f / std::sqrt(static_cast<float>(head_size)), window, softcap};
}

TEST(CpuAttention, Decode) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 40; ++i) {
      const int64_t kv_heads = random.integer(1, 3), group = random.pick<int64_t>({1, 2, 3, 4, 7, 8, 14});
      const int64_t d = random.pick<int64_t>({1, 5, 16, 32, 64, 72, 80, 128});
      const Geometry g{random.integer(1, 4), kv_heads * group,      kv_heads, d,
                       random.integer(1, 3), random.integer(1, 700)};
      OpCase c = make_case(random, g, random.chance(0.3), random.float_dtype(),
                           params_of(d, random.chance(0.3) ? static_cast<int32_t>(random.integer(1, 300)) : 0,
                                     random.chance(0.2) ? 5.0f : 0.0f));
      set_tokens(
          c, [&](int64_t) { return random.integer(0, g.sequences - 1); },
          [&](int64_t) { return random.integer(0, g.slots - 1); });
      if (random.chance(0.4)) add_of_heads(random, c);
      compare(c, tolerance_of(c));
    }
  });
}

TEST(CpuAttention, Prompts) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 24; ++i) {
      const int64_t kv_heads = random.integer(1, 2), group = random.pick<int64_t>({1, 2, 4, 7, 8});
      const int64_t d = random.pick<int64_t>({4, 16, 24, 64, 96, 128});
      const int64_t slots = random.integer(1, 150);
      const int64_t tokens = random.integer(1, slots);
      const int64_t first = random.integer(0, slots - tokens);
      const Geometry g{tokens, kv_heads * group, kv_heads, d, 2, slots};
      OpCase c = make_case(random, g, random.chance(0.3), random.float_dtype(),
                           params_of(d, random.chance(0.4) ? static_cast<int32_t>(random.integer(1, 100)) : 0,
                                     random.chance(0.2) ? 3.0f : 0.0f));
      set_tokens(
          c, [](int64_t) { return 1; }, [&](int64_t t) { return first + t; });
      if (random.chance(0.4)) add_of_heads(random, c);
      compare(c, tolerance_of(c));
    }
  });
}

TEST(CpuAttention, LongPrompt) {
  for_each_seed([](Random& random) {
    for (DType dtype : {DType::BF16, DType::F32}) {
      OpCase c = make_case(random, {300, 4, 1, 64, 1, 320}, false, dtype, params_of(64));
      set_tokens(
          c, [](int64_t) { return 0; }, [](int64_t t) { return t; });
      compare(c, tolerance_of(c));
    }
  });
}

TEST(CpuAttention, MixedStep) {
  for_each_seed([](Random& random) {
    // Two prompts, one of them going on from earlier tokens, and decoding sequences in between.
    OpCase c = make_case(random, {60, 6, 2, 32, 4, 90}, false, DType::F16, params_of(32));
    set_tokens(
        c, [](int64_t t) { return t < 20    ? 0
                                  : t == 20 ? 3
                                  : t < 55  ? 1
                                            : 2; },
        [](int64_t t) {
          return t < 20 ? t : t == 20 ? 89 : t < 55 ? 30 + t : 80 - t;
        });
    compare(c, tolerance_of(c));
  });
}

TEST(CpuAttention, HiddenSlotsDoNotMatter) {
  for_each_seed([](Random& random) {
    // Slots after the position, and before the window, hold NaN and infinity; so do later tokens of the same step.
    for (const auto& [heads, size] : {std::pair<int64_t, int64_t>{4, 16}, {8, 40}, {8, 64}}) {
      for (DType dtype : {DType::F32, DType::BF16}) {
        for (int32_t window : {0, 5}) {
          OpCase c = make_case(random, {40, heads, 2, size, 1, 64}, false, dtype,
                               params_of(static_cast<int32_t>(size), window));
          set_tokens(
              c, [](int64_t) { return 0; }, [](int64_t t) { return t + 6; });
          for (size_t tensor : {2u, 3u}) {
            for (int64_t head = 0; head < 2; ++head) {
              for (int64_t slot : {0, 1, 30, 45, 46, 60, 63}) {
                for (int64_t d = 0; d < size; ++d) {
                  const int64_t i = (head * 64 + slot) * size + d;
                  if (tensor == 2 && slot < 46) continue;
                  c.tensors[tensor].set(
                      i, d % 2 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
                }
              }
            }
          }
          compare(c, tolerance_of(c));
        }
      }
    }
  });
}

// Tokens of one step at positions that do not follow each other.
int64_t odd_position(int kind, int64_t token, int64_t tokens, int64_t slots) {
  switch (kind) {
    case 0: return slots - 1;                                    // all tokens see everything
    case 1: return slots - 1 - token;                            // descending
    case 2: return std::min(slots - 1, token * slots / tokens);  // gaps
    case 3: return token % 2 ? slots - 1 : token % slots;        // far apart, in turns
    case 4: return token < tokens / 2 ? slots - 1 : token;       // equal ones, then a prompt
    default: return token * 7919 % slots;                        // no order
  }
}

TEST(CpuAttention, OddPositions) {
  for_each_seed([](Random& random) {
    for (int kind = 0; kind < 6; ++kind) {
      for (const int32_t window : {0, 1, 40}) {
        const int64_t kv_heads = random.integer(1, 2), group = random.pick<int64_t>({1, 2, 3, 8});
        const int64_t d = random.pick<int64_t>({16, 24, 64}), tokens = random.integer(33, 150);
        const int64_t slots = tokens + random.integer(1, 150);
        OpCase c = make_case(random, {tokens, kv_heads * group, kv_heads, d, 2, slots}, random.chance(0.3),
                             random.float_dtype(), params_of(d, window, random.chance(0.2) ? 3.0f : 0.0f));
        set_tokens(
            c, [](int64_t) { return 1; }, [&](int64_t t) { return odd_position(kind, t, tokens, slots); });
        SCOPED_TRACE("positions " + std::to_string(kind) + ", window " + std::to_string(window));
        if (random.chance(0.4)) add_of_heads(random, c);
        compare(c, tolerance_of(c));
      }
    }
  });
}

// Slots that some tokens of a tile see, and others between them do not, hold NaN.
TEST(CpuAttention, HiddenSlotsDoNotMatterAtOddPositions) {
  for_each_seed([](Random& random) {
    for (const int32_t window : {0, 7}) {
      const int64_t size = random.pick<int64_t>({16, 32, 72}), heads = random.pick<int64_t>({4, 8});
      OpCase c = make_case(random, {40, heads, 2, size, 1, 90}, false, DType::BF16,
                           params_of(static_cast<int32_t>(size), window));
      set_tokens(
          c, [](int64_t) { return 0; }, [](int64_t t) { return t % 3 == 1 ? 80 - t : 30; });
      for (const int64_t slot : {41L, 60L, 85L}) {
        for (int64_t d = 0; d < size; ++d) {
          for (size_t tensor : {2u, 3u})
            c.tensors[tensor].set(slot * size + d, std::numeric_limits<float>::quiet_NaN());
        }
      }
      compare(c, tolerance_of(c));
    }
  });
}

// The cutting of a call whose tokens are at the given positions, without the calculation.
struct Cutting {
  int64_t tiles = 0, merges = 0, work = 0;
};
Cutting cutting_of(const std::vector<int32_t>& positions, int64_t slots) {
  constexpr int64_t group = 4, kv_heads = 2, size = 64;
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto tensor = [](DType dtype, std::initializer_list<int64_t> shape, const void* data) {
    aa_tensor t{};
    t.dtype = static_cast<int32_t>(dtype);
    t.ndim = static_cast<int32_t>(shape.size());
    t.data = const_cast<void*>(data);
    std::copy(shape.begin(), shape.end(), t.shape);
    for (int64_t d = t.ndim - 1, stride = 1; d >= 0; stride *= t.shape[d--]) t.strides[d] = stride;
    return t;
  };
  const std::vector<int32_t> first(positions.size(), 0);
  const aa_tensor q = tensor(DType::F32, {tokens, group * kv_heads, size}, nullptr),
                  k = tensor(DType::F32, {1, kv_heads, slots, size}, nullptr),
                  sequence = tensor(DType::I32, {tokens}, first.data()),
                  at = tensor(DType::I32, {tokens}, positions.data());
  const aa_tensor none{};
  const AttentionCall call{&q, &q, &k, &k, &sequence, &at, size, group, 1.0f, 0.0f, 0, &none, &none};
  const AttentionPlan plan(call, false);
  return {plan.tile_count, plan.merge_count, plan.work};
}

// Reading the cache once for each token instead of once for each tile made attention without a mask twelve times slower
// than with one. The number of tiles must not depend on the order of the positions, and their work not on the order of
// equal ones.
TEST(CpuAttention, TilesShareTheCacheWhateverThePositions) {
  constexpr int64_t tokens = 1024, tiles = tokens / 32 * 2;
  std::vector<int32_t> causal(tokens), descending(tokens), all(tokens, tokens - 1);
  for (int32_t t = 0; t < tokens; ++t) {
    causal[static_cast<size_t>(t)] = t;
    descending[static_cast<size_t>(t)] = tokens - 1 - t;
  }
  const Cutting of_causal = cutting_of(causal, tokens), of_all = cutting_of(all, tokens),
                of_descending = cutting_of(descending, tokens);
  EXPECT_EQ(of_causal.tiles, tiles);
  EXPECT_EQ(of_descending.tiles, tiles);
  EXPECT_EQ(of_all.tiles, tiles);
  EXPECT_EQ(of_all.merges, 0);
  EXPECT_EQ(of_descending.work, of_causal.work);
  EXPECT_LT(of_all.work, 2 * of_causal.work);  // all slots instead of half of them and half a tile
  // Tokens that see few slots do not share a tile with those that see many: nearly all of its work would be hidden.
  std::vector<int32_t> mixed(64, 3);
  for (size_t t = 0; t < mixed.size(); t += 2) mixed[t] = 8000;
  EXPECT_EQ(cutting_of(mixed, 8192).tiles, 64 * 2);
}

// A new token's work grows with the context that it sees, and is cut for several threads.
TEST(CpuAttention, ANewTokensWorkGrowsWithItsContext) {
  const Cutting near = cutting_of({4095}, 32768), far = cutting_of({32767}, 32768);
  EXPECT_EQ(far.work, 8 * near.work);
  EXPECT_GE(near.tiles, 16);
  EXPECT_GE(far.tiles, 32);
  EXPECT_LE(far.tiles, 64);
  EXPECT_EQ(far.merges, 2);  // one for each key/value head
  EXPECT_EQ(cutting_of({63}, 32768).tiles, 2);
}

// Each instruction set has blocks of its own, and with AVX-512 a part ends a row of four streams before one.
TEST(CpuAttention, AContextIsCutAtBlocks) {
  for_each_isa([](Isa set) {
    // Such builds have the kernels of one set only (src/CMakeLists.txt).
    if (test::sanitizer() == test::Sanitizer::thread && is_isa_available(Isa::Avx2)) set = Isa::Avx2;
    const int64_t block = set == Isa::Baseline ? 64 : set == Isa::Avx2 ? 96 : 128;
    const int64_t missing = set >= Isa::Avx512 ? 4 : 0;
    for (const int64_t slots : {int64_t{1}, block - missing, block - missing + 1, int64_t{1000}}) {
      const int64_t part = attention_token_part(slots);
      EXPECT_GE(part, slots);
      EXPECT_LT(part, slots + block);
      EXPECT_EQ((part + missing) % block, 0);
    }
  });
}

TEST(CpuAttention, NotANumberReachesItsOwnHeadOnly) {
  for_each_seed([](Random& random) {
    OpCase c = make_case(random, {12, 4, 2, 16, 1, 20}, false, DType::F32, params_of(16));
    set_tokens(
        c, [](int64_t) { return 0; }, [](int64_t t) { return t + 3; });
    c.tensors[1].set(5 * 4 * 16 + 16 + 3, std::numeric_limits<float>::quiet_NaN());  // q of token 5, head 1
    compare(c, kTolerance);
  });
}

TEST(CpuAttention, LargeScoresDoNotOverflow) {
  for_each_seed([](Random& random) {
    for (int64_t tokens : {1, 30}) {
      OpCase c = make_case(random, {tokens, 2, 1, 64, 1, 200}, false, DType::F32, {0, 40.0f, 0, 0});
      set_tokens(
          c, [](int64_t) { return 0; }, [&](int64_t t) { return 200 - tokens + t; });
      // The scale makes scores of several hundred, of which binary32 keeps four decimals.
      compare(c, {2e-3, 2e-3, 1});
    }
  });
}

// A sink far above the scores leaves nothing, one far below changes nothing, and a row that sees only -infinity gives zeros
// with one.
TEST(CpuAttention, ExtremeSinks) {
  Random random(4);
  for (const int64_t tokens : {1, 40}) {
    for (const float sink : {400.0f, -400.0f, -std::numeric_limits<float>::infinity()}) {
      for (const auto& [heads, size] : {std::pair<int64_t, int64_t>{4, 16}, {8, 64}}) {
        OpCase c = make_case(random, {tokens, heads, 2, size, 1, 600}, false, DType::F32,
                             params_of(static_cast<int32_t>(size)));
        set_tokens(
            c, [](int64_t) { return 0; }, [&](int64_t t) { return 600 - tokens + t; });
        c.tensors[7] = TestTensor(DType::F32, {heads}).fill([&](int64_t) { return sink; });
        compare(c, kTolerance);
      }
    }
    for (const int64_t heads : {2, 4}) {
      OpCase c = make_case(random, {tokens, heads, 1, 16, 1, 600}, false, DType::F32, params_of(16));
      set_tokens(
          c, [](int64_t) { return 0; }, [&](int64_t t) { return 600 - tokens + t; });
      c.tensors[1].fill([](int64_t) { return 1.0; });
      c.tensors[2].fill([](int64_t) { return -std::numeric_limits<float>::infinity(); });
      c.tensors[7] = TestTensor(DType::F32, {heads}).fill([](int64_t i) { return static_cast<double>(i); });
      compare(c, kTolerance);
    }
  }
}

TEST(CpuAttention, Empty) {
  Random random(1);
  compare(make_case(random, {0, 4, 2, 16, 1, 8}, false, DType::F32, params_of(16)), kTolerance);
  compare(make_case(random, {0, 0, 0, 16, 1, 8}, false, DType::F32, params_of(16)), kTolerance);
}

TEST(CpuAttention, OutOfRange) {
  Random random(1);
  OpCase c = make_case(random, {3, 4, 2, 16, 2, 8}, false, DType::F32, params_of(16));
  for (const auto& [sequence, position] : {std::pair{2, 0}, {-1, 0}, {0, 8}, {0, -1}}) {
    OpCase bad = c;
    bad.tensors[4].set(1, int64_t{sequence});
    bad.tensors[5].set(1, int64_t{position});
    expect_out_of_range(bad);
  }
}

TEST(CpuAttention, SameBitsOnAnyNumberOfThreads) {
  Random random(3);
  for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{1, 8}, {1, 16}, {150, 8}}) {
    OpCase c = make_case(random, {tokens, heads, 2, 64, 1, 900}, false, DType::BF16, params_of(64));
    set_tokens(
        c, [](int64_t) { return 0; }, [first = 899 - tokens](int64_t t) { return first + t; });
    WorkerPool& pool = WorkerPool::instance();
    const int before = pool.size();
    OpCase first = c;
    pool.set_size(1);
    run(first, true);
    for (int threads : {2, 3, 5}) {
      OpCase other = c;
      pool.set_size(threads);
      run(other, true);
      EXPECT_TRUE(other.tensors[0].same_bytes(first.tensors[0])) << threads << " threads";
    }
    pool.set_size(before);
  }
}

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

TEST(CpuAttention, RoundedPairs) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "these are the bounds of the host's kernels";
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
TEST(CpuAttention, ATokenOverTransposedKeys) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "these are the bounds of the host's kernels";
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
TEST(CpuAttention, PromptsOnTheMatrixUnit) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "this is a kernel of the host";
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
TEST(CpuAttention, ATokenOnTheMatrixUnit) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "this is a kernel of the host";
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
        run_tiles(same, params, false, run_attention_token);
        EXPECT_TRUE(same.tensors[0].same_bytes(found.tensors[0])) << "the unit and its software version differ";
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// The slots of a short prompt behind a long one are split into parts that end within a block. Of equal values the result is that value.
TEST(CpuAttention, TheMatrixUnitSplitsSlots) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "this is a kernel of the host";
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
void compute_by_row(void (*run)(const AttentionCall&, const AttentionTile&)) {
  for_each_seed([&](Random& random) {
    for (const int64_t size : {64L, 128L, 96L}) {
      const aa_attention_params params = params_of(size, size == 128 ? 70 : 0);
      OpCase whole = matrix_case(random, params, 90, random.pick<int64_t>({1, 3}), size, 50);
      // All scores of a row are some 1000 and a little, so that a difference of their rounding becomes one of weights.
      if (random.chance(0.7)) {
        whole.tensors[1].fill([&](int64_t e) { return e % size == 0 ? 6000.0 : random.normal(); });
        whole.tensors[2].fill([&](int64_t e) { return e % size == 0 ? 1.0 : random.normal(); });
      }
      OpCase first = whole;
      run_tiles(first, params, true, run);
      const int64_t heads = whole.tensors[1].shape()[1];
      // Those from 13 and 77 on end with a block of 64 slots, which the tokens before them in a group do not see to its end.
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
        for (int64_t t = 0; t < count; ++t) part.tensors[5].set(t, 50 + from + t);
        run_tiles(part, params, true, run);
        for (int64_t e = 0; e < count * heads * size; ++e) {
          ASSERT_EQ(part.tensors[0].number(e), first.tensors[0].number(from * heads * size + e))
              << count << " tokens from " << from << ", element " << e;
        }
      }
    }
  });
}

TEST(CpuAttention, TheMatrixUnitComputesByRow) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "this is a kernel of the host";
  compute_by_row(run_attention_matrix_emulated);
  if (has_attention_matrix()) compute_by_row(run_attention_matrix);
}

}  // namespace
}  // namespace anyaccel::cpu::testing
