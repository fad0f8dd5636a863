// The op "attention" of the CPU against its reference: decoding, prompts, mixed steps, windows, soft caps, slopes, sinks,
// strides.
#include <functional>
#include <limits>

#include "accelerators/cpu/kernels/attention_plan.h"
#include "accelerators/cpu/kernels/attention_token.h"
#include "ops/attention_cases.h"
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
// the matrix unit runs. (attention_kernels_test.cpp and tests/kernels/tuned_attention_test.cpp bound it more closely.)
// Everything else is held to fp32.
Tolerance tolerance_of(const OpCase& c) {
  const DriverAccelerator* device = anyaccel::testing::device_under_test();
  const DType type = c.tensors[0].dtype();
  Tolerance in_fp32 = kTolerance;
  in_fp32.absolute += rounding_of_equal_products(c);
  if (type == DType::F32 || c.tensors[2].dtype() != type) return in_fp32;
  const bool has_matrix = is_isa_available(Isa::Avx512) && cpu_features().fast_bf16_dot;  // on some instruction set
  const bool host_rounds = type == DType::BF16 && (has_matrix || is_isa_available(Isa::Amx) ||
                                                   (cpu_features().avx512_bf16 && c.tensors[0].shape()[2] % 32 == 0));
  const bool is_npu = device != nullptr && device->name() == "npu";  // leaves soft caps and the like to the host
  const bool device_rounds = device != nullptr && (is_npu || device->name() == "cuda") && c.tensors[0].shape()[0] >= 32;
  if (!device_rounds && !(host_rounds && (device == nullptr || is_npu))) return in_fp32;
  const double unit = type == DType::BF16 ? 0x1p-8 : 0x1p-11;
  return {3 * unit + in_fp32.absolute, 3 * unit, 1};
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
Cutting cutting_of(const std::vector<int32_t>& positions, int64_t slots, int64_t kv_heads = 2) {
  constexpr int64_t group = 4, size = 64;
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

// Ranks share out the heads. The parts of a context, which are added one after another, must not depend on how many of them
// a rank has.
TEST(CpuAttention, HeadsAreCutAlikeHoweverManyThereAre) {
  for (const int32_t position : {255, 1000, 4095, 20000}) {
    const int64_t of_one_head = cutting_of({position}, 32768, 1).tiles;
    for (const int64_t heads : {2, 5, 32}) {
      EXPECT_EQ(cutting_of({position}, 32768, heads).tiles, heads * of_one_head) << position;
    }
  }
}

// Each instruction set has blocks of its own; with AVX-512 and no matrix unit each of four streams has an odd number of slots.
TEST(CpuAttention, AContextIsCutAtBlocks) {
  for_each_isa([](Isa set) {
    // Such builds have the kernels of one set only (src/CMakeLists.txt).
    if (test::sanitizer() == test::Sanitizer::thread && is_isa_available(Isa::Avx2)) set = Isa::Avx2;
    const int64_t block = set == Isa::Avx2 ? 96 : set == Isa::Avx512 ? 8 : 64;
    const int64_t missing = set == Isa::Avx512 ? 4 : 0;
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

// Scores of this size are whole multiples of thousands, so that each row sees one token, in 16 bits too.
TEST(CpuAttention, HugeScoresChooseOneToken) {
  const DriverAccelerator* device = anyaccel::testing::device_under_test();
  // Its kernel for prompts in bf16 gives zeros for scores beyond 1e9.
  const bool is_cuda = device != nullptr && device->name() == "cuda";
  for_each_seed([&](Random& random) {
    for (const DType type : {DType::F32, DType::BF16}) {
      if (is_cuda && type == DType::BF16) continue;
      for (int64_t tokens : {1, 100}) {
        OpCase c = make_case(random, {tokens, 2, 1, 64, 1, 200}, false, type, {0, 1e10f, 0, 0});
        set_tokens(
            c, [](int64_t) { return 0; }, [&](int64_t t) { return 200 - tokens + t; });
        c.tensors[0] = TestTensor(type, c.tensors[0].shape());
        // Whole numbers, which rounding queries to 16 bits does not change.
        TestTensor& q = c.tensors[1];
        for (int64_t i = 0; i < q.count(); ++i) q.set(i, std::nearbyint(2 * q.number(i)));
        compare(c, {1e-6, 1e-6, 1});
      }
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

}  // namespace
}  // namespace anyaccel::cpu::testing
