// Cases of the ops of training: products with free strides, softmax with a mask, gradients, dropout.
#include <cmath>
#include <limits>

#include "conformance/op_run.h"
#include "conformance/training_reference.h"

namespace anyaccel::conformance {
namespace training_group {
namespace {

constexpr Layout layouts[] = {dense, padded, spread};
const double minus_infinity = -std::numeric_limits<double>::infinity();

aa_tensor transposed(aa_tensor t) {
  std::swap(t.shape[t.ndim - 2], t.shape[t.ndim - 1]);
  std::swap(t.strides[t.ndim - 2], t.strides[t.ndim - 1]);
  return t;
}

void matmul(const Context& c) {
  OpRun op(c, "matmul", {.relative = 1e-5, .factor = 4e-7, .scale_text = "the sum of all magnitudes"});
  struct Size {
    int64_t batches, m, n, k;
  };
  for (const Size& size : {Size{1, 5, 7, 33}, Size{3, 17, 40, 20}, Size{2, 64, 65, 100}, Size{2, 3, 4, 0}}) {
    for (const int32_t dtype : float_dtypes) {
      for (int form = 0; form < 8; ++form) {  // a or b transposed; the result is added to the output's contents
        const bool a_transposed = form & 1, b_transposed = form & 2, accumulate = form & 4;
        const auto [batches, m, n, k] = size;
        const Shape a_shape = a_transposed ? Shape{batches, k, m} : Shape{batches, m, k};
        const Shape b_shape = b_transposed ? Shape{batches, n, k} : Shape{batches, k, n};
        OpTensor a(c, dtype, a_shape, numbers(count_of(a_shape), 1), form == 3 ? padded : dense);
        OpTensor b(c, dtype, b_shape, numbers(count_of(b_shape), 2), form == 5 ? spread : dense);
        OpTensor out(c, dtype, {batches, m, n}, numbers(count_of({batches, m, n}), 3), form == 6 ? padded : dense);
        aa_accumulate_params params{};
        params.accumulate = accumulate ? 1 : 0;
        if (!op.run({out.view(), a_transposed ? transposed(a.view()) : a.view(),
                     b_transposed ? transposed(b.view()) : b.view()},
                    params)) {
          continue;
        }
        Values expected, scale;
        for (int64_t i = 0; i < batches * m * n; ++i) {
          const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
          double sum = accumulate ? out.given()[static_cast<size_t>(i)] : 0;
          double magnitude = std::fabs(sum);
          for (int64_t j = 0; j < k; ++j) {
            const int64_t at_a = batch * m * k + (a_transposed ? j * m + row : row * k + j);
            const int64_t at_b = batch * k * n + (b_transposed ? column * k + j : j * n + column);
            const double term = a.given()[static_cast<size_t>(at_a)] * b.given()[static_cast<size_t>(at_b)];
            sum += term;
            magnitude += std::fabs(term);
          }
          expected.push_back(sum);
          scale.push_back(magnitude);
        }
        op.compare(out, expected, "form " + std::to_string(form), scale);
      }
    }
  }
  op.finish();
}

void softmax_masked(const Context& c) {
  OpRun op(c, "softmax_masked", {.absolute = 1e-7, .relative = 2e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 7, 130, 1000}) {
      for (const Layout& layout : layouts) {
        const auto w = static_cast<size_t>(width);
        Values masks(3 * w, 0);
        for (size_t i = 0; i < 3 * w; ++i) masks[i] = i % 3 == 1 || i >= 2 * w ? minus_infinity : 0;
        masks[0] = masks[w] = 0;
        OpTensor x(c, dtype, {3, width}, numbers(3 * w, 8, 10), layout);
        OpTensor mask(c, dtype, {3, width}, masks, dense);
        OpTensor out(c, dtype, {3, width}, {}, layout);
        aa_softmax_params params{};
        params.scale = 0.5f;
        const bool with_mask = layout.gap == 0;
        if (!with_mask) masks.clear();
        if (!op.run({out.view(), x.view(), with_mask ? mask.view() : absent}, params)) continue;
        // The last row of the mask consists of -infinity only.
        op.compare(out, masked_softmax(x.given(), masks, w, 0.5), std::to_string(width) + " wide, " + layout.name);
      }
    }
  }
  op.finish();
}

void softmax_backward(const Context& c) {
  OpRun op(c, "softmax_backward", {.absolute = 1e-5, .relative = 2e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 131, 1000}) {
      for (const Layout& layout : layouts) {
        const auto w = static_cast<size_t>(width);
        OpTensor y(c, dtype, {3, width}, numbers(3 * w, 1, 0.1), layout);
        OpTensor dy(c, dtype, {3, width}, numbers(3 * w, 2), dense);
        OpTensor dx(c, dtype, {3, width}, {}, layout);
        aa_softmax_params params{};
        params.scale = 0.25f;
        if (!op.run({dx.view(), y.view(), dy.view()}, params)) continue;
        op.compare(dx, softmax_gradient(y.given(), dy.given(), w, 0.25),
                   std::to_string(width) + " wide, " + layout.name);
      }
    }
  }
  op.finish();
}

void moments(const Context& c) {
  OpRun op(c, "moments", {.absolute = 1e-6, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 33, 1000}) {
      for (const int32_t centred : {0, 1}) {
        const auto w = static_cast<size_t>(width);
        OpTensor x(c, dtype, {2, 2, width}, numbers(4 * w, 1), centred ? padded : dense);
        OpTensor mean(c, AA_DTYPE_F32, {2, 2}, {}, dense), variance(c, AA_DTYPE_F32, {2, 2}, {}, spread);
        aa_moments_params params{};
        params.eps = 0.25f;
        params.centred = centred;
        if (!op.run({mean.view(), variance.view(), x.view()}, params)) continue;
        Values means, variances;
        for (size_t row = 0; row < 4; ++row) {
          double middle = 0, squares = 0;
          for (size_t j = row * w; j < (row + 1) * w; ++j) middle += x.given()[j] / static_cast<double>(w);
          if (!centred) middle = 0;
          for (size_t j = row * w; j < (row + 1) * w; ++j) squares += std::pow(x.given()[j] - middle, 2);
          means.push_back(middle);
          variances.push_back(squares / static_cast<double>(w) + 0.25);
        }
        op.compare(mean, means, "mean of " + std::to_string(width));
        op.compare(variance, variances, "variance of " + std::to_string(width));
      }
    }
  }
  op.finish();
}

void norm_backward(const Context& c) {
  OpRun op(c, "norm_backward", {.absolute = 2e-5, .relative = 2e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 33, 300}) {
      // Of layer_norm or rms_norm, added to what is there; 4 and 5: without a weight, and no gradients of one.
      for (int form = 0; form < 6; ++form) {
        const bool layer = form & 1, accumulate = form & 2, weighted = form < 4;
        const auto w = static_cast<size_t>(width);
        const Shape shape{3, width};
        OpTensor x(c, dtype, shape, numbers(3 * w, 1), form == 1 ? padded : dense);
        OpTensor dy(c, dtype, shape, numbers(3 * w, 2), form == 2 ? spread : dense);
        OpTensor weight(c, dtype, {width}, numbers(w, 3));
        OpTensor mean(c, AA_DTYPE_F32, {3}, {0.1, -0.2, 0.3}), variance(c, AA_DTYPE_F32, {3}, {1.5, 0.5, 2}, spread);
        OpTensor dx(c, dtype, shape, {}, form == 3 ? padded : dense);
        OpTensor dweight(c, AA_DTYPE_F32, {width}, numbers(w, 4)), dbias(c, AA_DTYPE_F32, {width}, numbers(w, 5));
        aa_accumulate_params params{};
        params.accumulate = accumulate ? 1 : 0;
        const bool biased = layer && weighted;
        if (!op.run({dx.view(), weighted ? dweight.view() : absent, biased ? dbias.view() : absent, dy.view(), x.view(),
                     weighted ? weight.view() : absent, layer ? mean.view() : absent, variance.view()},
                    params)) {
          continue;
        }
        NormGradients expected = norm_gradients(dy.given(), x.given(), weighted ? weight.given() : Values{},
                                                layer ? mean.given() : Values{}, variance.given(), w);
        for (size_t j = 0; j < w && accumulate; ++j) {
          expected.dweight[j] += dweight.given()[j];
          expected.dbias[j] += dbias.given()[j];
        }
        const std::string what = std::to_string(width) + " wide, form " + std::to_string(form);
        op.compare(dx, expected.dx, "dx, " + what);
        if (weighted) op.compare(dweight, expected.dweight, "dweight, " + what);
        if (biased) op.compare(dbias, expected.dbias, "dbias, " + what);
      }
    }
  }
  op.finish();
}

void layer_norm_inverse(const Context& c) {
  OpRun op(c, "layer_norm_inverse", {.absolute = 1e-5, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : layouts) {
      OpTensor y(c, dtype, {2, 41}, numbers(82, 1), layout);
      Values weights = numbers(41, 3, 0.5);  // none is near 0: the op divides by them
      for (double& value : weights) value += value < 0 ? -0.5 : 0.5;
      OpTensor weight(c, dtype, {41}, weights), bias(c, dtype, {41}, numbers(41, 2));
      OpTensor mean(c, AA_DTYPE_F32, {2}, {0.5, -3}), variance(c, AA_DTYPE_F32, {2}, {4, 0.3});
      OpTensor x(c, dtype, {2, 41}, {}, layout);
      if (!op.run({x.view(), y.view(), weight.view(), bias.view(), mean.view(), variance.view()})) continue;
      op.compare(x, inverse_layer_norm(y.given(), weight.given(), bias.given(), mean.given(), variance.given()),
                 layout.name);
    }
  }
  op.finish();
}

void activation_backward(const Context& c) {
  OpRun op(c, "activation_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      for (const Layout& layout : layouts) {
        OpTensor x(c, dtype, {5, 67}, numbers(335, 1, 9), layout);
        OpTensor dy(c, dtype, {5, 67}, numbers(335, 2), dense);
        OpTensor dx(c, dtype, {5, 67}, {}, layout);
        aa_activation_params params{};
        params.kind = kind;
        if (!op.run({dx.view(), x.view(), dy.view()}, params)) continue;
        Values expected;
        for (size_t i = 0; i < 335; ++i) expected.push_back(dy.given()[i] * slope(kind, x.given()[i]));
        op.compare(dx, expected, "kind " + std::to_string(kind) + ", " + layout.name);
      }
    }
  }
  op.finish();
}

void dropout(const Context& c) {
  OpRun op(c, "dropout", {.relative = 2e-7});
  for (const int32_t dtype : float_dtypes) {
    for (const float ratio : {0.0f, 0.1f, 0.75f}) {
      for (const Layout& layout : layouts) {
        OpTensor x(c, dtype, {3, 67}, numbers(201, 1), layout);
        OpTensor mask(c, AA_DTYPE_U8, {3, 67}, {}, dense);
        OpTensor out(c, dtype, {3, 67}, {}, layout);
        aa_dropout_params params{};
        params.ratio = ratio;
        params.seed = 0x123456789abcdefull;
        params.offset = 0xfffffffffull;
        if (!op.run({out.view(), mask.view(), x.view()}, params)) continue;
        const Values kept = dropout_mask(params, 201);
        const std::string what = "ratio " + std::to_string(ratio) + ", " + layout.name;
        op.compare(mask, kept, "mask, " + what);
        op.compare(out, masked(x.given(), kept, 1 / (1 - static_cast<double>(ratio))), what);
      }
    }
  }
  op.finish();
}

void apply_mask(const Context& c) {
  OpRun op(c, "apply_mask", {.relative = 2e-7});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : layouts) {
      Values kept;
      for (size_t i = 0; i < 201; ++i) kept.push_back(i % 3 == 0 ? 0 : 1);
      OpTensor x(c, dtype, {3, 67}, numbers(201, 1), layout);
      OpTensor mask(c, AA_DTYPE_U8, {3, 67}, kept, dense);
      OpTensor out(c, dtype, {3, 67}, {}, layout);
      aa_softmax_params params{};
      params.scale = 1.25f;
      if (!op.run({out.view(), x.view(), mask.view()}, params)) continue;
      op.compare(out, masked(x.given(), kept, 1.25), layout.name);
    }
  }
  op.finish();
}

void column_sums(const Context& c) {
  OpRun op(c, "column_sums", {.absolute = 1e-4, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t accumulate : {0, 1}) {
      OpTensor x(c, dtype, {300, 130}, numbers(39000, 1), accumulate ? padded : dense);
      OpTensor out(c, AA_DTYPE_F32, {130}, numbers(130, 2));
      aa_accumulate_params params{};
      params.accumulate = accumulate;
      if (!op.run({out.view(), x.view()}, params)) continue;
      Values expected = accumulate ? out.given() : Values(130, 0);
      for (size_t i = 0; i < 39000; ++i) expected[i % 130] += x.given()[i];
      op.compare(out, expected, accumulate ? "added" : "written");
    }
  }
  op.finish();
}

void scaled_add(const Context& c) {
  OpRun op(c, "scaled_add", {.absolute = 1e-6, .relative = 1e-6});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : layouts) {
      OpTensor a(c, dtype, {5, 67}, numbers(335, 1), layout), b(c, dtype, {5, 67}, numbers(335, 2), dense);
      OpTensor out(c, dtype, {5, 67}, {}, layout);
      aa_scaled_add_params params{};
      params.alpha = 0.75f;
      params.beta = -1.5f;
      const bool alone = layout.gap == 0;
      if (!op.run({out.view(), a.view(), alone ? absent : b.view()}, params)) continue;
      Values expected;
      for (size_t i = 0; i < 335; ++i) expected.push_back(0.75 * a.given()[i] - (alone ? 0 : 1.5 * b.given()[i]));
      op.compare(out, expected, layout.name);
    }
  }
  op.finish();
}

void multiply(const Context& c) {
  OpRun op(c, "multiply", {.relative = 2e-7});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : layouts) {
      OpTensor a(c, dtype, {5, 67}, numbers(335, 1), layout), b(c, dtype, {5, 67}, numbers(335, 2), dense);
      OpTensor out(c, dtype, {5, 67}, {}, layout);
      if (!op.run({out.view(), a.view(), b.view()})) continue;
      Values expected;
      for (size_t i = 0; i < 335; ++i) expected.push_back(a.given()[i] * b.given()[i]);
      op.compare(out, expected, layout.name);
    }
  }
  op.finish();
}

void gated_activation_backward(const Context& c) {
  OpRun op(c, "gated_activation_backward", {.absolute = 2e-5, .relative = 2e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      for (const Layout& layout : layouts) {
        OpTensor gate(c, dtype, {5, 67}, numbers(335, 1, 9), layout), up(c, dtype, {5, 67}, numbers(335, 2), dense);
        OpTensor dy(c, dtype, {5, 67}, numbers(335, 3), dense);
        OpTensor dgate(c, dtype, {5, 67}, {}, layout), dup(c, dtype, {5, 67}, {}, dense);
        OpTensor out(c, dtype, {5, 67}, {}, layout);
        aa_activation_params params{};
        params.kind = kind;
        const bool again = layout.inner == 1;
        if (!op.run({dgate.view(), dup.view(), again ? out.view() : absent, gate.view(), up.view(), dy.view()},
                    params)) {
          continue;
        }
        const GatedGradients expected = gated_gradients(kind, gate.given(), up.given(), dy.given());
        const std::string what = "kind " + std::to_string(kind) + ", " + layout.name;
        op.compare(dgate, expected.dgate, "dgate, " + what);
        op.compare(dup, expected.dup, "dup, " + what);
        if (again) op.compare(out, expected.out, "out, " + what);
      }
    }
  }
  op.finish();
}

void cross_entropy(const Context& c) {
  OpRun op(c, "cross_entropy", {.absolute = 1e-5, .relative = 2e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {1, 7, 130, 1000}) {
      for (const Layout& layout : layouts) {
        const auto w = static_cast<size_t>(width);
        // The third row counts nothing.
        const Values targets = {static_cast<double>(width - 1), 0, -1};
        OpTensor x(c, dtype, {3, width}, numbers(3 * w, 8, 10), layout);
        OpTensor target(c, layout.gap == 0 ? AA_DTYPE_I64 : AA_DTYPE_I32, {3}, targets);
        OpTensor loss(c, AA_DTYPE_F32, {3}, {}, spread), dx(c, dtype, {3, width}, {}, layout);
        aa_softmax_params params{};
        params.scale = 0.25f;
        const bool gradient = layout.inner == 1;
        if (!op.run({loss.view(), gradient ? dx.view() : absent, x.view(), target.view()}, params)) continue;
        const Loss expected = cross_entropy_of(x.given(), targets, w, 0.25);
        const std::string what = std::to_string(width) + " wide, " + layout.name;
        op.compare(loss, expected.loss, "loss, " + what);
        if (gradient) op.compare(dx, expected.dx, "dx, " + what);
      }
    }
  }
  op.finish();
}

void embedding_backward(const Context& c) {
  OpRun op(c, "embedding_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : layouts) {
      const Values ids = {3, 0, 3, 5, 3, 0, 2};
      OpTensor dtable(c, AA_DTYPE_F32, {6, 67}, numbers(402, 1), layout);
      OpTensor dy(c, dtype, {7, 67}, numbers(469, 2), layout);
      OpTensor id(c, layout.gap == 0 ? AA_DTYPE_I64 : AA_DTYPE_I32, {7}, ids);
      if (!op.run({dtable.view(), dy.view(), id.view()})) continue;
      op.compare(dtable, with_rows_added(dtable.given(), dy.given(), ids, 67), layout.name);
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.matmul", "multiplies_batches_of_any_strides", matmul},
    {"op.softmax_masked", "of_rows", softmax_masked},
    {"op.softmax_backward", "gives_the_gradient", softmax_backward},
    {"op.moments", "of_rows", moments},
    {"op.norm_backward", "gives_the_gradients", norm_backward},
    {"op.layer_norm_inverse", "finds_what_was_normed", layer_norm_inverse},
    {"op.activation_backward", "gives_the_gradient", activation_backward},
    {"op.dropout", "keeps_by_the_generator", dropout},
    {"op.apply_mask", "scales_what_is_kept", apply_mask},
    {"op.column_sums", "sums_rows", column_sums},
    {"op.scaled_add", "adds", scaled_add},
    {"op.multiply", "multiplies", multiply},
    {"op.cross_entropy", "gives_loss_and_gradient", cross_entropy},
    {"op.embedding_backward", "adds_up_rows_of_an_id", embedding_backward},
    {"op.gated_activation_backward", "gives_the_gradients", gated_activation_backward},
};

}  // namespace
}  // namespace training_group

std::span<const Case> training_cases() { return training_group::cases; }

}  // namespace anyaccel::conformance
