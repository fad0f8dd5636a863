// ops::EvoformerAttn against plain double arithmetic, finite differences and PyTorch's autograd; with ANYACCEL_TEST_ACCELERATOR
// that accelerator's.
#include "anyaccel/ops/evoformer_attn.h"

#include "ops/attention_test_support.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::EvoformerAttn;

std::shared_ptr<EvoformerAttn> evoformer() {
  return tested_accelerator().create_op_builder("EvoformerAttnBuilder")->load_as<EvoformerAttn>();
}

struct EvoformerCase {
  int64_t batch, group, length, heads, size;
  bool keys, pairs;

  Shape shape() const { return {batch, group, length, heads, size}; }
  Shape keys_shape() const { return {batch, group, 1, 1, length}; }
  Shape pairs_shape() const { return {batch, 1, heads, length, length}; }
};

// q, k, v, bias1, bias2.
struct EvoformerInputs {
  Doubles q, k, v, keys, pairs;
};

struct EvoformerOutputs {
  Doubles o, lse;
};

EvoformerOutputs plain_evoformer(const EvoformerCase& c, const EvoformerInputs& in) {
  EvoformerOutputs out;
  out.o.assign(in.q.size(), 0);
  const auto at = [&](int64_t sequence, int64_t position, int64_t head) {
    return static_cast<size_t>(((sequence * c.length + position) * c.heads + head) * c.size);
  };
  for (int64_t sequence = 0; sequence < c.batch * c.group; ++sequence) {
    for (int64_t head = 0; head < c.heads; ++head) {
      for (int64_t i = 0; i < c.length; ++i) {
        Doubles scores;
        double largest = -HUGE_VAL, total = 0;
        for (int64_t j = 0; j < c.length; ++j) {
          double score = 0;
          for (size_t d = 0; d < static_cast<size_t>(c.size); ++d) {
            score += in.q[at(sequence, i, head) + d] * in.k[at(sequence, j, head) + d];
          }
          score /= std::sqrt(static_cast<double>(c.size));
          if (c.keys) score += in.keys[static_cast<size_t>(sequence * c.length + j)];
          if (c.pairs) {
            const int64_t row = (sequence / c.group * c.heads + head) * c.length + i;
            score += in.pairs[static_cast<size_t>(row * c.length + j)];
          }
          scores.push_back(score);
          largest = std::fmax(largest, score);
        }
        const double shift = largest == -HUGE_VAL ? 0 : largest;
        for (double& score : scores) total += score = std::exp(score - shift);
        out.lse.push_back(std::log(total) + shift);
        for (int64_t j = 0; j < c.length; ++j) {
          for (size_t d = 0; d < static_cast<size_t>(c.size) && total != 0; ++d) {
            out.o[at(sequence, i, head) + d] +=
                scores[static_cast<size_t>(j)] / total * in.v[at(sequence, j, head) + d];
          }
        }
      }
    }
  }
  return out;
}

// The first L of each row of lse.
Doubles lse_values(const Tensor& lse, int64_t length) {
  return lse.slice(2, 0, length).contiguous().to_vector<double>();
}

void check_evoformer(EvoformerAttn& library, const EvoformerCase& c, DType dtype, bool gradients,
                     const std::function<void(std::vector<float>& keys, std::vector<float>& pairs)>& change = {}) {
  SCOPED_TRACE(c.shape().to_string() + (c.keys ? " keys" : "") + (c.pairs ? " pairs" : ""));
  std::vector<float> numbers[3], keys, pairs;
  for (uint64_t i = 0; i < 3; ++i) numbers[i] = random_numbers(c.shape().numel(), i + 1);
  if (c.keys) keys = random_numbers(c.keys_shape().numel(), 4);
  if (c.pairs) pairs = random_numbers(c.pairs_shape().numel(), 5);
  if (change) change(keys, pairs);
  const auto double_of = [&](const std::vector<float>& x) { return kept_numbers(x, dtype); };
  EvoformerInputs in{double_of(numbers[0]), double_of(numbers[1]), double_of(numbers[2]), double_of(keys),
                     double_of(pairs)};
  const Tensor q = make_tensor(numbers[0], c.shape(), dtype), k = make_tensor(numbers[1], c.shape(), dtype),
               v = make_tensor(numbers[2], c.shape(), dtype);
  const Tensor biases[] = {c.keys ? make_tensor(keys, c.keys_shape(), dtype) : Tensor(),
                           c.pairs ? make_tensor(pairs, c.pairs_shape(), dtype) : Tensor()};
  EvoformerAttn::Saved saved;
  const Tensor o = library.DS4Sci_EvoformerAttention(q, k, v, biases, &saved);
  const EvoformerOutputs expected = plain_evoformer(c, in);
  expect_close(o, expected.o, tolerance_of(dtype), "o");
  const Doubles lse = lse_values(saved.lse, c.length);
  for (size_t i = 0; i < lse.size(); ++i) {
    ASSERT_TRUE(lse[i] == expected.lse[i] || std::fabs(lse[i] - expected.lse[i]) < 1e-5)
        << lse[i] << " " << expected.lse[i];
  }
  if (!gradients) return;
  const std::vector<float> weights = random_numbers(c.shape().numel(), 6);
  const auto found = library.backward(make_tensor(weights, c.shape()), q, k, v, biases, saved);
  const Doubles w(weights.begin(), weights.end());
  const auto loss = [&] { return weighted_sum(plain_evoformer(c, in).o, w); };
  expect_close(found.q, differences(in.q, loss), 1e-4, "gq");
  expect_close(found.k, differences(in.k, loss), 1e-4, "gk");
  expect_close(found.v, differences(in.v, loss), 1e-4, "gv");
  EXPECT_EQ(static_cast<bool>(found.bias1), c.keys);
  EXPECT_EQ(static_cast<bool>(found.bias2), c.pairs);
  if (c.keys) expect_close(found.bias1, differences(in.keys, loss), 1e-4, "gb1");
  if (c.pairs) expect_close(found.bias2, differences(in.pairs, loss), 1e-4, "gb2");
}

TEST(EvoformerAttnTest, AttentionAndItsGradients) {
  auto library = evoformer();
  for (const int biases : {0, 1, 2, 3}) {
    check_evoformer(*library, {2, 2, 5, 2, 3, (biases & 1) != 0, (biases & 2) != 0}, DType::F32, true);
  }
  check_evoformer(*library, {1, 1, 1, 1, 1, true, true}, DType::F32, true);
  for (const int64_t length : {16, 33, 50}) {
    check_evoformer(*library, {1, 2, length, 3, 20, true, true}, DType::F32, false);
    check_evoformer(*library, {1, 2, length, 2, 32, true, true}, DType::BF16, false);
    check_evoformer(*library, {2, 1, length, 1, 64, false, true}, DType::F16, false);
  }
}

TEST(EvoformerAttnTest, HiddenKeysAndRowsThatSeeNothing) {
  auto library = evoformer();
  check_evoformer(*library, {1, 2, 6, 2, 4, true, true}, DType::F32, false,
                  [](std::vector<float>& keys, std::vector<float>& pairs) {
                    keys[2] = keys[7] = -infinity;
                    for (size_t j = 0; j < 6; ++j) pairs[3 * 6 + j] = -infinity;  // row 3 of head 0
                  });
  // Neither has a gradient.
  const EvoformerCase c{1, 1, 4, 1, 4, true, false};
  const Tensor q = make_tensor(random_numbers(16, 1), c.shape());
  const Tensor bias = make_tensor(std::vector<float>(4, -infinity), c.keys_shape());
  EvoformerAttn::Saved saved;
  expect_close(library->DS4Sci_EvoformerAttention(q, q, q, {&bias, 1}, &saved), Doubles(16, 0.0), 0, "o");
  const auto found = library->backward(q, q, q, q, {&bias, 1}, saved);
  for (const Tensor* gradient : {&found.q, &found.k, &found.v})
    expect_close(*gradient, Doubles(16, 0.0), 0, "gradient");
  expect_close(found.bias1, Doubles(4, 0.0), 0, "gb1");
}

TEST(EvoformerAttnTest, AgreesWithPyTorch) {
  const ThreadCount several(3);  // ctest gives these tests one thread
  auto library = evoformer();
  const EvoformerCase c{1, 6, 72, 4, 32, true, true};
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    const auto input = [&](int n, const Shape& of) { return make_tensor(stored_input(n, of.numel()), of, dtype); };
    const Tensor q = input(1, c.shape()), k = input(2, c.shape()), v = input(3, c.shape()), go = input(6, c.shape());
    const Tensor biases[] = {input(4, c.keys_shape()), input(5, c.pairs_shape())};
    EvoformerAttn::Saved saved;
    const Tensor o = library->DS4Sci_EvoformerAttention(q, k, v, biases, &saved);
    const auto gradients = library->backward(go, q, k, v, biases, saved);
    const double tolerance = dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 3e-3 : 2e-2;
    using namespace ops::torch_values;
    expect_stored(o, evoformer_out, tolerance, "o");
    expect_stored(saved.lse.slice(2, 0, c.length).contiguous(), evoformer_lse, tolerance, "lse");
    expect_stored(gradients.q, evoformer_dq, tolerance, "gq");
    expect_stored(gradients.k, evoformer_dk, tolerance, "gk");
    expect_stored(gradients.v, evoformer_dv, tolerance, "gv");
    expect_stored(gradients.bias1, evoformer_db1, tolerance * 3, "gb1");
    expect_stored(gradients.bias2, evoformer_db2, tolerance * 3, "gb2");
  }
}

// Scores of 1,100 positions do not fit at once: parts are some rows of a matrix, whose gradients of k and v add up.
TEST(EvoformerAttnTest, PartsOfAMatrixAddUp) {
  if (device_under_test()) GTEST_SKIP() << "a device takes this length in one part";
  auto library = evoformer();
  const EvoformerCase c{1, 1, 1100, 2, 4, true, false};
  const std::vector<float> numbers = random_numbers(c.shape().numel(), 1);
  const Tensor q = make_tensor(numbers, c.shape());
  const Tensor bias = make_tensor(random_numbers(c.length, 2), c.keys_shape());
  EvoformerAttn::Saved saved;
  const Tensor o = library->DS4Sci_EvoformerAttention(q, q, q, {&bias, 1}, &saved);
  const Doubles in = kept_numbers(numbers, DType::F32);
  expect_close(o, plain_evoformer(c, {in, in, in, bias.to_vector<double>(), {}}).o, 2e-5, "o");
  // For go = o's weights of ones, v's gradient is the sum of the weights of a key over all rows, so that it sums to the rows.
  const Tensor ones = make_tensor(std::vector<float>(numbers.size(), 1.0f), c.shape());
  const auto gradients = library->backward(ones, q, q, q, {&bias, 1}, saved);
  const Doubles gv = gradients.v.to_vector<double>();
  EXPECT_NEAR(std::accumulate(gv.begin(), gv.end(), 0.0), static_cast<double>(numbers.size()), 1e-2);
  // A shift of all scores of a row changes nothing, so a bias's gradient sums to zero.
  const Doubles gb = gradients.bias1.to_vector<double>();
  EXPECT_NEAR(std::accumulate(gb.begin(), gb.end(), 0.0), 0, 1e-3);
}

// Scores of several groups and heads do not fit at once, so that a part begins with any of a pair bias's matrices; each adds to the
// gradients of those before.
TEST(EvoformerAttnTest, PartsOfAPairBiasAddUp) {
  if (device_under_test()) GTEST_SKIP() << "minutes on a simulator";
  auto library = evoformer();
  const EvoformerCase c{2, 3, 240, 2, 4, true, true};
  const auto n = static_cast<size_t>(c.length), size = static_cast<size_t>(c.size);
  std::vector<std::vector<float>> numbers;
  for (uint32_t seed = 1; seed <= 4; ++seed) numbers.push_back(random_numbers(c.shape().numel(), seed));
  const std::vector<float> keys = random_numbers(c.keys_shape().numel(), 5),
                           pairs = random_numbers(c.pairs_shape().numel(), 6);
  const Tensor q = make_tensor(numbers[0], c.shape()), k = make_tensor(numbers[1], c.shape()),
               v = make_tensor(numbers[2], c.shape()), go = make_tensor(numbers[3], c.shape());
  const Tensor biases[] = {make_tensor(keys, c.keys_shape()), make_tensor(pairs, c.pairs_shape())};
  EvoformerAttn::Saved saved;
  library->DS4Sci_EvoformerAttention(q, k, v, biases, &saved);
  const auto found = library->backward(go, q, k, v, biases, saved);
  Doubles expected(pairs.size(), 0);
  for (int64_t sequence = 0; sequence < c.batch * c.group; ++sequence) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const auto at = [&](size_t position) {
        return ((static_cast<size_t>(sequence) * n + position) * static_cast<size_t>(c.heads) +
                static_cast<size_t>(head)) *
               size;
      };
      for (size_t i = 0; i < n; ++i) {
        const size_t row = (static_cast<size_t>(sequence / c.group * c.heads + head) * n + i) * n;
        Doubles weights(n), gradients(n);
        double total = 0, mean = 0;
        for (size_t j = 0; j < n; ++j) {
          double score = 0;
          for (size_t d = 0; d < size; ++d) {
            score += static_cast<double>(numbers[0][at(i) + d]) * numbers[1][at(j) + d];
            gradients[j] += static_cast<double>(numbers[3][at(i) + d]) * numbers[2][at(j) + d];
          }
          weights[j] = std::exp(score / std::sqrt(static_cast<double>(size)) +
                                keys[static_cast<size_t>(sequence) * n + j] + pairs[row + j]);
          total += weights[j];
        }
        for (size_t j = 0; j < n; ++j) mean += weights[j] / total * gradients[j];
        for (size_t j = 0; j < n; ++j) expected[row + j] += weights[j] / total * (gradients[j] - mean);
      }
    }
  }
  expect_close(found.bias2, expected, 1e-4, "gb2");
}

// With one or two threads each takes all matrices that share a row of the pairs' bias, with three or five all threads share the
// matrices, and the longer ones are computed in parts.
TEST(EvoformerAttnTest, DoesNotDependOnThreads) {
  if (device_under_test()) GTEST_SKIP() << "the threads are the host's";
  auto library = evoformer();
  for (const EvoformerCase& c :
       {EvoformerCase{1, 3, 72, 2, 20, true, true}, EvoformerCase{1, 2, 400, 2, 16, true, true},
        EvoformerCase{2, 1, 50, 1, 8, true, false}}) {
    SCOPED_TRACE(c.shape().to_string());
    const auto input = [&](uint64_t seed, const Shape& shape) {
      return make_tensor(random_numbers(shape.numel(), seed), shape);
    };
    const Tensor q = input(1, c.shape()), k = input(2, c.shape()), v = input(3, c.shape()), go = input(4, c.shape());
    const Tensor biases[] = {input(5, c.keys_shape()), c.pairs ? input(6, c.pairs_shape()) : Tensor()};
    std::vector<std::vector<float>> expected;
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(threads);
      const ThreadCount count(threads);
      EvoformerAttn::Saved saved;
      const Tensor o = library->DS4Sci_EvoformerAttention(q, k, v, biases, &saved);
      const auto found = library->backward(go, q, k, v, biases, saved);
      std::vector<std::vector<float>> numbers;
      for (const Tensor* tensor : {&o, &found.q, &found.k, &found.v, &found.bias1, &found.bias2}) {
        if (*tensor) numbers.push_back(tensor->to_vector<float>());
      }
      if (threads == 1) expected = numbers;
      for (size_t i = 0; i < numbers.size(); ++i) expect_same(numbers[i], expected[i], std::to_string(i));
    }
  }
}

TEST(EvoformerAttnTest, MemoryIsLinearInTheLength) {
  if (device_under_test()) GTEST_SKIP() << "minutes on a simulator";
  Accelerator& accelerator = tested_accelerator();
  auto library = evoformer();
  const auto peak_of = [&](int64_t length) {
    const Tensor q = Tensor::zeros({1, 1, length, 1, 8}, DType::F32, accelerator.device());
    accelerator.reset_peak_memory_stats();
    const int64_t before = accelerator.memory_allocated();
    EvoformerAttn::Saved saved;
    library->DS4Sci_EvoformerAttention(q, q, q, {}, &saved);
    library->backward(q, q, q, q, {}, saved);
    return accelerator.max_memory_allocated() - before;
  };
  const int64_t once = peak_of(4096), twice = peak_of(8192);
  EXPECT_LT(static_cast<double>(twice), 2.2 * static_cast<double>(once));
  EXPECT_LT(twice, int64_t{8192} * 8192);  // a quarter of the scores in fp32
}

TEST(EvoformerAttnTest, RefusesTensorsThatDoNotFit) {
  auto library = evoformer();
  const auto zeros = [](const Shape& shape, DType dtype = DType::F32) { return there(Tensor::zeros(shape, dtype)); };
  const Tensor q = zeros({1, 2, 4, 2, 3});
  const auto run = [&](const Tensor& k, std::vector<Tensor> biases) {
    return library->DS4Sci_EvoformerAttention(q, k, q, biases);
  };
  expect_refused([&] { run(q, {{}, {}, {}}); }, "at most 2 biases");
  expect_refused([&] { run(q, {zeros({1, 2, 1, 4})}); }, "bias1 shape is incorrect");
  expect_refused([&] { run(q, {{}, zeros({1, 1, 2, 4, 5})}); }, "bias2 shape is incorrect");
  expect_refused([&] { run(q, {zeros({1, 2, 1, 1, 4}, DType::F16)}); }, "bias1 must be float32");
  expect_refused([&] { run(zeros({1, 2, 5, 2, 3}), {}); }, "k must have q's shape");
  expect_refused([&] { run(zeros({1, 2, 4, 2, 3}, DType::BF16), {}); }, "k must be float32");
  expect_refused([&] { library->DS4Sci_EvoformerAttention(zeros({4, 2}), q, q, {}); }, "q must be [.., L, heads, d]");
  expect_refused([&] { library->attention(q, q, q, {}, {}, q, zeros({2, 2, 4})); }, "lse must have 128 elements");
  if (device_under_test()) {
    expect_refused([&] { run(Tensor::zeros(q.shape(), DType::F32), {}); }, "k must be where q is");
  }
  // The host and the CPU accelerator have one name.
  const std::unique_ptr<Accelerator> cpu = make_accelerator("cpu");
  const Tensor here = Tensor::zeros(q.shape(), DType::F32);
  const Tensor there = Tensor::zeros(q.shape(), DType::F32, cpu->device());
  expect_refused([&] { library->DS4Sci_EvoformerAttention(there, here, there, {}); },
                 "k must be where q is, on device cpu, and is in ordinary host memory; Tensor::to() copies it");
  const Tensor rows = zeros({2, 2, 32});
  expect_refused(
      [&] {
        library->attention_bwd(q, q, q, q, q, rows, rows, {}, {}, q, q, q, zeros({1, 2, 1, 1, 4}, DType::F16), {});
      },
      "gb1 must be float32");
  const Tensor none = zeros({1, 0, 4, 2, 3});
  EXPECT_EQ(library->DS4Sci_EvoformerAttention(none, none, none, {}).numel(), 0);
  const Tensor empty = zeros({1, 2, 0, 2, 3});
  EXPECT_EQ(library->DS4Sci_EvoformerAttention(empty, empty, empty, {}).numel(), 0);
}

}  // namespace
}  // namespace anyaccel
