// Products on the simulated driver that begin while the kernels before them end: weights are read early only where no kernel that
// may still run writes them. The simulator refuses a read of what an unfinished kernel writes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "accelerators/cuda/pending_writes.h"
#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/tensor.h"
#include "cuda/simulated_test_support.h"

namespace anyaccel::cuda_test {
namespace {

using cuda::PendingWrites;

TEST(PendingWrites, KnowsWhatMayStillBeWritten) {
  const PendingWrites::Range a{100, 200}, b{300, 400}, inside{150, 160}, beside{200, 300};
  PendingWrites pending;
  EXPECT_FALSE(pending.known()) << "whatever ran before";
  pending.add(/*early=*/true, std::vector{a});
  EXPECT_FALSE(pending.known()) << "what ran before it may still run";
  pending.add(/*early=*/false, std::vector{a});
  EXPECT_TRUE(pending.known());
  EXPECT_TRUE(pending.contains_any_of(std::vector{beside, inside}));
  EXPECT_FALSE(pending.contains_any_of(std::vector{beside, b}));
  pending.add(true, std::vector{b, PendingWrites::Range{}});
  EXPECT_TRUE(pending.contains_any_of(std::vector{a})) << "its writer may still run";
  EXPECT_TRUE(pending.contains_any_of(std::vector{b}));
  EXPECT_FALSE(pending.contains_any_of(std::vector{PendingWrites::Range{}}));
  pending.add(false, std::vector{b});
  EXPECT_FALSE(pending.contains_any_of(std::vector{a})) << "its writer has ended";
  pending.forget();
  EXPECT_FALSE(pending.known());

  aa_tensor tensor{};
  EXPECT_EQ(PendingWrites::range_of(tensor), PendingWrites::Range{}) << "absent";
  tensor.dtype = AA_DTYPE_BF16;
  tensor.ndim = 2;
  tensor.shape[0] = 3, tensor.shape[1] = 5;
  tensor.strides[0] = 8, tensor.strides[1] = 1;
  tensor.data = reinterpret_cast<void*>(uintptr_t{0x1000});
  EXPECT_EQ(PendingWrites::range_of(tensor), (PendingWrites::Range{0x1000, 0x1000 + 2 * (2 * 8 + 5)}));
  tensor.shape[0] = 0;
  EXPECT_EQ(PendingWrites::range_of(tensor), PendingWrites::Range{}) << "empty";
}

class EarlyWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = simulator_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

// Runs a test's work in a child process: bf16 matrices on the device, and products of few rows.
struct Chain {
  static constexpr int64_t k = 64;
  std::unique_ptr<Accelerator> accelerator = make_accelerator("cuda");
  ops::Inference ops{*accelerator};
  std::mt19937 random{3};

  Tensor make(int64_t rows, DType dtype = DType::BF16) {
    std::vector<float> values(static_cast<size_t>(rows * k));
    for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(random);
    return Tensor::from_host(values.data(), {rows, k}, DType::F32).to(dtype).to(accelerator->device());
  }
  Tensor empty(int64_t rows, int64_t columns, DType dtype) {
    return Tensor::empty({rows, columns}, dtype, accelerator->device());
  }
  // out = x w^T, compared once everything has ended.
  static void expect_product(const Tensor& out, const Tensor& x, const Tensor& w) {
    const auto a = x.to_vector<double>(), b = w.to_vector<double>(), found = out.to_vector<double>();
    const auto m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(w.size(0)), width = static_cast<size_t>(k);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (size_t l = 0; l < width; ++l) {
          sum += a[i * width + l] * b[j * width + l];
          size += std::fabs(a[i * width + l] * b[j * width + l]);
        }
        ASSERT_NEAR(found[i * n + j], sum, 1e-5 * size + std::fabs(sum) * 0x1p-8) << i << ", " << j;
      }
    }
  }
};

Simulated run_chain(const std::function<void(Chain&)>& body) {
  return Simulated({{"ANYACCEL_KERNEL_TUNING", "group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384"}},
                   [&] {
                     try {
                       Chain chain;
                       body(chain);
                     } catch (const std::exception& error) {
                       ADD_FAILURE() << error.what();
                     }
                   });
}

TEST_F(EarlyWeightsTest, WeightsThatNothingWrites) {
  run_chain([](Chain& c) {
    const Tensor x = c.make(1, DType::F32), w1 = c.make(Chain::k), w2 = c.make(24), w3 = c.make(40);
    const Tensor y = c.empty(1, Chain::k, DType::F32), z = c.empty(1, 24, DType::F32), u = c.empty(1, 40, DType::F32);
    for (int step = 0; step < 3; ++step) {
      c.ops.linear(y, x, w1);
      c.ops.linear(z, y, w2);
      c.ops.linear(u, y, w3);
    }
    Chain::expect_product(y, x, w1);
    Chain::expect_product(z, y, w2);
    Chain::expect_product(u, y, w3);
  }).clean();
}

TEST_F(EarlyWeightsTest, WeightsThatAnOpBeforeWrites) {
  run_chain([](Chain& c) {
    const Tensor x = c.make(4), w = c.make(Chain::k), other = c.make(16);
    const Tensor made = c.empty(4, Chain::k, DType::BF16), beside = c.empty(4, 16, DType::F32);
    const Tensor out = c.empty(4, 4, DType::F32), again = c.empty(4, 4, DType::F32);
    c.ops.linear(beside, x, other);
    c.ops.linear(beside, x, other);
    c.ops.linear(made, x, w);  // the weights of the next
    c.ops.linear(out, x, made);
    c.ops.linear(made, x, w);        // written again
    c.ops.linear(beside, x, other);  // one that may begin early lies between
    c.ops.linear(again, x, made);
    Chain::expect_product(made, x, w);
    Chain::expect_product(out, x, made);
    Chain::expect_product(again, x, made);
  }).clean();
}

// Ops of rows and elements let the next kernel begin at once, as those between the products of a layer do.
TEST_F(EarlyWeightsTest, WeightsThatAnOpOfRowsWrites) {
  run_chain([](Chain& c) {
    const Tensor x = c.make(2), w = c.make(16), norm = c.make(1).view({Chain::k}), source = c.make(16),
                 zeros = c.make(16);
    const Tensor out = c.empty(2, 16, DType::F32);
    zeros.fill(0);
    std::vector<float> angles(16 * Chain::k / 2, 0.0f);
    const Tensor sines = Tensor::from_host(angles.data(), {16, Chain::k / 2}, DType::F32).to(c.accelerator->device());
    angles.assign(angles.size(), 1.0f);
    const Tensor cosines = Tensor::from_host(angles.data(), {16, Chain::k / 2}, DType::F32).to(c.accelerator->device());
    const std::vector<int32_t> first(16, 0);
    std::vector<int32_t> slots(16);
    for (int32_t i = 0; i < 16; ++i) slots[static_cast<size_t>(i)] = 15 - i;
    const Tensor sequence = Tensor::from_host(first.data(), {16}, DType::I32).to(c.accelerator->device());
    const Tensor positions = Tensor::from_host(slots.data(), {16}, DType::I32).to(c.accelerator->device());
    const Tensor values = c.empty(16, Chain::k, DType::BF16);
    const Tensor heads = source.view({16, 1, Chain::k});
    const std::vector<std::function<void()>> writers = {
        [&] { c.ops.add(w, source, zeros); }, [&] { c.ops.rms_norm(w, source, norm, 1e-5f); },
        [&] {
          c.ops.rope(w.view({16, 1, Chain::k}), {}, cosines, sines, false);
        },
        [&] {
          c.ops.cache_write(w.view({1, 1, 16, Chain::k}), values.view({1, 1, 16, Chain::k}), heads, heads, sequence,
                            positions);
        }};
    for (const auto& write : writers) {
      c.ops.linear(out, x, source);  // begins the chain of kernels whose writes are known
      c.ops.linear(out, x, source);
      write();
      c.ops.linear(out, x, w);
      Chain::expect_product(out, x, w);
    }
    const auto written = w.to_vector<float>(), wanted = source.to_vector<float>();
    for (size_t i = 0; i < 16; ++i) {
      for (size_t d = 0; d < Chain::k; ++d) ASSERT_EQ(written[(15 - i) * Chain::k + d], wanted[i * Chain::k + d]);
    }
  }).clean();
}

TEST_F(EarlyWeightsTest, WeightsThatACopyAFillOrAnotherStreamWrites) {
  run_chain([](Chain& c) {
    const Tensor x = c.make(2), w = c.make(16), source = c.make(16);
    const Tensor out = c.empty(2, 16, DType::F32), copied = c.empty(2, 16, DType::F32),
                 filled = c.empty(2, 16, DType::F32);
    c.ops.linear(out, x, w);
    c.ops.linear(out, x, w);
    w.copy_from(source);
    c.ops.linear(copied, x, w);
    const Tensor zeros = c.make(16);
    c.ops.linear(out, x, source);
    zeros.fill(0);
    c.ops.linear(filled, x, zeros);
    Chain::expect_product(copied, x, source);
    Chain::expect_product(filled, x, zeros);

    const Tensor elsewhere = c.make(16);
    const Tensor late = c.empty(2, 16, DType::F32);
    Event written = c.accelerator->Event();
    const Stream side = c.accelerator->Stream();
    c.accelerator->synchronize();
    {
      const ScopeGuard scope = c.accelerator->stream(side);
      elsewhere.copy_from(source);
      written.record(side);
    }
    c.ops.linear(out, x, source);
    c.accelerator->current_stream().wait_event(written);
    c.ops.linear(late, x, elsewhere);
    c.accelerator->synchronize();
    Chain::expect_product(late, x, source);
  }).clean();
}

}  // namespace
}  // namespace anyaccel::cuda_test
