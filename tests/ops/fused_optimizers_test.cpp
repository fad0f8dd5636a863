// FusedAdam, FusedLion and FusedLamb: on the CPU accelerator, on one whose memory the host does not reach, and on the one
// that ANYACCEL_TEST_ACCELERATOR names.
#include <array>
#include <cmath>

#include "anyaccel/abi/optimizer_ops.h"
#include "anyaccel/ops/fused_adam.h"
#include "anyaccel/ops/fused_lamb.h"
#include "anyaccel/ops/fused_lion.h"
#include "ops/device_under_test.h"
#include "ops/optimizer_test_support.h"

namespace anyaccel::ops::testing {
namespace {

constexpr int64_t list_sizes[] = {1, 64, 257, 0, 5000, 40003};

using anyaccel::testing::device_under_test;

// The accelerator under test, if there is one: the host must not help it. Else one whose memory the host does not reach.
Accelerator& other_accelerator() {
  if (!device_under_test()) return far_accelerator();
  setenv("ANYACCEL_FALLBACK", "error", 1);
  return *device_under_test();
}
std::array<Accelerator*, 2> accelerators() { return {&cpu_accelerator(), &other_accelerator()}; }

// Lists of tensors on an accelerator, with their reference.
struct Lists {
  std::vector<std::vector<float>> g, p, m, v;
  std::vector<std::vector<Tensor>> tensors{4};
  Pair pair;

  Lists(Accelerator& accelerator, Pair dtypes, DType gradient, unsigned seed = 1) : pair(dtypes) {
    std::mt19937 engine(seed);
    for (const int64_t n : list_sizes) {
      g.push_back(random_values(engine, n, gradient, 0.3f));
      p.push_back(random_values(engine, n, pair.param, 1));
      m.push_back(random_values(engine, n, pair.state, 0.1f));
      v.push_back(random_values(engine, n, pair.state, 0.2f, true));
      const auto tensor = [&](const std::vector<float>& values, DType dtype) {
        const Tensor t = Tensor::from_host(values.data(), {n}, DType::F32).to(dtype).to(accelerator.device());
        return t;
      };
      tensors[0].push_back(tensor(g.back(), gradient));
      tensors[1].push_back(tensor(p.back(), pair.param));
      tensors[2].push_back(tensor(m.back(), pair.state));
      tensors[3].push_back(tensor(v.back(), pair.state));
    }
  }
  void compare() const {
    const std::vector<std::vector<float>>* expected[] = {&g, &p, &m, &v};
    for (size_t list = 0; list < 4; ++list) {
      for (size_t i = 0; i < g.size(); ++i) {
        SCOPED_TRACE("list " + std::to_string(list) + " tensor " + std::to_string(i));
        EXPECT_SAME_BITS(tensors[list][i].to_vector<float>(), (*expected[list])[i]);
      }
    }
  }
};

TEST(FusedAdam, BitsOfTheReferenceInBothModes) {
  for (Accelerator* accelerator : accelerators()) {
    SCOPED_TRACE(accelerator->name());
    const auto op = accelerator->create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
    for (const Pair pair : dtype_pairs) {
      for (const int mode : {FusedAdam::L2, FusedAdam::AdamW}) {
        Lists lists(*accelerator, pair, pair.param);
        AdamReference r;
        r.adamw = mode == FusedAdam::AdamW;
        for (r.step = 1; r.step <= 2; ++r.step) {
          op->multi_tensor_adam(2048 * 32, {}, lists.tensors, r.lr, r.beta1, r.beta2, r.eps, r.step, mode, true,
                                r.weight_decay);
          for (size_t i = 0; i < lists.p.size(); ++i) {
            r.apply(pair.param, pair.state, lists.p[i], lists.g[i], lists.m[i], lists.v[i]);
          }
        }
        lists.compare();
      }
    }
  }
}

TEST(FusedAdam, MixedPrecisionDividesGradientsAndWritesCopies) {
  for (Accelerator* accelerator : accelerators()) {
    const auto op = accelerator->create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
    Lists lists(*accelerator, dtype_pairs[0], DType::BF16);
    std::vector<std::vector<Tensor>> with_copies = lists.tensors;
    EXPECT_ERROR(op->multi_tensor_adam_mixed_precision(1, {}, with_copies, 1e-3, 0.9, 0.99, 1e-8, 1, 1, true, 0, 2),
                 "expected 5");
    with_copies.emplace_back();
    for (const Tensor& p : lists.tensors[1]) {
      with_copies[4].push_back(Tensor::zeros(p.shape(), DType::BF16, accelerator->device()));
    }
    AdamReference r;
    r.scale = 1.0f / 1024;
    op->multi_tensor_adam_mixed_precision(65536, {}, with_copies, r.lr, r.beta1, r.beta2, r.eps, 1, FusedAdam::AdamW,
                                          true, r.weight_decay, 1024);
    for (size_t i = 0; i < lists.p.size(); ++i) {
      r.apply(DType::F32, DType::F32, lists.p[i], lists.g[i], lists.m[i], lists.v[i]);
      std::vector<float> expected = lists.p[i];
      for (float& x : expected) x = rounded(DType::BF16, x);
      EXPECT_SAME_BITS(with_copies[4][i].to_vector<float>(), expected);
    }
    lists.compare();
    // A parameter may be without a copy, the last one too.
    for (size_t i = 1; i < with_copies[4].size(); ++i) with_copies[4][i] = {};
    with_copies[4][0] = lists.tensors[0][1].slice(0, 0, lists.tensors[0][0].numel());
    EXPECT_ERROR(op->multi_tensor_adam_mixed_precision(65536, {}, with_copies, r.lr, r.beta1, r.beta2, r.eps, 1,
                                                       FusedAdam::AdamW, true, r.weight_decay, 1024),
                 "parameter 1: grad shares memory with copy of parameter 0");
  }
}

TEST(FusedAdam, NoopFlag) {
  for (Accelerator* accelerator : accelerators()) {
    const auto op = accelerator->create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
    Lists lists(*accelerator, dtype_pairs[0], DType::F32);
    const Tensor flag = Tensor::zeros({1}, DType::I32, accelerator->device());
    flag.fill(1);
    const auto update = [&](const Tensor& noop) {
      op->multi_tensor_adam(65536, noop, lists.tensors, 1e-2, 0.9, 0.999, 1e-8, 1, 1, true, 0.01);
    };
    update(flag);
    lists.compare();
    flag.fill(0);
    update(flag);
    for (size_t i = 0; i < lists.p.size(); ++i) {
      AdamReference().apply(DType::F32, DType::F32, lists.p[i], lists.g[i], lists.m[i], lists.v[i]);
    }
    lists.compare();
    EXPECT_ERROR(update(flag.to(DType::F32)), "noop_flag is float32 [1]; expected one int32");
  }
}

TEST(FusedAdam, BadInputIsNamed) {
  const auto op = cpu_accelerator().create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
  Lists lists(cpu_accelerator(), dtype_pairs[0], DType::F32);
  const auto update = [&](std::vector<std::vector<Tensor>> tensors, int64_t chunk = 65536, int mode = 1) {
    op->multi_tensor_adam(chunk, {}, tensors, 1e-2, 0.9, 0.999, 1e-8, 1, mode, true, 0.01);
  };
  EXPECT_ERROR(update(lists.tensors, 0), "chunk_size is 0");
  EXPECT_ERROR(update(lists.tensors, 1, 2), "mode is 2; expected 0 (L2");
  EXPECT_ERROR(update({lists.tensors[0]}), "1 lists of tensors were given; expected 4 (gradients, parameters,");
  auto shorter = lists.tensors;
  shorter[2].pop_back();
  EXPECT_ERROR(update(shorter), "the list of exp_avg has 5 tensors, that of gradients 6");
  auto swapped = lists.tensors;
  std::swap(swapped[3][1], swapped[3][2]);
  EXPECT_ERROR(update(swapped), "parameter 1: exp_avg_sq has shape [257], its parameter [64]");
  auto elsewhere = lists.tensors;
  elsewhere[0][4] = Tensor::zeros({5000}, DType::F32, far_accelerator().device());
  EXPECT_ERROR(update(elsewhere), "parameter 4: grad lies on");
  for (const size_t list : {1, 3}) {
    auto twice = lists.tensors;
    for (auto& tensors : twice) tensors.push_back(tensors[2].clone());
    twice[list].back() = twice[list][2];
    EXPECT_ERROR(update(twice), list == 1 ? "parameter 6: param shares memory with param of parameter 2; each tensor"
                                          : "parameter 6: exp_avg_sq shares memory with exp_avg_sq of parameter 2");
    twice[list].back() = twice[list].back().clone();
    twice[0].back() = twice[0][2];  // a gradient is only read
    auto other = lists.tensors;
    for (size_t i = 1; i < 4; ++i) {
      for (size_t p = 0; p < 6; ++p) twice[i][p] = other[i][p].clone();
    }
    update(twice);
  }
  // Views of one storage: parts that follow each other, and columns between each other, are apart.
  const Tensor storage = Tensor::zeros({4, 20}, DType::F32);
  const auto lists_of = [&](const Tensor& first, const Tensor& second) {
    std::vector<std::vector<Tensor>> views(4);
    for (const Tensor& view : {first, second}) {
      views[1].push_back(view);
      for (const size_t list : {0, 2, 3}) views[list].push_back(Tensor::zeros(view.shape(), DType::F32));
    }
    return views;
  };
  const Tensor flat = storage.view({80});
  update(lists_of(flat.slice(0, 40, 80), flat.slice(0, 0, 40)));
  EXPECT_ERROR(update(lists_of(flat.slice(0, 40, 80), flat.slice(0, 1, 41))),
               "parameter 1: param shares memory with param of parameter 0; each tensor must have its own");
  update(lists_of(storage.slice(1, 0, 10), storage.slice(1, 10, 20)));
  EXPECT_ERROR(update(lists_of(storage.slice(1, 0, 11), storage.slice(1, 10, 20))),
               "parameter 1: param shares memory with param of parameter 0");
  auto reads_state = lists_of(flat.slice(0, 0, 40), flat.slice(0, 40, 80));
  reads_state[0][1] = reads_state[2][0];
  EXPECT_ERROR(update(reads_state), "parameter 1: grad shares memory with exp_avg of parameter 0");
  lists.compare();

  const auto far = far_accelerator().create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
  EXPECT_ERROR(far->multi_tensor_adam(1, {}, lists.tensors, 1e-2, 0.9, 0.999, 1e-8, 1, 1, true, 0.01),
               "param lies on cpu");
}

TEST(FusedAdam, FallbackCanBeForbidden) {
  const auto far = far_accelerator().create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
  const Lists lists(far_accelerator(), dtype_pairs[0], DType::F32);
  setenv("ANYACCEL_FALLBACK", "error", 1);
  EXPECT_THROW(far->multi_tensor_adam(1, {}, lists.tensors, 1e-2, 0.9, 0.999, 1e-8, 1, 1, true, 0.01),
               NotImplementedError);
  unsetenv("ANYACCEL_FALLBACK");
  lists.compare();
}

// An accelerator with an op of its own (abi/optimizer_ops.h) takes fp32 factors and rounds in its own order. What the op
// does not do is the host's, which is forbidden here.
TEST(FusedAdam, OpOfTheDriver) {
  Accelerator& accelerator = other_accelerator();
  if (accelerator.find_op(AA_ADAM_STEP_OP) < 0) GTEST_SKIP() << accelerator.name() << " has no op for Adam's step";
  const auto op = accelerator.create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    Lists lists(accelerator, {dtype, dtype}, dtype);
    AdamReference r;
    for (r.step = 1; r.step <= 3; ++r.step) {
      op->multi_tensor_adam(65536, {}, lists.tensors, r.lr, r.beta1, r.beta2, r.eps, r.step, FusedAdam::AdamW, true,
                            r.weight_decay);
      for (size_t i = 0; i < lists.p.size(); ++i) r.apply(dtype, dtype, lists.p[i], lists.g[i], lists.m[i], lists.v[i]);
    }
    const std::vector<std::vector<float>>* expected[] = {&lists.g, &lists.p, &lists.m, &lists.v};
    const float step = dtype == DType::F32 ? 1e-4f : dtype == DType::F16 ? 2e-3f : 2e-2f;
    for (size_t list = 0; list < 4; ++list) {
      for (size_t i = 0; i < lists.p.size(); ++i) {
        const std::vector<float> got = lists.tensors[list][i].to_vector<float>(), &wanted = (*expected[list])[i];
        for (size_t k = 0; k < got.size(); ++k) {
          ASSERT_NEAR(got[k], wanted[k], step * std::abs(wanted[k]) + 0.1f * step) << list << " " << i << " " << k;
        }
      }
    }
  }
  Lists lists(accelerator, {DType::F32, DType::F32}, DType::F32);
  const Tensor flag = Tensor::zeros({1}, DType::I32, accelerator.device());
  flag.fill(1);
  const auto update = [&](const Tensor& noop, int mode, bool bias_correction, double decay) {
    op->multi_tensor_adam(65536, noop, lists.tensors, 1e-2, 0.9, 0.999, 1e-8, 1, mode, bias_correction, decay);
  };
  update(flag, FusedAdam::AdamW, true, 0.01);
  lists.compare();
  EXPECT_THROW(update({}, FusedAdam::L2, true, 0.01), NotImplementedError);
  EXPECT_THROW(update({}, FusedAdam::AdamW, false, 0.01), NotImplementedError);
  lists.compare();
  update({}, FusedAdam::L2, true, 0);
  EXPECT_NE(lists.tensors[1][0].to_vector<float>(), lists.p[0]);
}

TEST(FusedLion, BitsOfTheReference) {
  for (Accelerator* accelerator : accelerators()) {
    SCOPED_TRACE(accelerator->name());
    const auto op = accelerator->create_op_builder("FusedLionBuilder")->load_as<FusedLion>();
    for (const Pair pair : dtype_pairs) {
      Lists lists(*accelerator, pair, pair.param);
      std::vector<std::vector<Tensor>> three(lists.tensors.begin(), lists.tensors.begin() + 3);
      const LionReference r;
      const Tensor flag = Tensor::zeros({1}, DType::I32, accelerator->device());
      op->multi_tensor_lion(65536, flag, three, r.lr, r.beta1, r.beta2, 1, r.weight_decay);
      for (size_t i = 0; i < lists.p.size(); ++i) {
        r.apply(pair.param, pair.state, lists.p[i], lists.g[i], lists.m[i]);
      }
      lists.compare();
      flag.fill(1);
      op->multi_tensor_lion(65536, flag, three, r.lr, r.beta1, r.beta2, 1, r.weight_decay);
      lists.compare();
    }
  }
}

// As the reference to the last unit: sums of squares are taken in another order there.
void expect_within_a_unit(const std::vector<float>& values, const std::vector<float>& expected, DType dtype) {
  const double unit = dtype == DType::F32 ? 0x1p-23 : dtype == DType::F16 ? 0x1p-10 : 0x1p-7;
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], unit * std::abs(expected[i]) + 1e-7) << i;
  }
}

TEST(FusedLamb, ReferenceForEveryDtypeAndTheSameBitsEverywhere) {
  for (const Pair pair : dtype_pairs) {
    for (const bool inside : {false, true}) {
      std::vector<std::vector<float>> first;
      std::vector<double> first_coefficients;
      const auto check = [&](Accelerator& accelerator) {
        const auto op = accelerator.create_op_builder("FusedLambBuilder")->load_as<FusedLamb>();
        Lists lists(accelerator, pair, pair.param);
        LambReference r;
        r.eps_inside = inside;
        r.step = inside ? 32 : 3;  // 1 - 0.9^32 is a divisor of which two multiply-adds are not enough
        r.scale = 0.5f;
        LambOptions options{r.lr, r.beta1, r.beta2, r.eps, r.weight_decay, r.max_coeff, r.min_coeff, inside, true, {}};
        options.gradients.scale = 0.5;
        std::vector<LambTensors> list;
        for (size_t i = 0; i < lists.p.size(); ++i) {
          list.push_back({lists.tensors[1][i], lists.tensors[0][i], lists.tensors[2][i], lists.tensors[3][i],
                          Tensor::zeros(lists.tensors[1][i].shape(), DType::BF16, accelerator.device())});
        }
        const std::vector<double> coefficients = op->lamb_multi(r.step, options, list);
        ASSERT_EQ(coefficients.size(), lists.p.size());
        std::vector<std::vector<float>> results;
        for (size_t i = 0; i < lists.p.size(); ++i) {
          const double expected = r.apply(pair.param, pair.state, lists.p[i], lists.g[i], lists.m[i], lists.v[i]);
          EXPECT_NEAR(coefficients[i], expected, 1e-9 * expected);
          results.push_back(lists.tensors[1][i].to_vector<float>());
          expect_within_a_unit(results.back(), lists.p[i], pair.param);
          EXPECT_SAME_BITS(lists.tensors[2][i].to_vector<float>(), lists.m[i]);
          EXPECT_SAME_BITS(lists.tensors[3][i].to_vector<float>(), lists.v[i]);
          if (pair.param == DType::F32) {
            std::vector<float> copy = results.back();
            for (float& x : copy) x = rounded(DType::BF16, x);
            EXPECT_SAME_BITS(list[i].copy.to_vector<float>(), copy);
          }
        }
        if (first.empty()) {
          first = results;
          first_coefficients = coefficients;
        }
        EXPECT_EQ(coefficients, first_coefficients);
        for (size_t i = 0; i < results.size(); ++i) EXPECT_SAME_BITS(results[i], first[i]);
      };
      for_each_isa([&] {
        for (const int threads : {1, 3}) {
          const Threads scope(threads);
          check(cpu_accelerator());
        }
      });
      check(other_accelerator());
    }
  }
}

TEST(FusedLamb, OneParameterAndItsCoefficient) {
  const auto op = cpu_accelerator().create_op_builder("FusedLambBuilder")->load_as<FusedLamb>();
  const auto tensor = [](std::vector<float> values) {
    return Tensor::from_host(values.data(), {static_cast<int64_t>(values.size())}, DType::F32);
  };
  const auto step = [&](const Tensor& p, const Tensor& g, double max, double min, double decay = 0, int eps_mode = 1) {
    return op->lamb(p, {}, Tensor::zeros(p.shape(), DType::F32), Tensor::zeros(p.shape(), DType::F32), g, 0.1, 0.9,
                    0.999, max, min, 0, 4, 1, eps_mode, true, decay);
  };
  // The first update is the sign of the gradient.
  const Tensor p = tensor({3, 4});
  EXPECT_NEAR(step(p, tensor({8, -8}), 10, 0.01), 5 / std::sqrt(2.0), 1e-5);
  EXPECT_NEAR(p.to_vector<float>()[0], 3 - 0.1 * 5 / std::sqrt(2.0), 1e-5);
  EXPECT_NEAR(p.to_vector<float>()[1], 4 + 0.1 * 5 / std::sqrt(2.0), 1e-5);
  EXPECT_EQ(step(tensor({3, 4}), tensor({8, -8}), 2, 0.01), 2);
  EXPECT_EQ(step(tensor({3, 4}), tensor({8, -8}), 10, 5), 5);
  // No norm, no ratio.
  EXPECT_EQ(step(tensor({0, 0}), tensor({8, -8}), 10, 0.01), 1);
  EXPECT_ERROR(step(p, tensor({1, 1}), 1, 2), "min_coeff is 2 and max_coeff only 1");
  EXPECT_ERROR(step(p, tensor({1, 1}), 1e-9, 2e-9), "min_coeff is 2e-09 and max_coeff only 1e-09");
  EXPECT_ERROR(step(p, tensor({1, 1}), 10, 0.1, 0, 2), "eps_mode is 2");
  EXPECT_ERROR(step(p, tensor({1, 1, 1}), 10, 0.1), "grad has shape [3], its parameter [2]");

  LambOptions options;
  options.gradients.max_norm = 1;
  const std::vector<LambTensors> list{{tensor({1, 2}), tensor({INFINITY, 0}), tensor({0, 0}), tensor({0, 0}), {}}};
  EXPECT_TRUE(op->lamb_multi(1, options, list).empty());
  EXPECT_EQ(list[0].param.to_vector<float>(), (std::vector<float>{1, 2}));
}

// A list that does not fit in the second-level caches, which is stepped in parts: each parameter becomes what it does alone, and
// what it does in one part (of more threads) where gradients are clipped by the norm of all.
TEST(FusedLamb, PartsOfAList) {
  const auto op = cpu_accelerator().create_op_builder("FusedLambBuilder")->load_as<FusedLamb>();
  // With one thread 600,000 elements are too many for a part, and 70,000 behind them too many to be stepped with those.
  const std::vector<int64_t> sizes{90000, 10, 200001, 0, 3, 90000, 90000, 600000, 5, 70000};
  const auto list = [&](DType dtype) {
    std::vector<LambTensors> tensors;
    for (const int64_t n : sizes) {
      const auto filled = [&](float factor) {
        std::vector<float> values(static_cast<size_t>(n));
        for (size_t i = 0; i < values.size(); ++i) values[i] = factor * (1 + static_cast<float>(i * 37 % 101));
        return Tensor::from_host(values.data(), {n}, DType::F32).to(dtype);
      };
      const auto size = static_cast<float>(std::max<int64_t>(n, 1));
      tensors.push_back({filled(0.5f), filled(1 / size), filled(0.1f / size), filled(0.01f / size), {}});
    }
    return tensors;
  };
  const auto expect_equal = [](const LambTensors& a, const LambTensors& b) {
    EXPECT_SAME_BITS(a.param.to_vector<float>(), b.param.to_vector<float>());
    EXPECT_SAME_BITS(a.exp_avg.to_vector<float>(), b.exp_avg.to_vector<float>());
    EXPECT_SAME_BITS(a.exp_avg_sq.to_vector<float>(), b.exp_avg_sq.to_vector<float>());
  };
  for (const DType dtype : {DType::F32, DType::BF16}) {
    std::vector<LambTensors> clipped;
    for (const int threads : {1, 3, 16}) {
      const Threads scope(threads);
      const std::vector<LambTensors> together = list(dtype), alone = list(dtype);
      const std::vector<double> coefficients = op->lamb_multi(2, {}, together);
      ASSERT_EQ(coefficients.size(), sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(op->lamb_multi(2, {}, {&alone[i], 1})[0], coefficients[i]);
        expect_equal(together[i], alone[i]);
      }
      LambOptions options;
      options.gradients.max_norm = 0.5;
      const std::vector<LambTensors> now = list(dtype);
      op->lamb_multi(2, options, now);
      if (clipped.empty()) clipped = now;
      for (size_t i = 0; i < sizes.size(); ++i) expect_equal(now[i], clipped[i]);
    }
  }
}

// Gradients clipped by the norm of all of them: the same bits on both accelerators.
TEST(FusedLamb, Clipping) {
  std::vector<std::vector<float>> results[2];
  std::vector<double> coefficients[2];
  for (size_t k = 0; k < 2; ++k) {
    Accelerator& accelerator = *accelerators()[k];
    const auto op = accelerator.create_op_builder("FusedLambBuilder")->load_as<FusedLamb>();
    Lists lists(accelerator, dtype_pairs[0], DType::BF16);
    const auto step = [&](double max_norm, double scale) {
      LambOptions options;
      options.gradients = {scale, max_norm};
      std::vector<LambTensors> list;
      for (size_t i = 0; i < lists.p.size(); ++i) {
        list.push_back({lists.tensors[1][i], lists.tensors[0][i], lists.tensors[2][i], lists.tensors[3][i],
                        lists.tensors[0][i].clone()});
      }
      return op->lamb_multi(1, options, list);
    };
    coefficients[k] = step(1.5, 1e18);
    for (const auto& list : lists.tensors) {
      for (const Tensor& t : list) results[k].push_back(t.to_vector<float>());
    }
    // Nothing is done with a norm that is not finite.
    lists.tensors[0][4].slice(0, 70, 71).fill(INFINITY);
    EXPECT_TRUE(step(1.5, 1).empty());
    for (size_t i = 0; i < lists.p.size(); ++i) {
      EXPECT_SAME_BITS(lists.tensors[1][i].to_vector<float>(), results[k][lists.p.size() + i]);
    }
  }
  EXPECT_EQ(coefficients[0], coefficients[1]);
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_SAME_BITS(results[0][i], results[1][i]);
}

TEST(Fused, TensorsThatAreNotContiguous) {
  for (Accelerator* accelerator : accelerators()) {
    const auto op = accelerator->create_op_builder("FusedAdamBuilder")->load_as<FusedAdam>();
    std::mt19937 engine(4);
    std::vector<float> p = random_values(engine, 6 * 50, DType::F32, 1), g = p, m(p.size()), v(p.size());
    const auto transposed = [&](const std::vector<float>& values) {
      const Tensor t = Tensor::zeros({50, 6}, DType::F32, accelerator->device()).transpose(0, 1);
      write(t, values);
      return t;
    };
    const std::vector<std::vector<Tensor>> lists{{transposed(g)}, {transposed(p)}, {transposed(m)}, {transposed(v)}};
    AdamReference r;
    op->multi_tensor_adam(65536, {}, lists, r.lr, r.beta1, r.beta2, r.eps, 1, FusedAdam::AdamW, true, r.weight_decay);
    r.apply(DType::F32, DType::F32, p, g, m, v);
    EXPECT_SAME_BITS(lists[1][0].to_vector<float>(), p);
    EXPECT_SAME_BITS(lists[2][0].to_vector<float>(), m);
    EXPECT_SAME_BITS(lists[3][0].to_vector<float>(), v);
  }
}

}  // namespace
}  // namespace anyaccel::ops::testing
