// The ops of training against the CPU's references: random shapes, dtypes and strides, on every instruction set or on the
// accelerator under test; and the gradients among them against differences of what they are the gradients of.
#include <limits>

#include "anyaccel/philox.h"
#include "ops/op_test_support.h"

namespace anyaccel::cpu::testing::training {
namespace {

// Fewer on an accelerator, whose kernels each class of dtypes has compiled.
const int kCases = anyaccel::testing::device_under_test() ? 8 : 30;

Shape lead_shape(Random& random, int64_t most = 2) {
  Shape shape;
  for (int64_t d = random.integer(0, most); d > 0; --d) {
    shape.push_back(random.chance(0.08) ? 0 : random.integer(1, 4));
  }
  return shape;
}

Shape row_shape(Random& random) {
  Shape shape = lead_shape(random);
  shape.push_back(random.pick<int64_t>({1, 2, 7, 15, 16, 17, 31, 64, 100, 255, 1000, random.integer(1, 300)}));
  return shape;
}

TestTensor input(Random& random, Shape shape, double deviation = 1) {
  return TestTensor::random_layout(random, random.float_dtype(), std::move(shape), true).fill_normal(random, deviation);
}
TestTensor output(Random& random, Shape shape) {
  return TestTensor::random_layout(random, random.float_dtype(), std::move(shape), false);
}
TestTensor numbers_of_rows(Random& random, Shape shape, bool is_input) {
  shape.pop_back();
  return TestTensor::random_layout(random, DType::F32, std::move(shape), is_input);
}

TEST(TrainingOps, Matmul) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 2 * kCases; ++i) {
      const Shape lead = lead_shape(random);
      const auto size = [&] {
        return random.chance(0.05) ? 0 : random.pick<int64_t>({1, 3, 8, 17, 50, random.integer(1, 130)});
      };
      const int64_t m = size(), n = size(), k = size();
      const auto with = [&](int64_t rows, int64_t columns) {
        Shape shape = lead;
        shape.push_back(rows);
        shape.push_back(columns);
        return shape;
      };
      OpCase c;
      c.op = "matmul";
      c.tensors = {output(random, with(m, n)).fill_normal(random), input(random, with(m, k)),
                   input(random, with(k, n))};
      // An accelerator compiles the kernel for each pair of dtypes, which takes longer than all that it computes here.
      if (anyaccel::testing::device_under_test() && i > 0) {
        const DType dtype = i % 2 == 0 ? DType::F32 : DType::BF16;
        for (const size_t t : {1, 2}) {
          c.tensors[t] = TestTensor::random_layout(random, dtype, c.tensors[t].shape(), true).fill_normal(random);
        }
      }
      c.with(aa_accumulate_params{0, static_cast<int32_t>(random.integer(0, 1))});
      // Terms of a sum cancel: its error is that of a sum of their sizes.
      compare(c, {3e-6 * static_cast<double>(k + 1), 1e-5, 1.01});
    }
  });
}

TEST(TrainingOps, MatmulWithoutAccumulateDoesNotReadTheResult) {
  OpCase c;
  c.op = "matmul";
  c.tensors = {TestTensor(DType::F32, {2, 9, 20}), TestTensor(DType::F32, {2, 9, 4}),
               TestTensor(DType::F32, {2, 4, 20})};
  c.tensors[0].fill([](int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  c.tensors[1].fill([](int64_t i) { return static_cast<double>(i % 5); });
  c.tensors[2].fill([](int64_t i) { return static_cast<double>(i % 7); });
  c.with(aa_accumulate_params{0, 0});
  compare(c, {0, 0, 0});
}

// Products that are too small to be split meet the barriers of larger ones: nobody may wait there for a thread that has
// fewer of them, or none.
TEST(TrainingOps, MatmulOfSmallProductsThatThreadsShareUnequally) {
  if (anyaccel::testing::device_under_test()) GTEST_SKIP() << "of the CPU's threads";
  cpu::WorkerPool& pool = cpu::WorkerPool::instance();
  const int before = pool.size();
  for (const int threads : {2, 3, 8}) {
    pool.set_size(threads);
    for (const int64_t batches : {5, 8}) {
      OpCase c;
      c.op = "matmul";
      c.tensors = {TestTensor(DType::F32, {batches, 40, 20}), TestTensor(DType::F32, {batches, 40, 40}),
                   TestTensor(DType::F32, {batches, 40, 20})};
      c.tensors[1].fill([](int64_t i) { return static_cast<double>(i % 5); });
      c.tensors[2].fill([](int64_t i) { return static_cast<double>(i % 7); });
      c.with(aa_accumulate_params{0, 0});
      compare(c, {0, 0, 0});
    }
  }
  pool.set_size(before);
}

TEST(TrainingOps, SoftmaxMasked) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = row_shape(random);
      OpCase c;
      c.op = "softmax_masked";
      c.tensors = {output(random, shape), input(random, shape, random.pick({1.0, 20.0})), TestTensor()};
      if (random.chance(0.8)) {
        c.tensors[2] = TestTensor::random_layout(random, random.float_dtype(), shape, true).fill([&](int64_t) {
          return random.chance(0.3) ? random.pick({-std::numeric_limits<double>::infinity(), -10000.0}) : 0.0;
        });
      }
      c.with(aa_softmax_params{0, random.pick({1.0f, 0.125f, -0.7f})});
      compare(c, {1e-6, 5e-5, 1.01});
    }
  });
}

TEST(TrainingOps, SoftmaxMaskedOfNothingIsZeroAndOfNaNIsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double special : {-infinity, infinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (const int64_t n : {1, 5, 33}) {
      OpCase c;
      c.op = "softmax_masked";
      c.tensors = {TestTensor(DType::F32, {3, n}), TestTensor(DType::F32, {3, n}), TestTensor(DType::F32, {3, n})};
      // Row 0 is masked entirely, row 1 but for one element, row 2 has the special number beside masked ones.
      c.tensors[1].fill([&](int64_t i) { return i == 2 * n ? special : 1.0; });
      c.tensors[2].fill([&](int64_t i) { return i == n || i == 2 * n ? 0.0 : -infinity; });
      c.with(aa_softmax_params{0, 1});
      compare(c, {1e-7, 1e-6, 1});
      run(c, true);
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(c.tensors[0].number(i), 0);
      EXPECT_EQ(c.tensors[0].number(n), 1);
      if (std::isnan(special)) {
        EXPECT_TRUE(std::isnan(c.tensors[0].number(2 * n)));
      }
    }
  }
}

TEST(TrainingOps, SoftmaxBackward) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = row_shape(random);
      OpCase c;
      c.op = "softmax_backward";
      c.tensors = {output(random, shape), input(random, shape, 0.2), input(random, shape)};
      c.with(aa_softmax_params{0, 0.3f});
      compare(c, {2e-5, 2e-5, 1.01});
    }
  });
}

TEST(TrainingOps, Moments) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = row_shape(random);
      OpCase c;
      c.op = "moments";
      c.tensors = {numbers_of_rows(random, shape, false), numbers_of_rows(random, shape, false), input(random, shape)};
      c.with(aa_moments_params{0, 1e-5f, static_cast<int32_t>(random.integer(0, 1))});
      compare(c, {1e-6, 1e-5, 1.01});
    }
  });
}

OpCase norm_backward_case(Random& random, const Shape& shape) {
  const int64_t h = shape.back();
  const auto optional = [&](const TestTensor& t) { return random.chance(0.7) ? t : TestTensor(); };
  OpCase c;
  c.op = "norm_backward";
  c.tensors = {output(random, shape),
               optional(output(random, {h}).fill_normal(random)),
               optional(output(random, {h}).fill_normal(random)),
               input(random, shape),
               input(random, shape),
               optional(input(random, {h})),
               optional(numbers_of_rows(random, shape, true).fill_normal(random, 0.2)),
               numbers_of_rows(random, shape, true).fill([&](int64_t) { return 0.5 + std::fabs(random.normal()); })};
  c.with(aa_accumulate_params{0, static_cast<int32_t>(random.integer(0, 1))});
  return c;
}

TEST(TrainingOps, NormBackward) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < 2 * kCases; ++i) compare(norm_backward_case(random, row_shape(random)), {2e-5, 2e-5, 1.01});
    // More rows than are summed at once.
    compare(norm_backward_case(random, {700, 130}), {3e-4, 3e-5, 1.01});
  });
}

TEST(TrainingOps, LayerNormInverse) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = row_shape(random);
      OpCase c;
      c.op = "layer_norm_inverse";
      const auto away_from_zero = [&](int64_t) { return 0.5 + std::fabs(random.normal()); };
      c.tensors = {output(random, shape),
                   input(random, shape),
                   TestTensor::random_layout(random, random.float_dtype(), {shape.back()}, true).fill(away_from_zero),
                   input(random, {shape.back()}),
                   numbers_of_rows(random, shape, true).fill_normal(random),
                   numbers_of_rows(random, shape, true).fill(away_from_zero)};
      compare(c, {2e-6, 2e-6, 1.01});
    }
  });
}

TEST(TrainingOps, ActivationBackward) {
  for_each_seed([](Random& random) {
    for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
      for (int i = 0; i < 8; ++i) {
        const Shape shape = row_shape(random);
        OpCase c;
        c.op = "activation_backward";
        c.tensors = {output(random, shape), input(random, shape, 3), input(random, shape)};
        for (int64_t j = 0; j < c.tensors[1].count(); j += 5) {
          c.tensors[1].set(j, random.pick({0.0, -0.0, 60.0, -60.0, 1e4, -1e4, 1e-4, -1e-4, std::nan("")}));
        }
        c.with(aa_activation_params{0, kind});
        compare(c, {3e-6, 1e-5, 1.01});
      }
    }
  });
}

TEST(TrainingOps, Dropout) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      Shape shape = row_shape(random);
      if (i == 0) shape = {3, 5001};  // more than are made at once
      if (i == 1) shape = {};
      OpCase c;
      c.op = "dropout";
      c.tensors = {output(random, shape), TestTensor::random_layout(random, DType::U8, shape, false),
                   input(random, shape)};
      while (i == 0 && c.tensors[1].view().strides[1] == 1) {  // and a mask with gaps
        c.tensors[1] = TestTensor::random_layout(random, DType::U8, shape, false);
      }
      aa_dropout_params params{};
      params.ratio = random.pick({0.0f, 0.1f, 0.5f, 0.999f});
      params.seed = static_cast<uint64_t>(random.integer(0, std::numeric_limits<int64_t>::max()));
      params.offset = random.chance(0.2) ? ~uint64_t{0} - 2 : static_cast<uint64_t>(random.integer(0, 1 << 20));
      c.with(params);
      compare(c, {0, 2e-7, 1.01});
    }
  });
}

TEST(TrainingOps, DropoutKeepsTheShareItSays) {
  OpCase c;
  c.op = "dropout";
  const int64_t n = 100000;
  c.tensors = {TestTensor(DType::F32, {n}), TestTensor(DType::U8, {n}), TestTensor(DType::F32, {n})};
  c.tensors[2].fill([](int64_t) { return 1.0; });
  aa_dropout_params params{};
  params.ratio = 0.3f;
  params.seed = 5;
  c.with(params);
  run(c, true);
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    const bool is = philox_unit(philox_words(5, static_cast<uint64_t>(i) / 4)[static_cast<size_t>(i) % 4]) >= 0.3f;
    ASSERT_EQ(c.tensors[1].integer(i), is ? 1 : 0) << i;
    ASSERT_NEAR(c.tensors[0].number(i), is ? 1 / 0.7 : 0, 1e-6) << i;
    kept += is;
  }
  // Five standard deviations.
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(n), 0.7, 5 * std::sqrt(0.21 / static_cast<double>(n)));
}

// An element is kept if its number, of 24 bits, is not below the ratio, which may have more bits.
TEST(TrainingOps, DropoutComparesWithTheRatioExactly) {
  for (int64_t i = 0; i < 8; ++i) {
    const float unit = philox_unit(philox_words(5, static_cast<uint64_t>(i) / 4)[static_cast<size_t>(i) % 4]);
    for (const float ratio : {std::nextafter(unit, 0.0f), unit, std::nextafter(unit, 1.0f)}) {
      OpCase c;
      c.op = "dropout";
      c.tensors = {TestTensor(DType::F32, {8}), TestTensor(DType::U8, {8}), TestTensor(DType::F32, {8})};
      aa_dropout_params params{};
      params.ratio = ratio;
      params.seed = 5;
      c.with(params);
      run(c, true);
      EXPECT_EQ(c.tensors[1].integer(i), unit >= ratio ? 1 : 0) << unit << " and the ratio " << ratio;
    }
  }
}

TEST(TrainingOps, ApplyMaskScaledAddMultiplyAndColumnSums) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const Shape shape = row_shape(random);
      OpCase c;
      c.op = "apply_mask";
      c.tensors = {output(random, shape), input(random, shape),
                   TestTensor::random_layout(random, DType::U8, shape, true).fill([&](int64_t) {
                     return static_cast<double>(random.pick({0, 0, 1, 255}));
                   })};
      c.with(aa_softmax_params{0, 1.25f});
      compare(c, {0, 1e-7, 1.01});
      c.op = "scaled_add";
      c.tensors[2] = random.chance(0.8) ? input(random, shape) : TestTensor();
      c.with(aa_scaled_add_params{0, 0.75f, -1.5f});
      compare(c, {1e-6, 1e-6, 1.01});
      c.op = "multiply";
      c.tensors[2] = input(random, shape);
      c.params.clear();
      compare(c, {0, 1e-7, 1.01});
      c.op = "column_sums";
      c.tensors = {output(random, {shape.back()}).fill_normal(random), input(random, shape)};
      c.with(aa_accumulate_params{0, static_cast<int32_t>(random.integer(0, 1))});
      compare(c, {2e-6, 1e-5, 1.01});
    }
    OpCase c;
    c.op = "column_sums";
    c.tensors = {output(random, {150}), input(random, {900, 150})};
    c.with(aa_accumulate_params{0, 0});
    compare(c, {2e-4, 1e-5, 1.01});
  });
}

// ---- gradients against differences, by the references ---------------------------------------------------------------

// The references calculate in double and round once to F32. Differences are taken over a step that is large against that
// rounding and small against what the functions bend.
using Numbers = std::vector<double>;

Numbers run_reference(OpCase c, size_t result) {
  run(c, false);
  Numbers values;
  for (int64_t i = 0; i < c.tensors[result].count(); ++i) values.push_back(c.tensors[result].number(i));
  return values;
}

// The gradient of sum(weights * outputs) by the elements of tensor `of`, by central differences.
Numbers differences(const OpCase& c, size_t result, size_t of, const Numbers& weights) {
  Numbers gradient;
  const double step = 1.0 / 64;
  for (int64_t i = 0; i < c.tensors[of].count(); ++i) {
    double sides[2];
    for (const int side : {0, 1}) {
      OpCase moved = c;
      moved.tensors[of].set(i, c.tensors[of].number(i) + (side ? step : -step));
      const Numbers values = run_reference(moved, result);
      sides[side] = 0;
      for (size_t j = 0; j < values.size(); ++j) sides[side] += weights[j] * values[j];
    }
    gradient.push_back((sides[1] - sides[0]) / (2 * step));
  }
  return gradient;
}

TestTensor f32(Shape shape, const std::function<double(int64_t)>& value) {
  return TestTensor(DType::F32, std::move(shape)).fill(value);
}
// Smooth numbers without a pattern.
double wave(int64_t i, double phase) { return std::sin(static_cast<double>(i) * 1.7 + phase) + 0.3 * phase; }

void expect_near(const Numbers& found, const Numbers& expected, double limit, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], limit) << what << ' ' << i;
}

TEST(Gradients, OfNormsAreDifferences) {
  for (const bool layer : {true, false}) {
    const Shape shape{3, 7};
    OpCase forward;
    forward.op = layer ? "layer_norm" : "rms_norm";
    forward.tensors = {TestTensor(DType::F32, shape), f32(shape, [](int64_t i) { return wave(i, 0.4); }),
                       f32({7}, [](int64_t i) { return 1 + 0.3 * wave(i, 1); })};
    if (layer) forward.tensors.push_back(f32({7}, [](int64_t i) { return wave(i, 2); }));
    forward.tensors.emplace_back();
    forward.with(aa_norm_params{0, 1e-3f});
    const TestTensor dy = f32(shape, [](int64_t i) { return wave(i, 3); });
    Numbers weights;
    for (int64_t i = 0; i < dy.count(); ++i) weights.push_back(dy.number(i));

    OpCase moments;
    moments.op = "moments";
    moments.tensors = {TestTensor(DType::F32, {3}), TestTensor(DType::F32, {3}), forward.tensors[1]};
    moments.with(aa_moments_params{0, 1e-3f, layer});
    run(moments, false);
    OpCase backward;
    backward.op = "norm_backward";
    backward.tensors = {TestTensor(DType::F32, shape),
                        TestTensor(DType::F32, {7}),
                        layer ? TestTensor(DType::F32, {7}) : TestTensor(),
                        dy,
                        forward.tensors[1],
                        forward.tensors[2],
                        layer ? moments.tensors[0] : TestTensor(),
                        moments.tensors[1]};
    backward.with(aa_accumulate_params{0, 0});
    expect_near(run_reference(backward, 0), differences(forward, 0, 1, weights), 3e-3, "dx");
    expect_near(run_reference(backward, 1), differences(forward, 0, 2, weights), 1e-4, "dweight");
    if (layer) expect_near(run_reference(backward, 2), differences(forward, 0, 3, weights), 1e-4, "dbias");
  }
}

TEST(Gradients, OfSoftmaxAndActivationsAreDifferences) {
  const Shape shape{2, 6};
  const TestTensor x = f32(shape, [](int64_t i) { return wave(i, 0.2); });
  const TestTensor dy = f32(shape, [](int64_t i) { return wave(i, 3); });
  Numbers weights;
  for (int64_t i = 0; i < dy.count(); ++i) weights.push_back(dy.number(i));
  OpCase forward;
  forward.op = "softmax_masked";
  forward.tensors = {TestTensor(DType::F32, shape), x,
                     f32(shape, [](int64_t i) { return i % 6 == 2 ? -std::numeric_limits<double>::infinity() : 0.0; })};
  forward.with(aa_softmax_params{0, 0.5f});
  OpCase done = forward;
  run(done, false);
  OpCase backward;
  backward.op = "softmax_backward";
  backward.tensors = {TestTensor(DType::F32, shape), done.tensors[0], dy};
  backward.with(aa_softmax_params{0, 0.5f});
  expect_near(run_reference(backward, 0), differences(forward, 0, 1, weights), 1e-4, "dx of softmax");

  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    OpCase activation;
    activation.op = "activation";
    activation.tensors = {TestTensor(DType::F32, shape), x};
    activation.with(aa_activation_params{0, kind});
    OpCase slope;
    slope.op = "activation_backward";
    slope.tensors = {TestTensor(DType::F32, shape), x, dy};
    slope.with(aa_activation_params{0, kind});
    expect_near(run_reference(slope, 0), differences(activation, 0, 1, weights), 5e-4, "dx of an activation");
  }
}

TEST(TrainingOps, CrossEntropy) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t rows = random.chance(0.05) ? 0 : random.integer(1, 9);
      const int64_t width = random.pick<int64_t>({1, 2, 16, 17, 100, 1000, random.integer(1, 300)});
      OpCase c;
      c.op = "cross_entropy";
      c.tensors = {TestTensor::random_layout(random, DType::F32, {rows}, false).fill_normal(random), TestTensor(),
                   input(random, {rows, width}, random.pick({1.0, 20.0})),
                   TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {rows}, true)};
      if (random.chance(0.8)) c.tensors[1] = output(random, {rows, width}).fill_normal(random);
      c.tensors[3].fill([&](int64_t) { return static_cast<double>(random.integer(-1, width - 1)); });
      c.with(aa_softmax_params{0, random.pick({1.0f, 0.01f, 8.0f})});
      compare(c, {2e-5, 5e-5, 1.01});
    }
  });
}

TEST(TrainingOps, EmbeddingBackward) {
  for_each_seed([](Random& random) {
    for (int i = 0; i < kCases; ++i) {
      const int64_t rows = random.integer(1, 20), width = random.pick<int64_t>({0, 1, 16, 33, random.integer(1, 300)});
      const int64_t tokens = random.chance(0.05) ? 0 : random.integer(1, 60);
      OpCase c;
      c.op = "embedding_backward";
      c.tensors = {TestTensor::random_layout(random, DType::F32, {rows, width}, false).fill_normal(random),
                   input(random, {tokens, width}),
                   TestTensor::random_layout(random, random.pick({DType::I32, DType::I64}), {tokens}, true)};
      c.tensors[2].fill([&](int64_t) { return static_cast<double>(random.integer(0, rows - 1)); });
      compare(c, {1e-5, 1e-5, 1});
    }
  });
}

TEST(TrainingOps, GatedActivationBackward) {
  for_each_seed([](Random& random) {
    for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
      for (int i = 0; i < kCases / 4; ++i) {
        const Shape shape = row_shape(random);
        OpCase c;
        c.op = "gated_activation_backward";
        c.tensors = {output(random, shape),
                     output(random, shape),
                     random.chance(0.5) ? output(random, shape).fill_normal(random) : TestTensor(),
                     input(random, shape, random.pick({1.0, 5.0})),
                     input(random, shape),
                     input(random, shape)};
        c.with(aa_activation_params{0, kind});
        compare(c, {5e-5, 5e-5, 1.01});
      }
    }
  });
}

TEST(Gradients, OfCrossEntropyAndGatedActivationsAreDifferences) {
  const Shape shape{3, 7};
  const TestTensor x = f32(shape, [](int64_t i) { return 2 * wave(i, 0.2); });
  OpCase loss;
  loss.op = "cross_entropy";
  loss.tensors = {TestTensor(DType::F32, {3}), TestTensor(), x, TestTensor(DType::I32, {3})};
  loss.tensors[3].fill([](int64_t i) { return static_cast<double>(2 * i); });
  loss.with(aa_softmax_params{0, 0.5f});
  OpCase gradient = loss;
  gradient.tensors[1] = TestTensor(DType::F32, shape);
  expect_near(run_reference(gradient, 1), differences(loss, 0, 2, {0.5, 0.5, 0.5}), 1e-4, "dx of cross_entropy");

  const TestTensor up = f32(shape, [](int64_t i) { return wave(i, 1); });
  const TestTensor dy = f32(shape, [](int64_t i) { return wave(i, 3); });
  Numbers weights;
  for (int64_t i = 0; i < dy.count(); ++i) weights.push_back(dy.number(i));
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    OpCase gated;
    gated.op = "gated_activation";
    gated.tensors = {TestTensor(DType::F32, shape), x, up};
    gated.with(aa_activation_params{0, kind});
    OpCase backward;
    backward.op = "gated_activation_backward";
    backward.tensors = {TestTensor(DType::F32, shape), TestTensor(DType::F32, shape), TestTensor(), x, up, dy};
    backward.with(aa_activation_params{0, kind});
    expect_near(run_reference(backward, 0), differences(gated, 0, 1, weights), 5e-4, "dgate");
    expect_near(run_reference(backward, 1), differences(gated, 0, 2, weights), 5e-4, "dup");
  }
}

}  // namespace
}  // namespace anyaccel::cpu::testing::training
