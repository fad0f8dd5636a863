// Cases of NaNs and infinities: they show in what is computed from them, and nowhere else. Elements lie where a kernel
// takes several at once, and in the rest of a row.
#include <cmath>
#include <limits>
#include <numbers>

#include "conformance/op_run.h"
#include "conformance/product_reference.h"

namespace anyaccel::conformance {
namespace special_value_group {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

constexpr size_t rows = 5;
constexpr size_t width = 67;
const Shape shape{rows, width};

// Rows of numbers: the first without a NaN, each other one with a NaN or, where wanted, infinities.
Values special(unsigned seed, bool infinities) {
  Values values = numbers(rows * width, seed);
  values[width + 2] = nan;
  values[2 * width + 66] = nan;
  if (!infinities) return values;
  values[3 * width + 5] = infinity;
  values[3 * width + 65] = infinity;
  values[4 * width + 64] = -infinity;
  return values;
}

template <class Function>
Values each(const Values& a, const Values& b, const Function& function) {
  Values results;
  for (size_t i = 0; i < a.size(); ++i) results.push_back(function(a[i], b[i]));
  return results;
}

void add(const Context& c) {
  OpRun op(c, "add", {.relative = 0x1p-24});
  for (const int32_t dtype : float_dtypes) {
    Values other = numbers(rows * width, 2);
    other[3 * width + 65] = -infinity;  // meets an infinity: a NaN
    other[7] = nan;
    OpTensor a(c, dtype, shape, special(1, true)), b(c, dtype, shape, other), out(c, dtype, shape);
    if (!op.run({out.view(), a.view(), b.view()})) continue;
    op.compare(out, each(a.given(), b.given(), [](double x, double y) { return x + y; }), "special values");
  }
  op.finish();
}

void multiply(const Context& c) {
  OpRun op(c, "multiply", {.relative = 0x1p-24});
  for (const int32_t dtype : float_dtypes) {
    Values other = numbers(rows * width, 2);
    other[3 * width + 65] = 0;  // meets an infinity: a NaN
    other[7] = nan;
    OpTensor a(c, dtype, shape, special(1, true)), b(c, dtype, shape, other), out(c, dtype, shape);
    if (!op.run({out.view(), a.view(), b.view()})) continue;
    op.compare(out, each(a.given(), b.given(), [](double x, double y) { return x * y; }), "special values");
  }
  op.finish();
}

double activation(int32_t kind, double x) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    case AA_ACTIVATION_GELU_TANH:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case AA_ACTIVATION_RELU: return x < 0 ? 0 : x;
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

// Without -infinity, at which the first three are not defined, and with numbers whose exponentials F32 does not hold.
Values inputs_of_activations() {
  Values values = special(3, true);
  values[4 * width + 64] = -300;
  values[4 * width + 3] = 300;
  values[4 * width + 66] = -20000;
  values[0] = 20000;
  return values;
}

void activations(const Context& c) {
  OpRun op(c, "activation", {.absolute = 2e-6, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      OpTensor x(c, dtype, shape, inputs_of_activations()), out(c, dtype, shape);
      aa_activation_params params{};
      params.kind = kind;
      if (!op.run({out.view(), x.view()}, params)) continue;
      Values expected;
      for (const double value : x.given()) expected.push_back(activation(kind, value));
      op.compare(out, expected, "special values, kind " + std::to_string(kind));
    }
  }
  op.finish();
}

void gated_activations(const Context& c) {
  OpRun op(c, "gated_activation", {.absolute = 2e-6, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      Values ups = numbers(rows * width, 4, 1);
      ups[9] = nan;
      ups[10] = infinity;
      OpTensor gate(c, dtype, shape, inputs_of_activations()), up(c, dtype, shape, ups), out(c, dtype, shape);
      aa_activation_params params{};
      params.kind = kind;
      if (!op.run({out.view(), gate.view(), up.view()}, params)) continue;
      op.compare(out, each(gate.given(), up.given(), [&](double g, double u) { return activation(kind, g) * u; }),
                 "special values, kind " + std::to_string(kind));
    }
  }
  op.finish();
}

// A NaN in a row is one in all results of the row, and one in the weight in all results of a column.
void check_norm(const Context& c, const char* name, bool layer) {
  OpRun op(c, name, {.absolute = 1e-5, .relative = 1e-5});
  aa_norm_params params{};
  params.eps = 1e-5f;
  for (const int32_t dtype : float_dtypes) {
    Values weights = numbers(width, 6);
    weights[66] = nan;
    Values biases = numbers(width, 26);
    biases[4] = nan;
    OpTensor x(c, dtype, shape, special(5, false)), weight(c, dtype, {width}, weights), out(c, dtype, shape);
    OpTensor bias(c, AA_DTYPE_F32, {width}, biases);
    const bool ran = layer ? op.run({out.view(), x.view(), weight.view(), bias.view(), absent}, params)
                           : op.run({out.view(), x.view(), weight.view(), absent}, params);
    if (!ran) continue;
    Values expected;
    for (size_t row = 0; row < rows; ++row) {
      const double* const values = x.given().data() + row * width;
      double mean = 0, square = 0;
      for (size_t i = 0; i < width && layer; ++i) mean += values[i] / width;
      for (size_t i = 0; i < width; ++i) square += (values[i] - mean) * (values[i] - mean) / width;
      for (size_t i = 0; i < width; ++i) {
        expected.push_back((values[i] - mean) / std::sqrt(square + params.eps) * weight.given()[i] +
                           (layer ? bias.given()[i] : 0));
      }
    }
    op.compare(out, expected, "special values");
  }
  op.finish();
}

void rms_norm(const Context& c) { check_norm(c, "rms_norm", false); }
void layer_norm(const Context& c) { check_norm(c, "layer_norm", true); }

void softmax(const Context& c) {
  OpRun op(c, "softmax", {.absolute = 1e-6, .relative = 2e-5});
  aa_softmax_params params{};
  params.scale = 1;
  for (const int32_t dtype : float_dtypes) {
    OpTensor x(c, dtype, shape, special(7, false)), out(c, dtype, shape);
    if (!op.run({out.view(), x.view()}, params)) continue;
    Values expected;
    for (size_t row = 0; row < rows; ++row) {
      const double* const values = x.given().data() + row * width;
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += std::exp(values[i]);
      for (size_t i = 0; i < width; ++i) expected.push_back(std::exp(values[i]) / sum);
    }
    op.compare(out, expected, "special values");
  }
  op.finish();
}

void scaled_add(const Context& c) {
  OpRun op(c, "scaled_add", {.relative = 0x1p-22});
  aa_scaled_add_params params{};
  params.alpha = 2;
  params.beta = 0.5f;
  for (const int32_t dtype : float_dtypes) {
    Values other = numbers(rows * width, 2);
    other[3 * width + 65] = -infinity;  // meets an infinity: a NaN
    other[7] = nan;
    OpTensor a(c, dtype, shape, special(1, true)), b(c, dtype, shape, other), out(c, dtype, shape);
    if (!op.run({out.view(), a.view(), b.view()}, params)) continue;
    op.compare(out, each(a.given(), b.given(), [](double x, double y) { return 2 * x + 0.5 * y; }), "special values");
  }
  op.finish();
}

void moments(const Context& c) {
  OpRun op(c, "moments", {.absolute = 1e-5, .relative = 1e-5});
  aa_moments_params params{};
  params.eps = 1e-5f;
  params.centred = 1;
  for (const int32_t dtype : float_dtypes) {
    OpTensor x(c, dtype, shape, special(27, false));
    OpTensor mean(c, AA_DTYPE_F32, {rows}), variance(c, AA_DTYPE_F32, {rows});
    if (!op.run({mean.view(), variance.view(), x.view()}, params)) continue;
    Values means, variances;
    for (size_t row = 0; row < rows; ++row) {
      const double* const values = x.given().data() + row * width;
      double sum = 0, square = 0;
      for (size_t i = 0; i < width; ++i) sum += values[i] / width;
      for (size_t i = 0; i < width; ++i) square += (values[i] - sum) * (values[i] - sum) / width;
      means.push_back(sum);
      variances.push_back(square + params.eps);
    }
    op.compare(mean, means, "mean of special values");
    op.compare(variance, variances, "variance of special values");
  }
  op.finish();
}

void embedding(const Context& c) {
  OpRun op(c, "embedding");
  for (const int32_t dtype : float_dtypes) {
    OpTensor table(c, dtype, shape, special(8, true)), out(c, dtype, shape);
    OpTensor ids(c, AA_DTYPE_I32, {rows}, {0, 1, 2, 3, 4});
    if (op.run({out.view(), table.view(), ids.view()})) op.compare(out, table.given(), "special values");
  }
  op.finish();
}

// A NaN in x is one in a row of the product, one in a weight or a bias in a column, one in residual in one element.
constexpr Limit product_limit{.relative = 1e-5, .factor = 80 * 0x1p-24, .scale_text = "sum of |x w|"};

void linear(const Context& c) {
  OpRun op(c, "linear", product_limit);
  constexpr size_t outputs = 33;
  const Shape out_shape{rows, outputs};
  for (const int32_t dtype : float_dtypes) {
    Values weights = numbers(outputs * width, 10, 1), biases = numbers(outputs, 11, 1),
           residuals = numbers(rows * outputs, 12, 1);
    weights[4 * width + 66] = nan;
    weights[6 * width + 1] = infinity;
    biases[32] = nan;
    residuals[3] = nan;
    residuals[8] = -infinity;
    OpTensor x(c, dtype, shape, special(9, true)), w(c, dtype, {outputs, width}, weights);
    OpTensor bias(c, dtype, {outputs}, biases), residual(c, dtype, out_shape, residuals), out(c, dtype, out_shape);
    if (!op.run({out.view(), x.view(), w.view(), bias.view(), residual.view()})) continue;
    Sum sum = product(x.given(), w);
    add_to(sum, bias.given());
    add_to(sum, residual.given());
    op.compare(out, sum.value, "special values", sum.magnitude);
  }
  op.finish();
}

void linear_multi(const Context& c) {
  OpRun op(c, "linear_multi", product_limit);
  for (const int32_t dtype : float_dtypes) {
    Values weights = numbers(3 * width, 14, 1);
    weights[width + 66] = nan;
    OpTensor x(c, dtype, shape, special(13, true));
    OpTensor one(c, dtype, {3, width}, numbers(3 * width, 15, 1)), two(c, dtype, {3, width}, weights);
    OpTensor first(c, dtype, {rows, 3}), second(c, dtype, {rows, 3});
    const std::vector<aa_tensor> tensors{x.view(), first.view(), one.view(), absent, second.view(), two.view(), absent};
    if (!op.run(tensors, nullptr, 0, "", true)) continue;
    for (const auto& [out, w] : {std::pair{&first, &one}, {&second, &two}}) {
      const Sum sum = product(x.given(), *w);
      op.compare(*out, sum.value, "special values", sum.magnitude);
    }
  }
  op.finish();
}

void gated_linear(const Context& c) {
  OpRun op(c, "gated_linear", {.relative = 1e-5, .factor = 300 * 0x1p-24, .scale_text = "sums of |x w|"});
  aa_activation_params params{};
  params.kind = AA_ACTIVATION_SILU;
  for (const int32_t dtype : float_dtypes) {
    Values ups = numbers(3 * width, 18, 1);
    ups[width + 66] = nan;
    OpTensor x(c, AA_DTYPE_F32, shape, special(16, false));
    OpTensor gate(c, dtype, {3, width}, numbers(3 * width, 17, 1)), up(c, dtype, {3, width}, ups);
    OpTensor out(c, AA_DTYPE_F32, {rows, 3});
    if (!op.run({out.view(), x.view(), gate.view(), up.view(), absent, absent}, params)) continue;
    const Sum left = product(x.given(), gate), right = product(x.given(), up);
    op.compare(out,
               each(left.value, right.value, [](double g, double u) { return activation(AA_ACTIVATION_SILU, g) * u; }),
               "special values", each(left.magnitude, right.magnitude, [](double g, double u) { return g * u; }));
  }
  op.finish();
}

void quantized_linear(const Context& c) {
  OpRun op(c, "quantized_linear", {.absolute = 1e-5, .relative = 1e-5});
  aa_quantized_params params{};
  params.format = AA_BLOCK_Q8_0;
  for (const int32_t rounding : {AA_QUANTIZED_EXACT, AA_QUANTIZED_ROUNDED}) {
    params.rounding = rounding;
    constexpr size_t outputs = 3;
    Values bytes;
    for (size_t i = 0; i < outputs; ++i) {
      bytes.insert(bytes.end(), {0x00, 0x3c});  // a half: 1
      bytes.insert(bytes.end(), 32, static_cast<double>(i + 1));
    }
    Values values(rows * 32, 1);
    values[32 + 2] = nan;
    values[2 * 32 + 31] = nan;
    values[3 * 32 + 5] = infinity;
    OpTensor x(c, AA_DTYPE_F32, {rows, 32}, values), w(c, AA_DTYPE_U8, {outputs, 34}, bytes, of_blocks);
    OpTensor residual(c, AA_DTYPE_F32, {rows, outputs}), out(c, AA_DTYPE_F32, {rows, outputs});
    if (!op.run({out.view(), x.view(), w.view(), absent, residual.view()}, params)) continue;
    Values expected;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < outputs; ++i) {
        const double ones = static_cast<double>(32 * (i + 1));
        expected.push_back(row == 1 || row == 2 ? nan : row == 3 ? infinity : ones);
      }
    }
    // A block with an infinity has no largest magnitude to be rounded by.
    if (rounding == AA_QUANTIZED_ROUNDED) {
      const Values found = out.found();
      for (size_t i = 3 * outputs; i < 4 * outputs; ++i) {
        c.expect(!std::isfinite(found[i]), "\"quantized_linear\" makes a number of an infinity");
        expected[i] = found[i];
      }
    }
    op.compare(out, expected, rounding == AA_QUANTIZED_EXACT ? "special values, exact" : "special values, rounded");
  }
  op.finish();
}

void matmul(const Context& c) {
  OpRun op(c, "matmul", product_limit);
  for (const int32_t dtype : float_dtypes) {
    Values factors = numbers(width * 9, 20, 1);
    factors[66 * 9 + 4] = nan;
    OpTensor a(c, dtype, shape, special(19, true)), b(c, dtype, {width, 9}, factors), out(c, dtype, {rows, 9});
    aa_accumulate_params params{};
    if (!op.run({out.view(), a.view(), b.view()}, params)) continue;
    Values turned(9 * width);
    for (size_t k = 0; k < width; ++k) {
      for (size_t n = 0; n < 9; ++n) turned[n * width + k] = b.given()[k * 9 + n];
    }
    const Sum sum = product(a.given(), turned, width);
    op.compare(out, sum.value, "special values", sum.magnitude);
  }
  op.finish();
}

void rope(const Context& c) {
  OpRun op(c, "rope", {.absolute = 1e-6, .relative = 1e-6});
  for (const int32_t dtype : float_dtypes) {
    Values values = numbers(3 * 8, 21);
    values[1] = values[8 + 6] = nan;
    OpTensor q(c, dtype, {3, 1, 8}, values);
    OpTensor cosine(c, AA_DTYPE_F32, {3, 4}, Values(12, 0.6)), sine(c, AA_DTYPE_F32, {3, 4}, Values(12, 0.8));
    aa_rope_params params{};
    if (!op.run({q.view(), absent, cosine.view(), sine.view()}, params)) continue;
    Values expected = q.given();
    for (size_t t = 0; t < 3; ++t) {
      for (size_t i = 0; i < 4; ++i) {
        const double a = q.given()[8 * t + i], b = q.given()[8 * t + 4 + i];
        expected[8 * t + i] = a * cosine.given()[0] - b * sine.given()[0];
        expected[8 * t + 4 + i] = b * cosine.given()[0] + a * sine.given()[0];
      }
    }
    op.compare(q, expected, "special values");
  }
  op.finish();
}

// One query head for each of four sequences: the first sees numbers, the second a NaN in a key, the third one in a value,
// and the fourth is one.
void attention(const Context& c) {
  OpRun op(c, "attention", {.absolute = 2e-5, .relative = 1e-5});
  constexpr size_t slots = 37, size = 32, sequences = 4;
  aa_attention_params params{};
  params.scale = 0.2f;
  for (const int32_t dtype : float_dtypes) {
    Values keys = numbers(sequences * slots * size, 22), values = numbers(sequences * slots * size, 23),
           queries = numbers(sequences * size, 24);
    keys[(slots + 20) * size + 3] = nan;
    values[(2 * slots + 36) * size + 5] = nan;
    queries[3 * size + 31] = nan;
    const Shape cache_shape{sequences, 1, slots, size}, q_shape{sequences, 1, size};
    OpTensor k(c, dtype, cache_shape, keys), v(c, dtype, cache_shape, values), q(c, dtype, q_shape, queries);
    OpTensor which(c, AA_DTYPE_I32, {sequences}, {0, 1, 2, 3}), where(c, AA_DTYPE_I32, {sequences}, Values(4, 36));
    OpTensor out(c, AA_DTYPE_F32, q_shape);
    if (!op.run({out.view(), q.view(), k.view(), v.view(), which.view(), where.view(), absent, absent}, params)) {
      continue;
    }
    Values expected;
    for (size_t t = 0; t < sequences; ++t) {
      Values weights;
      double total = 0;
      for (size_t j = 0; j < slots; ++j) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += q.given()[t * size + i] * k.given()[(t * slots + j) * size + i];
        weights.push_back(std::exp(score * params.scale));
        total += weights[j];
      }
      for (size_t i = 0; i < size; ++i) {
        double sum = 0;
        for (size_t j = 0; j < slots; ++j) sum += weights[j] / total * v.given()[(t * slots + j) * size + i];
        expected.push_back(sum);
      }
    }
    // A device that excludes hidden slots by arithmetic may make a NaN of the whole head that sees one.
    const Values found = out.found();
    for (size_t i = 2 * size; i < 3 * size; ++i) {
      if (std::isnan(found[i])) expected[i] = nan;
    }
    op.compare(out, expected, std::string("special values, cache of ") + dtype_text(dtype));
  }
  op.finish();
}

void repetition_penalty(const Context& c) {
  OpRun op(c, "repetition_penalty", {.relative = 0x1p-23});
  aa_repetition_params params{};
  params.penalty = 2;
  for (const int32_t dtype : float_dtypes) {
    OpTensor logits(c, dtype, shape, special(25, true)), seen(c, AA_DTYPE_U8, shape, Values(rows * width, 1));
    if (!op.run({logits.view(), seen.view()}, params)) continue;
    Values expected;
    for (const double value : logits.given()) expected.push_back(value > 0 ? value / 2 : value * 2);
    op.compare(logits, expected, "special values");
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.add", "special_values", add},
    {"op.multiply", "special_values", multiply},
    {"op.activation", "special_values", activations},
    {"op.gated_activation", "special_values", gated_activations},
    {"op.rms_norm", "special_values", rms_norm},
    {"op.layer_norm", "special_values", layer_norm},
    {"op.softmax", "special_values", softmax},
    {"op.scaled_add", "special_values", scaled_add},
    {"op.moments", "special_values", moments},
    {"op.embedding", "special_values", embedding},
    {"op.linear", "special_values", linear},
    {"op.linear_multi", "special_values", linear_multi},
    {"op.gated_linear", "special_values", gated_linear},
    {"op.quantized_linear", "special_values", quantized_linear},
    {"op.matmul", "special_values", matmul},
    {"op.rope", "special_values", rope},
    {"op.attention", "special_values", attention},
    {"op.repetition_penalty", "special_values", repetition_penalty},
};

}  // namespace
}  // namespace special_value_group

std::span<const Case> special_value_cases() { return special_value_group::cases; }

}  // namespace anyaccel::conformance
