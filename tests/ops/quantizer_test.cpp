// ops::Quantizer against a plain scalar version of its definition; with ANYACCEL_TEST_ACCELERATOR that accelerator's.
#include "anyaccel/ops/quantizer.h"

#include <cmath>
#include <cstring>

#include "ops/quant_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::Quantized;
using ops::QuantKind;

std::shared_ptr<ops::Quantizer> quantizer() {
  return tested_accelerator().create_op_builder("QuantizerBuilder")->load_as<ops::Quantizer>();
}

constexpr QuantKind kinds[] = {QuantKind::Symmetric, QuantKind::Asymmetric};
constexpr DType floats[] = {DType::F32, DType::F16, DType::BF16};

// The definition of anyaccel/ops/quantizer.h for one group.
struct Group {
  float scale = 1, offset = 0, inverse = 1, low = 0, high = 0;
  bool finite = true;

  Group(const float* x, int64_t n, int bits, QuantKind kind) {
    const bool asymmetric = kind == QuantKind::Asymmetric;
    const float half = std::ldexp(1.0f, bits - 1);
    high = half - 1;
    low = asymmetric ? -half : -high;
    float least = infinity, most = -infinity;
    for (int64_t i = 0; i < n; ++i) {
      finite = finite && std::isfinite(x[i]);
      least = std::fmin(least, flushed(x[i]));
      most = std::fmax(most, flushed(x[i]));
    }
    const float span = asymmetric ? most - least : std::fmax(std::fabs(least), std::fabs(most));
    finite = finite && std::isfinite(span);
    if (!finite) {
      scale = offset = not_a_number;
      return;
    }
    const float steps = asymmetric ? 2 * half - 1 : high;
    scale = span / steps;
    if (scale >= FLT_MIN) {
      const float shift = half * scale;
      if (asymmetric) offset = flushed(least + shift);
    } else {
      scale = 1;
      if (asymmetric) offset = least + 0.0f;
    }
    inverse = 1 / scale;
  }

  int quantize(float x, const float* unit) const {
    if (!finite) return 0;
    const float shifted = flushed(x) - offset;
    const float exact = flushed(flushed(shifted) * inverse);
    float q = std::nearbyint(exact);
    if (unit) {
      q = std::floor(exact);
      const float rest = exact - q;
      if (*unit < rest) q += 1;
    }
    return static_cast<int>(std::fmax(low, std::fmin(high, q)));
  }

  float dequantize(int q) const {
    const float product = static_cast<float>(q) * scale;
    return flushed(product + offset);
  }
};

struct Reference {
  std::vector<int> values;
  std::vector<float> params, restored;

  Reference(const std::vector<float>& x, int64_t groups, int bits, QuantKind kind, const RngState* random = nullptr) {
    const int64_t size = static_cast<int64_t>(x.size()) / groups;
    for (int64_t g = 0; g < groups; ++g) {
      const Group group(x.data() + g * size, size, bits, kind);
      params.push_back(group.scale);
      if (kind == QuantKind::Asymmetric) params.push_back(group.offset);
      for (int64_t i = g * size; i < (g + 1) * size; ++i) {
        const float unit = random ? unit_of(*random, i) : 0;
        values.push_back(group.quantize(x[static_cast<size_t>(i)], random ? &unit : nullptr));
        restored.push_back(group.dequantize(values.back()));
      }
    }
  }
};

std::vector<int> integers(const Quantized& q) {
  std::vector<int> result;
  for (uint8_t byte : bytes_of(q.values)) {
    if (q.bits() == 8) {
      result.push_back(static_cast<int8_t>(byte));
    } else {
      result.push_back(static_cast<int8_t>(byte) >> 4);
      result.push_back(static_cast<int8_t>(byte << 4) >> 4);
    }
  }
  return result;
}

void expect_matches(const Quantized& found, const Reference& expected) {
  EXPECT_EQ(integers(found), expected.values);
  expect_same(found.params.to_vector<float>(), expected.params, "params");
}

TEST(Quantizer, MatchesTheDefinitionOnEveryInstructionSet) {
  on_every_isa([] {
    const auto ops = quantizer();
    uint64_t seed = 1;
    for (DType dtype : floats) {
      for (int64_t size : {1, 2, 6, 16, 50, 64, 250, 512, 1030}) {
        for (int64_t groups : {1, 3, 8}) {
          const Shape shape{groups, size};
          std::vector<float> numbers = random_numbers(groups * size, ++seed, 3);
          for (float& x : numbers) x = kept(x, dtype);
          const Tensor x = make_tensor(numbers, shape, dtype);
          for (int bits : {8, 4}) {
            if (bits == 4 && size % 2) continue;
            for (QuantKind kind : kinds) {
              SCOPED_TRACE(std::string(dtype_name(dtype)) + shape.to_string() + " bits " + std::to_string(bits) +
                           (kind == QuantKind::Asymmetric ? " asymmetric" : " symmetric"));
              const Quantized nearest = ops->quantize(x, groups, bits, kind);
              const Reference expected(numbers, groups, bits, kind);
              expect_matches(nearest, expected);
              for (DType out : floats) {
                std::vector<float> restored = expected.restored;
                for (float& r : restored) r = kept(r, out);
                const Tensor back = ops->dequantize(nearest, out);
                EXPECT_EQ(back.shape(), shape);
                expect_same(back.to_vector<float>(), restored, "restored");
              }
              Generator random;
              random.set_state({seed, (uint64_t{1} << 32) - 3});  // the counter's lower word wraps
              const RngState state = random.get_state();
              expect_matches(ops->quantize(x, groups, bits, kind, &random),
                             Reference(numbers, groups, bits, kind, &state));
              EXPECT_EQ(random.get_state().offset, state.offset + static_cast<uint64_t>(groups * size + 3) / 4);
            }
          }
        }
      }
    }
  });
}

// The difference of an element between -1/2 and 0 and the integer below it is rounded to a multiple of 2^-24. These elements are
// where that makes it equal to the random number, or not.
TEST(Quantizer, RoundsTheFractionThatItComparesWithTheRandomNumber) {
  on_every_isa([] {
    const int64_t groups = 4, size = 1024;
    const RngState state{77, 1000};
    for (float behind : {0.0f, 0.25f, 0.5f, 0.75f, 1.0f}) {
      std::vector<float> numbers(static_cast<size_t>(groups * size), 0.0f);
      for (int64_t i = 0; i < groups * size; ++i) {
        const float word = unit_of(state, i) * 0x1p24f;
        float& x = numbers[static_cast<size_t>(i)];
        if (i % size == 0) {
          x = 127.0f;  // the scale is 1
        } else if (word > 0x1p23f) {
          x = -((0x1p24f - word) - behind) * 0x1p-24f;
        }
      }
      const Tensor x = make_tensor(numbers, {groups * size});
      Generator random;
      random.set_state(state);
      expect_matches(quantizer()->quantize(x, groups, 8, QuantKind::Symmetric, &random),
                     Reference(numbers, groups, 8, QuantKind::Symmetric, &state));
    }
  });
}

// Counters have 64 bits, of which kernels may take the upper half as one for all elements.
TEST(Quantizer, DrawsWhereTheUpperHalfOfCountersChanges) {
  on_every_isa([] {
    const int64_t groups = 3, size = 702;  // groups begin within counters
    const std::vector<float> numbers = random_numbers(groups * size, 11);
    const Tensor x = make_tensor(numbers, {groups * size});
    for (uint64_t change : {uint64_t{5} << 32, uint64_t{0}}) {
      for (uint64_t before : {0, 1, 31, 32, 70, 200, 300}) {
        Generator random;
        const RngState state{0x123456789abcdef0u, change - before};
        for (QuantKind kind : kinds) {
          random.set_state(state);
          expect_matches(quantizer()->quantize(x, groups, 8, kind, &random),
                         Reference(numbers, groups, 8, kind, &state));
        }
      }
    }
  });
}

TEST(Quantizer, DoesNotDependOnThreads) {
  for (int64_t groups : {1, 2, 300}) {
    const int64_t size = groups == 300 ? 1030 : 2 * 80021;
    const std::vector<float> numbers = random_numbers(groups * size, 7);
    const Tensor x = make_tensor(numbers, {groups * size});
    for (QuantKind kind : kinds) {
      for (int bits : {8, 4}) {
        Generator random;
        const RngState state = random.get_state();
        const Reference expected(numbers, groups, bits, kind, &state);
        for (int threads : thread_counts()) {
          const ThreadCount count(threads);
          random.set_state(state);
          const auto ops = quantizer();
          const Quantized found = ops->quantize(x, groups, bits, kind, &random);
          expect_matches(found, expected);
          expect_same(ops->dequantize(found).to_vector<float>(), expected.restored, "restored");
          random.set_state(state);
          const Tensor fake = x.clone();
          (kind == QuantKind::Symmetric ? ops->ds_sr_quantize(fake, groups, bits, random)
                                        : ops->ds_sr_quantize_asym(fake, groups, bits, random));
          expect_same(fake.to_vector<float>(), expected.restored, "fake");
        }
      }
    }
  }
}

// Groups that a device may give to a part of a sub-group, a sub-group, several or a whole group of items, and larger ones; with
// and without numbers so small that denormal ones matter, and where elements begin at no multiple of 16 bytes.
TEST(Quantizer, GroupsOfEveryLength) {
  const auto ops = quantizer();
  uint64_t seed = 30;
  for (DType dtype : floats) {
    for (int64_t size : {4, 20, 136, 644, 1028, 2048, 4100, 8192, 20480}) {
      const int64_t groups = size > 2048 ? 2 : 5;
      for (float deviation : {1.0f, 1e-20f, 1e-37f}) {
        if (dtype == DType::F16 && deviation != 1) continue;
        std::vector<float> numbers = random_numbers(groups * size, ++seed, deviation);
        for (float& x : numbers) x = kept(x, dtype);
        const Tensor x = make_tensor(numbers, {groups * size}, dtype);
        const Tensor moved = there(Tensor::empty({groups * size + 1}, dtype)).slice(0, 1, groups * size + 1);
        moved.copy_from(x);
        for (int bits : {8, 4}) {
          for (QuantKind kind : kinds) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + " groups of " + std::to_string(size) + " bits " +
                         std::to_string(bits));
            Generator random;
            const RngState state = random.get_state();
            const Quantized drawn = ops->quantize(x, groups, bits, kind, &random);
            expect_matches(drawn, Reference(numbers, groups, bits, kind, &state));
            const Reference expected(numbers, groups, bits, kind);
            const Quantized nearest = ops->quantize(x, groups, bits, kind);
            expect_matches(nearest, expected);
            if (kind == QuantKind::Asymmetric) expect_matches(ops->quantize(moved, groups, bits, kind), expected);
            std::vector<float> restored = expected.restored;
            for (float& r : restored) r = kept(r, dtype);
            expect_same(ops->dequantize(nearest, dtype).to_vector<float>(), restored, "restored");
          }
        }
      }
    }
  }
}

// Results that are written past the caches: groups of whole lines go there straight from the registers, others by way of a buffer.
TEST(Quantizer, LargeResults) {
  struct Case {
    int64_t groups, size;
    int bits;
    QuantKind kind;
    DType dtype = DType::F16;
  };
  on_every_isa([] {
    const auto ops = quantizer();
    for (const auto& [groups, size, bits, kind, dtype] :
         {Case{65543, 258, 8, QuantKind::Asymmetric},   // outputs begin anywhere in a cache line
          Case{131072, 128, 8, QuantKind::Symmetric},   // whole lines
          Case{262144, 128, 4, QuantKind::Asymmetric},  // the same, of packed values
          Case{131072, 128, 8, QuantKind::Symmetric, DType::F32},
          Case{262144, 128, 4, QuantKind::Asymmetric, DType::BF16},
          Case{30848, 544, 8, QuantKind::Asymmetric}}) {  // half a line is left, then the next group begins within one
      if (device_under_test() && size != 258) continue;   // the others are about the CPU's kernels
      SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(size) + ", " + std::to_string(bits) +
                   " bits, " + std::string(dtype_name(dtype)));
      std::vector<float> row = random_numbers(static_cast<size_t>(size), 5);
      for (float& value : row) value = kept(value, dtype);
      const Reference expected(row, 1, bits, kind);
      const Tensor one = make_tensor(row, {1, size}, dtype);
      const Quantized alone = ops->quantize(one, 1, bits, kind);
      expect_matches(alone, expected);
      Tensor x = one.expand({groups, size}).contiguous();
      const Tensor infinite = make_tensor(std::vector<float>(static_cast<size_t>(size), INFINITY), {1, size}, dtype);
      x.slice(0, 7, 8).copy_from(infinite);
      const Quantized found = ops->quantize(x, groups, bits, kind);
      const Tensor back = there(Tensor::empty({groups * size + 3}, DType::F16)).slice(0, 3, groups * size + 3);
      ops->dequantize_into(back, found);
      const Tensor values = found.values.to(Device{}), restored = back.to(Device{});
      const auto small = alone.values.to_vector<int8_t>();
      const auto zeros = ops->quantize(infinite, 1, bits, kind).values.to_vector<int8_t>();
      int64_t wrong = 0;
      for (int64_t group = 0; group < groups; ++group) {
        const auto bytes = static_cast<int64_t>(small.size());
        const auto& wanted = group == 7 ? zeros : small;
        wrong += std::memcmp(values.data_as<int8_t>() + group * bytes, wanted.data(), small.size()) != 0;
        if (group == 7) continue;
        for (int64_t k = 0; k < size; ++k) {
          wrong += restored.data_as<uint16_t>()[group * size + k] !=
                   float_to_fp16(expected.restored[static_cast<size_t>(k)]);
        }
      }
      EXPECT_EQ(wrong, 0);
    }
  });
}

TEST(Quantizer, ErrorIsAtMostHalfAStep) {
  const auto ops = quantizer();
  for (float deviation : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
    const std::vector<float> numbers = random_numbers(64 * 128, 3, deviation);
    for (QuantKind kind : kinds) {
      for (int bits : {8, 4}) {
        const Quantized q = ops->quantize(make_tensor(numbers, {64 * 128}), 64, bits, kind);
        const auto restored = ops->dequantize(q).to_vector<float>();
        const auto params = q.params.to_vector<float>();
        for (size_t i = 0; i < numbers.size(); ++i) {
          const double scale = params[i / 128 * (kind == QuantKind::Asymmetric ? 2 : 1)];
          ASSERT_LE(std::fabs(double{numbers[i]} - restored[i]), scale * 0.5001) << i;
        }
      }
    }
  }
}

TEST(Quantizer, SpecialGroups) {
  on_every_isa([] {
    const auto ops = quantizer();
    const float tiny = FLT_MIN, denormal = FLT_MIN / 3, huge = FLT_MAX;
    const std::vector<std::vector<float>> groups = {
        {0, 0, 0, 0},          {-0.0f, 0, -0.0f, 0},        {5, 5, 5, 5},
        {-3, -3, -3, -3},      {1, not_a_number, 2, 3},     {not_a_number, not_a_number, not_a_number, not_a_number},
        {infinity, 1, 2, 3},   {1, 2, 3, -infinity},        {infinity, -infinity, 0, 0},
        {tiny, -tiny, 0, 0},   {tiny * 100, 0, 0, 0},       {tiny * 127, tiny * 300, -tiny, 0},
        {denormal, 0, 0, 1},   {denormal, -denormal, 0, 0}, {denormal, denormal, denormal, denormal},
        {huge, 1, 2, 3},       {-huge, huge, 0, 1},         {huge, huge * 0.5f, 1, 0},
        {1, 1.0000001f, 1, 1}, {1e10f, 1, -1, 0},           {127, 63.5f, -63.5f, 0.5f}};
    const auto count = static_cast<int64_t>(groups.size());
    // Groups of four elements, and groups whose values fill whole cache lines.
    for (size_t repeats : {1, 32}) {
      for (DType dtype : {DType::F32, DType::BF16}) {
        std::vector<float> numbers;
        for (const auto& group : groups) {
          for (size_t k = 0; k < repeats; ++k) {
            for (float number : group) numbers.push_back(kept(number, dtype));
          }
        }
        const Tensor x = make_tensor(numbers, {static_cast<int64_t>(numbers.size())}, dtype);
        for (QuantKind kind : kinds) {
          for (int bits : {8, 4}) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + " groups of " + std::to_string(4 * repeats) + " bits " +
                         std::to_string(bits));
            const Quantized found = ops->quantize(x, count, bits, kind);
            const Reference expected(numbers, count, bits, kind);
            expect_matches(found, expected);
            expect_same(ops->dequantize(found).to_vector<float>(), expected.restored, "restored");
            const size_t size = 4 * repeats;
            for (size_t i = 4 * size; i < 9 * size; ++i) EXPECT_TRUE(std::isnan(expected.restored[i]));
            if (dtype != DType::F32) continue;
            const Tensor fake = x.clone();
            kind == QuantKind::Symmetric ? ops->ds_quantize(fake, count, bits)
                                         : ops->ds_quantize_asym(fake, count, bits);
            expect_same(fake.to_vector<float>(), expected.restored, "fake");
          }
        }
      }
    }
    std::vector<float> numbers;
    for (const auto& group : groups) numbers.insert(numbers.end(), group.begin(), group.end());
    const Tensor x = make_tensor(numbers, {count * 4});
    // Zeros and equal elements read back as they were.
    const auto restored = ops->dequantize(ops->quantize(x, count, 8, QuantKind::Asymmetric)).to_vector<float>();
    EXPECT_EQ(restored[0], 0);
    EXPECT_EQ(restored[8], 5);
    EXPECT_EQ(restored[12], -3);
  });
}

TEST(Quantizer, StochasticRoundingIsUnbiasedAndReproducible) {
  const auto ops = quantizer();
  const int64_t n = 200000;
  for (float fraction : {0.1f, 0.5f, 0.93f}) {
    std::vector<float> numbers(n, -3 + fraction);
    numbers[0] = 127;
    Generator random;
    random.manual_seed(11);
    const Tensor x = make_tensor(numbers, {n});
    const Quantized first = ops->quantize(x, 1, 8, QuantKind::Symmetric, &random);
    const auto values = integers(first);
    double sum = 0;
    for (int64_t i = 1; i < n; ++i) {
      ASSERT_TRUE(values[static_cast<size_t>(i)] == -3 || values[static_cast<size_t>(i)] == -2);
      sum += values[static_cast<size_t>(i)] + 3;
    }
    const double deviation = std::sqrt(fraction * (1 - fraction) / static_cast<double>(n));
    EXPECT_NEAR(sum / static_cast<double>(n - 1), fraction, 5 * deviation);
    const Quantized second = ops->quantize(x, 1, 8, QuantKind::Symmetric, &random);
    EXPECT_NE(integers(second), values);
    random.manual_seed(11);
    EXPECT_EQ(integers(ops->quantize(x, 1, 8, QuantKind::Symmetric, &random)), values);
  }
  // Values that are integers already do not change.
  std::vector<float> whole(2550);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i % 255) - 127;
  Generator random;
  const auto kept_values = integers(ops->quantize(make_tensor(whole, {2550}), 10, 8, QuantKind::Symmetric, &random));
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(kept_values[i], whole[i]);
}

TEST(Quantizer, AnyStrides) {
  const auto ops = quantizer();
  const std::vector<float> numbers = random_numbers(24 * 10, 9);
  const Tensor base = make_tensor(numbers, {24, 10});
  const Tensor x = base.transpose(0, 1);
  for (int bits : {8, 4}) {
    const Quantized expected = ops->quantize(x.contiguous(), 5, bits, QuantKind::Asymmetric);
    const Quantized out{there(Tensor::zeros({expected.values.size(1), 10}, expected.values.dtype())).transpose(0, 1),
                        there(Tensor::zeros({5, 4}, DType::F32)).slice(1, 0, 4, 2)};
    ops->quantize_into(out, x);
    EXPECT_EQ(bytes_of(out.values), bytes_of(expected.values));
    EXPECT_EQ(bytes_of(out.params), bytes_of(expected.params));
    const Tensor back = there(Tensor::zeros({24, 10}, DType::BF16)).transpose(0, 1);
    ops->dequantize_into(back, out);
    EXPECT_EQ(bytes_of(back), bytes_of(ops->dequantize(expected, DType::BF16)));
  }
  const Tensor dense = x.contiguous();
  ops->ds_quantize(dense, 5, 3);
  ops->ds_quantize(x, 5, 3);
  EXPECT_EQ(bytes_of(x), bytes_of(dense));
}

TEST(Quantizer, FakeQuantizationOfAnyWidth) {
  on_every_isa([] {
    const auto ops = quantizer();
    for (DType dtype : floats) {
      std::vector<float> numbers = random_numbers(7 * 70, 2, 10);
      for (float& x : numbers) x = kept(x, dtype);
      for (int bits = 2; bits <= 16; ++bits) {
        for (QuantKind kind : kinds) {
          for (bool stochastic : {false, true}) {
            const bool symmetric = kind == QuantKind::Symmetric;
            Generator random;
            const RngState state = random.get_state();
            const Tensor x = make_tensor(numbers, {7, 70}, dtype);
            if (stochastic) {
              symmetric ? ops->ds_sr_quantize(x, 7, bits, random) : ops->ds_sr_quantize_asym(x, 7, bits, random);
            } else {
              symmetric ? ops->ds_quantize(x, 7, bits) : ops->ds_quantize_asym(x, 7, bits);
            }
            Reference expected(numbers, 7, bits, kind, stochastic ? &state : nullptr);
            for (float& r : expected.restored) r = kept(r, dtype);
            expect_same(x.to_vector<float>(), expected.restored, "fake " + std::to_string(bits));
          }
        }
      }
    }
  });
}

// The number of the output group that input group g becomes, by counting.
std::vector<int64_t> swizzled_order(int64_t groups, const ops::Swizzle& s) {
  std::vector<int64_t> source_of;  // in the order of the output
  const int64_t partition = groups / (s.nodes * s.devices), piece = partition / s.stages;
  for (int64_t stage = 0; stage < s.stages; ++stage) {
    for (int64_t device = 0; device < s.devices; ++device) {
      for (int64_t node = 0; node < s.nodes; ++node) {
        for (int64_t i = 0; i < piece; ++i) {
          source_of.push_back((node * s.devices + device) * partition + stage * piece + i);
        }
      }
    }
  }
  return source_of;
}

TEST(Quantizer, Swizzle) {
  // As the hierarchical all-to-all wants it for two nodes of four devices.
  EXPECT_EQ(swizzled_order(8, {2, 4, 1}), (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  on_every_isa([] {
    const auto ops = quantizer();
    for (const ops::Swizzle swizzle : {ops::Swizzle{1, 1, 1}, {2, 4, 1}, {1, 4, 2}, {3, 1, 2}, {3, 2, 4}}) {
      for (int64_t more : {1, 3}) {
        const int64_t groups = swizzle.nodes * swizzle.devices * swizzle.stages * more, size = 34;
        const Tensor x = make_tensor(random_numbers(groups * size, 4), {groups, size}, DType::F16);
        for (QuantKind kind : kinds) {
          for (int bits : {8, 4}) {
            const Quantized plain = ops->quantize(x, groups, bits, kind);
            const Quantized found = ops->swizzle_quant(x, groups, bits, kind, swizzle);
            EXPECT_EQ(found.values.shape(), Shape({groups * size * bits / 8}));
            const auto order = swizzled_order(groups, swizzle);
            for (int64_t out = 0; out < groups; ++out) {
              const int64_t in = order[static_cast<size_t>(out)];
              const Tensor rows = found.values.view(plain.values.shape());
              EXPECT_EQ(bytes_of(rows.select(0, out)), bytes_of(plain.values.select(0, in)));
              EXPECT_EQ(bytes_of(found.params.select(0, out)), bytes_of(plain.params.select(0, in)));
            }
          }
        }
      }
    }
  });
}

// Dequantized chunks summed in order.
std::vector<float> summed(ops::Quantizer& ops, const Quantized& x, int64_t chunks) {
  const auto all = ops.dequantize(x).to_vector<float>();
  std::vector<float> sum(all.size() / static_cast<size_t>(chunks), 0.0f);
  for (size_t i = 0; i < all.size(); ++i) sum[i % sum.size()] += all[i];
  return sum;
}

TEST(Quantizer, QuantizedReduction) {
  on_every_isa([] {
    const auto ops = quantizer();
    for (int64_t chunks : {1, 2, 5}) {
      for (int64_t in_groups : {1, 4, 12}) {
        for (int64_t out_groups : {1, 3, 4, 24}) {
          const int64_t count = 1200;
          const Tensor x = make_tensor(random_numbers(chunks * count, 8), {chunks * count});
          for (QuantKind kind : kinds) {
            for (int bits : {8, 4}) {
              const Quantized in = ops->quantize(x, chunks * in_groups, bits, kind);
              const std::vector<float> sum = summed(*ops, in, chunks);
              const Quantized found = ops->quantized_reduction(in, out_groups, chunks);
              const Quantized expected = ops->quantize(make_tensor(sum, {count}), out_groups, bits, kind);
              EXPECT_EQ(bytes_of(found.values), bytes_of(expected.values));
              EXPECT_EQ(bytes_of(found.params), bytes_of(expected.params));
            }
          }
        }
      }
    }
    // A NaN among the chunks shows.
    std::vector<float> numbers = random_numbers(400, 1);
    numbers[130] = infinity;
    const Quantized in = ops->quantize(make_tensor(numbers, {400}), 8, 8);
    const auto sum = ops->dequantize(ops->quantized_reduction(in, 2, 2)).to_vector<float>();
    EXPECT_TRUE(std::isnan(sum[130]));
    EXPECT_FALSE(std::isnan(sum[30]));
  });
}

TEST(Quantizer, SumsOfOddGroupsOfFourBits) {
  const auto ops = quantizer();
  // Three chunks of 6 elements, so that chunks begin in the middle of nothing and groups of the sum cut groups.
  const Quantized in = ops->quantize(make_tensor(random_numbers(18, 8), {18}), 9, 4);
  const Quantized found = ops->quantized_reduction(in, 1, 3);
  const Quantized expected = ops->quantize(make_tensor(summed(*ops, in, 3), {6}), 1, 4);
  EXPECT_EQ(bytes_of(found.values), bytes_of(expected.values));
}

// error * beta + (1 - beta) * (exact - restored), each operation rounded.
std::vector<float> next_error(const std::vector<float>& error, const std::vector<float>& exact,
                              const std::vector<float>& restored, float beta, DType dtype) {
  std::vector<float> next(error.size());
  for (size_t i = 0; i < error.size(); ++i) {
    const float old = beta * error[i];
    const float difference = exact[i] - restored[i];
    const float fresh = (1.0f - beta) * difference;
    next[i] = std::isfinite(restored[i]) ? kept(old + fresh, dtype) : error[i];
  }
  return next;
}

TEST(Quantizer, ErrorFeedback) {
  on_every_isa([] {
    const auto ops = quantizer();
    const float beta = 0.8f;
    const ops::Swizzle swizzle{2, 3, 2};
    for (DType dtype : floats) {
      for (QuantKind kind : kinds) {
        for (int bits : {8, 4}) {
          const int64_t groups = 24, size = 66, count = groups * size;
          std::vector<float> numbers = random_numbers(count, 12), errors = random_numbers(count, 13, 0.1f);
          for (float& e : errors) e = kept(e, dtype);
          numbers[5] = infinity;
          const Tensor x = make_tensor(numbers, {groups, size}), error = make_tensor(errors, {groups, size}, dtype);
          std::vector<float> exact(numbers);
          for (size_t i = 0; i < exact.size(); ++i) exact[i] += errors[i];
          const Tensor sum = make_tensor(exact, {groups, size});
          const Quantized expected = ops->swizzle_quant(sum, groups, bits, kind, swizzle);
          const Quantized found = ops->loco_swizzle_quant(x, error, beta, groups, bits, kind, swizzle);
          EXPECT_EQ(bytes_of(found.values), bytes_of(expected.values));
          EXPECT_EQ(bytes_of(found.params), bytes_of(expected.params));
          const auto restored = ops->dequantize(ops->quantize(sum, groups, bits, kind)).to_vector<float>();
          expect_same(error.to_vector<float>(), next_error(errors, exact, restored, beta, dtype), "error");

          // The sum of two chunks, with an error of its own; strided.
          const Quantized in = ops->quantize(make_tensor(numbers, {count}), 24, bits, kind);
          std::vector<float> half(errors.begin(), errors.begin() + count / 2), total = summed(*ops, in, 2);
          const Tensor half_error = make_tensor(half, {count / 2, 1}, dtype).expand({count / 2, 2}).contiguous();
          const Tensor strided = half_error.select(1, 0);
          for (size_t i = 0; i < total.size(); ++i) total[i] += half[i];
          const Tensor total_tensor = make_tensor(total, {count / 2});
          const Quantized sum_expected = ops->quantize(total_tensor, 6, bits, kind);
          const Quantized sum_found = ops->loco_quantized_reduction(in, strided, beta, 6, 2);
          EXPECT_EQ(bytes_of(sum_found.values), bytes_of(sum_expected.values));
          expect_same(strided.to_vector<float>(),
                      next_error(half, total, ops->dequantize(sum_expected).to_vector<float>(), beta, dtype),
                      "error of the sum");
        }
      }
    }
  });
}

TEST(Quantizer, WeightsToHalf) {
  on_every_isa([] {
    const auto ops = quantizer();
    const int64_t groups = 5, size = 86;
    std::vector<uint8_t> bytes(static_cast<size_t>(groups * size));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
    std::vector<float> scale = random_numbers(groups, 3), minimum = random_numbers(groups, 4);
    scale[2] = 0;
    const Tensor scales = make_tensor(scale, {groups, 1}, DType::F16), minima = make_tensor(minimum, {groups, 1});
    for (int bits : {8, 4}) {
      const int64_t columns = bits == 8 ? size : size / 2;
      const Tensor values = there(Tensor::from_host(bytes.data(), {groups, columns}, DType::U8));
      const Tensor found = bits == 8 ? ops->dequantize_int8_to_half(values, scales, minima)
                                     : ops->dequantize_int4_to_half(values, scales, minima);
      ASSERT_EQ(found.shape(), Shape({groups, size}));
      std::vector<float> expected;
      for (int64_t i = 0; i < groups * size; ++i) {
        const auto g = static_cast<size_t>(i / size);
        const uint8_t byte = bytes[static_cast<size_t>(bits == 8 ? i : i / 2)];
        const int q = bits == 8 ? byte : i % 2 ? byte & 15 : byte >> 4;
        const float quotient = static_cast<float>(q) / kept(scale[g], DType::F16);
        expected.push_back(kept(quotient + minimum[g], DType::F16));
      }
      expect_same(found.to_vector<float>(), expected, "weights");
    }
  });
}

TEST(Quantizer, NoElements) {
  const auto ops = quantizer();
  const Tensor x = there(Tensor::empty({0, 8}, DType::F32));
  for (int bits : {8, 4}) {
    const Quantized q = ops->quantize(x, 3, bits, QuantKind::Asymmetric);
    EXPECT_EQ(q.params.to_vector<float>(), (std::vector<float>{1, 0, 1, 0, 1, 0}));
    EXPECT_EQ(ops->dequantize(q).shape(), Shape({0, 8}));
    EXPECT_EQ(ops->quantized_reduction(q, 2, 3).params.to_vector<float>(), (std::vector<float>{1, 0, 1, 0}));
    EXPECT_EQ(ops->swizzle_quant(x, 4, bits, QuantKind::Symmetric, {2, 2, 1}).values.numel(), 0);
  }
  ops->ds_quantize(x, 1, 8);
  const Tensor none = there(Tensor::empty({0, 4}, DType::U8)), no_scale = there(Tensor::empty({0}, DType::F16));
  EXPECT_EQ(ops->dequantize_int4_to_half(none, no_scale, no_scale).shape(), Shape({0, 8}));
}

// Memory that the host does not reach.
TEST(Quantizer, TensorsOfAnotherAccelerator) {
  if (device_under_test()) GTEST_SKIP() << "about the CPU and memory that it does not reach";
  const auto accelerator = make_accelerator("null");
  const auto ops = accelerator->create_op_builder("QuantizerBuilder")->load_as<ops::Quantizer>();
  const Tensor x = make_tensor(random_numbers(600, 6), {20, 30});
  const Tensor there = x.to(accelerator->device());
  const Quantized expected = ops->quantize(x.transpose(0, 1).contiguous(), 6, 4, QuantKind::Asymmetric);
  const Quantized found = ops->quantize(there.transpose(0, 1), 6, 4, QuantKind::Asymmetric);
  EXPECT_EQ(found.values.device(), accelerator->device());
  EXPECT_EQ(bytes_of(found.values), bytes_of(expected.values));
  EXPECT_EQ(bytes_of(found.params), bytes_of(expected.params));
  const Tensor back = ops->dequantize(found, DType::F16);
  EXPECT_EQ(back.device(), accelerator->device());
  EXPECT_EQ(bytes_of(back), bytes_of(ops->dequantize(expected, DType::F16)));
  ops->ds_quantize(there, 6, 8);
  ops->ds_quantize(x, 6, 8);
  EXPECT_EQ(bytes_of(there), bytes_of(x));
}

TEST(Quantizer, RefusesWhatIsWrong) {
  const auto ops = quantizer();
  const Tensor x = there(Tensor::zeros({6, 10}, DType::F32)), odd = there(Tensor::zeros({4, 3}, DType::F32));
  const Quantized q = ops->quantize(x, 6, 8);
  expect_refused([&] { ops->quantize({}, 1); }, "x is absent");
  expect_refused([&] { ops->quantize(x.to(DType::F64), 1); }, "x must be float32, float16 or bfloat16");
  expect_refused([&] { ops->quantize(x, 0); }, "number of groups");
  expect_refused([&] { ops->quantize(x, -2); }, "number of groups");
  expect_refused([&] { ops->quantize(x, 7); }, "60 elements, which are not a multiple of 7 groups");
  expect_refused([&] { ops->quantize(x, 6, 5); }, "8 or 4 bits, not 5");
  expect_refused([&] { ops->quantize(odd, 2, 4); }, "last dimension must be even");
  expect_refused([&] { ops->quantize(x, 4, 4); }, "size of a group must be even");
  expect_refused([&] { ops->quantize_into(q, odd); }, "out.values must be [4, 3]");
  expect_refused([&] { ops->quantize_into({q.params, q.params}, x); }, "out.values must be int8");
  expect_refused(
      [&] {
        ops->quantize_into({q.values, there(Tensor::zeros({6}, DType::F32))}, x);
      },
      "out.params must be");
  expect_refused(
      [&] {
        ops->quantize_into({q.values, there(Tensor::zeros({6, 3}, DType::F32))}, x);
      },
      "out.params must be");
  expect_refused(
      [&] {
        ops->dequantize({q.values, there(Tensor::zeros({7, 1}, DType::F32))});
      },
      "not a multiple of 7 groups");
  expect_refused([&] { ops->dequantize(q, DType::I32); }, "not int32");
  expect_refused([&] { ops->dequantize_into(odd, q); }, "out must have 60 elements");
  expect_refused([&] { ops->ds_quantize(x, 6, 1); }, "bits must be from 2 to 16");
  expect_refused([&] { ops->ds_quantize(x, 6, 17); }, "bits must be from 2 to 16");
  expect_refused([&] { ops->ds_quantize_asym(q.values, 6, 8); }, "ds_quantize_asym: x must be");
  expect_refused([&] { ops->swizzle_quant(x, 6, 8, QuantKind::Symmetric, {4, 1, 1}); }, "must divide");
  expect_refused([&] { ops->swizzle_quant(x, 6, 8, QuantKind::Symmetric, {0, 1, 1}); }, "must divide");
  const int64_t large = int64_t{1} << 62;
  expect_refused([&] { ops->swizzle_quant(x, 6, 8, QuantKind::Symmetric, {large, large, large}); }, "must divide");
  expect_refused([&] { ops->quantized_reduction(q, 1, 4); }, "not a multiple of 4 chunks");
  expect_refused([&] { ops->quantized_reduction(q, 7, 2); }, "the sum has 30 elements");
  expect_refused([&] { ops->loco_quantized_reduction(q, x, 0.5f, 1, 2); }, "error must have 30 elements");
  expect_refused([&] { ops->loco_swizzle_quant(x, odd, 0.5f, 6, 8, QuantKind::Symmetric, {}); }, "error must have x's");
  expect_refused([&] { ops->dequantize_int4_to_half(q.values, x, x); }, "values must be uint8");
  const Tensor bytes = there(Tensor::zeros({6, 4}, DType::U8));
  expect_refused([&] { ops->dequantize_int4_to_half(bytes, odd, x); }, "scale must have 6 elements");
}

}  // namespace
}  // namespace anyaccel
