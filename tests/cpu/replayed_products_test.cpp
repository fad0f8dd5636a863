// Replayed graphs, which multiply neighbouring products of one row of x at once: the results are those of one after the other.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "accelerators/cpu/kernels/quantized_linear.h"
#include "accelerators/cpu/worker_pool.h"
#include "anyaccel/detection.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"
#include "base/block_encode.h"

namespace anyaccel {
namespace {

struct Product {
  const BlockFormat* format;
  Tensor out, x, w, bias, residual;
};

class ReplayedProducts : public ::testing::TestWithParam<int> {
 protected:
  ReplayedProducts() { cpu::WorkerPool::instance().set_size(GetParam()); }
  ~ReplayedProducts() override { cpu::WorkerPool::instance().set_size(threads_before_); }

  Tensor numbers(int64_t rows, int64_t columns) {
    const Tensor tensor = Tensor::empty({rows, columns}, DType::F32, accelerator_->device());
    ops_->random(tensor, AA_RANDOM_NORMAL, ++seed_, 0, 0.0, 1.0);
    return tensor;
  }

  Product product(std::string_view format, const Tensor& x, int64_t n) {
    const BlockFormat& block = *find_block_format(format);
    const int64_t k = x.size(1), row_bytes = k / block.values * block.bytes;
    // The rows repeat, because encoding takes long.
    constexpr int64_t kDistinct = 13;
    std::vector<std::byte> some(static_cast<size_t>(kDistinct * row_bytes)), blocks;
    encode_blocks(block, numbers(kDistinct, k).to_vector<float>(), some);
    while (static_cast<int64_t>(blocks.size()) < n * row_bytes) blocks.insert(blocks.end(), some.begin(), some.end());
    const Tensor w = Tensor::from_host(blocks.data(), {n, row_bytes}, DType::U8, accelerator_->device());
    return {&block, Tensor::zeros({x.size(0), n}, DType::F32, accelerator_->device()), x, w, {}, {}};
  }

  void run(const std::vector<Product>& products, bool rounded) {
    for (const Product& p : products) {
      const auto format = static_cast<aa_block_format>(p.format->number);
      ops_->quantized_linear(p.out, p.x, p.w, format, rounded, p.bias, p.residual);
    }
  }

  // Runs the products, replays them twice, and compares all bits that they wrote.
  void compare(const std::vector<Product>& products, bool rounded = true) {
    std::vector<Tensor> start, expected;
    for (const Product& p : products) start.push_back(p.out.clone());
    run(products, rounded);
    for (const Product& p : products) expected.push_back(p.out.clone());
    Graph graph = accelerator_->create_graph();
    {
      auto capture = accelerator_->capture_to_graph(graph);
      run(products, rounded);
    }
    for (int i = 0; i < 2; ++i) {
      for (size_t j = 0; j < products.size(); ++j) products[j].out.copy_from(start[j]);
      accelerator_->replay_graph(graph);
      for (size_t j = 0; j < products.size(); ++j) {
        const size_t bytes = static_cast<size_t>(expected[j].numel()) * sizeof(float);
        EXPECT_EQ(std::memcmp(products[j].out.data(), expected[j].data(), bytes), 0) << "product " << j;
      }
    }
  }

  std::unique_ptr<Accelerator> accelerator_ = make_accelerator("cpu");
  std::shared_ptr<ops::Inference> ops_ = accelerator_->create_op_builder("InferenceBuilder")->load_as<ops::Inference>();
  int threads_before_ = cpu::WorkerPool::instance().size();
  uint64_t seed_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Threads, ReplayedProducts, ::testing::Values(1, 2, 5));

TEST_P(ReplayedProducts, HaveTheBitsOfOneAfterTheOther) {
  for (const std::string_view format : {"q4_0", "q8_0", "q4_k", "q5_k", "q6_k", "q5_0", "iq4_nl"}) {
    SCOPED_TRACE(format);
    const Tensor x = numbers(1, 1024);
    // Rows that threads share in large parts, in pieces, and that one thread takes.
    compare({product(format, x, 2048), product(format, x, 257), product(format, x, 256)});
    compare({product(format, x, 771), product(format, x, 771)});
    compare({product(format, x, 3), product(format, x, 1)});
    compare({product(format, x, 300), product(format, x, 301)}, false);
  }
}

TEST_P(ReplayedProducts, MayHaveSeveralFormats) {
  const Tensor x = numbers(1, 512);
  compare({product("q4_k", x, 1030), product("q4_k", x, 130), product("q6_k", x, 130)});
  compare({product("q8_0", x, 70), product("q4_0", x, 900), product("q8_0", x, 900), product("q5_k", x, 8)});
  compare({product("q4_0", x, 640), product("q5_1", x, 640)});  // no products of one row for the second
  std::vector<Product> many;
  for (int64_t i = 0; i < 6; ++i) many.push_back(product(i % 2 == 0 ? "q6_k" : "q4_0", x, 200 + 50 * i));
  compare(many);
}

TEST_P(ReplayedProducts, KeepNumbersThatAreNone) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> numbers(512, 1.0F);
    numbers[300] = value;
    const Tensor x = Tensor::from_host(numbers.data(), {1, 512}, DType::F32, accelerator_->device());
    const std::vector<Product> products = {product("q4_0", x, 700), product("q8_0", x, 700), product("q6_k", x, 5)};
    compare(products);
    for (const Product& p : products) EXPECT_TRUE(std::isnan(p.out.to_vector<float>()[4]));
  }
}

TEST_P(ReplayedProducts, ReadWhatTheOnesBeforeWrote) {
  const Tensor x = numbers(1, 512);
  // The second adds to what the first wrote; the third multiplies that; the fourth writes where the third reads.
  std::vector<Product> products = {product("q4_0", x, 512), product("q4_0", x, 512)};
  products[1].out = products[1].residual = products[0].out;
  products.push_back(product("q4_0", products[0].out, 700));
  products.push_back(product("q4_0", products[0].out, 512));
  products[3].out = products[3].residual = products[0].out;
  compare(products);
  // Biases and residuals of their own, and an output that is a residual.
  products = {product("q8_0", x, 600), product("q8_0", x, 601), product("q8_0", x, 602)};
  products[0].bias = numbers(1, 600).view({600});
  products[1].residual = numbers(1, 601);
  products[2].residual = products[2].out;
  compare(products);
  const Tensor rows = numbers(3, 512);
  compare({product("q4_k", rows, 300), product("q4_k", rows, 300)});
}

TEST(QuantizedProducts, GoTogetherIfNoneNeedsAnother) {
  float numbers[64] = {};
  uint8_t weights[34 * 8] = {};
  struct Call {
    std::array<aa_tensor, 5> tensors;
    aa_op_call call{};
    Call(float* out, int64_t n, float* x, uint8_t* w, float* bias, float* residual)
        : tensors{matrix(out, AA_DTYPE_F32, 1, n), matrix(x, AA_DTYPE_F32, 1, 32), matrix(w, AA_DTYPE_U8, n, 34),
                  matrix(bias, AA_DTYPE_F32, 1, n), matrix(residual, AA_DTYPE_F32, 1, n)} {
      call.tensors = tensors.data();
      call.tensor_count = 5;
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    static aa_tensor matrix(void* data, aa_dtype dtype, int64_t rows, int64_t columns) {
      if (data == nullptr) return {};
      return {data, dtype, 2, {rows, columns}, {columns, 1}};
    }
  };
  const Call a(numbers + 32, 4, numbers, weights, nullptr, nullptr);
  const auto expect = [&](bool together, const Call& b, const char* why) {
    EXPECT_EQ(cpu::go_together(a.call, b.call), together) << why;
    EXPECT_EQ(cpu::go_together(b.call, a.call), together) << why;
  };
  expect(true, {numbers + 36, 4, numbers, weights + 136, nullptr, nullptr}, "neighbouring outputs");
  expect(true, {numbers + 36, 4, numbers, weights, numbers + 40, numbers + 36}, "a bias, and a sum in place");
  expect(false, {numbers + 35, 4, numbers, weights, nullptr, nullptr}, "outputs that overlap");
  expect(false, {numbers + 36, 4, numbers, weights, nullptr, numbers + 33}, "a residual that is written");
  expect(false, {numbers + 36, 4, numbers, weights, numbers + 32, nullptr}, "a bias that is written");
  expect(false, {numbers + 30, 2, numbers, weights, nullptr, nullptr}, "x is written");
  expect(false, {numbers + 40, 4, numbers + 1, weights, nullptr, nullptr}, "another x");
  Call rows(numbers + 40, 4, numbers, weights, nullptr, nullptr);
  rows.tensors[1].shape[0] = 2;
  expect(false, rows, "two rows of x");
  EXPECT_FALSE(cpu::go_together(rows.call, rows.call));
}

}  // namespace
}  // namespace anyaccel
