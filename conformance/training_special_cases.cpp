// Cases of the ops of training with NaNs and infinities, which show in what is computed from them and nowhere else. What an
// output held before is a NaN where it must not be read.
#include <cmath>
#include <limits>

#include "conformance/op_run.h"
#include "conformance/training_reference.h"

namespace anyaccel::conformance {
namespace training_special_group {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

// Elements lie where a kernel takes several at once, and in the rest of a row.
constexpr size_t rows = 6;
constexpr size_t width = 67;
constexpr size_t count = rows * width;
const Shape shape{rows, width};
constexpr size_t at(size_t row, size_t column) { return row * width + column; }

Values nans(size_t size) { return Values(size, nan); }

// Rows 1 to 4 have a NaN or infinities, the first and the last have none.
Values special(unsigned seed, bool infinities = true) {
  Values values = numbers(count, seed);
  values[at(1, 2)] = nan;
  values[at(2, 66)] = nan;
  if (!infinities) return values;
  values[at(3, 5)] = infinity;
  values[at(3, 65)] = infinity;
  values[at(4, 64)] = -infinity;
  return values;
}

void matmul(const Context& c) {
  OpRun op(c, "matmul", {.relative = 1e-5, .factor = 80 * 0x1p-24, .scale_text = "the sum of all magnitudes"});
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t k : {0, 5}) {
      for (const int32_t accumulate : {0, 1}) {
        const auto terms = static_cast<size_t>(k);
        OpTensor a(c, dtype, {3, k}, numbers(3 * terms, 1)), b(c, dtype, {k, 7}, numbers(7 * terms, 2));
        Values before = accumulate ? numbers(21, 3) : nans(21);
        before[9] = nan;
        before[20] = infinity;
        OpTensor out(c, dtype, {3, 7}, before);
        aa_accumulate_params params{};
        params.accumulate = accumulate;
        if (!op.run({out.view(), a.view(), b.view()}, params)) continue;
        Values expected, magnitudes;
        for (size_t i = 0; i < 21; ++i) {
          expected.push_back(accumulate ? out.given()[i] : 0);
          magnitudes.push_back(accumulate && std::isfinite(before[i]) ? std::fabs(out.given()[i]) : 0);
          for (size_t j = 0; j < terms; ++j) {
            const double term = a.given()[i / 7 * terms + j] * b.given()[j * 7 + i % 7];
            expected[i] += term;
            magnitudes[i] += std::fabs(term);
          }
        }
        op.compare(out, expected, std::to_string(k) + (accumulate ? " products, added" : " products, written"),
                   magnitudes);
      }
    }
  }
  op.finish();
}

void softmax_masked(const Context& c) {
  OpRun op(c, "softmax_masked", {.absolute = 1e-6, .relative = 2e-5});
  aa_softmax_params params{};
  params.scale = 0.5f;
  for (const int32_t dtype : float_dtypes) {
    Values masks(count), values = special(1);
    for (size_t i = 0; i < width; ++i) {
      masks[at(4, i)] = -infinity;
      masks[at(5, i)] = -infinity;
    }
    values[at(4, 64)] = nan;  // among nothing but -infinity
    masks[at(0, 7)] = -infinity;
    OpTensor x(c, dtype, shape, values), mask(c, dtype, shape, masks), out(c, dtype, shape, nans(count));
    if (!op.run({out.view(), x.view(), mask.view()}, params)) continue;
    op.compare(out, masked_softmax(x.given(), masks, width, 0.5), "special values");
  }
  op.finish();
}

void softmax_backward(const Context& c) {
  OpRun op(c, "softmax_backward", {.absolute = 1e-5, .relative = 2e-5});
  aa_softmax_params params{};
  params.scale = 0.25f;
  for (const int32_t dtype : float_dtypes) {
    for (const bool in_y : {false, true}) {
      Values probabilities = numbers(count, 1, 0.1);  // none is near 0, so that an infinity times one is an infinity
      for (double& value : probabilities) value = std::fabs(value) + 0.01;
      Values ups = special(2);
      if (in_y) {
        ups = numbers(count, 2);
        probabilities[at(2, 65)] = probabilities[at(4, 0)] = nan;
        probabilities[at(3, 66)] = infinity;
      }
      OpTensor y(c, dtype, shape, probabilities), dy(c, dtype, shape, ups), dx(c, dtype, shape, nans(count));
      if (!op.run({dx.view(), y.view(), dy.view()}, params)) continue;
      op.compare(dx, softmax_gradient(y.given(), dy.given(), width, 0.25),
                 in_y ? "special values in y" : "special values in dy");
    }
  }
  op.finish();
}

enum class NormInput { x, dy, weight, mean, variance, outputs, none };

void norm_backward(const Context& c) {
  OpRun op(c, "norm_backward", {.absolute = 2e-5, .relative = 2e-5});
  struct Wrong {
    NormInput input;
    const char* name;
  };
  constexpr Wrong wrongs[] = {{NormInput::x, "x"},
                              {NormInput::dy, "dy"},
                              {NormInput::weight, "weight"},
                              {NormInput::mean, "mean"},
                              {NormInput::variance, "variance"},
                              {NormInput::outputs, "what is added to"},
                              {NormInput::none, "what is overwritten"}};
  for (const int32_t dtype : float_dtypes) {
    for (const Wrong& wrong : wrongs) {
      for (const bool layer : {false, true}) {
        if (wrong.input == NormInput::mean && !layer) continue;
        const bool accumulate = wrong.input == NormInput::outputs;
        Values weights = numbers(width, 3), means = numbers(rows, 6), variances = {1.5, 0.5, 2, 1, 0.25, 3};
        Values before = accumulate ? numbers(width, 4) : nans(width);
        before[3] = nan;
        before[66] = infinity;
        if (wrong.input == NormInput::weight) weights[66] = nan;
        if (wrong.input == NormInput::mean) means[2] = nan;
        if (wrong.input == NormInput::variance) {
          variances[1] = nan;
          variances[3] = 0;
          variances[4] = infinity;
        }
        OpTensor x(c, dtype, shape, wrong.input == NormInput::x ? special(1, false) : numbers(count, 1));
        OpTensor dy(c, dtype, shape, wrong.input == NormInput::dy ? special(2, false) : numbers(count, 2));
        OpTensor weight(c, dtype, {width}, weights);
        OpTensor mean(c, AA_DTYPE_F32, {rows}, means), variance(c, AA_DTYPE_F32, {rows}, variances);
        OpTensor dx(c, dtype, shape, nans(count));
        OpTensor dweight(c, AA_DTYPE_F32, {width}, before), dbias(c, AA_DTYPE_F32, {width}, before);
        aa_accumulate_params params{};
        params.accumulate = accumulate ? 1 : 0;
        if (!op.run({dx.view(), dweight.view(), layer ? dbias.view() : absent, dy.view(), x.view(), weight.view(),
                     layer ? mean.view() : absent, variance.view()},
                    params)) {
          continue;
        }
        NormGradients expected = norm_gradients(dy.given(), x.given(), weight.given(), layer ? mean.given() : Values{},
                                                variance.given(), width);
        for (size_t i = 0; i < width && accumulate; ++i) {
          expected.dweight[i] += dweight.given()[i];
          expected.dbias[i] += dbias.given()[i];
        }
        const std::string what = std::string("special values in ") + wrong.name;
        op.compare(dx, expected.dx, "dx, " + what);
        op.compare(dweight, expected.dweight, "dweight, " + what);
        if (layer) op.compare(dbias, expected.dbias, "dbias, " + what);
      }
    }
  }
  op.finish();
}

void layer_norm_inverse(const Context& c) {
  OpRun op(c, "layer_norm_inverse", {.absolute = 1e-5, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    Values weights = numbers(width, 2, 0.5);  // none is near 0, but for the one that is
    for (double& value : weights) value += value < 0 ? -0.5 : 0.5;
    weights[8] = 0;
    weights[9] = nan;
    Values biases = numbers(width, 3), means = numbers(rows, 4), variances(rows, 2);
    biases[10] = nan;
    biases[11] = infinity;
    means[0] = infinity;
    means[4] = nan;
    variances[5] = infinity;
    OpTensor y(c, dtype, shape, special(1)), weight(c, dtype, {width}, weights), bias(c, dtype, {width}, biases);
    OpTensor mean(c, AA_DTYPE_F32, {rows}, means), variance(c, AA_DTYPE_F32, {rows}, variances);
    OpTensor x(c, dtype, shape, nans(count));
    if (!op.run({x.view(), y.view(), weight.view(), bias.view(), mean.view(), variance.view()})) continue;
    op.compare(x, inverse_layer_norm(y.given(), weight.given(), bias.given(), mean.given(), variance.given()),
               "special values");
  }
  op.finish();
}

// Arguments of a derivative that are NaNs, or numbers whose exponentials F32 does not hold.
Values far_away(unsigned seed) {
  Values values = special(seed, false);
  values[at(4, 64)] = -300;
  values[at(4, 3)] = 300;
  values[at(4, 66)] = -20000;
  values[at(5, 0)] = 20000;
  return values;
}

// Gradients: infinities meet only arguments whose derivatives are not near 0, but for those of relu.
Values gradients(unsigned seed, Values& arguments) {
  Values values = numbers(count, seed);
  values[at(0, 9)] = nan;
  values[at(0, 66)] = nan;
  values[at(3, 10)] = infinity;
  values[at(3, 66)] = -infinity;
  arguments[at(3, 10)] = arguments[at(3, 66)] = 0.5;
  return values;
}

void activation_backward(const Context& c) {
  OpRun op(c, "activation_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      Values arguments = far_away(1);
      const Values ups = gradients(2, arguments);
      OpTensor x(c, dtype, shape, arguments), dy(c, dtype, shape, ups), dx(c, dtype, shape, nans(count));
      aa_activation_params params{};
      params.kind = kind;
      if (!op.run({dx.view(), x.view(), dy.view()}, params)) continue;
      Values expected;
      for (size_t i = 0; i < count; ++i) expected.push_back(dy.given()[i] * slope(kind, x.given()[i]));
      op.compare(dx, expected, "special values, kind " + std::to_string(kind));
    }
  }
  op.finish();
}

void gated_activation_backward(const Context& c) {
  OpRun op(c, "gated_activation_backward", {.absolute = 2e-5, .relative = 2e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      Values gates = far_away(1);
      const Values dys = gradients(2, gates);
      Values ups = numbers(count, 3);
      ups[at(0, 20)] = nan;
      ups[at(3, 30)] = infinity;
      gates[at(3, 30)] = 0.5;
      OpTensor gate(c, dtype, shape, gates), up(c, dtype, shape, ups), dy(c, dtype, shape, dys);
      OpTensor dgate(c, dtype, shape, nans(count)), dup(c, dtype, shape, nans(count)),
          out(c, dtype, shape, nans(count));
      aa_activation_params params{};
      params.kind = kind;
      if (!op.run({dgate.view(), dup.view(), out.view(), gate.view(), up.view(), dy.view()}, params)) continue;
      const GatedGradients expected = gated_gradients(kind, gate.given(), up.given(), dy.given());
      const std::string what = "special values, kind " + std::to_string(kind);
      op.compare(dgate, expected.dgate, "dgate, " + what);
      op.compare(dup, expected.dup, "dup, " + what);
      op.compare(out, expected.out, "out, " + what);
    }
  }
  op.finish();
}

// What is dropped is 0, whatever it was.
void dropout(const Context& c) {
  OpRun op(c, "dropout", {.relative = 2e-7});
  aa_dropout_params params{};
  params.seed = 11;
  for (const int32_t dtype : float_dtypes) {
    for (const float ratio : {0.0f, 0.5f}) {
      params.ratio = ratio;
      OpTensor x(c, dtype, shape, special(1)), out(c, dtype, shape, nans(count)), mask(c, AA_DTYPE_U8, shape);
      if (!op.run({out.view(), mask.view(), x.view()}, params)) continue;
      const Values kept = dropout_mask(params, count);
      op.compare(mask, kept, "mask");
      op.compare(out, masked(x.given(), kept, 1 / (1 - ratio)), "special values");
    }
  }
  op.finish();
}

void apply_mask(const Context& c) {
  OpRun op(c, "apply_mask", {.relative = 2e-7});
  aa_softmax_params params{};
  params.scale = 1.25f;
  Values kept(count, 1);
  kept[at(2, 66)] = kept[at(3, 65)] = kept[at(5, 0)] = 0;
  kept[at(5, 1)] = 255;
  for (const int32_t dtype : float_dtypes) {
    OpTensor x(c, dtype, shape, special(1)), mask(c, AA_DTYPE_U8, shape, kept), out(c, dtype, shape, nans(count));
    if (!op.run({out.view(), x.view(), mask.view()}, params)) continue;
    op.compare(out, masked(x.given(), kept, 1.25), "special values");
  }
  op.finish();
}

void column_sums(const Context& c) {
  OpRun op(c, "column_sums", {.absolute = 1e-5, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t accumulate : {0, 1}) {
      Values before = accumulate ? numbers(width, 2) : nans(width);
      before[7] = nan;
      before[64] = infinity;  // meets -infinity
      OpTensor x(c, dtype, shape, special(1)), out(c, AA_DTYPE_F32, {width}, before);
      aa_accumulate_params params{};
      params.accumulate = accumulate;
      if (!op.run({out.view(), x.view()}, params)) continue;
      Values expected = accumulate ? out.given() : Values(width);
      for (size_t i = 0; i < count; ++i) expected[i % width] += x.given()[i];
      op.compare(out, expected, accumulate ? "special values, added" : "special values, written");
    }
  }
  op.finish();
}

void cross_entropy(const Context& c) {
  OpRun op(c, "cross_entropy", {.absolute = 1e-5, .relative = 2e-5});
  aa_softmax_params params{};
  params.scale = 0.25f;
  for (const int32_t dtype : float_dtypes) {
    Values scores = special(1);
    scores[at(0, 66)] = -infinity;  // a target without probability has an infinite loss
    for (size_t i = 0; i < width; ++i) scores[at(5, i)] = -infinity;
    const Values ids = {66, 0, -1, 7, 3, 2};  // the third row has a NaN and counts nothing
    OpTensor x(c, dtype, shape, scores), targets(c, AA_DTYPE_I32, {rows}, ids);
    OpTensor loss(c, AA_DTYPE_F32, {rows}, nans(rows)), dx(c, dtype, shape, nans(count));
    if (!op.run({loss.view(), dx.view(), x.view(), targets.view()}, params)) continue;
    const Loss expected = cross_entropy_of(x.given(), ids, width, 0.25);
    op.compare(loss, expected.loss, "loss of special values");
    op.compare(dx, expected.dx, "dx of special values");
  }
  op.finish();
}

void embedding_backward(const Context& c) {
  OpRun op(c, "embedding_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (const int32_t dtype : float_dtypes) {
    const Values ids = {3, 0, 3, 4, 1, 0};
    Values before = numbers(5 * width, 2);
    before[at(2, 66)] = nan;  // of a row that nothing is added to
    before[at(1, 1)] = infinity;
    OpTensor dtable(c, AA_DTYPE_F32, {5, width}, before), dy(c, dtype, shape, special(1));
    OpTensor id(c, AA_DTYPE_I32, {rows}, ids);
    if (!op.run({dtable.view(), dy.view(), id.view()})) continue;
    op.compare(dtable, with_rows_added(dtable.given(), dy.given(), ids, width), "special values");
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.matmul", "adds_only_if_told_to", matmul},
    {"op.softmax_masked", "special_values", softmax_masked},
    {"op.softmax_backward", "special_values", softmax_backward},
    {"op.norm_backward", "special_values", norm_backward},
    {"op.layer_norm_inverse", "special_values", layer_norm_inverse},
    {"op.activation_backward", "special_values", activation_backward},
    {"op.gated_activation_backward", "special_values", gated_activation_backward},
    {"op.dropout", "special_values", dropout},
    {"op.apply_mask", "special_values", apply_mask},
    {"op.column_sums", "special_values", column_sums},
    {"op.cross_entropy", "special_values", cross_entropy},
    {"op.embedding_backward", "special_values", embedding_backward},
};

}  // namespace
}  // namespace training_special_group

std::span<const Case> training_special_cases() { return training_special_group::cases; }

}  // namespace anyaccel::conformance
