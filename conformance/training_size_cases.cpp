// Cases of the ops of training at the sizes where kernels change (op_shapes.h). In sums over a row or a column the last terms are large
// enough that leaving them out shows.
#include <cmath>
#include <limits>

#include "conformance/op_run.h"
#include "conformance/op_shapes.h"
#include "conformance/training_reference.h"

namespace anyaccel::conformance {
namespace training_size_group {
namespace {

constexpr int32_t f32 = AA_DTYPE_F32;
const double nan = std::nan("");

struct Size {
  explicit Size(const Shape& of)
      : shape(of), rows(static_cast<size_t>(of[0])), width(static_cast<size_t>(of[1])), count(rows * width) {}
  // Numbers of which the last of each row is another one.
  Values ending_in(Values values, double last) const {
    for (size_t row = 0; row < rows; ++row) values[(row + 1) * width - 1] = last;
    return values;
  }
  Values unwritten() const { return Values(count, nan); }

  Shape shape;
  size_t rows, width, count;
};

// The result is checked in every row, and so are the columns' sums, whose error would grow with the number of rows.
Values in_some_rows(const Size& size, Values values) {
  for (size_t i = 0; i < size.count; ++i) {
    const size_t row = i / size.width;
    if (size.rows > 1000 && row % 97 != 0 && row + 2 < size.rows) values[i] = 0;
  }
  return values;
}

void softmax_masked(const Context& c) {
  OpRun op(c, "softmax_masked", {.absolute = 1e-6, .relative = 5e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    Values masks(size.count);
    for (size_t i = 0; i < size.count; i += 3) masks[i] = -std::numeric_limits<double>::infinity();
    OpTensor x(c, f32, shape, size.ending_in(numbers(size.count, 1), 12));
    OpTensor mask(c, f32, shape, size.ending_in(masks, 0)), out(c, f32, shape, size.unwritten());
    if (!op.run({out.view(), x.view(), mask.view()}, aa_softmax_params{0, 1})) continue;
    op.compare(out, masked_softmax(x.given(), mask.given(), size.width, 1), text(shape));
  }
  op.finish();
}

void softmax_backward(const Context& c) {
  OpRun op(c, "softmax_backward", {.absolute = 2e-5, .relative = 5e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    const auto scale = static_cast<float>(size.width);
    OpTensor y(c, f32, shape, size.ending_in(numbers(size.count, 1, 1.0 / scale), 0.5));
    OpTensor dy(c, f32, shape, size.ending_in(numbers(size.count, 2), 1.5)), dx(c, f32, shape, size.unwritten());
    if (!op.run({dx.view(), y.view(), dy.view()}, aa_softmax_params{0, scale})) continue;
    op.compare(dx, softmax_gradient(y.given(), dy.given(), size.width, scale), text(shape));
  }
  op.finish();
}

void norm_backward(const Context& c) {
  OpRun op(c, "norm_backward",
           {.absolute = 2e-5, .relative = 5e-5, .factor = 1e-5, .scale_text = "the sum of all magnitudes"});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    const double last = 0.1 * static_cast<double>(size.width);
    OpTensor x(c, f32, shape, size.ending_in(numbers(size.count, 1), 2));
    OpTensor dy(c, f32, shape, in_some_rows(size, size.ending_in(numbers(size.count, 2), last)));
    OpTensor weight(c, f32, {shape[1]}, numbers(size.width, 3));
    OpTensor mean(c, f32, {shape[0]}, numbers(size.rows, 4)), variance(c, f32, {shape[0]}, Values(size.rows, 0.5));
    OpTensor dx(c, f32, shape, size.unwritten());
    OpTensor dweight(c, f32, {shape[1]}, Values(size.width, nan)), dbias(c, f32, {shape[1]}, Values(size.width, nan));
    if (!op.run(
            {dx.view(), dweight.view(), dbias.view(), dy.view(), x.view(), weight.view(), mean.view(), variance.view()},
            aa_accumulate_params{})) {
      continue;
    }
    const NormGradients expected =
        norm_gradients(dy.given(), x.given(), weight.given(), mean.given(), variance.given(), size.width);
    op.compare(dx, expected.dx, "dx, " + text(shape));
    op.compare(dweight, expected.dweight, "dweight, " + text(shape), expected.dweight_magnitude);
    op.compare(dbias, expected.dbias, "dbias, " + text(shape), expected.dbias_magnitude);
  }
  op.finish();
}

void layer_norm_inverse(const Context& c) {
  OpRun op(c, "layer_norm_inverse", {.absolute = 1e-5, .relative = 1e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    Values weights = numbers(size.width, 2, 0.5);  // none is near 0: the op divides by them
    for (double& value : weights) value += value < 0 ? -0.5 : 0.5;
    OpTensor y(c, f32, shape, numbers(size.count, 1)), weight(c, f32, {shape[1]}, weights);
    OpTensor bias(c, f32, {shape[1]}, numbers(size.width, 3)), mean(c, f32, {shape[0]}, numbers(size.rows, 4));
    OpTensor variance(c, f32, {shape[0]}, Values(size.rows, 4)), x(c, f32, shape, size.unwritten());
    if (!op.run({x.view(), y.view(), weight.view(), bias.view(), mean.view(), variance.view()})) continue;
    op.compare(x, inverse_layer_norm(y.given(), weight.given(), bias.given(), mean.given(), variance.given()),
               text(shape));
  }
  op.finish();
}

void moments(const Context& c) {
  OpRun op(c, "moments", {.absolute = 1e-5, .relative = 2e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    const auto width = static_cast<double>(size.width);
    OpTensor x(c, f32, shape, size.ending_in(numbers(size.count, 1), std::sqrt(width)));
    OpTensor mean(c, f32, {shape[0]}, Values(size.rows, nan)), variance(c, f32, {shape[0]}, Values(size.rows, nan));
    if (!op.run({mean.view(), variance.view(), x.view()}, aa_moments_params{0, 0.25f, 1})) continue;
    Values means(size.rows), variances(size.rows, 0.25);
    for (size_t i = 0; i < size.count; ++i) means[i / size.width] += x.given()[i] / width;
    for (size_t i = 0; i < size.count; ++i) {
      variances[i / size.width] += std::pow(x.given()[i] - means[i / size.width], 2) / width;
    }
    op.compare(mean, means, "mean of " + text(shape));
    op.compare(variance, variances, "variance of " + text(shape));
  }
  op.finish();
}

void activation_backward(const Context& c) {
  OpRun op(c, "activation_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    OpTensor x(c, f32, shape, numbers(size.count, 1)), dy(c, f32, shape, numbers(size.count, 2));
    OpTensor dx(c, f32, shape, size.unwritten());
    aa_activation_params params{};
    params.kind = AA_ACTIVATION_SIGMOID;
    if (!op.run({dx.view(), x.view(), dy.view()}, params)) continue;
    Values expected;
    for (size_t i = 0; i < size.count; ++i) expected.push_back(dy.given()[i] * slope(params.kind, x.given()[i]));
    op.compare(dx, expected, text(shape));
  }
  op.finish();
}

void gated_activation_backward(const Context& c) {
  OpRun op(c, "gated_activation_backward", {.absolute = 1e-5, .relative = 1e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    OpTensor gate(c, f32, shape, numbers(size.count, 1)), up(c, f32, shape, numbers(size.count, 2));
    OpTensor dy(c, f32, shape, numbers(size.count, 3)), dgate(c, f32, shape, size.unwritten());
    OpTensor dup(c, f32, shape, size.unwritten()), out(c, f32, shape, size.unwritten());
    aa_activation_params params{};
    params.kind = AA_ACTIVATION_SIGMOID;
    if (!op.run({dgate.view(), dup.view(), out.view(), gate.view(), up.view(), dy.view()}, params)) continue;
    const GatedGradients expected = gated_gradients(params.kind, gate.given(), up.given(), dy.given());
    op.compare(dgate, expected.dgate, "dgate, " + text(shape));
    op.compare(dup, expected.dup, "dup, " + text(shape));
    op.compare(out, expected.out, "out, " + text(shape));
  }
  op.finish();
}

void dropout(const Context& c) {
  OpRun op(c, "dropout", {.relative = 2e-7});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    OpTensor x(c, f32, shape, numbers(size.count, 1)), out(c, f32, shape, size.unwritten());
    OpTensor mask(c, AA_DTYPE_U8, shape, Values(size.count, 2));
    aa_dropout_params params{};
    params.ratio = 0.25f;
    params.seed = 3;
    if (!op.run({out.view(), mask.view(), x.view()}, params)) continue;
    const Values kept = dropout_mask(params, size.count);
    op.compare(mask, kept, "mask, " + text(shape));
    op.compare(out, masked(x.given(), kept, 1 / 0.75), text(shape));
  }
  op.finish();
}

void apply_mask(const Context& c) {
  OpRun op(c, "apply_mask", {.relative = 2e-7});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    Values kept(size.count);
    for (size_t i = 0; i < size.count; ++i) kept[i] = i % 3 == 0 ? 0 : 1;
    OpTensor x(c, f32, shape, numbers(size.count, 1)), mask(c, AA_DTYPE_U8, shape, kept);
    OpTensor out(c, f32, shape, size.unwritten());
    if (!op.run({out.view(), x.view(), mask.view()}, aa_softmax_params{0, 1.25f})) continue;
    op.compare(out, masked(x.given(), kept, 1.25), text(shape));
  }
  op.finish();
}

void column_sums(const Context& c) {
  OpRun op(c, "column_sums", {.absolute = 1e-5, .factor = 1e-5, .scale_text = "sum of |x|"});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    OpTensor x(c, f32, shape, in_some_rows(size, numbers(size.count, 1)));
    OpTensor out(c, f32, {shape[1]}, Values(size.width, nan));
    if (!op.run({out.view(), x.view()}, aa_accumulate_params{})) continue;
    Values expected(size.width), magnitudes(size.width);
    for (size_t i = 0; i < size.count; ++i) {
      expected[i % size.width] += x.given()[i];
      magnitudes[i % size.width] += std::fabs(x.given()[i]);
    }
    op.compare(out, expected, text(shape), magnitudes);
  }
  op.finish();
}

void cross_entropy(const Context& c) {
  OpRun op(c, "cross_entropy", {.absolute = 2e-5, .relative = 5e-5});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    Values ids;
    for (size_t row = 0; row < size.rows; ++row) {
      ids.push_back(row % 3 == 2 ? -1 : row % 3 == 1 ? 0 : static_cast<double>(size.width - 1));
    }
    OpTensor x(c, f32, shape, size.ending_in(numbers(size.count, 1), 12)), targets(c, AA_DTYPE_I64, {shape[0]}, ids);
    OpTensor loss(c, f32, {shape[0]}, Values(size.rows, nan)), dx(c, f32, shape, size.unwritten());
    if (!op.run({loss.view(), dx.view(), x.view(), targets.view()}, aa_softmax_params{0, 1})) continue;
    const Loss expected = cross_entropy_of(x.given(), ids, size.width, 1);
    op.compare(loss, expected.loss, "loss, " + text(shape));
    op.compare(dx, expected.dx, "dx, " + text(shape));
  }
  op.finish();
}

// Few ids, each of many rows.
void embedding_backward(const Context& c) {
  OpRun op(c, "embedding_backward", {.absolute = 1e-5, .factor = 1e-5, .scale_text = "the sum of all magnitudes"});
  for (const Shape& shape : row_shapes()) {
    const Size size(shape);
    Values ids;
    for (size_t row = 0; row < size.rows; ++row) ids.push_back(static_cast<double>(row % 4));
    OpTensor dtable(c, f32, {5, shape[1]}, numbers(5 * size.width, 1));
    OpTensor dy(c, f32, shape, in_some_rows(size, numbers(size.count, 2))), id(c, AA_DTYPE_I32, {shape[0]}, ids);
    if (!op.run({dtable.view(), dy.view(), id.view()})) continue;
    Values before, magnitudes;
    for (const double value : dtable.given()) before.push_back(std::fabs(value));
    for (const double value : dy.given()) magnitudes.push_back(std::fabs(value));
    op.compare(dtable, with_rows_added(dtable.given(), dy.given(), ids, size.width), text(shape),
               with_rows_added(before, magnitudes, ids, size.width));
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.softmax_masked", "every_size", softmax_masked},
    {"op.softmax_backward", "every_size", softmax_backward},
    {"op.norm_backward", "every_size", norm_backward},
    {"op.layer_norm_inverse", "every_size", layer_norm_inverse},
    {"op.moments", "every_size", moments},
    {"op.activation_backward", "every_size", activation_backward},
    {"op.gated_activation_backward", "every_size", gated_activation_backward},
    {"op.dropout", "every_size", dropout},
    {"op.apply_mask", "every_size", apply_mask},
    {"op.column_sums", "every_size", column_sums},
    {"op.cross_entropy", "every_size", cross_entropy},
    {"op.embedding_backward", "every_size", embedding_backward},
};

}  // namespace
}  // namespace training_size_group

std::span<const Case> training_size_cases() { return training_size_group::cases; }

}  // namespace anyaccel::conformance
