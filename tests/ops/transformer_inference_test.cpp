// DeepSpeed's surface of InferenceBuilder (ops::TransformerInference) against plain loops in double. On the accelerator under test
// where there is one.
#include "anyaccel/ops/transformer_inference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "ops/device_under_test.h"

namespace anyaccel::ops::transformer_inference {
namespace {

using Numbers = std::vector<double>;

Accelerator& accelerator() {
  if (Accelerator* device = testing::device_under_test()) return *device;
  static const auto cpu = make_accelerator("cpu");
  return *cpu;
}

TransformerInference& library() {
  static const auto loaded = accelerator().create_op_builder("InferenceBuilder")->load_as<TransformerInference>();
  return *loaded;
}

Tensor noise(const Shape& shape, unsigned seed, DType dtype = DType::F32) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(-1.5f, 1.5f);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = draw(engine);
  return Tensor::from_host(values.data(), shape, DType::F32).to(accelerator().device(0)).to(dtype);
}
Numbers numbers(const Tensor& t) { return t.to_vector<double>(); }

double limit_of(DType dtype) { return dtype == DType::F32 ? 2e-5 : dtype == DType::F16 ? 1e-2 : 8e-2; }

void expect_near(const Tensor& found, const Numbers& expected, const std::string& what) {
  const Numbers values = numbers(found);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], limit_of(found.dtype()) * (1 + std::fabs(expected[i]))) << what << ' ' << i;
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double relu(double x) { return std::max(x, 0.0); }
double silu(double x) { return x / (1 + std::exp(-x)); }

Numbers map(Numbers v, double (*function)(double)) {
  for (double& x : v) x = function(x);
  return v;
}
// a + b, b repeated.
Numbers plus(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i % b.size()];
  return a;
}
Numbers normed(const Numbers& v, const Numbers& gamma, const Numbers* beta, double eps = 1e-5) {
  const size_t n = gamma.size();
  Numbers out;
  for (size_t row = 0; row * n < v.size(); ++row) {
    double mean = 0, square = 0;
    for (size_t j = 0; j < n && beta; ++j) mean += v[row * n + j] / static_cast<double>(n);
    for (size_t j = 0; j < n; ++j) square += std::pow(v[row * n + j] - mean, 2) / static_cast<double>(n);
    for (size_t j = 0; j < n; ++j) {
      out.push_back((v[row * n + j] - mean) / std::sqrt(square + eps) * gamma[j] + (beta ? (*beta)[j] : 0));
    }
  }
  return out;
}
// x [.., k] times w [k, n], or [n, k] transposed.
Numbers times(const Numbers& x, size_t k, const Numbers& w, bool transposed) {
  const size_t n = w.size() / k;
  Numbers out;
  for (size_t row = 0; row * k < x.size(); ++row) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += x[row * k + i] * (transposed ? w[j * k + i] : w[i * n + j]);
      out.push_back(sum);
    }
  }
  return out;
}

class EveryDtype : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(TransformerInference, EveryDtype, ::testing::Values(DType::F32, DType::F16, DType::BF16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(EveryDtype, BiasesResidualsAndNorms) {
  TransformerInference& t = library();
  const DType dtype = GetParam();
  const Tensor x = noise({2, 3, 8}, 1, dtype), r = noise({2, 3, 8}, 2, dtype), a = noise({2, 3, 8}, 3, dtype);
  const Tensor bias = noise({8}, 4, dtype), gamma = noise({8}, 5, dtype), beta = noise({8}, 6, dtype);
  const Numbers xs = numbers(x), rs = numbers(r), as = numbers(a), bs = numbers(bias), gs = numbers(gamma),
                ts = numbers(beta);
  Tensor y = x.clone();
  EXPECT_EQ(t.bias_gelu(y, bias).data(), y.data());
  expect_near(y, map(plus(xs, bs), gelu), "bias_gelu");
  expect_near(t.bias_relu(x.clone(), bias), map(plus(xs, bs), relu), "bias_relu");
  expect_near(t.bias_add(x.clone(), bias), plus(xs, bs), "bias_add");
  expect_near(t.bias_residual(x.clone(), r, bias), plus(plus(xs, rs), bs), "bias_residual");
  for (const bool with_bias : {true, false}) {
    const Numbers all = with_bias ? plus(xs, bs) : xs;
    for (const ActivationFuncType act : {ActivationFuncType::GATED_GELU, ActivationFuncType::GATED_SILU}) {
      Numbers expected;
      for (size_t i = 0; i < 24; ++i) {
        const double up = all[i / 4 * 8 + i % 4], gate = all[i / 4 * 8 + 4 + i % 4];
        expected.push_back(up * (act == ActivationFuncType::GATED_GELU ? gelu(gate) : silu(gate)));
      }
      expect_near(t.gated_activation(x, with_bias ? bias : Tensor(), act), expected, "gated_activation");
    }
  }
  expect_near(t.layer_norm(x, gamma, beta, 1e-5f), normed(xs, gs, &ts), "layer_norm");
  expect_near(t.rms_norm(x, gamma, 1e-5f), normed(xs, gs, nullptr), "rms_norm");
  const Numbers total = plus(plus(xs, rs), bs);
  expect_near(t.layer_norm_residual(x, bias, r, gamma, beta, 1e-5f), normed(total, gs, &ts), "layer_norm_residual");
  const auto [norm, stored] = t.layer_norm_residual_store_pre_ln_res(x, bias, r, gamma, beta, 1e-5f);
  expect_near(norm, normed(total, gs, &ts), "layer_norm_residual_store_pre_ln_res");
  expect_near(stored, total, "its sum");
  const auto [rms, sum] = t.pre_rms_norm(x, r, gamma, 1e-5f);
  expect_near(rms, normed(plus(xs, rs), gs, nullptr), "pre_rms_norm");
  expect_near(sum, plus(xs, rs), "its sum");

  const auto combined = [&](double residual_part, double attention_part, bool attention_bias, double final_part) {
    Numbers expected;
    for (size_t i = 0; i < xs.size(); ++i) {
      expected.push_back(xs[i] + residual_part * rs[i] + attention_part * as[i] +
                         residual_part * (attention_bias ? ts[i % 8] : 0) + final_part * bs[i % 8]);
    }
    return expected;
  };
  expect_near(t.residual_add_bias(x, r.clone(), a, beta, bias, 2, true, true, true), combined(0.5, 0.5, true, 0.5),
              "residual_add_bias, preln");
  expect_near(t.residual_add_bias(x, r.clone(), {}, {}, bias, 2, true, true, false), combined(1, 0, false, 1),
              "residual_add_bias, not preln");
  expect_near(t.residual_add_bias(x, r.clone(), a, beta, bias, 2, false, true, true), combined(0.5, 1, true, 0.5),
              "residual_add_bias, parallel, with bias");
  expect_near(t.residual_add_bias(x, r.clone(), a, beta, bias, 2, false, false, true), combined(0.5, 1, false, 0.5),
              "residual_add_bias, parallel");

  const Tensor coef = noise({16}, 7, dtype);
  const Numbers cs = numbers(coef);
  Numbers mixed;
  for (size_t i = 0; i < xs.size(); ++i) mixed.push_back(rs[i] * cs[i % 8] + as[i] * cs[8 + i % 8]);
  expect_near(t.moe_res_matmul(r, coef, a.clone()), mixed, "moe_res_matmul");
  Numbers added;
  for (size_t i = 0; i < xs.size(); ++i) added.push_back(0.5 * xs[i] + rs[i]);
  expect_near(t.vector_add(x.clone(), r, 0.5f), added, "vector_add");
}

TEST_P(EveryDtype, Products) {
  TransformerInference& t = library();
  const DType dtype = GetParam();
  const Tensor x = noise({2, 3, 8}, 1, dtype), r = noise({2, 3, 8}, 2, dtype), input_bias = noise({8}, 3, dtype);
  const Tensor gamma = noise({8}, 5, dtype), beta = noise({8}, 6, dtype), bias = noise({12}, 4, dtype);
  const Numbers xs = numbers(x), rs = numbers(r), gs = numbers(gamma), ts = numbers(beta), bs = numbers(bias);
  for (const bool transposed : {false, true}) {
    const Tensor w = noise(transposed ? Shape{12, 8} : Shape{8, 12}, 7, dtype);
    const Tensor back = noise(transposed ? Shape{8, 12} : Shape{12, 8}, 8, dtype);
    const Tensor half = noise(transposed ? Shape{8, 6} : Shape{6, 8}, 9, dtype);
    const Numbers ws = numbers(w), backs = numbers(back), halves = numbers(half);
    expect_near(t.vector_matmul(x, w, false, {}, false, transposed), times(xs, 8, ws, transposed), "vector_matmul");
    const Numbers norm = normed(xs, gs, &ts);
    for (const bool add_bias : {false, true}) {
      const auto [qkv, n] = t.qkv_gemm(x, w, {}, bias, gamma, beta, 1e-5f, add_bias, false, transposed);
      const Numbers plain = times(norm, 8, ws, transposed);
      expect_near(qkv, add_bias ? plus(plain, bs) : plain, "qkv_gemm");
      expect_near(n, norm, "qkv_gemm's norm");
    }
    const auto [rms, rms_n] = t.rms_qkv_gemm(x, w, {}, gamma, 1e-5f, false, transposed);
    expect_near(rms, times(normed(xs, gs, nullptr), 8, ws, transposed), "rms_qkv_gemm");
    expect_near(rms_n, normed(xs, gs, nullptr), "rms_qkv_gemm's norm");
    for (const bool after : {true, false}) {
      const Numbers residual = after ? normed(plus(plus(xs, rs), numbers(input_bias)), gs, &ts) : norm;
      const Numbers inner = plus(times(residual, 8, ws, transposed), bs);
      for (const ActivationFuncType act : {ActivationFuncType::GELU, ActivationFuncType::ReLU}) {
        const auto [out, res] = t.mlp_gemm(x, r, input_bias, w, back, bias, gamma, beta, 1e-5f, true, after, {}, {},
                                           false, act, transposed);
        expect_near(out, times(map(inner, act == ActivationFuncType::GELU ? gelu : relu), 12, backs, transposed),
                    "mlp_gemm");
        expect_near(res, residual, "mlp_gemm's residual");
      }
    }
    const Numbers sums = plus(xs, rs);
    const Numbers both = times(normed(sums, gs, nullptr), 8, ws, transposed);
    Numbers gated;
    for (size_t i = 0; i < 36; ++i) gated.push_back(both[i / 6 * 12 + i % 6] * silu(both[i / 6 * 12 + 6 + i % 6]));
    const Tensor carried = r.clone();
    const auto [out, res] =
        t.rms_mlp_gemm(x, carried, w, half, gamma, 1e-5f, {}, {}, false, ActivationFuncType::GATED_SILU, transposed);
    expect_near(out, times(gated, 6, halves, transposed), "rms_mlp_gemm");
    EXPECT_EQ(res.data(), carried.data());
    expect_near(carried, sums, "rms_mlp_gemm's residual");
    expect_near(t.fused_gemm_gelu(x, w, {}, bias, back, {}, false, transposed),
                times(map(plus(times(xs, 8, ws, transposed), bs), gelu), 12, backs, transposed), "fused_gemm_gelu");
  }
  const Tensor q = noise({5, 2, 3}, 1, dtype), w = noise({5, 4}, 2, dtype);
  const Numbers qs = numbers(q), ws = numbers(w);
  Numbers expected;
  for (size_t ec = 0; ec < 6; ++ec) {
    for (size_t m = 0; m < 4; ++m) {
      double sum = 0;
      for (size_t s = 0; s < 5; ++s) sum += qs[s * 6 + ec] * ws[s * 4 + m];
      expected.push_back(sum);
    }
  }
  expect_near(t.einsum_sec_sm_ecm(q, w), expected, "einsum_sec_sm_ecm");
}

TEST(TransformerInference, Int8Weights) {
  TransformerInference& t = library();
  std::vector<int8_t> codes;
  for (int i = 0; i < 96; ++i) codes.push_back(static_cast<int8_t>((i * 37) % 256 - 128));
  const Tensor w = Tensor::from_host(codes.data(), {8, 12}, DType::I8, accelerator().device(0));
  const Tensor scale = noise({4}, 3);
  const Numbers scales = numbers(scale);
  Numbers decoded;
  for (size_t i = 0; i < 96; ++i) decoded.push_back(static_cast<double>(codes[i]) * scales[i / 24]);
  expect_near(t.dequantize(w, scale, 4), decoded, "dequantize");
  const Tensor x = noise({3, 8}, 1), half = noise({3, 8}, 1, DType::F16);
  expect_near(t.vector_matmul(x, w, false, scale, true, false), times(numbers(x), 8, decoded, false), "q_int8");
  const Numbers found = numbers(t.vector_matmul_int8(half, w, scale, 2, 2)),
                expected = times(numbers(half), 8, decoded, false);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 0.5 + 2e-3 * std::fabs(expected[i]));
}

// Attention of heads over keys, for one query at `position`.
Numbers scores_of(const Numbers& row, double scale, const std::function<double(size_t)>& bias) {
  Numbers p;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    p.push_back(row[j] * scale + bias(j));
    largest = std::max(largest, p[j]);
  }
  for (double& v : p) sum += v = std::exp(v - largest);
  for (double& v : p) v /= sum;
  return p;
}

TEST_P(EveryDtype, Softmax) {
  TransformerInference& t = library();
  const Tensor x = noise({2, 3, 4, 6}, 1, GetParam()), mask = noise({2, 1, 1, 6}, 2, GetParam()),
               alibi = noise({6, 1, 6}, 3, GetParam());
  const Numbers xs = numbers(x), ms = numbers(mask), as = numbers(alibi);
  for (int form = 0; form < 16; ++form) {
    const bool masked = form & 1, biased = form & 2, triangular = form & 4, local = form & 8;
    Numbers expected;
    for (size_t row = 0; row < 24; ++row) {
      const size_t b = row / 12, h = row / 4 % 3, i = row % 4;
      const auto bias = [&](size_t j) {
        const auto position = static_cast<int>(i) + 2, key = static_cast<int>(j);
        if ((triangular && key > position) || (local && key <= position - 2))
          return -std::numeric_limits<double>::infinity();
        return (masked ? ms[b * 6 + j] : 0) + (biased ? as[(h + 2) * 6 + j] : 0);
      };
      const Numbers p = scores_of(
          {xs.begin() + static_cast<int64_t>(row * 6), xs.begin() + static_cast<int64_t>(row * 6 + 6)}, 0.5, bias);
      expected.insert(expected.end(), p.begin(), p.end());
    }
    expect_near(t.softmax(x.clone(), masked ? mask : Tensor(), biased ? alibi : Tensor(), triangular, false, local, 2,
                          false, 0.5f, 2, 2),
                expected, "softmax, form " + std::to_string(form));
  }
}

TEST_P(EveryDtype, ContextOfAPromptAndOfTokensAfterIt) {
  TransformerInference& t = library();
  constexpr int64_t batch = 2, tokens = 5, heads = 4, nkv = 2, d = 8;
  const int rotary = 4;
  const Tensor qkv = noise({batch, tokens, (heads + 2 * nkv) * d}, 1, GetParam());
  const Numbers all = numbers(qkv);
  const double factor = std::pow(static_cast<double>(d), -0.25);
  // Element e of head h (queries, then keys, then values) of a token, rotated where `rotated`.
  const auto element = [&](int64_t b, int64_t s, int64_t h, int64_t e, bool rotated) {
    const auto raw = [&](int64_t x) {
      return all[static_cast<size_t>(((b * tokens + s) * (heads + 2 * nkv) + h) * d + x)];
    };
    if (!rotated || e >= rotary) return raw(e);
    const int64_t pair = e % (rotary / 2);
    const double angle = static_cast<double>(s) / std::pow(100.0, 2.0 * static_cast<double>(pair) / rotary);
    return e < rotary / 2 ? raw(e) * std::cos(angle) - raw(e + rotary / 2) * std::sin(angle)
                          : raw(e) * std::cos(angle) + raw(e - rotary / 2) * std::sin(angle);
  };
  const auto expected_of = [&](int64_t first, int64_t end) {
    Numbers expected;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t s = first; s < end; ++s) {
        for (int64_t h = 0; h < heads; ++h) {
          Numbers row;
          for (int64_t j = 0; j <= s; ++j) {
            double score = 0;
            for (int64_t e = 0; e < d; ++e) score += element(b, s, h, e, true) * element(b, j, heads + h / 2, e, true);
            row.push_back(score);
          }
          const Numbers p = scores_of(row, factor * factor, [](size_t) { return 0.0; });
          for (int64_t e = 0; e < d; ++e) {
            double sum = 0;
            for (size_t j = 0; j < p.size(); ++j) {
              sum += p[j] * element(b, static_cast<int64_t>(j), heads + nkv + h / 2, e, false);
            }
            expected.push_back(sum);
          }
        }
      }
    }
    return expected;
  };
  t.allocate_workspace(heads * d, heads, tokens, batch, 2, 1, false, 0, 8);
  const auto run = [&](const Tensor& rows, bool prompt, int layer) {
    return t.softmax_context(rows, {}, rotary, true, false, heads, nkv, static_cast<float>(factor), true, false, 0,
                             true, layer, 2, {}, 100.0f, prompt);
  };
  for (int layer = 0; layer < 2; ++layer) {
    const AttentionContext prompt = run(qkv.slice(1, 0, 3), true, layer);
    expect_near(prompt.context, expected_of(0, 3), "prompt");
    EXPECT_EQ(prompt.keys.shape(), (Shape{batch, nkv, 3, d}));
    expect_near(run(qkv.slice(1, 3, 4), false, layer).context, expected_of(3, 4), "token 3");
    const AttentionContext last = run(qkv.slice(1, 4, 5), false, layer);
    expect_near(last.context, expected_of(4, 5), "token 4");
    EXPECT_EQ(last.values.shape(), (Shape{batch, nkv, 5, d}));
  }
  // One sequence for two, and a new start.
  t.repeat_kv_cache(1, 2);
  const AttentionContext repeated = run(qkv.slice(1, 4, 5), false, 0);
  const Numbers keys = numbers(repeated.keys.slice(2, 0, 5));
  EXPECT_TRUE(std::equal(keys.begin(), keys.begin() + static_cast<int64_t>(keys.size() / 2),
                         keys.begin() + static_cast<int64_t>(keys.size() / 2)));
  t.reset_cache();
  expect_near(run(qkv.slice(1, 0, 3), false, 0).context, expected_of(0, 3), "after reset_cache");
  t.release_workspace();
  EXPECT_THROW(run(qkv.slice(1, 0, 3), true, 0), InvalidArgument);
  EXPECT_TRUE(t.retake_workspace());
  expect_near(run(qkv.slice(1, 0, 3), true, 0).context, expected_of(0, 3), "after retake_workspace");
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(TransformerInference, ErrorsNameWhatIsWrong) {
  TransformerInference& t = library();
  const Tensor x = noise({2, 8}, 1), w = noise({8, 4}, 2);
  EXPECT_EQ(message_of([&] { t.bias_add(x, noise({4}, 1)); }), "bias_add: bias has shape [4], expected [8]");
  EXPECT_EQ(message_of([&] { t.vector_matmul(x, w, false, {}, false, true); }),
            "vector_matmul: w has shape [8, 4], expected [8, 8]");
  EXPECT_EQ(message_of([&] { t.vector_matmul(x, w, false, {}, true, false); }),
            "vector_matmul: w has dtype float32, expected int8");
  EXPECT_EQ(message_of([&] { t.gated_activation(x, {}, ActivationFuncType::GELU); }),
            "gated_activation: act is 1, expected GATED_GELU (3) or GATED_SILU (4)");
  EXPECT_EQ(message_of([&] { t.allocate_workspace(8, 2, 10, 1, 1, 1, false, 0, 5); }),
            "allocate_workspace: max_out_tokens is 5, expected at least prompt = 10 and min_out_tokens = 1");
  t.allocate_workspace(8, 2, 1, 1, 1, 1, false, 0, 2);
  const auto run = [&](const Tensor& rows) {
    t.softmax_context(rows, {}, 0, false, false, 2, 0, 1, true, false, 0, true, 0, 1, {}, 1e4f, false);
  };
  EXPECT_EQ(message_of([&] {
              run(noise({1, 3, 24}, 1));
            }),
            "softmax_context: the cache would hold 3 tokens, expected at most max_out_tokens = 2");
  EXPECT_EQ(message_of([&] {
              run(noise({1, 1, 25}, 1));
            }),
            "softmax_context: qkv has rows of 25, expected a multiple of heads + 2 num_kv = 6");
}

}  // namespace
}  // namespace anyaccel::ops::transformer_inference
