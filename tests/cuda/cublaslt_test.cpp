// Large products by the simulated cuBLASLt on the simulated driver: which calls run in the library and which on the
// portable kernels, that results are right and the library's rules kept, how algorithms are chosen and remembered, and
// what happens without it.
#include "accelerators/cuda/libraries/cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "accelerators/cuda/ops/product_choices.h"
#include "accelerators/cuda/ops/product_engine.h"
#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/driver_accelerator.h"
#include "anyaccel/error.h"
#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/tensor.h"
#include "cuda/simulated_test_support.h"
#include "this_build.h"

// The real library, where it is installed, loses a little memory when it finds no device.
extern "C" __attribute__((visibility("default"))) const char*
__lsan_default_suppressions();  // NOLINT: the leak sanitizer's own name
extern "C" const char* __lsan_default_suppressions() { return "leak:libcublasLt.so\n"; }  // NOLINT

namespace anyaccel::cuda_test {
namespace {

namespace fs = std::filesystem;

const std::string older_library = test::built("simulators/cuda12");

class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = simulator_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
    for (const std::string& file : {simulated_libraries + "/libcublasLt.so.13", older_library + "/libcublasLt.so.12"}) {
      if (!fs::exists(file)) GTEST_SKIP() << file << " was not built";
    }
  }
};

// The settings under which the portable kernels run on the simulator.
Settings with(Settings more = {}) {
  more.emplace_back("ANYACCEL_KERNEL_TUNING", "group_size=32,lanes=8,subgroup_size=8,items=32,local_memory=16384");
  return more;
}

// Runs in a child process of its own; what is thrown there fails it.
Simulated simulated(const Settings& settings, const std::function<void()>& body) {
  return Simulated(settings, [&] {
    try {
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

// ---- in a child process ----------------------------------------------------------------------------------------------

// An accelerator and the ops on it, and products on random numbers that are compared with sums in double.
class Products {
 public:
  Products() : accelerator_(make_accelerator("cuda")), ops_(std::make_unique<ops::Inference>(*accelerator_)) {}

  Accelerator& accelerator() { return *accelerator_; }
  ops::Inference& ops() { return *ops_; }

  struct Matrix {
    Tensor tensor;               // on the device
    std::vector<double> values;  // as it holds them
  };
  Matrix make(const Shape& shape, DType dtype) {
    std::vector<float> numbers(static_cast<size_t>(shape.numel()));
    for (float& v : numbers) v = uniform_(random_);
    const Tensor stored = Tensor::from_host(numbers.data(), shape, DType::F32).to(dtype);
    const std::vector<double> values = stored.to_vector<double>();
    return {stored.to(accelerator_->device()), values};
  }
  Tensor empty(const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype, accelerator_->device()); }

  static std::vector<double> product(const Matrix& x, const Matrix& w) {
    const auto m = static_cast<size_t>(x.tensor.size(0)), k = static_cast<size_t>(x.tensor.size(1));
    const auto n = static_cast<size_t>(w.tensor.size(0));
    std::vector<double> result(m * n);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (size_t l = 0; l < k; ++l) sum += x.values[i * k + l] * w.values[j * k + l];
        result[i * n + j] = sum;
      }
    }
    return result;
  }
  static void expect_close(const Tensor& found, const std::vector<double>& expected, double absolute = 1e-4) {
    const std::vector<double> values = found.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    const double unit = found.dtype() == DType::F32 ? 1e-6 : found.dtype() == DType::BF16 ? 0x1p-8 : 0x1p-11;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i], absolute + unit * std::fabs(expected[i])) << "element " << i;
    }
  }
  // x, w, out of a plain product of these sizes and dtypes, run and compared.
  void run(int64_t m, int64_t n, int64_t k, DType in, DType out_dtype) {
    const Matrix x = make({m, k}, in), w = make({n, k}, in);
    const Tensor out = empty({m, n}, out_dtype);
    ops().linear(out, x.tensor, w.tensor);
    expect_close(out, product(x, w));
  }

 private:
  std::unique_ptr<Accelerator> accelerator_;
  std::unique_ptr<ops::Inference> ops_;
  std::mt19937 random_{7};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

// ---- results ---------------------------------------------------------------------------------------------------------

// The lines of the file of measured choices; the first is its header.
std::vector<std::string> choice_lines() {
  std::vector<std::string> lines;
  std::ifstream file(cuda::product_choice_file());
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_F(CublasLtTest, Linear) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (const DType in : {DType::BF16, DType::F16, DType::F32}) {
      for (const DType out_dtype : {DType::F32, in}) {
        const Products::Matrix x = p.make({20, 72}, in), w = p.make({40, 72}, in);
        const Products::Matrix bias = p.make({40}, out_dtype), residual = p.make({20, 40}, out_dtype);
        std::vector<double> expected = Products::product(x, w);
        const Tensor plain = p.empty({20, 40}, out_dtype);
        p.ops().linear(plain, x.tensor, w.tensor);
        Products::expect_close(plain, expected);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias.values[i % 40];
        const Tensor biased = p.empty({20, 40}, out_dtype);
        p.ops().linear(biased, x.tensor, w.tensor, bias.tensor);
        Products::expect_close(biased, expected);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual.values[i];
        const Tensor beside = p.empty({20, 40}, out_dtype);
        p.ops().linear(beside, x.tensor, w.tensor, bias.tensor, residual.tensor);
        Products::expect_close(beside, expected);
        p.ops().linear(residual.tensor, x.tensor, w.tensor, bias.tensor, residual.tensor);
        Products::expect_close(residual.tensor, expected);
      }
    }
  });
  child.clean();
  // Four times for each of the six; two of 16 bits leave sums with a residual to the portable kernels, which round once.
  EXPECT_EQ(child.calls("cublasLtMatmul"), 6 * 4 - 2 * 2);
}

// A bias of another dtype than the fp32 result, and one with gaps, get a copy.
TEST_F(CublasLtTest, BiasIsWidened) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
      const Products::Matrix x = p.make({17, 64}, DType::BF16), w = p.make({300, 64}, DType::BF16);
      const Products::Matrix wide = p.make({600}, dtype);
      std::vector<double> expected = Products::product(x, w);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += wide.values[2 * (i % 300)];
      const Tensor out = p.empty({17, 300}, DType::F32);
      p.ops().linear(out, x.tensor, w.tensor, wide.tensor.slice(0, 0, 600, 2));
      Products::expect_close(out, expected);
    }
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 3);
}

TEST_F(CublasLtTest, RowsWithGapsAndOddAddresses) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (const int64_t offset : {0, 1, 4}) {
      const Products::Matrix x = p.make({24, 61}, DType::BF16), w = p.make({33, 61}, DType::BF16);
      const Tensor x_room = p.empty({24, 80}, DType::BF16), w_room = p.empty({33, 77}, DType::BF16);
      const Tensor out_room = p.empty({24, 40}, DType::F32);
      const Tensor x_view = x_room.slice(1, offset, offset + 61), w_view = w_room.slice(1, offset, offset + 61);
      const Tensor out = out_room.slice(1, offset, offset + 33);
      x_view.copy_from(x.tensor);
      w_view.copy_from(w.tensor);
      p.ops().linear(out, x_view, w_view);
      Products::expect_close(out, Products::product(x, w));
    }
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 3);
}

TEST_F(CublasLtTest, SeveralWeights) {
  const Simulated child = simulated(with(), [] {
    Products p;
    const Products::Matrix x = p.make({18, 64}, DType::BF16);
    const Products::Matrix q = p.make({48, 64}, DType::BF16), k = p.make({16, 64}, DType::BF16),
                           v = p.make({16, 64}, DType::BF16), bias = p.make({16}, DType::BF16);
    const Tensor q_out = p.empty({18, 48}, DType::F32), k_out = p.empty({18, 16}, DType::F32),
                 v_out = p.empty({18, 16}, DType::F32), absent;
    const ops::LinearPart parts[] = {
        {q_out, q.tensor, absent}, {k_out, k.tensor, bias.tensor}, {v_out, v.tensor, absent}};
    p.ops().linear_multi(x.tensor, parts);
    Products::expect_close(q_out, Products::product(x, q));
    Products::expect_close(v_out, Products::product(x, v));
    std::vector<double> expected = Products::product(x, k);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias.values[i % 16];
    Products::expect_close(k_out, expected);
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 3);
}

// Weights of one shape without biases are one call, where those with the lower address come first and have the lower result.
TEST_F(CublasLtTest, TwoOfSeveralWeightsTogether) {
  const Simulated child = simulated(with(), [] {
    Products p;
    const Products::Matrix x = p.make({18, 64}, DType::BF16);
    const Products::Matrix q = p.make({48, 64}, DType::BF16), k = p.make({16, 64}, DType::BF16),
                           v = p.make({16, 64}, DType::BF16);
    const Tensor room = p.empty({70, 64}, DType::BF16), out_room = p.empty({60, 16}, DType::F32), absent;
    const Tensor low = room.slice(0, 3, 19), high = room.slice(0, 40, 56);
    const Tensor low_out = out_room.slice(0, 1, 19), high_out = out_room.slice(0, 33, 51);
    const Tensor q_out = p.empty({18, 48}, DType::F32);
    for (const bool crossed : {false, true}) {
      const Tensor& k_place = crossed ? high : low;
      const Tensor& v_place = crossed ? low : high;
      k_place.copy_from(k.tensor);
      v_place.copy_from(v.tensor);
      out_room.fill(-5);
      const ops::LinearPart parts[] = {
          {q_out, q.tensor, absent}, {low_out, k_place, absent}, {high_out, v_place, absent}};
      p.ops().linear_multi(x.tensor, parts);
      Products::expect_close(q_out, Products::product(x, q));
      Products::expect_close(low_out, Products::product(x, k));
      Products::expect_close(high_out, Products::product(x, v));
      for (const double untouched : out_room.slice(0, 19, 33).to_vector<double>()) ASSERT_EQ(untouched, -5);
    }
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 2 + 3);
}

// Addresses that an H200 gave the weights of one layer: small allocations lie far from large ones.
TEST(CublasLtBatch, MatricesATebibyteApartAreNoBatch) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<const void*>(address); };
  constexpr uintptr_t low = uintptr_t{0x0a} << 32, tera = uintptr_t{1} << 40;
  EXPECT_EQ(cuda::batch_step(at(low), at(low + 4096), 2048, AA_DTYPE_BF16), 2048);
  EXPECT_EQ(cuda::batch_step(at(low), at(low + tera - 16), 2048, AA_DTYPE_F32), (int64_t{1} << 38) - 4);
  EXPECT_EQ(cuda::batch_step(at(low), at(low + tera), 2048, AA_DTYPE_F32), std::nullopt);
  EXPECT_EQ(cuda::batch_step(at(low), at(low + 0x7f06f3dfd000), 2048, AA_DTYPE_BF16), std::nullopt);
  EXPECT_EQ(cuda::batch_step(at(low), at(low + 4094), 2047, AA_DTYPE_BF16), std::nullopt) << "not a multiple of 16";
  EXPECT_EQ(cuda::batch_step(at(low), at(low + 4096), 2049, AA_DTYPE_BF16), std::nullopt) << "they overlap";
  EXPECT_EQ(cuda::batch_step(at(low + 4096), at(low), 2048, AA_DTYPE_BF16), std::nullopt) << "the other one is lower";
}

TEST_F(CublasLtTest, GatedLinear) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (const DType in : {DType::BF16, DType::F32}) {
      for (const DType out_dtype : {DType::F32, DType::BF16}) {
        for (const bool biased : {false, true}) {
          const Products::Matrix x = p.make({19, 40}, in), gate = p.make({52, 40}, in), up = p.make({52, 40}, in);
          const Products::Matrix gate_bias = p.make({52}, in), up_bias = p.make({52}, DType::F32);
          const Tensor out = p.empty({19, 52}, out_dtype), absent;
          p.ops().gated_linear(out, x.tensor, gate.tensor, up.tensor, ops::Activation::Silu,
                               biased ? gate_bias.tensor : absent, biased ? up_bias.tensor : absent);
          std::vector<double> left = Products::product(x, gate), right = Products::product(x, up);
          for (size_t i = 0; i < left.size(); ++i) {
            if (biased) left[i] += gate_bias.values[i % 52];
            if (biased) right[i] += up_bias.values[i % 52];
            left[i] = left[i] / (1 + std::exp(-left[i])) * right[i];
          }
          Products::expect_close(out, left);
        }
      }
    }
  });
  child.clean();
  // Where the result is of 16 bits, gate and up are one call.
  EXPECT_EQ(child.calls("cublasLtMatmul"), 2 * 4 + 4);
}

// Many rows of a bf16 result: gate and up are rounded to bf16 before they are combined, unless something has to be added to them.
TEST_F(CublasLtTest, GateAndUpOfPromptsAreRounded) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (const int64_t rows : {255, 257}) {
      for (const bool biased : {false, true}) {
        const Products::Matrix x = p.make({rows, 256}, DType::BF16), gate = p.make({128, 256}, DType::BF16),
                               up = p.make({128, 256}, DType::BF16), bias = p.make({128}, DType::F32);
        const Tensor out = p.empty({rows, 128}, DType::BF16), absent;
        p.ops().gated_linear(out, x.tensor, gate.tensor, up.tensor, ops::Activation::Silu,
                             biased ? bias.tensor : absent);
        const bool rounds = rows > 256 && !biased;
        const auto rounded = [&](double v) {
          return rounds ? static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(v)))) : v;
        };
        std::vector<double> left = Products::product(x, gate), right = Products::product(x, up);
        size_t twice = 0;
        for (size_t i = 0; i < left.size(); ++i) {
          if (biased) left[i] += bias.values[i % 128];
          left[i] = rounded(left[i]);
          left[i] = left[i] / (1 + std::exp(-left[i])) * rounded(right[i]);
        }
        const std::vector<double> found = out.to_vector<double>();
        for (size_t i = 0; i < left.size(); ++i) {
          const double once = std::fabs(found[i] - left[i]);
          // Sums in fp32 and double may be rounded to different neighbours, which is seldom.
          twice += once > 1e-3 + 0x1p-8 * std::fabs(left[i]);
          ASSERT_LE(once, 1e-3 + 0x1p-6 * std::fabs(left[i])) << "element " << i << " of " << rows << " rows";
        }
        EXPECT_LE(twice, left.size() / 1000);
      }
    }
    bool rounded = false;
    for (const std::string& line : choice_lines()) {
      rounded |= line.find("bfloat16 to bfloat16 batch 2 | m 512 n 128 k 256") != std::string::npos;
    }
    EXPECT_TRUE(rounded);
  });
  child.clean();
}

// The beginning of a layer of a prompt: queries, keys and values are rounded to bf16, turned, and rounded to what they are stored as.
// Keys and values are one product where neither has a bias and their weights lie less than a TiB apart.
TEST_F(CublasLtTest, QueriesKeysAndValuesOfPrompts) {
  const Simulated child = simulated(with(), [] {
    Products p;
    constexpr int64_t tokens = 258, hidden = 40, heads = 3, size = 16, half = size / 2, slots = 300;
    const auto round = [](double v) {
      return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(v))));
    };
    std::vector<int32_t> zeros(tokens, 0), places(tokens);
    for (size_t t = 0; t < tokens; ++t) places[t] = static_cast<int32_t>(t * 7 % slots);
    const auto integers = [&](const std::vector<int32_t>& from) {
      return Tensor::from_host(from.data(), {tokens}, DType::I32).to(p.accelerator().device());
    };
    const Tensor sequence = integers(zeros), positions = integers(places);
    for (const int variant :
         {0, 1, 2}) {  // plain; with biases; the weights of values before those of keys, queries in bf16
      const Products::Matrix x = p.make({tokens, hidden}, DType::F32), norm = p.make({hidden}, DType::BF16);
      const Products::Matrix first = p.make({size, hidden}, DType::BF16),
                             w_q = p.make({heads * size, hidden}, DType::BF16),
                             second = p.make({size, hidden}, DType::BF16), cos = p.make({tokens, half}, DType::F32),
                             sin = p.make({tokens, half}, DType::F32), bias_q = p.make({heads * size}, DType::BF16),
                             bias = p.make({size}, DType::BF16);
      const bool is_low = first.tensor.data() < second.tensor.data();
      const Products::Matrix& w_k = (variant == 2) == is_low ? second : first;
      const Products::Matrix& w_v = (variant == 2) == is_low ? first : second;
      const Tensor absent, q = p.empty({tokens, heads, size}, variant == 2 ? DType::BF16 : DType::F32);
      const Tensor keys = p.empty({1, 1, slots, size}, DType::BF16), values = p.empty({1, 1, slots, size}, DType::BF16);
      p.ops().norm_qkv_rope(q, {keys, values, sequence, positions}, x.tensor, norm.tensor,
                            {w_q.tensor, variant == 1 ? bias_q.tensor : absent, w_k.tensor,
                             variant == 1 ? bias.tensor : absent, w_v.tensor, absent, absent, absent},
                            {cos.tensor, sin.tensor}, 1e-5f, DType::BF16);
      Products::Matrix normed{x.tensor, x.values};
      for (size_t t = 0; t < tokens; ++t) {
        double squares = 0;
        for (size_t i = 0; i < hidden; ++i) squares += x.values[t * hidden + i] * x.values[t * hidden + i];
        for (size_t i = 0; i < hidden; ++i) {
          double& v = normed.values[t * hidden + i];
          v = round(v / std::sqrt(squares / hidden + 1e-5) * norm.values[i]);
        }
      }
      const auto rows = [&](const Products::Matrix& w, const std::vector<double>* added) {
        std::vector<double> result = Products::product(normed, w);
        const size_t width = static_cast<size_t>(w.tensor.size(0));
        for (size_t i = 0; i < result.size(); ++i) result[i] = round(result[i] + (added ? (*added)[i % width] : 0.0));
        return result;
      };
      const auto turned = [&](std::vector<double> of, size_t of_heads) {
        for (size_t t = 0; t < tokens; ++t) {
          for (size_t at = t * of_heads * size; at < (t + 1) * of_heads * size; at += size) {
            for (size_t i = 0; i < half; ++i) {
              const double a = of[at + i], b = of[at + i + half];
              const double c = cos.values[t * half + i], s = sin.values[t * half + i];
              of[at + i] = a * c - b * s;
              of[at + i + half] = b * c + a * s;
            }
          }
        }
        return of;
      };
      const auto cached = [&](const Tensor& cache) {
        const std::vector<double> all = cache.to_vector<double>();
        std::vector<double> of_tokens;
        for (const int32_t place : places) {
          for (size_t i = 0; i < size; ++i) of_tokens.push_back(all[static_cast<size_t>(place) * size + i]);
        }
        return Tensor::from_host(of_tokens.data(), {tokens, size}, DType::F64);
      };
      // A sum in fp32 may be rounded to the neighbour of what the one in double is rounded to.
      const double neighbour = 0.08;
      Products::expect_close(q, turned(rows(w_q, variant == 1 ? &bias_q.values : nullptr), heads), neighbour);
      Products::expect_close(cached(keys), turned(rows(w_k, variant == 1 ? &bias.values : nullptr), 1), neighbour);
      Products::expect_close(cached(values), rows(w_v, nullptr), neighbour);
    }
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 2 + 3 + 2);
}

// A batch of two that is large enough to be measured is compared with its products one by one: all three ways give the same.
TEST_F(CublasLtTest, GateAndUpRunAsWhatTakesLessTime) {
  const Simulated child = simulated(with(), [] {
    Products p;
    const Products::Matrix x = p.make({128, 256}, DType::BF16), gate = p.make({512, 256}, DType::BF16),
                           up = p.make({512, 256}, DType::BF16);
    std::vector<double> left = Products::product(x, gate), right = Products::product(x, up);
    for (size_t i = 0; i < left.size(); ++i) left[i] = std::max(left[i], 0.0) * right[i];
    for (int i = 0; i < 3; ++i) {
      const Tensor out = p.empty({128, 512}, DType::BF16);
      p.ops().gated_linear(out, x.tensor, gate.tensor, up.tensor, ops::Activation::Relu);
      Products::expect_close(out, left, 1e-3);
      EXPECT_EQ(choice_lines().size(), i == 0 ? 2u : 3u);
    }
    EXPECT_SAYS(choice_lines()[2], "float32 | m 128 n 512 k 256");
    EXPECT_SAYS(choice_lines()[1], "float32 batch 2 | m 128 n 512 k 256");
  });
  child.clean();
  // Each of three proposals twice, for the batch and for one product; the batch; both products; what took less time.
  EXPECT_GE(child.calls("cublasLtMatmul"), 2 * 3 * 2 + 1 + 2 + 1);
  EXPECT_LE(child.calls("cublasLtMatmul"), 2 * 3 * 2 + 1 + 2 + 2);
}

// On a small device the intermediate results of gate and up take at most 64 MiB: 8192 rows are computed in pieces of 1024
// columns. The first piece is large enough to be measured: each of two proposals runs twice.
TEST_F(CublasLtTest, GatedLinearInPieces) {
  const Simulated child = simulated(with({{"SIM_MEMORY", "512m"}}), [] {
    Products p;
    const int64_t m = 8192, n = 1030, k = 1;
    const Products::Matrix x = p.make({m, k}, DType::BF16), gate = p.make({n, k}, DType::BF16),
                           up = p.make({n, k}, DType::BF16);
    const Tensor out = p.empty({m, n}, DType::BF16);
    p.ops().gated_linear(out, x.tensor, gate.tensor, up.tensor, ops::Activation::Relu);
    std::vector<double> left = Products::product(x, gate), right = Products::product(x, up);
    for (size_t i = 0; i < left.size(); ++i) left[i] = std::max(left[i], 0.0) * right[i];
    Products::expect_close(out, left);
  });
  child.clean();
  EXPECT_EQ(child.calls("cublasLtMatmul"), 2 * 2 + 2);
}

// Logits of a prompt's last tokens by cuda and by the CPU, both rounding what a bf16 model's products read: they agree as well as
// bf16 allows.
void expect_same_logits(const char* directory, size_t length) {
  const auto logits = [&](const char* accelerator) {
    setenv("DS_ACCELERATOR", accelerator, 1);
    reset_accelerator();
    llm::LoadOptions options;
    options.dtype = DType::BF16;
    options.activations = llm::Activations::BF16;
    const auto model = llm::Model::load(std::string(ANYACCEL_TEST_DATA "/models/") + directory, options);
    llm::Session session(model, {.sequences = 1, .context = static_cast<int64_t>(length)});
    std::vector<int32_t> ids(length), sequence(length, 0), positions(length), rows;
    for (size_t i = 0; i < length; ++i) {
      ids[i] = static_cast<int32_t>(3 + i * 7 % 50);
      positions[i] = static_cast<int32_t>(i);
      if (i + 40 >= length) rows.push_back(positions[i]);
    }
    return session.forward({ids, sequence, positions}, rows).to_vector<float>();
  };
  const std::vector<float> found = logits("cuda"), expected = logits("cpu");
  shutdown_accelerators();
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    worst = std::max(worst, std::fabs(found[i] - expected[i]));
  }
  EXPECT_LT(worst, 0.03f * largest);
}

TEST_F(CublasLtTest, PromptOfABf16Model) {
  const Simulated child = simulated(with(), [] { expect_same_logits("llama_bias", 40); });
  child.clean();
  // Every product of every layer but the last one's, whose rows stay fp32.
  EXPECT_GE(child.calls("cublasLtMatmul"), 7);
}

// As many tokens as are rounded between the kernels of a layer.
TEST_F(CublasLtTest, LongPromptOfABf16Model) {
  const Simulated child = simulated(with(), [] { expect_same_logits("llama_gqa", 260); });
  child.clean();
  // Queries, keys with values, what attention gives, gate with up, and down: of three layers.
  EXPECT_EQ(child.calls("cublasLtMatmul"), 3 * 5 + 1);
}

// ---- what is not the library's -----------------------------------------------------------------------------------------

TEST_F(CublasLtTest, OtherCallsRunElsewhere) {
  const Simulated child = simulated(with(), [] {
    Products p;
    // fp32 rows with bf16 weights, an fp16 result of bf16, a single row, a transposed weight.
    const Products::Matrix x = p.make({20, 24}, DType::F32), w = p.make({9, 24}, DType::BF16);
    const Tensor out = p.empty({20, 9}, DType::F32);
    p.ops().linear(out, x.tensor, w.tensor);
    Products::expect_close(out, Products::product(x, w));
    p.run(20, 9, 24, DType::BF16, DType::F16);
    p.run(1, 9, 24, DType::BF16, DType::F32);
    const Products::Matrix stored = p.make({24, 9}, DType::F32);
    Products::Matrix turned{stored.tensor.transpose(0, 1), std::vector<double>(9 * 24)};
    for (size_t n = 0; n < 9; ++n) {
      for (size_t k = 0; k < 24; ++k) turned.values[n * 24 + k] = stored.values[k * 9 + n];
    }
    p.ops().linear(out, x.tensor, turned.tensor);
    Products::expect_close(out, Products::product(x, turned));
  });
  child.clean();
  EXPECT_LE(child.calls("cublasLtMatmul"), 0);
}

// ---- without a library, with an unusable one, with two -----------------------------------------------------------------

// The simulated libraries without cuBLASLt, in a folder of their own.
std::string without_library(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(simulated_libraries)) {
    if (entry.path().filename().string().find("cublasLt") == std::string::npos) {
      fs::create_symlink(entry.path(), folder / entry.path().filename());
    }
  }
  return folder.string();
}

TEST_F(CublasLtTest, WithoutOneThePortableKernelsRun) {
  test::TemporaryFolder folder;
  const Simulated child = simulated(with({{"ANYACCEL_CUDA_LIBRARY_PATH", without_library(folder.path())}}), [] {
    Products p;
    p.run(20, 9, 24, DType::BF16, DType::F32);
    p.run(20, 9, 24, DType::F32, DType::F32);
  });
  child.clean();
  EXPECT_LE(child.calls("cublasLtMatmul"), 0);
  // Logged once; if NVIDIA's own library is installed, with its message: it finds no device.
  const std::string what = "large products run on the portable kernels, which are slower";
  const size_t first = child.output.find(what);
  ASSERT_NE(first, std::string::npos) << child.output;
  EXPECT_EQ(child.output.find(what, first + 1), std::string::npos) << child.output;
  EXPECT_TRUE(says(child.output, "looked for libcublasLt.so.13") ||
              says(child.output, "cublasLtCreate gave CUBLAS_STATUS"))
      << child.output;
}

TEST_F(CublasLtTest, NamesFollowTheDriver) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(cuda::cublaslt_files(13000), (Names{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}));
  EXPECT_EQ(cuda::cublaslt_files(12080), (Names{"libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so.13"}));
  EXPECT_EQ(cuda::cublaslt_files(11040), (Names{"libcublasLt.so.11", "libcublasLt.so.12", "libcublasLt.so.13"}));
  EXPECT_EQ(cuda::cublaslt_files(0), cuda::cublaslt_files(13000));
}

TEST_F(CublasLtTest, OfTwoVersionsTheDriversIsTaken) {
  // In either order of folders.
  for (const std::string& path :
       {simulated_libraries + ":" + older_library, older_library + ":" + simulated_libraries}) {
    for (const auto& [driver, version] : {std::pair{"13000", "13.1.0"}, {"12080", "12.9.5"}}) {
      const Settings settings =
          with({{"ANYACCEL_CUDA_LIBRARY_PATH", path}, {"SIM_CUDA_VERSION", driver}, {"ANYACCEL_LOG", "info"}});
      const Simulated child = simulated(settings, [] { Products().run(20, 9, 24, DType::BF16, DType::F32); });
      EXPECT_SAYS(child.output, std::string("large products by cuBLASLt ") + version + " (");
    }
  }
}

// ---- choosing ----------------------------------------------------------------------------------------------------------

// Multiply-adds enough to be worth a choice.
void large(Products& p, int64_t m = 128) { p.run(m, 512, 256, DType::BF16, DType::F32); }

TEST_F(CublasLtTest, ALargeProductIsMeasuredOnce) {
  const Simulated child = simulated(with(), [] {
    Products p;
    for (int i = 0; i < 3; ++i) large(p);
    ASSERT_EQ(choice_lines().size(), 2u);
    EXPECT_SAYS(choice_lines()[1], "cublasLt 130100 | ");
    EXPECT_SAYS(choice_lines()[1], " | bfloat16 to float32 | m 128 n 512 k 256 | align 16 16 16 16 16");
    // Prompts of other lengths up to the same power of two do not measure again.
    large(p, 127);
    large(p, 100);
    EXPECT_EQ(choice_lines().size(), 2u);
    large(p, 130);
    EXPECT_EQ(choice_lines().size(), 3u);
  });
  child.clean();
  // Each of three proposals twice, for two kinds; and the six products.
  EXPECT_EQ(child.calls("cublasLtMatmul"), 2 * 3 * 2 + 6);
}

TEST_F(CublasLtTest, AChoiceIsRememberedOnDisk) {
  test::TemporaryFolder cache;
  for (const int measured : {1, 0, 0}) {
    const Simulated child = simulated(with({{"ANYACCEL_CACHE_DIR", cache.path().string()}}), [] {
      Products p;
      large(p);
    });
    child.clean();
    EXPECT_EQ(child.calls("cublasLtMatmul"), measured * 6 + 1);
  }
}

TEST_F(CublasLtTest, MeasuringLeavesTheResidualAlone) {
  const Simulated child = simulated(with(), [] {
    Products p;
    const Products::Matrix x = p.make({128, 256}, DType::BF16), w = p.make({512, 256}, DType::BF16);
    const Products::Matrix residual = p.make({128, 512}, DType::F32);
    std::vector<double> expected = Products::product(x, w);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual.values[i];
    p.ops().linear(residual.tensor, x.tensor, w.tensor, {}, residual.tensor);
    Products::expect_close(residual.tensor, expected);
    EXPECT_EQ(choice_lines().size(), 2u);
  });
  child.clean();
}

TEST_F(CublasLtTest, NothingIsMeasuredWhileAStreamCaptures) {
  const Simulated child = simulated(with(), [] {
    Products p;
    const Products::Matrix x = p.make({128, 256}, DType::BF16), w = p.make({512, 256}, DType::BF16);
    const Products::Matrix gate = p.make({512, 256}, DType::BF16);
    const Tensor out = p.empty({128, 512}, DType::F32), gated = p.empty({128, 512}, DType::BF16);
    Graph graph = p.accelerator().create_graph();
    {
      const ScopeGuard capture = p.accelerator().capture_to_graph(graph);
      p.ops().linear(out, x.tensor, w.tensor);
      p.ops().gated_linear(gated, x.tensor, gate.tensor, w.tensor, ops::Activation::Relu);
    }
    EXPECT_TRUE(choice_lines().empty());
    const std::vector<double> right = Products::product(x, w);
    std::vector<double> left = Products::product(x, gate);
    for (size_t i = 0; i < left.size(); ++i) left[i] = std::max(left[i], 0.0) * right[i];
    for (int i = 0; i < 2; ++i) {
      out.fill(-5);
      gated.fill(-5);
      p.accelerator().replay_graph(graph);
      Products::expect_close(out, right);
      Products::expect_close(gated, left, 1e-3);
    }
  });
  child.clean();
}

TEST_F(CublasLtTest, ADamagedFileIsLeftOutAndWrittenAnew) {
  test::TemporaryFolder cache;
  const Settings settings = with({{"ANYACCEL_CACHE_DIR", cache.path().string()}, {"ANYACCEL_LOG", "debug"}});
  const fs::path file = cache.path() / "cublaslt_choices.txt";
  const auto body = [] {
    Products p;
    large(p);
  };
  const auto read = [&] {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  simulated(settings, body).clean();
  const std::string good = read();
  ASSERT_FALSE(good.empty());
  std::string flipped = good;  // one digit of the algorithm
  char& digit = flipped[flipped.find('\t') + 20];
  digit = digit == '0' ? '1' : '0';
  const std::string half = good.substr(0, good.size() / 2);
  for (const std::string& bad : {flipped, half, std::string("something else\n") + good, std::string(100, '\0')}) {
    std::ofstream(file) << bad;
    const Simulated child = simulated(settings, body);
    child.clean();
    EXPECT_EQ(child.calls("cublasLtMatmul"), 7) << "measured again";
    EXPECT_SAYS(child.output, "are not used");
    EXPECT_EQ(read().substr(0, good.find('\t')), good.substr(0, good.find('\t')));
  }
  // Results for another library or device are kept as well.
  std::string foreign = good;
  foreign.replace(foreign.find("cublasLt 130100"), 15, "cublasLt 120905");
  std::ofstream(file) << foreign;
  const Simulated child = simulated(settings, body);
  EXPECT_EQ(child.calls("cublasLtMatmul"), 7);
}

// ---- faults ------------------------------------------------------------------------------------------------------------

TEST_F(CublasLtTest, ADeviceLostInAProductIsReportedAsThat) {
  int lost = 0;
  for (int command = 1; command <= 12; ++command) {
    const Simulated faulty = simulated(with({{"SIM_FAULT", "sticky:command=" + std::to_string(command)}}), [] {
      try {
        Products p;
        const Products::Matrix x = p.make({20, 24}, DType::BF16), w = p.make({9, 24}, DType::BF16);
        const Tensor out = p.empty({20, 9}, DType::F32);
        p.ops().linear(out, x.tensor, w.tensor);
        p.accelerator().synchronize();
        std::printf("no error\n");
      } catch (const Error& error) {
        std::printf("error: %s\n", error.what());
      }
    });
    lost += says(faulty.output, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    EXPECT_FALSE(says(faulty.output, "error: ") && !says(faulty.output, "700")) << faulty.output;
  }
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace anyaccel::cuda_test
