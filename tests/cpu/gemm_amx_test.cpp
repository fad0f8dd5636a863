// Products on the matrix unit: by its software version against the reference, on every machine, and by the unit itself,
// which gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/matmul_inner.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/worker_pool.h"
#include "base/simd/cpu_features.h"
#include "ops/op_test_support.h"

namespace anyaccel::cpu {
namespace {

using testing::Random;
using testing::TestTensor;
using Multiply = void (*)(const Matmul&);

// A call of "linear", or of "gated_linear" if `up` is there.
struct AmxCase {
  TestTensor out, x, w, up, bias, residual;
  aa_activation_params params{sizeof(aa_activation_params), AA_ACTIVATION_SILU};

  void run(const std::function<void(const aa_op_call&)>& body) {
    std::vector<aa_tensor> tensors = {out.view(), x.view(), w.view()};
    if (up.present()) {
      tensors.insert(tensors.end(), {up.view(), bias.view(), bias.view()});
    } else {
      tensors.insert(tensors.end(), {bias.view(), residual.view()});
    }
    aa_op_call call{};
    call.struct_size = sizeof(call);
    call.tensors = tensors.data();
    call.tensor_count = static_cast<uint32_t>(tensors.size());
    call.params = &params;
    call.params_size = sizeof(params);
    body(call);
  }
  TestTensor product(Multiply multiply) const {
    AmxCase copy = *this;
    copy.run([&](const aa_op_call& call) { multiply(up.present() ? gated_linear_args(call) : linear_args(call)); });
    return copy.out;
  }
  // In F32, and without rounding to the dtype of `out`.
  TestTensor reference() const {
    AmxCase copy = *this;
    copy.out = TestTensor(DType::F32, out.shape());
    copy.run([&](const aa_op_call& call) { up.present() ? gated_linear_reference(call) : linear_reference(call); });
    return copy.out;
  }
  // The sums of the terms' magnitudes.
  TestTensor sizes() const {
    AmxCase copy = *this;
    for (TestTensor* tensor : {&copy.x, &copy.w, &copy.up, &copy.bias, &copy.residual}) {
      if (!tensor->present()) continue;
      const TestTensor before = *tensor;
      tensor->fill([&](int64_t i) { return std::fabs(before.number(i)); });
    }
    copy.params.kind = AA_ACTIVATION_RELU;
    return copy.reference();
  }

  void check() const {
    SCOPED_TRACE("m " + std::to_string(x.shape()[0]) + " n " + std::to_string(w.shape()[0]) + " k " +
                 std::to_string(x.shape()[1]) + " x " + std::string(dtype_name(x.dtype())) + " out " +
                 std::string(dtype_name(out.dtype())) + (up.present() ? " gated" : ""));
    const TestTensor found = product(gemm_amx_emulated), expected = reference(), size = sizes();
    ASSERT_TRUE(found.untouched());
    const double rounding = found.dtype() == DType::F32 ? 1e-7 : found.dtype() == DType::F16 ? 6e-4 : 4.5e-3;
    for (int64_t i = 0; i < found.count(); ++i) {
      const double bound = (up.present() ? 8e-6 : 2e-6) * size.number(i) + rounding * std::fabs(expected.number(i));
      ASSERT_NEAR(found.number(i), expected.number(i), bound + 1e-7) << "element " << i;
    }
    if (is_isa_available(Isa::Amx)) {
      ASSERT_TRUE(product(gemm_amx).same_bytes(found)) << "the unit computes something else than its software version";
    }
  }
};

AmxCase random_amx_case(Random& random, int64_t m, int64_t n, int64_t k, DType x, bool gated = false) {
  AmxCase c;
  c.x = TestTensor::random_layout(random, x, {m, k}, true).fill_normal(random);
  c.w = TestTensor(DType::BF16, {n, k}).fill_normal(random);
  c.out = TestTensor::random_layout(random, random.float_dtype(), {m, n}, false).fill_normal(random);
  if (gated) c.up = TestTensor(DType::BF16, {n, k}).fill_normal(random);
  if (random.chance(0.5)) c.bias = TestTensor(random.float_dtype(), {n}).fill_normal(random);
  if (!gated && random.chance(0.5)) {
    c.residual = TestTensor::random_layout(random, random.float_dtype(), {m, n}, true).fill_normal(random);
  }
  return c;
}

TEST(GemmAmx, RandomProducts) {
  testing::for_each_seed([](Random& random) {
    testing::for_each_isa([&](Isa) {
      for (int i = 0; i < 10 && !::testing::Test::HasFatalFailure(); ++i) {
        const int64_t m = random.integer(1, 70), n = random.integer(1, 150), k = random.integer(1, 200);
        random_amx_case(random, m, n, k, random.float_dtype(), random.chance(0.3)).check();
      }
    });
  });
}

// Tiles that are loaded from where the weights lie, alone and with panels that follow.
TEST(GemmAmx, WholeTiles) {
  Random random(2);
  for (const DType x : {DType::BF16, DType::F16, DType::F32}) {
    for (const int64_t m : {1, 16, 32, 48}) {
      random_amx_case(random, m, 64, 96, x).check();
      random_amx_case(random, m, 48, 64, x, true).check();
    }
  }
  // Up to two tiles of x: all of k in one stretch, in pieces of 8 tiles whose last one may be short.
  for (const int64_t k : {256, 288, 512, 544}) {
    for (const int64_t m : {1, 16, 17, 32}) {
      random_amx_case(random, m, 96, k, DType::BF16).check();
      random_amx_case(random, m, 64, k, DType::BF16, true).check();
    }
  }
}

// More than one block of rows of x, stretch of k and chunk of columns.
TEST(GemmAmx, LargerThanItsBlocks) {
  Random random(3);
  random_amx_case(random, 530, 33, 40, DType::BF16).check();
  random_amx_case(random, 180, 20, 33, DType::F32).check();
  random_amx_case(random, 49, 33, 2500, DType::BF16).check();
  random_amx_case(random, 3, 700, 31, DType::F16).check();
  for (const int64_t m : {7, 25}) random_amx_case(random, m, 1100, 64, DType::BF16).check();
}

// Blocks are rounded up to whole tiles, so that many of them leave few rows to the last, which has the others' stretches of k.
TEST(GemmAmx, FewRowsInTheLastBlock) {
  Random random(5);
  random_amx_case(random, 15 * 256 + 5, 32, 288, DType::F16).check();   // two tiles: upper and lower parts of x
  random_amx_case(random, 33 * 512 + 5, 32, 288, DType::BF16).check();  // one
}

TEST(GemmAmx, EmptyDimensions) {
  Random random(4);
  random_amx_case(random, 0, 5, 7, DType::BF16).check();
  random_amx_case(random, 3, 0, 7, DType::BF16).check();
  random_amx_case(random, 3, 5, 0, DType::F32).check();
}

TEST(GemmAmx, AnyNumberOfThreads) {
  WorkerPool& pool = WorkerPool::instance();
  const int before = pool.size();
  for (const int threads : {1, 2, 3}) {
    pool.set_size(threads);
    Random random(5);
    random_amx_case(random, 40, 300, 70, DType::BF16).check();
    random_amx_case(random, 2, 3, 1000, DType::F32).check();
  }
  pool.set_size(before);
}

// The forms by rows promise it.
TEST(GemmAmx, ARowDoesNotDependOnItsNeighbours) {
  Random random(6);
  // Tiles of the second shape are loaded from where the weights lie, in another way for up to 32 rows than for more.
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{33, 2500}, std::pair<int64_t, int64_t>{64, 2048}}) {
    for (const DType dtype : {DType::BF16, DType::F32}) {
      const int64_t most = 50;
      AmxCase c;
      c.x = TestTensor(dtype, {most, k}).fill_normal(random);
      c.w = TestTensor(DType::BF16, {n, k}).fill_normal(random);
      c.out = TestTensor(DType::F32, {most, n});
      const TestTensor all = c.product(gemm_amx_emulated);
      for (const int64_t rows : {1, 16, 17, 32, 33}) {
        AmxCase fewer = c;
        fewer.out = TestTensor(DType::F32, {rows, n});
        fewer.x = TestTensor(dtype, {rows, k}).fill([&](int64_t i) { return c.x.number(i); });
        const TestTensor some = fewer.product(gemm_amx_emulated);
        for (int64_t i = 0; i < some.count(); ++i) ASSERT_EQ(some.number(i), all.number(i)) << rows << " rows, " << i;
      }
    }
  }
}

// F32 numbers far from bf16 ones, whose terms must not disturb what is not finite, and x that is below the unit's range.
TEST(GemmAmx, NonFiniteAndTinyValues) {
  Random random(7);
  AmxCase c;
  c.x = TestTensor(DType::F32, {20, 50}).fill_normal(random);
  c.w = TestTensor(DType::BF16, {20, 50}).fill([](int64_t) { return 0.25; });
  c.out = TestTensor(DType::F32, {20, 20});
  const uint32_t nan = 0x7f800001u;
  std::memcpy(c.x.at(3 * 50 + 7), &nan, sizeof(nan));
  c.x.set(5 * 50 + 1, std::numeric_limits<double>::infinity());
  c.x.set(6 * 50 + 1, static_cast<double>(std::numeric_limits<float>::max()));
  c.w.set(4 * 50 + 49, std::numeric_limits<double>::infinity());
  c.x.set(8 * 50 + 49, 1.0);  // exact in one term: the others are zero times infinity
  const TestTensor found = c.product(gemm_amx_emulated), expected = c.reference();
  for (int64_t i = 0; i < found.count(); ++i) {
    const double a = found.number(i), b = expected.number(i);
    EXPECT_EQ(std::isnan(a), std::isnan(b)) << i;
    EXPECT_EQ(std::isinf(a), std::isinf(b)) << i;
    EXPECT_TRUE(!std::isinf(b) || a == b) << i;
  }
  // Rows of bf16 that do not fill a tile are copied as they are, NaNs included.
  AmxCase copied;
  copied.x = TestTensor(DType::BF16, {20, 50}).fill_normal(random);
  copied.w = c.w;
  copied.out = TestTensor(DType::F32, {20, 20});
  for (const int64_t row : {3, 18}) {
    const uint16_t signaling = 0x7f81;
    std::memcpy(copied.x.at(row * 50 + 7), &signaling, sizeof(signaling));
  }
  const TestTensor of_copies = copied.product(gemm_amx_emulated);
  for (int64_t i = 0; i < of_copies.count(); ++i) {
    const bool is_nan = i / 20 == 3 || i / 20 == 18 || i % 20 == 4;
    EXPECT_EQ(std::isnan(of_copies.number(i)) || std::isinf(of_copies.number(i)), is_nan) << i;
  }
  // What is lost is at most 2^-126 for an element of x, times its weight.
  AmxCase tiny;
  tiny.x = TestTensor(DType::F32, {2, 32}).fill([](int64_t i) {
    return std::ldexp(1 + std::ldexp(1, -20), i < 32 ? -100 : -120);
  });
  tiny.w = TestTensor(DType::BF16, {3, 32}).fill([](int64_t) { return std::ldexp(1, 90); });
  tiny.out = TestTensor(DType::F32, {2, 3});
  const TestTensor small = tiny.product(gemm_amx_emulated), exact = tiny.reference();
  for (int64_t i = 0; i < small.count(); ++i) {
    EXPECT_NEAR(small.number(i), exact.number(i), 32 * std::ldexp(1, 90 - 126) + 1e-7 * exact.number(i)) << i;
  }
}

TEST(GemmAmx, WhichWeightsItTakes) {
  Matmul args;
  args.k = 8;
  args.part_count = 2;
  uint16_t data = 0;
  for (int i = 0; i < 2; ++i) args.parts[static_cast<size_t>(i)].weight[0] = {&data, DType::BF16, 8, 1};
  EXPECT_TRUE(has_bf16_rows(args));
  Matrix& last = args.parts[1].weight[0];
  for (const Matrix& other : {Matrix{&data, DType::F16, 8, 1}, Matrix{&data, DType::BF16, 1, 8},
                              Matrix{&data, DType::BF16, 4, 1}, Matrix{&data, DType::BF16, -8, 1}}) {
    last = other;
    EXPECT_FALSE(has_bf16_rows(args));
  }
  last = {&data, DType::BF16, 9, 1};
  EXPECT_TRUE(has_bf16_rows(args));
  args.gated = true;
  args.part_count = 1;
  EXPECT_FALSE(has_bf16_rows(args)) << "the second weight is absent";
}

}  // namespace
}  // namespace anyaccel::cpu
