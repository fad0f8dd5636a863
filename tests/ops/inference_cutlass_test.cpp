// ops::InferenceCutlass against plain loops in double precision; with ANYACCEL_TEST_ACCELERATOR that accelerator's.
#include "anyaccel/ops/inference_cutlass.h"

#include "ops/attention_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::ActivationType;
using ops::InferenceCutlass;

std::shared_ptr<InferenceCutlass> expert_products() {
  return tested_accelerator().create_op_builder("InferenceCutlassBuilder")->load_as<InferenceCutlass>();
}

double activated(double x, ActivationType act) {
  switch (act) {
    case ActivationType::GELU: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ActivationType::RELU: return std::max(x, 0.0);
    case ActivationType::SILU: return x / (1 + std::exp(-x));
    default: return x;
  }
}

// Whole numbers of `bits` bits, every one of them.
std::vector<int> whole_numbers(int64_t count, int bits, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<int> pick(-(1 << (bits - 1)), (1 << (bits - 1)) - 1);
  std::vector<int> numbers(static_cast<size_t>(count));
  for (int& x : numbers) x = pick(engine);
  return numbers;
}

Tensor packed_weights(const std::vector<int>& numbers, int bits, Shape shape, int64_t last) {
  std::vector<int64_t> sizes(shape.dims().begin(), shape.dims().end());
  sizes.push_back(bits == 4 ? last / 2 : last);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < numbers.size(); i += bits == 4 ? 2 : 1) {
    bytes.push_back(bits == 4 ? static_cast<uint8_t>((numbers[i] & 15) | (numbers[i + 1] & 15) << 4)
                              : static_cast<uint8_t>(numbers[i]));
  }
  return there(Tensor::from_host(bytes.data(), Shape(sizes), bits == 4 ? DType::U8 : DType::I8));
}

struct ExpertCase {
  int64_t inner = 24, columns = 70;
  std::vector<int64_t> rows_of;  // of each expert
  int64_t unassigned = 0;        // rows behind those of the last expert
  int bits = 8;                  // 0: weights of the dtype
  DType dtype = DType::F16;
  bool with_bias = true, one = false;  // one: mixed_gemm
  ActivationType act = ActivationType::IDENTITY;
};

void check_expert_product(InferenceCutlass& library, const ExpertCase& c) {
  SCOPED_TRACE(std::string(dtype_name(c.dtype)) + ", " + std::to_string(c.bits) + " bits, " + std::to_string(c.inner) +
               " x " + std::to_string(c.columns) + ", " + std::to_string(c.rows_of.size()) + " experts, act " +
               std::to_string(static_cast<int>(c.act)));
  const auto experts = static_cast<int64_t>(c.rows_of.size());
  int64_t rows = 0;
  std::vector<int64_t> before;
  for (const int64_t n : c.rows_of) before.push_back(rows += n);
  const int64_t all = rows + c.unassigned, weights = experts * c.inner * c.columns;
  const std::vector<float> x = random_numbers(all * c.inner, 1), scale = random_numbers(experts * c.columns, 2, 0.02f),
                           bias = random_numbers(experts * c.columns, 3), real = random_numbers(weights, 4, 0.2f);
  const std::vector<int> whole = c.bits ? whole_numbers(weights, c.bits, 5) : std::vector<int>();
  const Shape each = c.one ? Shape{c.columns} : Shape{experts, c.columns};
  const Tensor tx = make_tensor(x, {all, c.inner}, c.dtype), ts = make_tensor(scale, each, c.dtype),
               tb = c.with_bias ? make_tensor(bias, each, c.dtype) : Tensor();
  const Tensor out =
      make_tensor(std::vector<float>(static_cast<size_t>(all * c.columns), 7.0f), {all, c.columns}, c.dtype);
  const Tensor w = c.bits ? packed_weights(whole, c.bits, c.one ? Shape{c.inner} : Shape{experts, c.inner}, c.columns)
                          : make_tensor(real, {experts, c.inner, c.columns}, c.dtype);
  const Tensor limits = there(Tensor::from_host(before.data(), {experts}, DType::I64));
  if (c.one) {
    library.mixed_gemm(out, tx, w, ts, tb, c.bits, c.act);
  } else if (c.bits) {
    library.mixed_moe_gemm(out, tx, w, ts, tb, limits, c.bits, c.act);
  } else {
    library.moe_gemm(out, tx, w, tb, limits, c.act);
  }
  const Doubles kx = kept_numbers(x, c.dtype), ks = kept_numbers(scale, c.dtype), kb = kept_numbers(bias, c.dtype),
                kw = kept_numbers(real, c.dtype);
  Doubles expected;
  for (int64_t r = 0; r < all; ++r) {
    const auto e = static_cast<size_t>(std::upper_bound(before.begin(), before.end(), r) - before.begin());
    for (int64_t j = 0; j < c.columns; ++j) {
      if (r >= rows) {
        expected.push_back(7);
        continue;
      }
      double sum = 0;
      for (int64_t k = 0; k < c.inner; ++k) {
        const auto at = static_cast<size_t>((static_cast<int64_t>(e) * c.inner + k) * c.columns + j);
        sum += kx[static_cast<size_t>(r * c.inner + k)] * (c.bits ? whole[at] : kw[at]);
      }
      const size_t place = e * static_cast<size_t>(c.columns) + static_cast<size_t>(j);
      if (c.bits) sum *= ks[place];
      if (c.with_bias) sum += kb[place];
      expected.push_back(activated(sum, c.act));
    }
  }
  expect_close(out, expected, tolerance_of(c.dtype), "out");
}

TEST(InferenceCutlassTest, QuantizedWeights) {
  auto library = expert_products();
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const int bits : {4, 8}) {
      check_expert_product(*library, {.rows_of = {19}, .bits = bits, .dtype = dtype, .one = true});
    }
  }
  // One row, narrow weights, whole strips, no inner elements.
  check_expert_product(*library, {.inner = 33, .columns = 96, .rows_of = {1}, .bits = 4, .one = true});
  check_expert_product(*library, {.inner = 5, .columns = 2, .rows_of = {9}, .bits = 4, .one = true});
  check_expert_product(*library,
                       {.inner = 64, .columns = 31, .rows_of = {8}, .bits = 8, .with_bias = false, .one = true});
  check_expert_product(*library, {.inner = 0, .columns = 31, .rows_of = {3}, .bits = 8, .one = true});
  check_expert_product(*library, {.rows_of = {0}, .one = true});
}

TEST(InferenceCutlassTest, Activations) {
  auto library = expert_products();
  for (const ActivationType act : {ActivationType::GELU, ActivationType::RELU, ActivationType::SILU}) {
    check_expert_product(*library, {.rows_of = {5}, .dtype = DType::F32, .one = true, .act = act});
    check_expert_product(*library, {.rows_of = {2, 4}, .bits = 0, .dtype = DType::F32, .with_bias = false, .act = act});
  }
}

TEST(InferenceCutlassTest, Experts) {
  auto library = expert_products();
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const int bits : {0, 4, 8}) {
      check_expert_product(*library, {.rows_of = {3, 0, 17, 1, 0, 8}, .unassigned = 2, .bits = bits, .dtype = dtype});
    }
  }
  check_expert_product(*library, {.rows_of = {0, 0, 0}, .unassigned = 3});
}

// Rows before experts that do not rise, or reach beyond the rows, read and write nothing outside the tensors.
TEST(InferenceCutlassTest, CountsOutOfOrder) {
  auto library = expert_products();
  const std::vector<int64_t> odd{5, 2, -7, 100};
  const Tensor limits = there(Tensor::from_host(odd.data(), {4}, DType::I64));
  const Tensor x = make_tensor(std::vector<float>(6 * 2, 1.0f), {6, 2}),
               out = make_tensor(std::vector<float>(6 * 3), {6, 3});
  std::vector<float> weights;
  for (int e = 0; e < 4; ++e) weights.insert(weights.end(), 6, static_cast<float>(e + 1));
  library->moe_gemm(out, x, make_tensor(weights, {4, 2, 3}), {}, limits, ActivationType::IDENTITY);
  Doubles expected(15, 2.0);
  expected.insert(expected.end(), 3, 8.0);
  expect_close(out, expected, 1e-6, "out");
}

TEST(InferenceCutlassTest, StridedTensors) {
  auto library = expert_products();
  const std::vector<float> x = random_numbers(6 * 8, 1);
  const Tensor tx = make_tensor(x, {8, 6}).transpose(0, 1);
  const Tensor w = packed_weights(whole_numbers(8 * 10, 8, 2), 8, Shape{8}, 10),
               scales = make_tensor(std::vector<float>(10, 0.5f), {10});
  const Tensor dense = make_tensor(std::vector<float>(60), {6, 10}),
               wide = make_tensor(std::vector<float>(120, 3.0f), {6, 20});
  library->mixed_gemm(dense, tx.contiguous(), w, scales, {}, 8, ActivationType::IDENTITY);
  library->mixed_gemm(wide.slice(1, 0, 20, 2), tx, w, scales, {}, 8, ActivationType::IDENTITY);
  EXPECT_EQ(wide.slice(1, 0, 20, 2).to_vector<float>(), dense.to_vector<float>());
  EXPECT_EQ(wide.slice(1, 1, 20, 2).to_vector<float>(), std::vector<float>(60, 3.0f));
}

TEST(InferenceCutlassTest, Refusals) {
  auto library = expert_products();
  const auto floats = [](const Shape& shape, DType dtype = DType::F16) {
    return make_tensor(std::vector<float>(static_cast<size_t>(shape.numel())), shape, dtype);
  };
  const auto bytes = [](const Shape& shape, DType dtype) { return there(Tensor::zeros(shape, dtype)); };
  const Tensor x = floats({4, 6}), w = bytes({6, 8}, DType::I8), scales = floats({8}), out = floats({4, 8});
  const ActivationType same = ActivationType::IDENTITY;
  const auto mixed = [&](const Tensor& to, const Tensor& from, const Tensor& weight, const Tensor& scale,
                         const Tensor& bias, int bits, ActivationType act, const char* words) {
    expect_refused([&] { library->mixed_gemm(to, from, weight, scale, bias, bits, act); }, words);
  };
  mixed(out, {}, w, scales, {}, 8, same, "x is absent");
  mixed(out, x, {}, scales, {}, 8, same, "w is absent");
  mixed(out, x, w, {}, {}, 8, same, "scales is absent");
  mixed({}, x, w, scales, {}, 8, same, "out is absent");
  mixed(out, bytes({4, 6}, DType::I32), w, scales, {}, 8, same, "x must be float32, float16 or bfloat16");
  mixed(out, x, w, scales, {}, 5, same, "num_bits must be 4 or 8, and is 5");
  mixed(out, x, w, scales, {}, 0, same, "num_bits must be 4 or 8, and is 0");
  mixed(out, x, w, scales, {}, 8, ActivationType::GEGLU, "act must be");
  mixed(out, x, w, scales, {}, 8, static_cast<ActivationType>(77), "number 77");
  mixed(out, x, bytes({6, 8}, DType::U8), scales, {}, 8, same, "w must be int8");
  mixed(out, x, floats({6, 4}), scales, {}, 4, same, "two elements to a byte");
  mixed(out, x, bytes({5, 8}, DType::I8), scales, {}, 8, same, "w must be [6, 8]");
  mixed(out, x, bytes({8}, DType::I8), scales, {}, 8, same, "w must be [K, N]");
  mixed(floats({4, 7}), x, w, scales, {}, 8, same, "out must be [4, 8]");
  mixed(floats({4, 8}, DType::F32), x, w, scales, {}, 8, same, "out must be float16");
  mixed(out, x, w, floats({7}), {}, 8, same, "scales must be [8]");
  mixed(out, x, w, floats({8}, DType::F32), {}, 8, same, "scales must be float16");
  mixed(out, x, w, scales, floats({9}), 8, same, "bias must be [8]");
  const Tensor shared = floats({4, 14});
  mixed(shared.slice(1, 5, 13), shared.slice(1, 0, 6), w, scales, {}, 8, same,
        "shares memory with the tensor float16 [4, 6]");
  library->mixed_gemm(shared.slice(1, 6, 14), shared.slice(1, 0, 6), w, scales, {}, 8, same);
  const Tensor experts = floats({3, 6, 8}), limits = bytes({3}, DType::I64);
  const auto moe = [&](const Tensor& weight, const Tensor& bias, const Tensor& before, const char* words) {
    expect_refused([&] { library->moe_gemm(out, x, weight, bias, before, same); }, words);
  };
  moe(experts, {}, {}, "rows_before_expert is absent");
  moe(experts, {}, bytes({3}, DType::I32), "rows_before_expert must be int64");
  moe(experts, {}, bytes({2}, DType::I64), "rows_before_expert must be [3]");
  moe(experts, floats({8}), limits, "bias must be [3, 8]");
  moe(floats({6, 8}), {}, limits, "w must be [E, K, N]");
  moe(floats({3, 6, 8}, DType::BF16), {}, limits, "w must be float16");
  if (device_under_test()) {
    mixed(out, x, Tensor::zeros({6, 8}, DType::I8), scales, {}, 8, same, "w must be where x is");
  }
}

}  // namespace
}  // namespace anyaccel
