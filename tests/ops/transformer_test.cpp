// The encoder layer of ops::Transformer: against PyTorch's (values in transformer_torch_values.h), and its gradients against
// differences of a layer in double that is written out here, with the masks that dropout drew. On the accelerator under test
// where there is one.
#include "anyaccel/ops/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/detection.h"
#include "anyaccel/error.h"
#include "anyaccel/philox.h"
#include "ops/device_under_test.h"
#include "ops/transformer_torch_values.h"

namespace anyaccel::ops {
namespace {

Accelerator& accelerator() {
  if (Accelerator* device = testing::device_under_test()) return *device;
  static const auto cpu = make_accelerator("cpu");
  return *cpu;
}

using Numbers = std::vector<double>;

// The numbers of tools/make_transformer_values.py.
Numbers wave(int64_t count, double phase, double scale, double offset = 0) {
  Numbers values;
  for (int64_t n = 0; n < count; ++n) {
    const double i = static_cast<double>(n);
    values.push_back(static_cast<double>(static_cast<float>(
        static_cast<double>(static_cast<float>(scale * std::sin(0.37 * i + phase) * std::cos(0.011 * i))) + offset)));
  }
  return values;
}

struct Flags {
  bool pre_norm = true, attention_checkpoint = false, invertible = false, gelu_checkpoint = false;
};

struct Sizes {
  int64_t batch, length, hidden, heads, intermediate;
};

constexpr uint32_t layer_id = 7;

// A layer and its numbers, as doubles and as tensors.
class Trial {
 public:
  Trial(const Sizes& sizes, const Flags& flags, DType dtype, float attention_ratio = 0, float hidden_ratio = 0)
      : sizes_(sizes), flags_(flags), dtype_(dtype), library_(accelerator()) {
    const int64_t h = sizes.hidden, i = sizes.intermediate;
    const Shape shapes[] = {{3 * h, h}, {3 * h}, {h, h}, {h}, {h}, {h}, {i, h}, {i}, {h, i}, {h}, {h}, {h}};
    const double scales[] = {0.15, 0.1, 0.15, 0.1, 0.2, 0.1, 0.15, 0.1, 0.1, 0.1, 0.2, 0.1};
    for (size_t n = 0; n < 12; ++n) {
      const bool norm_weight = n == 4 || n == 10;
      weights.push_back(wave(shapes[n].numel(), static_cast<double>(n + 1), scales[n], norm_weight ? 1 : 0));
      shapes_.push_back(shapes[n]);
    }
    input = wave(sizes.batch * sizes.length * h, 13, 1);
    upstream = wave(sizes.batch * sizes.length * h, 14, 1);
    mask = Numbers(static_cast<size_t>(sizes.batch * sizes.length), 0);
    const auto create = dtype == DType::F32   ? &Transformer::create_transformer_layer_fp32
                        : dtype == DType::F16 ? &Transformer::create_transformer_layer_fp16
                                              : &Transformer::create_transformer_layer_bf16;
    (library_.*create)(layer_id, static_cast<uint32_t>(std::max<int64_t>(sizes.batch, 1)), static_cast<uint32_t>(h),
                       static_cast<uint32_t>(sizes.heads), static_cast<uint32_t>(i), attention_ratio, hidden_ratio,
                       1e-5f, 1234, flags.pre_norm, false, flags.attention_checkpoint, flags.invertible,
                       flags.gelu_checkpoint, false);
  }

  Tensor tensor(const Numbers& values, const Shape& shape) const {
    const std::vector<float> floats(values.begin(), values.end());
    return Tensor::from_host(floats.data(), shape, DType::F32).to(accelerator().device(0)).to(dtype_);
  }
  TransformerWeights weight_tensors() const {
    std::vector<Tensor> t;
    for (size_t n = 0; n < 12; ++n) t.push_back(tensor(weights[n], shapes_[n]));
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11]};
  }
  Shape rows() const { return {sizes_.batch, sizes_.length, sizes_.hidden}; }

  void run(bool training) {
    const auto forward = dtype_ == DType::F32   ? &Transformer::forward_fp32
                         : dtype_ == DType::F16 ? &Transformer::forward_fp16
                                                : &Transformer::forward_bf16;
    const auto backward = dtype_ == DType::F32   ? &Transformer::backward_fp32
                          : dtype_ == DType::F16 ? &Transformer::backward_fp16
                                                 : &Transformer::backward_bf16;
    const Tensor x = tensor(input, rows());
    const Tensor keys = tensor(mask, {sizes_.batch, 1, 1, sizes_.length});
    const TransformerWeights w = weight_tensors();
    activations = (library_.*forward)(layer_id, x, keys, w, training, flags_.pre_norm, flags_.attention_checkpoint,
                                      flags_.invertible, flags_.gelu_checkpoint);
    const TransformerGradients g = (library_.*backward)(layer_id, tensor(upstream, rows()), activations, x, keys, w);
    results.clear();
    for (const Tensor* t : std::initializer_list<const Tensor*>{
             &activations.output, &g.input, &g.attn_qkvw, &g.attn_qkvb, &g.attn_ow, &g.attn_ob, &g.attn_nw, &g.attn_nb,
             &g.inter_w, &g.inter_b, &g.output_w, &g.output_b, &g.norm_w, &g.norm_b}) {
      EXPECT_EQ(t->dtype(), dtype_);
      results.push_back(t->to_vector<double>());
    }
  }

  // The layer in double, with the masks of `activations`.
  Numbers reference(const Numbers& x, const std::vector<Numbers>& w, float attention_ratio, float hidden_ratio) const {
    const int64_t batch = sizes_.batch, length = sizes_.length, hidden = sizes_.hidden, heads = sizes_.heads;
    const int64_t intermediate = sizes_.intermediate;
    const int64_t d = hidden / heads, rows = batch * length;
    const auto at = [](const Numbers& v, int64_t i) { return v[static_cast<size_t>(i)]; };
    const auto linear = [&](const Numbers& in, int64_t k, const Numbers& weight, const Numbers& bias) {
      Numbers out;
      const auto n = static_cast<int64_t>(bias.size());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = at(bias, j);
          for (int64_t i = 0; i < k; ++i) sum += at(in, r * k + i) * at(weight, j * k + i);
          out.push_back(sum);
        }
      }
      return out;
    };
    const auto norm = [&](const Numbers& in, const Numbers& weight, const Numbers& bias) {
      Numbers out;
      for (int64_t r = 0; r < rows; ++r) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < hidden; ++i) mean += at(in, r * hidden + i) / static_cast<double>(hidden);
        for (int64_t i = 0; i < hidden; ++i) {
          variance += std::pow(at(in, r * hidden + i) - mean, 2) / static_cast<double>(hidden);
        }
        for (int64_t i = 0; i < hidden; ++i) {
          out.push_back((at(in, r * hidden + i) - mean) / std::sqrt(variance + static_cast<double>(1e-5f)) *
                            at(weight, i) +
                        at(bias, i));
        }
      }
      return out;
    };
    const auto drop = [&](Numbers v, const std::vector<uint8_t>& kept, float ratio) {
      if (kept.empty()) return v;
      for (size_t i = 0; i < v.size(); ++i) v[i] = kept[i] ? v[i] / (1 - static_cast<double>(ratio)) : 0;
      return v;
    };
    const auto add = [](Numbers a, const Numbers& b) {
      for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      return a;
    };
    const Numbers x1 = flags_.pre_norm ? norm(x, w[10], w[11]) : x;
    const Numbers qkv = linear(x1, hidden, w[0], w[1]);
    Numbers context(static_cast<size_t>(rows * hidden), 0);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t i = 0; i < length; ++i) {
          const auto part = [&](int64_t row, int64_t which, int64_t e) {
            return at(qkv, ((b * length + row) * 3 + which) * hidden + head * d + e);
          };
          Numbers p;
          double largest = -std::numeric_limits<double>::infinity(), sum = 0;
          for (int64_t j = 0; j < length; ++j) {
            double score = 0;
            for (int64_t e = 0; e < d; ++e) score += part(i, 0, e) * part(j, 1, e);
            p.push_back(score / std::sqrt(static_cast<double>(d)) + at(mask, b * length + j));
            largest = std::max(largest, p.back());
          }
          for (double& v : p) sum += v = std::isinf(largest) ? 0 : std::exp(v - largest);
          for (int64_t j = 0; j < length; ++j) {
            double weight = sum > 0 ? at(p, j) / sum : 0;
            if (!attention_kept.empty()) {
              const auto n = static_cast<size_t>(((b * heads + head) * length + i) * length + j);
              weight = attention_kept[n] ? weight / (1 - static_cast<double>(attention_ratio)) : 0;
            }
            for (int64_t e = 0; e < d; ++e) {
              context[static_cast<size_t>((b * length + i) * hidden + head * d + e)] += weight * part(j, 2, e);
            }
          }
        }
      }
    }
    const Numbers a = add(drop(linear(context, hidden, w[2], w[3]), output_kept, hidden_ratio), x);
    const Numbers ff = norm(a, w[4], w[5]);
    Numbers g = linear(ff, hidden, w[6], w[7]);
    for (double& v : g) v = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    const Numbers last =
        add(drop(linear(g, intermediate, w[8], w[9]), layer_kept, hidden_ratio), flags_.pre_norm ? a : ff);
    return flags_.pre_norm ? last : norm(last, w[10], w[11]);
  }

  void read_masks() {
    const auto read = [](const Tensor& t) { return t ? t.to_vector<uint8_t>() : std::vector<uint8_t>(); };
    attention_kept = read(activations.attn_prob_dropout_mask);
    output_kept = read(activations.attn_output_dropout_mask);
    layer_kept = read(activations.layer_output_dropout_mask);
  }

  std::vector<Numbers> weights;
  Numbers input, upstream, mask;
  TransformerActivations activations;
  std::vector<Numbers> results;  // the output, then the gradients
  std::vector<uint8_t> attention_kept, output_kept, layer_kept;

 private:
  Sizes sizes_;
  Flags flags_;
  DType dtype_;
  Transformer library_;
  std::vector<Shape> shapes_;
};

constexpr const char* result_names[] = {"output",   "input",    "attn_qkvw", "attn_qkvb", "attn_ow",
                                        "attn_ob",  "attn_nw",  "attn_nb",   "inter_w",   "inter_b",
                                        "output_w", "output_b", "norm_w",    "norm_b"};

// |a - b| is at most `limit` times the root of the mean square of b.
void expect_near(const Numbers& found, const Numbers& expected, double limit, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double squares = 0;
  for (const double v : expected) squares += v * v;
  const double size = std::sqrt(squares / static_cast<double>(std::max<size_t>(expected.size(), 1))) + 1e-6;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], limit * size) << what << ", element " << i;
  }
}

Flags flags_of(int bits) { return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0}; }

void set_test_mask(Trial& trial) {
  for (size_t i = 30; i < 37; ++i) trial.mask[i] = -10000;
  for (size_t i = 37; i < 74; i += 5) trial.mask[i] = -std::numeric_limits<double>::infinity();
}

TEST(Transformer, GivesWhatPyTorchGives) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const bool pre_norm : {true, false}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + (pre_norm ? ", pre-norm" : ", post-norm"));
      Trial trial({2, 37, 96, 4, 200}, {.pre_norm = pre_norm}, dtype);
      set_test_mask(trial);
      trial.run(true);
      const auto& expected = pre_norm ? transformer_values::pre_norm : transformer_values::post_norm;
      for (size_t n = 0; n < 14; ++n) {
        const Numbers& found = trial.results[n];
        const auto& [name, sum, squares, elements] = expected[n];
        EXPECT_STREQ(name, result_names[n]);
        const double size = std::sqrt(squares / static_cast<double>(found.size()));
        // The share of a typical element that each element, and the root mean square, may be off.
        const double limit = dtype == DType::F32 ? 2e-5 : dtype == DType::F16 ? 0.03 : 0.25;
        double found_squares = 0;
        for (const double v : found) found_squares += v * v;
        EXPECT_NEAR(std::sqrt(found_squares / static_cast<double>(found.size())), size, limit * size) << name;
        for (size_t i = 0; i < 7; ++i) {
          EXPECT_NEAR(found[i * (found.size() - 1) / 6], elements[i], limit * (size + std::fabs(elements[i])))
              << name << ' ' << i;
        }
      }
    }
  }
}

TEST(Transformer, GradientsAreDifferencesOfTheLayerInDouble) {
  const float attention_ratio = 0.2f, hidden_ratio = 0.3f;
  for (const bool pre_norm : {true, false}) {
    SCOPED_TRACE(pre_norm ? "pre-norm" : "post-norm");
    Trial trial({2, 5, 8, 2, 11}, {.pre_norm = pre_norm}, DType::F32, attention_ratio, hidden_ratio);
    trial.mask[3] = -std::numeric_limits<double>::infinity();
    trial.mask[8] = -0.7;
    trial.run(true);
    trial.read_masks();
    ASSERT_FALSE(trial.attention_kept.empty());
    ASSERT_FALSE(trial.layer_kept.empty());
    expect_near(trial.results[0], trial.reference(trial.input, trial.weights, attention_ratio, hidden_ratio), 1e-5,
                "output");
    const auto loss = [&](const Numbers& x, const std::vector<Numbers>& w) {
      const Numbers output = trial.reference(x, w, attention_ratio, hidden_ratio);
      double sum = 0;
      for (size_t i = 0; i < output.size(); ++i) sum += output[i] * trial.upstream[i];
      return sum;
    };
    const double step = 1e-5;
    for (size_t n = 0; n < 13; ++n) {
      Numbers x = trial.input;
      std::vector<Numbers> w = trial.weights;
      Numbers& moved = n == 0 ? x : w[n - 1];
      Numbers gradient;
      for (double& element : moved) {
        const double before = element;
        element = before + step;
        const double above = loss(x, w);
        element = before - step;
        gradient.push_back((above - loss(x, w)) / (2 * step));
        element = before;
      }
      expect_near(trial.results[n + 1], gradient, 2e-4, result_names[n + 1]);
    }
  }
}

TEST(Transformer, EveryWayToSaveMemoryGivesTheSameGradients) {
  for (int bits = 0; bits < 16; ++bits) {
    SCOPED_TRACE(bits);
    const Sizes sizes{2, 9, 24, 3, 40};
    Trial plain(sizes, flags_of(bits & 1), DType::F32, 0.1f, 0.1f);
    plain.run(true);
    Trial saving(sizes, flags_of(bits), DType::F32, 0.1f, 0.1f);  // seeds the generator anew
    saving.run(true);
    for (size_t n = 0; n < 14; ++n) expect_near(saving.results[n], plain.results[n], 2e-4, result_names[n]);
    const TransformerActivations& a = saving.activations;
    EXPECT_EQ(a.ctx_bufB.storage() == a.soft_out.storage(), (bits & 2) != 0);
    EXPECT_EQ(a.add_res.storage() == a.inp_norm.storage(), (bits & 4) != 0);
    EXPECT_EQ(a.gelu_inp.storage() == a.ff2_inp.storage(), (bits & 8) != 0);
  }
}

TEST(Transformer, DropsByTheDevicesGenerator) {
  Trial trial({1, 4, 8, 2, 8}, {}, DType::F32, 0.5f, 0.25f);
  trial.run(true);
  trial.read_masks();
  // The layer seeded the generator with 1234; masks take their counters one after the other.
  uint64_t counter = 0;
  const auto check = [&](const std::vector<uint8_t>& kept, size_t count, float ratio) {
    ASSERT_EQ(kept.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(kept[i], philox_unit(philox_words(1234, counter + i / 4)[i % 4]) >= ratio ? 1 : 0) << i;
    }
    counter += (count + 3) / 4;
  };
  check(trial.attention_kept, 32, 0.5f);
  check(trial.output_kept, 32, 0.25f);
  check(trial.layer_kept, 32, 0.25f);
  EXPECT_EQ(accelerator().default_generator(0).get_state(), (RngState{1234, counter}));
  const Numbers first = trial.results[0];
  trial.run(true);
  EXPECT_NE(trial.results[0], first) << "the next pass draws other masks";
  trial.run(false);
  EXPECT_FALSE(trial.activations.attn_prob_dropout_mask);
  trial.read_masks();
  expect_near(trial.results[0], trial.reference(trial.input, trial.weights, 0, 0), 1e-5, "output without dropout");
}

TEST(Transformer, MaskedRowsAndEmptyTensors) {
  for (const bool pre_norm : {true, false}) {
    // Every key of the second sequence is masked: its attention is 0, and nothing is a NaN.
    Trial trial({2, 3, 8, 2, 8}, {.pre_norm = pre_norm}, DType::F32);
    for (size_t i = 3; i < 6; ++i) trial.mask[i] = -std::numeric_limits<double>::infinity();
    trial.run(true);
    expect_near(trial.results[0], trial.reference(trial.input, trial.weights, 0, 0), 1e-5, "output");
    for (size_t n = 0; n < 14; ++n) {
      for (const double v : trial.results[n]) ASSERT_TRUE(std::isfinite(v)) << result_names[n];
    }
    for (const Sizes& sizes : {Sizes{0, 3, 8, 2, 8}, Sizes{2, 0, 8, 2, 8}}) {
      Trial empty(sizes, {.pre_norm = pre_norm}, DType::F32, 0.1f, 0.1f);
      empty.run(true);
      EXPECT_TRUE(empty.results[0].empty());
      for (size_t n = 2; n < 14; ++n) {
        for (const double v : empty.results[n]) EXPECT_EQ(v, 0) << result_names[n];
      }
    }
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Transformer, ErrorsNameArgumentFoundAndExpected) {
  Accelerator& active = accelerator();
  Transformer library(active);
  const auto create = [&](uint32_t hidden, uint32_t heads, float ratio) {
    return library.create_transformer_layer_fp32(40, 2, hidden, heads, 16, ratio, 0, 1e-5f, -1, true, false, false,
                                                 false, false, false);
  };
  EXPECT_EQ(message_of([&] { create(10, 3, 0); }),
            "create_transformer_layer_fp32: hidden_dim is 10, expected a multiple of num_heads = 3");
  EXPECT_EQ(message_of([&] { create(8, 0, 0); }), "create_transformer_layer_fp32: num_heads is 0, expected at least 1");
  EXPECT_NE(message_of([&] { create(8, 2, 1); }).find("attn_dropout_ratio is 1"), std::string::npos);
  EXPECT_EQ(create(8, 2, 0), 0);

  const Device device = active.device(0);
  const auto zeros = [&](const Shape& shape, DType dtype = DType::F32) { return Tensor::zeros(shape, dtype, device); };
  const TransformerWeights good{zeros({24, 8}), zeros({24}), zeros({8, 8}),  zeros({8}), zeros({8}), zeros({8}),
                                zeros({16, 8}), zeros({16}), zeros({8, 16}), zeros({8}), zeros({8}), zeros({8})};
  const auto forward = [&](const Tensor& x, const Tensor& mask, const TransformerWeights& w, uint32_t id = 40,
                           bool pre_norm = true) {
    return library.forward_fp32(id, x, mask, w, true, pre_norm, false, false, false);
  };
  const Tensor x = zeros({2, 3, 8});
  EXPECT_EQ(message_of([&] { forward(x, {}, good); }), "no error");
  EXPECT_EQ(message_of([&] { forward(x, {}, good, 41); }),
            "forward_fp32: layer_id 41 is not registered; call create_transformer_layer_fp32 first");
  EXPECT_EQ(message_of([&] { library.forward_fp16(40, x, {}, good, true, true, false, false, false); }),
            "forward_fp16: layer 40 was created for float32, expected float16");
  EXPECT_EQ(message_of([&] { forward(x, {}, good, 40, false); }),
            "forward_fp32: prelayernorm is false, expected true, as layer 40 was created");
  EXPECT_EQ(message_of([&] { forward({}, {}, good); }), "forward_fp32: input is absent, expected a tensor");
  EXPECT_EQ(message_of([&] {
              forward(zeros({2, 8}), {}, good);
            }),
            "forward_fp32: input has shape [2, 8], expected [B, S, H]");
  EXPECT_EQ(message_of([&] {
              forward(zeros({2, 3, 9}), {}, good);
            }),
            "forward_fp32: input has shape [2, 3, 9], expected [2, 3, 8]");
  EXPECT_EQ(message_of([&] {
              forward(zeros({3, 3, 8}), {}, good);
            }),
            "forward_fp32: input has 3 sequences, expected at most 2, the layer's batch_size");
  EXPECT_EQ(message_of([&] {
              forward(zeros({2, 3, 8}, DType::F16), {}, good);
            }),
            "forward_fp32: input has dtype float16, expected float32");
  EXPECT_EQ(message_of([&] {
              forward(x, zeros({2, 3}), good);
            }),
            "forward_fp32: input_mask has shape [2, 3], expected [2, 1, 1, 3]");
  TransformerWeights bad = good;
  bad.inter_w = zeros({8, 16});
  EXPECT_EQ(message_of([&] { forward(x, {}, bad); }), "forward_fp32: inter_w has shape [8, 16], expected [16, 8]");
  if (!active.is_host_coherent()) {
    bad = good;
    bad.norm_b = Tensor::zeros({8}, DType::F32);
    EXPECT_NE(message_of([&] { forward(x, {}, bad); }).find("norm_b lies on"), std::string::npos);
  }
  const TransformerActivations saved = forward(x, {}, good);
  EXPECT_EQ(message_of([&] {
              library.backward_fp32(40, zeros({2, 4, 8}), saved, x, {}, good);
            }),
            "backward_fp32: grad_output has shape [2, 4, 8], expected [2, 3, 8]");
  TransformerActivations lacking = saved;
  lacking.gelu_inp = Tensor();
  EXPECT_EQ(message_of([&] { library.backward_fp32(40, x, lacking, x, {}, good); }),
            "backward_fp32: gelu_inp is absent, expected a tensor");
}

TEST(Transformer, BothBuildersLoadIt) {
  for (const char* name : {"TransformerBuilder", "StochasticTransformerBuilder"}) {
    const auto builder = accelerator().create_op_builder(name);
    ASSERT_TRUE(builder);
    EXPECT_TRUE(builder->is_compatible());
    EXPECT_NE(std::dynamic_pointer_cast<Transformer>(builder->load()), nullptr);
  }
}

}  // namespace
}  // namespace anyaccel::ops
