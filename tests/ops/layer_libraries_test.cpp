// The libraries of small layers' ops: RandomLTD, SpatialInference, InferenceCore, FlashAttention and Packbits. On the accelerator
// under test where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/ops/flash_attention.h"
#include "anyaccel/ops/inference_core.h"
#include "anyaccel/ops/packbits.h"
#include "anyaccel/ops/random_ltd.h"
#include "anyaccel/ops/spatial_inference.h"
#include "ops/device_under_test.h"

namespace anyaccel::ops::layer_libraries {
namespace {

Accelerator& accelerator() {
  if (Accelerator* device = testing::device_under_test()) return *device;
  static const auto cpu = make_accelerator("cpu");
  return *cpu;
}

Tensor floats(const std::vector<float>& values, const Shape& shape, DType dtype = DType::F32) {
  return Tensor::from_host(values.data(), shape, DType::F32).to(accelerator().device(0)).to(dtype);
}
Tensor indices(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from_host(values.data(), shape, DType::I32, accelerator().device(0));
}
// Numbers that every dtype holds and that sums of a few keep.
std::vector<float> counting(int64_t count, int64_t modulus = 200) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>((i * 7 + 3) % modulus) - 60);
  return values;
}
std::vector<float> noise(int64_t count, unsigned seed, float range = 2) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(-range, range);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = draw(engine);
  return values;
}

template <class Library>
std::shared_ptr<Library> load(const char* builder) {
  return accelerator().create_op_builder(builder)->template load_as<Library>();
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

// ---- RandomLTD ------------------------------------------------------------------------------------------------------

TEST(RandomLTD, GathersScattersAndTheirGradients) {
  const auto ltd = load<RandomLTD>("RandomLTDBuilder");
  constexpr int64_t batch = 2, tokens = 6, size = 5, reserved = 3;
  const std::vector<int32_t> which = {0, 2, 5, 1, 3, 4};
  const Tensor idx = indices(which, {batch, reserved});
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const bool batch_first : {true, false}) {
      const Shape shape = batch_first ? Shape{batch, tokens, size} : Shape{tokens, batch, size};
      const std::vector<float> numbers = counting(batch * tokens * size);
      const Tensor x = floats(numbers, shape, dtype);
      const auto at = [&](int64_t n, int64_t s, int64_t c) {
        return static_cast<size_t>(((batch_first ? n * tokens + s : s * batch + n)) * size + c);
      };
      const auto in_layer = [&](int64_t n, int64_t r, int64_t c) {
        return static_cast<size_t>(((batch_first ? n * reserved + r : r * batch + n)) * size + c);
      };
      std::vector<float> gathered(batch * reserved * size), scattered = numbers, kept = numbers,
                                                            only(numbers.size(), 0);
      const std::vector<float> layer_numbers = counting(batch * reserved * size, 90);
      for (int64_t n = 0; n < batch; ++n) {
        for (int64_t r = 0; r < reserved; ++r) {
          for (int64_t c = 0; c < size; ++c) {
            const int64_t s = which[static_cast<size_t>(n * reserved + r)];
            gathered[in_layer(n, r, c)] = numbers[at(n, s, c)];
            scattered[at(n, s, c)] = layer_numbers[in_layer(n, r, c)];
            only[at(n, s, c)] = layer_numbers[in_layer(n, r, c)];
            kept[at(n, s, c)] = 0;
          }
        }
      }
      const Tensor out = ltd->token_gather(x, idx, batch_first);
      EXPECT_EQ(out.dtype(), dtype);
      EXPECT_EQ(out.to_vector<float>(), gathered);
      const Tensor layer = floats(layer_numbers, out.shape(), dtype);
      EXPECT_EQ(ltd->token_gather_backward(layer, idx, tokens, batch_first).to_vector<float>(), only);
      const auto [d_all, d_layer] = ltd->token_scatter_backward(x, idx, batch_first);
      EXPECT_EQ(d_all.to_vector<float>(), kept);
      EXPECT_EQ(d_layer.to_vector<float>(), gathered);
      EXPECT_EQ(x.to_vector<float>(), numbers) << "a gradient is not changed";
      EXPECT_EQ(ltd->token_scatter_(x, layer, idx, batch_first).data(), x.data());
      EXPECT_EQ(x.to_vector<float>(), scattered);
    }
  }
}

TEST(RandomLTD, Masks) {
  const auto ltd = load<RandomLTD>("RandomLTDBuilder");
  const std::vector<float> numbers = counting(2 * 5 * 5);
  const Tensor mask = floats(numbers, {2, 1, 5, 5});
  const std::vector<int32_t> which = {0, 3, 1, 4, 2, 3, 0, 1};  // two layers, two sequences, two tokens
  const std::vector<float> found = ltd->mask_gather_bert(mask, indices(which, {2, 2, 2})).to_vector<float>();
  size_t i = 0;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t n = 0; n < 2; ++n) {
      const int32_t* row = which.data() + (layer * 2 + n) * 2;
      for (size_t a = 0; a < 2; ++a) {
        for (size_t b = 0; b < 2; ++b, ++i) {
          EXPECT_EQ(found[i], numbers[n * 25 + static_cast<size_t>(row[a] * 5 + row[b])]) << layer << n << a << b;
        }
      }
    }
  }
  EXPECT_EQ(ltd->mask_gather_gpt(mask, 2).to_vector<float>(),
            (std::vector<float>{numbers[0], numbers[1], numbers[5], numbers[6], numbers[25], numbers[26], numbers[30],
                                numbers[31]}));
}

TEST(RandomLTD, SortsAndSamples) {
  const auto ltd = load<RandomLTD>("RandomLTDBuilder");
  const Tensor ids = indices({5, 1, 3, 0, 4, 2}, {1, 2, 3});
  EXPECT_EQ(ltd->token_sort_(ids, 6).data(), ids.data());
  EXPECT_EQ(ids.to_vector<int32_t>(), (std::vector<int32_t>{1, 3, 5, 0, 2, 4}));
  EXPECT_NE(message_of([&] {
              ltd->token_sort_(indices({7, 1, 3}, {1, 1, 3}), 6);
            }).find("ids holds 7"),
            std::string::npos);
  // Strided, several times: where the host reaches a device's memory, it must not read a copy that is still being made.
  for (int repetition = 0; repetition < 20; ++repetition) {
    std::vector<int32_t> given(3 * 500), sorted;
    for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<int32_t>(499 - i / 3);
    const Tensor turned = indices(given, {500, 1, 3}).transpose(0, 2);
    ltd->token_sort_(turned, 500);
    for (int32_t row = 0; row < 3; ++row) {
      for (int32_t i = 0; i < 500; ++i) sorted.push_back(i);
    }
    ASSERT_EQ(turned.to_vector<int32_t>(), sorted);
  }

  const Device device = accelerator().device(0);
  accelerator().default_generator(0).manual_seed(9);
  const auto [drawn, no_mask] = ltd->gpt_sample_tokens(4, 10, 3, 200, device);
  EXPECT_FALSE(no_mask);
  const std::vector<int32_t> values = drawn.to_vector<int32_t>();
  ASSERT_EQ(values.size(), 4u * 3 * 200);
  std::vector<int> counts(10);
  for (size_t row = 0; row < 600; ++row) {
    const auto begin = values.begin() + static_cast<int64_t>(row) * 4;
    EXPECT_TRUE(std::is_sorted(begin, begin + 4));
    EXPECT_EQ(std::set<int32_t>(begin, begin + 4).size(), 4u);
    for (auto v = begin; v < begin + 4; ++v) {
      ASSERT_TRUE(*v >= 0 && *v < 10);
      ++counts[static_cast<size_t>(*v)];
    }
  }
  // 2400 draws of 10 equally likely tokens: 240 each, standard deviation sqrt(600 * 0.4 * 0.6) = 12.
  for (const int count : counts) EXPECT_NEAR(count, 240, 60);
  accelerator().default_generator(0).manual_seed(9);
  EXPECT_EQ(ltd->gpt_sample_tokens(4, 10, 3, 200, device).first.to_vector<int32_t>(), values);
  const Tensor mask = floats(counting(3 * 100), {3, 1, 10, 10});
  const auto [rows, masks] = ltd->bert_sample_tokens(4, 10, 3, 2, device, mask);
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_EQ(masks[1].shape(), (Shape{3, 1, 4, 4}));
  EXPECT_EQ(masks[1].to_vector<float>(), ltd->mask_gather_bert(mask, rows).select(0, 1).to_vector<float>());
}

TEST(RandomLTD, ErrorsAndNothing) {
  const auto ltd = load<RandomLTD>("RandomLTDBuilder");
  const Tensor x = floats(counting(12), {2, 3, 2});
  EXPECT_EQ(message_of([&] {
              ltd->token_gather(x, indices({0, 1, 2}, {3, 1}), true);
            }),
            "token_gather: idx has shape [3, 1], expected [2, 1]");
  EXPECT_EQ(message_of([&] { ltd->token_gather(x, x, true); }), "token_gather: idx has dtype float32, expected int32");
  EXPECT_EQ(message_of([&] {
              ltd->token_scatter_(x, x, indices({0, 1}, {2, 1}), true);
            }),
            "token_scatter_: layer has shape [2, 3, 2], expected [2, 1, 2]");
  EXPECT_EQ(message_of([&] {
              ltd->mask_gather_gpt(floats(counting(9), {1, 1, 3, 3}), 4);
            }),
            "mask_gather_gpt: reserved is 4, expected 0 to 3, the mask's size");
  EXPECT_EQ(message_of([&] { ltd->gpt_sample_tokens(5, 4, 1, 1, accelerator().device(0)); }),
            "gpt_sample_tokens: reserved is 5, expected 0 to tokens = 4");
  const Tensor none = indices({}, {2, 0});
  EXPECT_EQ(ltd->token_gather(x, none, true).shape(), (Shape{2, 0, 2}));
  EXPECT_EQ(ltd->token_scatter_(x, ltd->token_gather(x, none, true), none, true).to_vector<float>(), counting(12));
}

// ---- SpatialInference -----------------------------------------------------------------------------------------------

TEST(SpatialInference, AddsBiasesAndKeepsTheLayout) {
  const auto spatial = load<SpatialInference>("SpatialInferenceBuilder");
  const std::vector<float> a = noise(2 * 3 * 2 * 8, 1), b = noise(2 * 3 * 2 * 8, 2), bias = noise(8, 3),
                           other_bias = noise(8, 4);
  const auto half = [](double v) {
    const float f = static_cast<float>(v);
    return static_cast<double>(Tensor::from_host(&f, {1}, DType::F32).to(DType::F16).item<float>());
  };
  for (const bool image : {true, false}) {
    const auto tensor = [&](const std::vector<float>& values) {
      return image ? floats(values, {2, 3, 2, 8}, DType::F16).permute({0, 3, 1, 2})
                   : floats(values, {2, 6, 8}, DType::F16);
    };
    const Tensor x = tensor(a), other = tensor(b), w = floats(bias, {8}, DType::F16),
                 w2 = floats(other_bias, {8}, DType::F16);
    const Tensor results[] = {spatial->nhwc_bias_add(x, w), spatial->nhwc_bias_add_add(x, w, other),
                              spatial->nhwc_bias_add_bias_add(x, w, other, w2)};
    for (size_t form = 0; form < 3; ++form) {
      EXPECT_EQ(results[form].shape(), x.shape());
      EXPECT_TRUE(std::equal(x.strides().begin(), x.strides().end(), results[form].strides().begin()));
      const std::vector<float> found = (image ? results[form].permute({0, 2, 3, 1}) : results[form]).to_vector<float>();
      for (size_t i = 0; i < found.size(); ++i) {
        const double first = half(half(a[i]) + half(bias[i % 8]));
        const double expected = form == 0   ? first
                                : form == 1 ? half(first + half(b[i]))
                                            : half(first + half(half(b[i]) + half(other_bias[i % 8])));
        ASSERT_EQ(static_cast<double>(found[i]), expected) << form << ' ' << i;
      }
    }
  }
  EXPECT_EQ(message_of([&] {
              spatial->nhwc_bias_add(floats(a, {2, 8, 3, 2}, DType::F16), floats(bias, {8}, DType::F16));
            }),
            "nhwc_bias_add: x is not contiguous, expected [N, C, H, W] with the channels innermost in memory (channels "
            "last)");
  EXPECT_EQ(message_of([&] {
              spatial->nhwc_bias_add(floats(a, {2, 8, 6}, DType::F16), floats(bias, {8}, DType::F16));
            }),
            "nhwc_bias_add: x has 6 channels, expected a multiple of 8");
  EXPECT_EQ(message_of([&] {
              spatial->nhwc_bias_add(floats(a, {2, 6, 8}), floats(bias, {8}, DType::F16));
            }),
            "nhwc_bias_add: x has dtype float32, expected float16");
}

// ---- InferenceCore --------------------------------------------------------------------------------------------------

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double silu(double x) { return x / (1 + std::exp(-x)); }
double relu(double x) { return std::max(x, 0.0); }
double identity(double x) { return x; }

void expect_near(const Tensor& found, const std::vector<double>& expected, double limit, const std::string& what) {
  const std::vector<double> values = found.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], limit * (1 + std::fabs(expected[i]))) << what << ' ' << i;
  }
}

TEST(InferenceCore, Activations) {
  const auto core = load<InferenceCore>("InferenceCoreBuilder");
  for (const DType dtype : {DType::F16, DType::BF16, DType::F32}) {
    const double limit = dtype == DType::F32 ? 2e-6 : dtype == DType::F16 ? 6e-4 : 5e-3;
    const Tensor x = floats(noise(3 * 10, 1, 4), {3, 10}, dtype), bias = floats(noise(10, 2), {10}, dtype);
    const std::vector<double> xs = x.to_vector<double>(), bs = bias.to_vector<double>();
    const std::pair<ActivationType, double (*)(double)> plain[] = {{ActivationType::GELU, gelu},
                                                                   {ActivationType::RELU, relu},
                                                                   {ActivationType::SILU, silu},
                                                                   {ActivationType::IDENTITY, identity}};
    for (const auto& [act, function] : plain) {
      if (dtype == DType::F32) break;
      for (const bool with_bias : {true, false}) {
        const Tensor y = x.clone();
        core->bias_activation(y, with_bias ? bias : Tensor(), act);
        std::vector<double> expected;
        for (size_t i = 0; i < xs.size(); ++i) expected.push_back(function(xs[i] + (with_bias ? bs[i % 10] : 0)));
        expect_near(y, expected, limit, "bias_activation " + std::to_string(static_cast<int>(act)));
      }
    }
    const std::pair<ActivationType, double (*)(double)> gates[] = {
        {ActivationType::GEGLU, gelu}, {ActivationType::ReGLU, relu}, {ActivationType::SiGLU, silu}};
    for (const auto& [act, function] : gates) {
      for (const bool with_bias : {true, false}) {
        const Tensor y = Tensor::empty({3, 5}, dtype, x.device());
        core->gated_activation(y, x, with_bias ? bias : Tensor(), act);
        std::vector<double> expected;
        for (size_t i = 0; i < 15; ++i) {
          const auto value = [&](size_t j) { return xs[i / 5 * 10 + j] + (with_bias ? bs[j] : 0); };
          expected.push_back(function(value(i % 5 * 2)) * value(i % 5 * 2 + 1));
        }
        expect_near(y, expected, limit, "gated_activation " + std::to_string(static_cast<int>(act)));
      }
    }
  }
  const Tensor x = floats(noise(30, 1), {3, 10}, DType::F16);
  EXPECT_EQ(message_of([&] { core->bias_activation(x, {}, ActivationType::GEGLU); }),
            "bias_activation: act is GEGLU, expected GELU, RELU, SILU or IDENTITY");
  EXPECT_EQ(message_of([&] { core->gated_activation(x, x, {}, ActivationType::GEGLU); }),
            "gated_activation: out has shape [3, 10], expected [3, 5]");
}

TEST(InferenceCore, NormsAndProducts) {
  const auto core = load<InferenceCore>("InferenceCoreBuilder");
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const double limit = dtype == DType::F32 ? 1e-5 : dtype == DType::F16 ? 4e-3 : 3e-2;
    const Tensor x = floats(noise(4 * 12, 1), {4, 12}, dtype), r = floats(noise(4 * 12, 2), {4, 12}, dtype);
    const Tensor gamma = floats(noise(12, 3), {12}, dtype), beta = floats(noise(12, 4), {12}, dtype);
    const std::vector<double> xs = x.to_vector<double>(), rs = r.to_vector<double>(), g = gamma.to_vector<double>(),
                              b = beta.to_vector<double>();
    const auto normed = [&](bool layer, bool residual) {
      std::vector<double> result;
      for (size_t row = 0; row < 4; ++row) {
        const auto value = [&](size_t j) { return xs[row * 12 + j] + (residual ? rs[row * 12 + j] : 0); };
        double mean = 0, square = 0;
        for (size_t j = 0; j < 12 && layer; ++j) mean += value(j) / 12;
        for (size_t j = 0; j < 12; ++j) square += std::pow(value(j) - mean, 2) / 12;
        for (size_t j = 0; j < 12; ++j) {
          result.push_back((value(j) - mean) / std::sqrt(square + 1e-5) * g[j] + (layer ? b[j] : 0));
        }
      }
      return result;
    };
    std::vector<double> sums;
    for (size_t i = 0; i < xs.size(); ++i) sums.push_back(xs[i] + rs[i]);
    const auto like = [&] { return Tensor::empty(x.shape(), dtype, x.device()); };
    const Tensor out = like(), sum = like();
    core->layer_norm(out, x, gamma, beta, 1e-5f);
    expect_near(out, normed(true, false), limit, "layer_norm");
    core->pre_layer_norm(sum, out, x, r, gamma, beta, 1e-5f);
    expect_near(sum, sums, limit, "pre_layer_norm's sum");
    expect_near(out, normed(true, true), limit, "pre_layer_norm");
    core->post_layer_norm(out, x, r, gamma, beta, 1e-5f);
    expect_near(out, normed(true, true), limit, "post_layer_norm");
    core->rms_norm(out, x, gamma, 1e-5f);
    expect_near(out, normed(false, false), limit, "rms_norm");
    core->rms_pre_norm(out, sum, x, r, gamma, 1e-5f);
    expect_near(sum, sums, limit, "rms_pre_norm's sum");
    expect_near(out, normed(false, true), limit, "rms_pre_norm");

    const Tensor w = floats(noise(5 * 12, 5), {5, 12}, dtype);
    const std::vector<double> ws = w.to_vector<double>();
    std::vector<double> products;
    for (size_t row = 0; row < 4; ++row) {
      for (size_t n = 0; n < 5; ++n) {
        double total = 0;
        for (size_t k = 0; k < 12; ++k) total += xs[row * 12 + k] * ws[n * 12 + k];
        products.push_back(total);
      }
    }
    const Tensor y = Tensor::empty({2, 2, 5}, dtype, x.device());
    core->create_handle();
    core->blas_linear(y, x.view({2, 2, 12}), w);
    expect_near(y, products, 4 * limit, "blas_linear");
    const Tensor turned = w.transpose(0, 1).contiguous().transpose(0, 1);
    core->blas_linear(y, x.view({2, 2, 12}), turned);
    expect_near(y, products, 4 * limit, "blas_linear of a transposed weight");
    const Tensor strided = Tensor::empty({2, 5, 2}, dtype, x.device()).transpose(0, 2).transpose(1, 2);
    core->blas_linear(strided, x.view({2, 2, 12}), w);
    expect_near(strided, products, 4 * limit, "blas_linear to rows that no view merges");
    core->blas_4d_matmul(y.view({1, 2, 2, 5}), w.transpose(0, 1).expand({1, 2, 12, 5}), x.view({1, 2, 2, 12}));
    expect_near(y, products, 4 * limit, "blas_4d_matmul");
  }
}

TEST(InferenceCore, ResultsHaveMemoryOfTheirOwn) {
  const auto core = load<InferenceCore>("InferenceCoreBuilder");
  const Tensor x = floats(noise(4 * 12, 1), {4, 12}), r = floats(noise(4 * 12, 2), {4, 12});
  const Tensor gamma = floats(noise(12, 3), {12}), sum = x.clone();
  EXPECT_EQ(message_of([&] { core->rms_pre_norm(sum, sum, x, r, gamma, 1e-5f); }),
            "rms_pre_norm: res_out is written and shares memory with norm_out, expected memory of its own");
  EXPECT_EQ(message_of([&] { core->pre_layer_norm(sum, x, x, r, sum.select(0, 1), gamma, 1e-5f); }),
            "pre_layer_norm: res_out is written and shares memory with gamma, expected memory of its own");
  EXPECT_NE(message_of([&] {
              core->blas_linear(x, x, floats(noise(144, 4), {12, 12}));
            }).find("shares memory with"),
            std::string::npos);
  // The sum over the input and the norm over the residual, as a model that reuses its buffers calls it.
  const Tensor expected_sum = x.clone(), expected = x.clone();
  core->rms_pre_norm(expected, expected_sum, x, r, gamma, 1e-5f);
  core->rms_pre_norm(r, x, x, r, gamma, 1e-5f);
  EXPECT_EQ(x.to_vector<float>(), expected_sum.to_vector<float>());
  EXPECT_EQ(r.to_vector<float>(), expected.to_vector<float>());
}

TEST(InferenceCore, Fp6Weights) {
  const auto core = load<InferenceCore>("InferenceCoreBuilder");
  // All 64 codes: 0, subnormals and the largest among them.
  std::vector<float> codes;
  for (int sign : {1, -1}) {
    for (int exponent = 0; exponent < 8; ++exponent) {
      for (int mantissa = 0; mantissa < 4; ++mantissa) {
        const double value = exponent == 0 ? std::ldexp(mantissa, -4) : std::ldexp(4 + mantissa, exponent - 5);
        codes.push_back(static_cast<float>(sign * value));
      }
    }
  }
  EXPECT_EQ(*std::max_element(codes.begin(), codes.end()), 28);
  constexpr int64_t m = 256, n = 3, k = 64;
  std::vector<float> weight;
  for (int64_t i = 0; i < m * k; ++i) weight.push_back(codes[static_cast<size_t>((i * 37 + i / k) % 64)]);
  const Tensor w = Tensor::from_host(weight.data(), {m, k}, DType::F32).to(DType::F16);
  const auto parts = core->preprocess_weight(w);
  const Tensor &low = parts.first, &high = parts.second;
  EXPECT_EQ(low.shape(), (Shape{m * k / 4}));
  EXPECT_EQ(high.shape(), (Shape{m * k / 2}));
  const Device device = accelerator().device(0);
  const Tensor x = floats(noise(n * k, 6), {n, k}, DType::F16), scales = floats(noise(m, 7), {m}, DType::F16);
  const Tensor out = Tensor::empty({n, m}, DType::F16, device),
               workspace = Tensor::empty({m * n * 2}, DType::F32, device);
  core->wf6af16_linear(out, x, low.to(device), high.to(device), scales, workspace, m, n, k, 2);
  const std::vector<double> xs = x.to_vector<double>(), ss = scales.to_vector<double>();
  std::vector<double> expected;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += xs[static_cast<size_t>(row * k + j)] * static_cast<double>(weight[static_cast<size_t>(i * k + j)]);
      }
      expected.push_back(sum * ss[static_cast<size_t>(i)]);
    }
  }
  expect_near(out, expected, 1e-3, "wf6af16_linear");
  for (const float wrong : {0.03125f, 32.0f, 1.125f, std::nanf("")}) {
    const std::vector<float> bad = {1, 2, wrong, 3};
    const std::string message = message_of([&] {
      core->preprocess_weight(Tensor::from_host(bad.data(), {1, 4}, DType::F32).to(DType::F16));
    });
    EXPECT_NE(message.find("Input value out of range for FP6"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([&] {
              core->wf6af16_linear(out, x, low.to(device), high.to(device), scales, workspace, 255, n, k, 2);
            }).find("M is 255, expected a positive multiple of 256"),
            std::string::npos);
}

// ---- FlashAttention and Packbits ------------------------------------------------------------------------------------

TEST(FlashAttention, IsAttention) {
  const auto flash = load<FlashAttention>("FlashAttentionBuilder");
  constexpr int64_t batch = 2, queries = 5, keys = 7, heads = 4, kv_heads = 2, d = 8;
  const Tensor q = floats(noise(batch * queries * heads * d, 1), {batch, queries, heads, d});
  const Tensor k = floats(noise(batch * keys * kv_heads * d, 2), {batch, keys, kv_heads, d});
  const Tensor v = floats(noise(batch * keys * kv_heads * d, 3), {batch, keys, kv_heads, d});
  const std::vector<double> qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  for (const bool causal : {false, true}) {
    std::vector<double> expected;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t h = 0; h < heads; ++h) {
          const auto key = [&](int64_t j, int64_t e) {
            return static_cast<size_t>(((b * keys + j) * kv_heads + h / 2) * d + e);
          };
          const int64_t seen = causal ? i + keys - queries + 1 : keys;
          std::vector<double> weights;
          double total = 0;
          for (int64_t j = 0; j < seen; ++j) {
            double score = 0;
            for (int64_t e = 0; e < d; ++e) {
              score += qs[static_cast<size_t>(((b * queries + i) * heads + h) * d + e)] * ks[key(j, e)];
            }
            weights.push_back(std::exp(score / std::sqrt(8.0)));
            total += weights.back();
          }
          for (int64_t e = 0; e < d; ++e) {
            double sum = 0;
            for (int64_t j = 0; j < seen; ++j) sum += weights[static_cast<size_t>(j)] * vs[key(j, e)];
            expected.push_back(sum / total);
          }
        }
      }
    }
    expect_near(flash->flash_attn_func(q, k, v, 0, {}, causal), expected, 1e-5, causal ? "causal" : "all");
  }
  EXPECT_EQ(message_of([&] { flash->flash_attn_func(q, k, v, 0.1f); }),
            "flash_attn_func: dropout_p is 0.100000, expected 0");
  EXPECT_EQ(message_of([&] { flash->flash_attn_func(q, k, q); }),
            "flash_attn_func: v has shape [2, 5, 4, 8], expected [2, 7, 2, 8]");
}

TEST(Packbits, PacksSignsAndUnpacksThem) {
  const auto bits = load<Packbits>("PackbitsBuilder");
  const Tensor x = floats({1, -2, 0, -0.0f, 3, 4, -5, 6, -7, 8, 9}, {11});
  const Tensor packed = bits->packbits(x, 10);
  EXPECT_EQ(packed.to_vector<uint8_t>(), (std::vector<uint8_t>{0b10101101, 0b01000000}));
  EXPECT_EQ(bits->unpackbits(packed, 10).to_vector<float>(), (std::vector<float>{1, -1, 1, -1, 1, 1, -1, 1, -1, 1}));
  EXPECT_EQ(bits->packbits(x, 0).numel(), 0);
  EXPECT_EQ(message_of([&] { bits->packbits(x, 12); }),
            "packbits: input_size is 12, expected 0 to 11, the elements of x");
}

TEST(Packbits, IsRefusedWhileAGraphIsCaptured) {
  if (!accelerator().supports_graphs()) GTEST_SKIP() << "no graphs";
  const auto library = load<Packbits>("PackbitsBuilder");
  const Tensor x = floats(counting(16), {16});
  Graph graph = accelerator().create_graph();
  const ScopeGuard capture = accelerator().capture_to_graph(graph);
  const std::string message = message_of([&] { library->packbits(x, 16); });
  EXPECT_NE(message.find("packbits: the current stream of"), std::string::npos) << message;
}

}  // namespace
}  // namespace anyaccel::ops::layer_libraries
