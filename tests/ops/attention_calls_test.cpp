// Calls of ops::TransformerInference that arrange heads, and the gradients of ops::FlashAttention: against PyTorch
// (tools/make_inference_values.py), plain loops in double precision, and finite differences. On the accelerator under test where
// there is one.
#include "anyaccel/ops/flash_attention.h"
#include "anyaccel/ops/transformer_inference.h"
#include "ops/attention_test_support.h"
#include "ops/inference_torch_values.h"

namespace anyaccel {
namespace {

using namespace testing;
using ops::FlashAttention;
using ops::TransformerInference;
namespace torch_numbers = ops::torch_values;

std::shared_ptr<TransformerInference> head_calls() {
  return tested_accelerator().create_op_builder("InferenceBuilder")->load_as<TransformerInference>();
}
std::shared_ptr<FlashAttention> flash() {
  return tested_accelerator().create_op_builder("FlashAttentionBuilder")->load_as<FlashAttention>();
}
Tensor torch_input(int64_t n, const Shape& shape, DType dtype = DType::F32) {
  return make_tensor(stored_input(n, shape.numel()), shape, dtype);
}
// a, and behind it b.
Doubles joined(const Doubles& a, const Doubles& b) {
  Doubles out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

// norm_factor scales queries and keys alike, as DeepSpeed's layers mean it: 1 / sqrt(sqrt(d)).
TEST(AttentionCallsTest, ContextIsWhatPyTorchMakes) {
  constexpr int64_t batch = 2, heads = 6, kv_heads = 3, size = 16;
  auto library = head_calls();
  library->allocate_workspace(heads * size, heads, 9, batch, 1, 1, false, 0, 11);
  Doubles found;
  for (int step = 0; step < 3; ++step) {
    const Tensor qkv = torch_input(40 + step, {batch, step == 0 ? 9 : 1, (heads + 2 * kv_heads) * size});
    const ops::AttentionContext made = library->softmax_context(qkv, {}, 8, true, false, heads, kv_heads,
                                                                1 / std::sqrt(std::sqrt(static_cast<float>(size))),
                                                                true, false, 0, true, 0, 1, {}, 10000.0f, step == 0);
    found = joined(found, made.context.to_vector<double>());
  }
  const std::vector<float> all(found.begin(), found.end());
  expect_stored(Tensor::from_host(all.data(), {static_cast<int64_t>(all.size())}, DType::F32),
                torch_numbers::softmax_context, 2e-6, "softmax_context");
}

struct FlashCase {
  int64_t batch, queries, keys, heads, kv_heads, size;
  bool causal;
  double scale;

  Doubles operator()(const Doubles& q, const Doubles& k, const Doubles& v) const {
    Doubles out;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t h = 0; h < heads; ++h) {
          const auto key = [&](int64_t j, int64_t e) {
            return static_cast<size_t>(((b * keys + j) * kv_heads + h / (heads / kv_heads)) * size + e);
          };
          Doubles weights;
          double total = 0;
          for (int64_t j = 0; j < (causal ? i + keys - queries + 1 : keys); ++j) {
            double score = 0;
            for (int64_t e = 0; e < size; ++e) {
              score += q[static_cast<size_t>(((b * queries + i) * heads + h) * size + e)] * k[key(j, e)];
            }
            weights.push_back(std::exp(score * scale));
            total += weights.back();
          }
          for (int64_t e = 0; e < size; ++e) {
            double sum = 0;
            for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] * v[key(static_cast<int64_t>(j), e)];
            out.push_back(sum / total);
          }
        }
      }
    }
    return out;
  }
};

TEST(AttentionCallsTest, FlashGradientsAreFiniteDifferences) {
  auto library = flash();
  for (const FlashCase& c : {FlashCase{1, 3, 5, 4, 2, 3, false, 0.5}, FlashCase{2, 4, 4, 2, 1, 5, true, 0.7},
                             FlashCase{1, 1, 6, 3, 3, 2, true, 1.0}, FlashCase{1, 3, 1, 1, 1, 1, false, -0.4}}) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(c.queries) + " x " + std::to_string(c.keys));
      const Shape of_q{c.batch, c.queries, c.heads, c.size}, of_k{c.batch, c.keys, c.kv_heads, c.size};
      const Tensor tq = torch_input(1, of_q, dtype), tk = torch_input(2, of_k, dtype), tv = torch_input(3, of_k, dtype),
                   go = torch_input(4, of_q, dtype);
      const FlashAttention::Gradients found =
          library->flash_attn_backward(go, tq, tk, tv, static_cast<float>(c.scale), c.causal);
      Doubles q = tq.to_vector<double>(), k = tk.to_vector<double>(), v = tv.to_vector<double>();
      const Doubles weights = go.to_vector<double>();
      const auto loss = [&] { return weighted_sum(c(q, k, v), weights); };
      const double tolerance = tolerance_of(dtype);
      expect_close(found.q, differences(q, loss), tolerance, "dq");
      expect_close(found.k, differences(k, loss), tolerance, "dk");
      expect_close(found.v, differences(v, loss), tolerance, "dv");
    }
  }
}

TEST(AttentionCallsTest, FlashGradientsAreWhatPyTorchMakes) {
  auto library = flash();
  const Tensor q = torch_input(50, {2, 7, 6, 12}), k = torch_input(51, {2, 11, 3, 12}),
               v = torch_input(52, {2, 11, 3, 12}), go = torch_input(53, {2, 7, 6, 12});
  for (const bool causal : {false, true}) {
    SCOPED_TRACE(causal ? "causal" : "all");
    expect_stored(library->flash_attn_func(q, k, v, 0, 0.4f, causal),
                  causal ? torch_numbers::flash_causal : torch_numbers::flash_all, 2e-6, "out");
    const FlashAttention::Gradients found = library->flash_attn_backward(go, q, k, v, 0.4f, causal);
    expect_stored(found.q, causal ? torch_numbers::flash_causal_dq : torch_numbers::flash_all_dq, 4e-6, "dq");
    expect_stored(found.k, causal ? torch_numbers::flash_causal_dk : torch_numbers::flash_all_dk, 4e-6, "dk");
    expect_stored(found.v, causal ? torch_numbers::flash_causal_dv : torch_numbers::flash_all_dv, 4e-6, "dv");
  }
}

// Many parts of queries, of which the last is short: the same as the parts one by one.
TEST(AttentionCallsTest, FlashGradientsInParts) {
  if (device_under_test()) GTEST_SKIP() << "the parts are the host's doing, and simulators take long";
  auto library = flash();
  constexpr int64_t length = 1500, size = 4, heads = 4;
  const Tensor q = torch_input(1, {1, length, heads, size}), k = torch_input(2, {1, length, heads, size}),
               v = torch_input(3, {1, length, heads, size}), go = torch_input(4, {1, length, heads, size});
  const FlashAttention::Gradients whole = library->flash_attn_backward(go, q, k, v, 1.0f, true);
  // The gradient of a query depends on no other query; those of keys are sums over queries.
  for (const int64_t cut : {0L, 699L, 1499L}) {
    const FlashAttention::Gradients one =
        library->flash_attn_backward(go.slice(1, cut, cut + 1), q.slice(1, cut, cut + 1), k.slice(1, 0, cut + 1),
                                     v.slice(1, 0, cut + 1), 1.0f, true);
    expect_close(whole.q.slice(1, cut, cut + 1), one.q.to_vector<double>(), 1e-5, "dq");
  }
  const FlashAttention::Gradients head = library->flash_attn_backward(
      go.slice(1, 0, 800), q.slice(1, 0, 800), k.slice(1, 0, 800), v.slice(1, 0, 800), 1.0f, true);
  const FlashAttention::Gradients tail =
      library->flash_attn_backward(go.slice(1, 800, length), q.slice(1, 800, length), k, v, 1.0f, true);
  Doubles dk = tail.k.to_vector<double>(), dv = tail.v.to_vector<double>();
  const Doubles first_k = head.k.to_vector<double>(), first_v = head.v.to_vector<double>();
  for (size_t i = 0; i < first_k.size(); ++i) {
    dk[i] += first_k[i];
    dv[i] += first_v[i];
  }
  expect_close(whole.k, dk, 5e-5, "dk");
  expect_close(whole.v, dv, 5e-5, "dv");
}

TEST(AttentionCallsTest, FlashRefusalsAndNothing) {
  auto library = flash();
  const Tensor q = torch_input(1, {1, 3, 2, 4}), k = torch_input(2, {1, 2, 2, 4});
  expect_refused([&] { library->flash_attn_backward(torch_input(1, {1, 3, 2, 5}), q, k, k); }, "grad_out has shape");
  expect_refused(
      [&] {
        library->flash_attn_backward(torch_input(1, {1, 3, 2, 4}, DType::F16), q, k, k);
      },
      "grad_out has dtype");
  expect_refused([&] { library->flash_attn_backward({}, q, k, k); }, "grad_out is absent");
  expect_refused([&] { library->flash_attn_backward(q, q, k, k, {}, true); }, "k has 2 positions, expected at least 3");
  expect_refused([&] { library->flash_attn_backward(q, q, k, k, infinity); }, "softmax_scale");
  const Tensor none = torch_input(1, {1, 0, 2, 4});
  const FlashAttention::Gradients empty = library->flash_attn_backward(none, none, k, k);
  EXPECT_EQ(empty.q.numel(), 0);
  expect_close(empty.k, Doubles(16, 0.0), 0, "dk");
}

TEST(AttentionCallsTest, ContextOfGivenKeys) {
  auto library = head_calls();
  constexpr int64_t batch = 2, before = 4, added = 3, heads = 2, size = 5, hidden = heads * size;
  for (const bool with_new : {false, true}) {
    for (const bool triangular : {false, true}) {
      const int64_t count = 3, length = before + (with_new ? added : 0);
      const Tensor q = torch_input(1, {batch, count, hidden}), k0 = torch_input(2, {batch, before, hidden}),
                   v0 = torch_input(3, {batch, before, hidden});
      const Tensor k1 = with_new ? torch_input(4, {batch, added, hidden}) : Tensor(),
                   v1 = with_new ? torch_input(5, {batch, added, hidden}) : Tensor();
      const ops::AttentionContext made =
          library->softmax_context_int8(q, k0, k1, {}, v0, v1, heads, 0.6f, true, triangular, false, 0, true);
      ASSERT_EQ(made.keys.shape(), (Shape{batch, length, hidden}));
      ASSERT_EQ(made.context.shape(), (Shape{batch, heads, count, size}));
      const FlashCase plain{batch, count, length, heads, heads, size, triangular, 0.6f};
      const Doubles by_token =
          plain(q.to_vector<double>(), made.keys.to_vector<double>(), made.values.to_vector<double>());
      expect_close(made.context.transpose(1, 2).contiguous(), by_token, 2e-5, "context");
      if (with_new) {
        expect_close(made.keys.slice(1, before, length).contiguous(), k1.to_vector<double>(), 0, "keys");
        expect_close(made.values.slice(1, 0, before).contiguous(), v0.to_vector<double>(), 0, "values");
      }
    }
  }
  const Tensor q = torch_input(1, {1, 1, 4}), k = torch_input(2, {1, 2, 4});
  const auto refused = [&](const Tensor& keys, const Tensor& more, const Tensor& values, int count, const char* words) {
    expect_refused(
        [&] { library->softmax_context_int8(q, keys, more, {}, values, {}, count, 1, true, true, false, 0, true); },
        words);
  };
  refused(k, k, k, 2, "one of new_key and new_value is absent");
  refused(k, {}, torch_input(3, {1, 3, 4}), 2, "prev_value has shape");
  refused(k, {}, k, 3, "expected a multiple of the number of heads, 3");
  refused(torch_input(2, {1, 0, 4}), {}, torch_input(2, {1, 0, 4}), 2, "there are 0 keys");
}

TEST(AttentionCallsTest, Rotation) {
  auto library = head_calls();
  constexpr int64_t batch = 2, count = 3, heads = 2, size = 6;
  constexpr int rotary = 4, offset = 5;
  for (const bool halves : {false, true}) {
    const Tensor q = torch_input(1, {batch, count, heads * size}), k = torch_input(2, {batch, count, heads * size});
    Doubles expected = q.to_vector<double>(), expected_k = k.to_vector<double>();
    for (Doubles* x : {&expected, &expected_k}) {
      for (size_t head = 0; head < batch * count * heads; ++head) {
        const double position = offset + static_cast<double>(head / heads % count);
        for (int j = 0; j < rotary / 2; ++j) {
          const double angle = position / std::pow(100.0, 2.0 * j / rotary);
          const size_t first = head * size + static_cast<size_t>(halves ? j : 2 * j),
                       second = first + (halves ? rotary / 2 : 1);
          const double a = (*x)[first], b = (*x)[second];
          (*x)[first] = a * std::cos(angle) - b * std::sin(angle);
          (*x)[second] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    const auto [turned_q, turned_k] = library->apply_rotary_pos_emb(q, k, rotary, offset, heads, halves, 100.0f);
    expect_close(turned_q, expected, 1e-5, "q");
    expect_close(k, expected_k, 1e-5, "k, in place");
    EXPECT_EQ(turned_k.data(), k.data());
  }
  const Tensor q = torch_input(1, {1, 1, 8});
  expect_refused([&] { library->apply_rotary_pos_emb(q, q, 3, 0, 2, true, 1e4f); }, "rotary_dim is 3");
  expect_refused([&] { library->apply_rotary_pos_emb(q, q, 6, 0, 2, true, 1e4f); }, "rotary_dim is 6");
  expect_refused([&] { library->apply_rotary_pos_emb(q, q, 2, -1, 2, true, 1e4f); }, "offset is -1");
  expect_refused(
      [&] {
        library->apply_rotary_pos_emb(q, torch_input(1, {1, 2, 8}), 2, 0, 2, true, 1e4f);
      },
      "k has shape");
  expect_refused([&] { library->apply_rotary_pos_emb(q, q, 2, 0, 3, true, 1e4f); }, "number of heads, 3");
}

// Element (b, h, s, e) of padded heads, from [B, S, heads * d].
Doubles padded(const Tensor& x, int64_t heads, int64_t rows, int64_t columns) {
  const Doubles from = x.to_vector<double>();
  const int64_t count = x.size(1), size = x.size(2) / heads;
  Doubles out;
  for (int64_t i = 0; i < x.size(0) * heads * rows * columns; ++i) {
    const int64_t e = i % columns, s = i / columns % rows, h = i / columns / rows % heads,
                  b = i / columns / rows / heads;
    out.push_back(e < size && s < count ? from[static_cast<size_t>(((b * count + s) * heads + h) * size + e)] : 0.0);
  }
  return out;
}

TEST(AttentionCallsTest, PaddedHeads) {
  auto library = head_calls();
  constexpr int64_t batch = 2, count = 3, keys = 5, heads = 2;
  for (const auto& [size, wide] : {std::pair<int64_t, int64_t>{7, 32}, {32, 64}, {33, 64}, {64, 128}, {128, 128}}) {
    const Tensor q = torch_input(1, {batch, count, heads * size}, DType::F16),
                 k = torch_input(2, {batch, keys, heads * size}, DType::F16),
                 v = torch_input(3, {batch, keys, heads * size}, DType::F16);
    const TransformerInference::PaddedHeads made = library->pad_transform(q, k, v, heads, true);
    ASSERT_EQ(made.q.shape(), (Shape{batch, heads, count, wide}));
    ASSERT_EQ(made.k.shape(), (Shape{batch, heads, 128, wide}));
    expect_close(made.q, padded(q, heads, count, wide), 0, "q");
    expect_close(made.k, padded(k, heads, 128, wide), 0, "k");
    expect_close(made.v, padded(v, heads, 128, wide), 0, "v");
    const TransformerInference::PaddedHeads plain = library->pad_transform(q, k, v, heads, false);
    expect_close(plain.k, padded(k, heads, keys, size), 0, "k by head");
    const TransformerInference::PaddedHeads again = library->add_padding(plain.q, plain.k, plain.v);
    expect_close(again.v, made.v.to_vector<double>(), 0, "add_padding");
  }
  const Tensor q = torch_input(1, {1, 1, 8}), long_k = torch_input(1, {1, 129, 8});
  expect_refused([&] { library->pad_transform(q, long_k, long_k, 2, true); }, "k has 129 positions");
  expect_refused(
      [&] {
        library->pad_transform(torch_input(1, {1, 1, 130}), torch_input(1, {1, 1, 130}), torch_input(1, {1, 1, 130}), 1,
                               true);
      },
      "heads have 130 elements");
  expect_refused([&] { library->pad_transform(q, q, long_k, 2, false); }, "v has shape");
}

TEST(AttentionCallsTest, LinearLayer) {
  auto library = head_calls();
  constexpr int64_t batch = 2, count = 3, heads = 2, size = 6, hidden = heads * size;
  const Tensor x = torch_input(1, {batch, count, hidden}), w = torch_input(2, {hidden, 3 * hidden}),
               bias = torch_input(3, {3 * hidden});
  const Doubles xs = x.to_vector<double>(), ws = w.to_vector<double>(), bs = bias.to_vector<double>();
  Doubles rows;
  for (int64_t r = 0; r < batch * count; ++r) {
    for (int64_t n = 0; n < 3 * hidden; ++n) {
      double sum = bs[static_cast<size_t>(n)];
      for (int64_t i = 0; i < hidden; ++i) {
        sum += xs[static_cast<size_t>(r * hidden + i)] * ws[static_cast<size_t>(i * 3 * hidden + n)];
      }
      rows.push_back(sum);
    }
  }
  expect_close(library->linear_layer(x, w, bias, true, false, heads, false, 1e4f), rows, 1e-5, "rows");
  expect_close(library->linear_layer(x, w.transpose(0, 1).contiguous(), bias, true, false, heads, true, 1e4f), rows,
               1e-5, "transposed");
  const Tensor by_head = library->linear_layer(x, w, bias, true, true, heads, false, 1e4f);
  ASSERT_EQ(by_head.shape(), (Shape{3, batch, heads, count, 32}));
  const Doubles found = by_head.to_vector<double>();
  for (int64_t i = 0; i < by_head.numel(); ++i) {
    const int64_t e = i % 32, s = i / 32 % count, h = i / 32 / count % heads, b = i / 32 / count / heads % batch,
                  part = i / 32 / count / heads / batch;
    const double expected =
        e < size ? rows[static_cast<size_t>((b * count + s) * 3 * hidden + part * hidden + h * size + e)] : 0;
    ASSERT_NEAR(found[static_cast<size_t>(i)], expected, 1e-4) << i;
  }
  expect_refused(
      [&] {
        library->linear_layer(x, torch_input(2, {hidden, hidden}), {}, false, true, heads, false, 1e4f);
      },
      "expected 3 * H = 36");
  expect_refused([&] { library->linear_layer(x, w, {}, true, false, heads, false, 1e4f); }, "bias is absent");
  expect_refused([&] { library->linear_layer(x, w, {}, false, true, 5, false, 1e4f); }, "number of heads, 5");
}

}  // namespace
}  // namespace anyaccel
