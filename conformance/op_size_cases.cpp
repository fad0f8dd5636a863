// Cases of ops at the sizes where kernels change: around every power of two up to 257 rows and columns, where groups,
// vectors and tiles have a remainder, and at the sizes of models. Before each call another stream is given work.
#include <cmath>

#include "conformance/op_run.h"
#include "conformance/op_shapes.h"
#include "conformance/product_reference.h"

namespace anyaccel::conformance {
namespace op_size_group {
namespace {

// Work of another stream in memory of its own.
class Neighbour {
 public:
  explicit Neighbour(const Context& c) : c_(c), memory_(c, 50000), stream_(c) {}

  void work() {
    const unsigned char value = 1;
    c_.drop(c_.driver.fill_async(stream_, memory_.data(), &value, 1, memory_.size()));
  }

 private:
  const Context& c_;
  Memory memory_;
  Stream stream_;
};

void add(const Context& c) {
  OpRun op(c, "add", {.relative = 0x1p-24});
  Neighbour neighbour(c);
  for (const Shape& shape : row_shapes()) {
    for (const Layout& layout : {dense, padded}) {
      OpTensor a(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 1), layout);
      OpTensor b(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 2));
      OpTensor out(c, AA_DTYPE_F32, shape, {}, layout);
      neighbour.work();
      if (!op.run({out.view(), a.view(), b.view()})) continue;
      Values expected;
      for (size_t i = 0; i < count_of(shape); ++i) expected.push_back(a.given()[i] + b.given()[i]);
      op.compare(out, expected, text(shape) + ", " + layout.name);
    }
  }
  op.finish();
}

void rms_norm(const Context& c) {
  OpRun op(c, "rms_norm", {.absolute = 1e-5, .relative = 1e-5});
  Neighbour neighbour(c);
  aa_norm_params params{};
  params.eps = 1e-5F;
  for (const Shape& shape : row_shapes()) {
    OpTensor x(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 3));
    OpTensor weight(c, AA_DTYPE_F32, {shape[1]}, numbers(static_cast<size_t>(shape[1]), 4));
    OpTensor out(c, AA_DTYPE_F32, shape);
    neighbour.work();
    if (!op.run({out.view(), x.view(), weight.view(), absent}, params)) continue;
    Values expected;
    const auto width = static_cast<size_t>(shape[1]);
    for (size_t row = 0; row < static_cast<size_t>(shape[0]); ++row) {
      double squares = 0;
      for (size_t i = 0; i < width; ++i) squares += x.given()[row * width + i] * x.given()[row * width + i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + params.eps);
      for (size_t i = 0; i < width; ++i) expected.push_back(x.given()[row * width + i] * scale * weight.given()[i]);
    }
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void softmax(const Context& c) {
  // Numbers whose exponentials overflow F32 unless the maximum is subtracted; near 110 the numbers' own rounding
  // matters.
  constexpr double offset = 150;
  OpRun op(c, "softmax", {.absolute = 1e-6, .relative = 5e-5});
  Neighbour neighbour(c);
  aa_softmax_params params{};
  params.scale = 0.7F;
  for (const Shape& shape : row_shapes()) {
    Values logits = numbers(count_of(shape), 5, 8);
    for (double& logit : logits) logit += offset;
    OpTensor x(c, AA_DTYPE_F32, shape, logits);
    OpTensor out(c, AA_DTYPE_F32, shape);
    neighbour.work();
    if (!op.run({out.view(), x.view()}, params)) continue;
    Values expected(count_of(shape));
    const auto width = static_cast<size_t>(shape[1]);
    for (size_t row = 0; row < static_cast<size_t>(shape[0]); ++row) {
      double sum = 0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) sum += std::exp(x.given()[i] * params.scale);
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        expected[i] = std::exp(x.given()[i] * params.scale) / sum;
      }
    }
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

// The maximum at either end, and in the middle.
void argmax(const Context& c) {
  OpRun op(c, "argmax");
  Neighbour neighbour(c);
  for (const Shape& shape : row_shapes()) {
    const auto width = static_cast<size_t>(shape[1]);
    Values logits = numbers(count_of(shape), 6);
    Values expected;
    for (size_t row = 0; row < static_cast<size_t>(shape[0]); ++row) {
      const size_t places[] = {width - 1, 0, width / 2};
      const size_t place = places[row % 3];
      logits[row * width + place] = 9;
      expected.push_back(static_cast<double>(place));
    }
    OpTensor x(c, AA_DTYPE_F32, shape, logits);
    OpTensor out(c, AA_DTYPE_I32, {shape[0]});
    neighbour.work();
    if (op.run({out.view(), x.view()})) op.compare(out, expected, text(shape));
  }
  op.finish();
}

void linear(const Context& c) {
  // A sum of K products in F32 in any order is off by at most about K 2^-24 times the sum of their magnitudes.
  OpRun op(c, "linear", {.factor = 2100 * 0x1p-24, .scale_text = "sum of |x w|"});
  Neighbour neighbour(c);
  const auto check = [&](int64_t m, int64_t n, int64_t k, int32_t dtype) {
    OpTensor x(c, dtype, {m, k}, numbers(static_cast<size_t>(m * k), 7, 1));
    OpTensor w(c, dtype, {n, k}, numbers(static_cast<size_t>(n * k), 8, 1));
    OpTensor out(c, AA_DTYPE_F32, {m, n});
    neighbour.work();
    if (!op.run({out.view(), x.view(), w.view(), absent, absent})) return;
    const Sum sum = product(x.given(), w);
    op.compare(
        out, sum.value,
        "M " + std::to_string(m) + ", N " + std::to_string(n) + ", K " + std::to_string(k) + ", " + dtype_text(dtype),
        sum.magnitude);
  };
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16}) {
    for (const int64_t size : boundaries) {
      check(size, 3, 32, dtype);
      check(2, size, 32, dtype);
      check(2, 3, size, dtype);
    }
    check(1, 257, 2048, dtype);
    check(33, 65, 1000, dtype);
    check(65537, 2, 8, dtype);
    check(2, 65537, 8, dtype);
  }
  op.finish();
}

// The two largest shapes for other ops, whose values other cases test.

Values small(size_t count, unsigned seed) { return numbers(count, seed, 1); }

void activation(const Context& c) {
  OpRun op(c, "activation");
  aa_activation_params params{};
  params.kind = AA_ACTIVATION_RELU;
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    OpTensor x(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 1));
    OpTensor out(c, AA_DTYPE_F32, shape);
    if (!op.run({out.view(), x.view()}, params)) continue;
    Values expected;
    for (const double value : x.given()) expected.push_back(std::max(value, 0.0));
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void gated_activation(const Context& c) {
  OpRun op(c, "gated_activation");
  aa_activation_params params{};
  params.kind = AA_ACTIVATION_RELU;
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    OpTensor gate(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 1));
    OpTensor up(c, AA_DTYPE_F32, shape, Values(count_of(shape), 0.5));
    OpTensor out(c, AA_DTYPE_F32, shape);
    if (!op.run({out.view(), gate.view(), up.view()}, params)) continue;
    Values expected;
    for (const double value : gate.given()) expected.push_back(std::max(value, 0.0) * 0.5);
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void layer_norm(const Context& c) {
  OpRun op(c, "layer_norm", {.absolute = 1e-5, .relative = 1e-5});
  aa_norm_params params{};
  params.eps = 1e-5F;
  const Shape shape{many, 2};
  OpTensor x(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 2));
  OpTensor out(c, AA_DTYPE_F32, shape);
  if (op.run({out.view(), x.view(), absent, absent, absent}, params)) {
    Values expected;
    for (size_t i = 0; i < count_of(shape); i += 2) {
      const double half = (x.given()[i] - x.given()[i + 1]) / 2;
      const double normed = half / std::sqrt(half * half + params.eps);
      expected.insert(expected.end(), {normed, -normed});
    }
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void embedding(const Context& c) {
  OpRun op(c, "embedding");
  OpTensor table(c, AA_DTYPE_F32, {vocabulary, 2}, numbers(2 * vocabulary, 3));
  Values ids;
  for (int64_t i = 0; i < many; ++i) ids.push_back(static_cast<double>(vocabulary - 1 - 2 * i));
  OpTensor which(c, AA_DTYPE_I32, {many}, ids);
  OpTensor out(c, AA_DTYPE_F32, {many, 2});
  if (op.run({out.view(), table.view(), which.view()})) {
    Values expected;
    for (const double id : ids) {
      const auto row = table.given().begin() + static_cast<ptrdiff_t>(id) * 2;
      expected.insert(expected.end(), row, row + 2);
    }
    op.compare(out, expected, text({many, 2}));
  }
  op.finish();
}

void copy(const Context& c) {
  OpRun op(c, "copy");
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    for (const Layout& layout : {dense, padded}) {
      OpTensor x(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 4), layout);
      OpTensor out(c, AA_DTYPE_BF16, shape);
      if (op.run({out.view(), x.view()})) op.compare(out, x.given(), text(shape) + ", " + layout.name);
    }
  }
  op.finish();
}

void rope(const Context& c) {
  OpRun op(c, "rope", {.absolute = 1e-6, .relative = 1e-6});
  OpTensor cosine(c, AA_DTYPE_F32, {many, 1}, numbers(many, 5));
  OpTensor sine(c, AA_DTYPE_F32, {many, 1}, numbers(many, 6));
  OpTensor q(c, AA_DTYPE_F32, {many, 1, 2}, numbers(2 * many, 7));
  aa_rope_params params{};
  if (op.run({q.view(), absent, cosine.view(), sine.view()}, params)) {
    Values expected;
    for (size_t t = 0; t < many; ++t) {
      const double a = q.given()[2 * t], b = q.given()[2 * t + 1];
      const double cos = cosine.given()[t], sin = sine.given()[t];
      expected.insert(expected.end(), {a * cos - b * sin, b * cos + a * sin});
    }
    op.compare(q, expected, text({many, 2}));
  }
  op.finish();
}

void cache_write(const Context& c) {
  OpRun op(c, "cache_write");
  Values backwards, again;
  const Values values = numbers(2 * many, 8);
  for (size_t t = 0; t < many; ++t) {
    const size_t slot = many - 1 - t;
    backwards.push_back(static_cast<double>(slot));
    again.insert(again.end(), {values[2 * slot], values[2 * slot + 1]});
  }
  OpTensor k_cache(c, AA_DTYPE_F32, {1, 1, many, 2}), v_cache(c, AA_DTYPE_F32, {1, 1, many, 2});
  OpTensor k(c, AA_DTYPE_F32, {many, 1, 2}, values), v(c, AA_DTYPE_F32, {many, 1, 2}, values);
  OpTensor which(c, AA_DTYPE_I32, {many}), where(c, AA_DTYPE_I32, {many}, backwards);
  if (op.run({k_cache.view(), v_cache.view(), k.view(), v.view(), which.view(), where.view()})) {
    op.compare(k_cache, again, "keys of " + text({many, 2}));
    op.compare(v_cache, again, "values of " + text({many, 2}));
  }
  op.finish();
}

void repetition_penalty(const Context& c) {
  OpRun op(c, "repetition_penalty");
  aa_repetition_params params{};
  params.penalty = 2;
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    OpTensor logits(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 9));
    OpTensor seen(c, AA_DTYPE_U8, shape, Values(count_of(shape), 1));
    if (!op.run({logits.view(), seen.view()}, params)) continue;
    Values expected;
    for (const double value : logits.given()) expected.push_back(value > 0 ? value / 2 : value * 2);
    op.compare(logits, expected, text(shape));
  }
  op.finish();
}

void linear_multi(const Context& c) {
  OpRun op(c, "linear_multi", {.factor = 20 * 0x1p-24, .scale_text = "sum of |x w|"});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{many, 2}, {2, many}}) {
    OpTensor x(c, AA_DTYPE_F32, {m, 4}, small(static_cast<size_t>(4 * m), 10));
    OpTensor one(c, AA_DTYPE_F32, {n, 4}, small(static_cast<size_t>(4 * n), 11));
    OpTensor two(c, AA_DTYPE_F32, {n, 4}, small(static_cast<size_t>(4 * n), 12));
    OpTensor first(c, AA_DTYPE_F32, {m, n}), second(c, AA_DTYPE_F32, {m, n});
    const std::vector<aa_tensor> tensors{x.view(), first.view(), one.view(), absent, second.view(), two.view(), absent};
    if (!op.run(tensors, nullptr, 0, "", true)) continue;
    const Sum left = product(x.given(), one), right = product(x.given(), two);
    op.compare(first, left.value, "the first, " + text({m, n}), left.magnitude);
    op.compare(second, right.value, "the second, " + text({m, n}), right.magnitude);
  }
  op.finish();
}

void gated_linear(const Context& c) {
  OpRun op(c, "gated_linear",
           {.relative = 1e-5, .factor = 20 * 0x1p-24, .scale_text = "(sum of |x w_gate|) (sum of |x w_up|)"});
  aa_activation_params params{};
  params.kind = AA_ACTIVATION_RELU;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{many, 2}, {2, many}}) {
    OpTensor x(c, AA_DTYPE_F32, {m, 4}, small(static_cast<size_t>(4 * m), 10));
    OpTensor gate(c, AA_DTYPE_F32, {n, 4}, small(static_cast<size_t>(4 * n), 11));
    OpTensor up(c, AA_DTYPE_F32, {n, 4}, small(static_cast<size_t>(4 * n), 12));
    OpTensor out(c, AA_DTYPE_F32, {m, n});
    if (!op.run({out.view(), x.view(), gate.view(), up.view(), absent, absent}, params)) continue;
    const Sum left = product(x.given(), gate), right = product(x.given(), up);
    Values expected, scale;
    for (size_t i = 0; i < left.value.size(); ++i) {
      expected.push_back(std::max(left.value[i], 0.0) * right.value[i]);
      scale.push_back(left.magnitude[i] * right.magnitude[i]);
    }
    op.compare(out, expected, text({m, n}), scale);
  }
  op.finish();
}

// Blocks that all have the value 0.5, but for one value of each row.
void quantized_linear(const Context& c) {
  OpRun op(c, "quantized_linear", {.absolute = 1e-5, .relative = 1e-5});
  aa_quantized_params params{};
  params.format = AA_BLOCK_Q8_0;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{many, 2}, {2, many}}) {
    Values bytes;
    for (int64_t row = 0; row < n; ++row) {
      bytes.insert(bytes.end(), {0x00, 0x38});  // a half: 0.5
      for (int i = 0; i < 32; ++i) bytes.push_back(i == row % 32 ? static_cast<double>(row % 100) : 1);
    }
    OpTensor x(c, AA_DTYPE_F32, {m, 32}, small(static_cast<size_t>(32 * m), 13));
    OpTensor w(c, AA_DTYPE_U8, {n, 34}, bytes, of_blocks);
    OpTensor out(c, AA_DTYPE_F32, {m, n});
    if (!op.run({out.view(), x.view(), w.view(), absent, absent}, params)) continue;
    Values expected;
    for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
      double sum = 0;
      for (size_t k = 0; k < 32; ++k) sum += x.given()[i * 32 + k];
      for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
        expected.push_back(0.5 * (sum + x.given()[i * 32 + j % 32] * (static_cast<double>(j % 100) - 1)));
      }
    }
    op.compare(out, expected, text({m, n}));
  }
  op.finish();
}

void multiply(const Context& c) {
  OpRun op(c, "multiply", {.relative = 0x1p-24});
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    OpTensor a(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 1)),
        b(c, AA_DTYPE_F32, shape, Values(count_of(shape), 0.5));
    OpTensor out(c, AA_DTYPE_F32, shape);
    if (!op.run({out.view(), a.view(), b.view()})) continue;
    Values expected;
    for (const double value : a.given()) expected.push_back(value / 2);
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void scaled_add(const Context& c) {
  OpRun op(c, "scaled_add", {.relative = 0x1p-23});
  aa_scaled_add_params params{};
  params.alpha = 2;
  for (const Shape& shape : {Shape{many, 3}, Shape{2, vocabulary}}) {
    OpTensor a(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 1)), out(c, AA_DTYPE_F32, shape);
    if (!op.run({out.view(), a.view(), absent}, params)) continue;
    Values expected;
    for (const double value : a.given()) expected.push_back(2 * value);
    op.compare(out, expected, text(shape));
  }
  op.finish();
}

void matmul(const Context& c) {
  OpRun op(c, "matmul", {.factor = 20 * 0x1p-24, .scale_text = "sum of |a b|"});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{many, 2}, {2, many}}) {
    OpTensor a(c, AA_DTYPE_F32, {m, 4}, small(static_cast<size_t>(4 * m), 14));
    OpTensor b(c, AA_DTYPE_F32, {n, 4}, small(static_cast<size_t>(4 * n), 15), always_dense),
        out(c, AA_DTYPE_F32, {m, n});
    aa_tensor transposed = b.view();
    std::swap(transposed.shape[0], transposed.shape[1]);
    std::swap(transposed.strides[0], transposed.strides[1]);
    if (!op.run({out.view(), a.view(), transposed}, aa_accumulate_params{})) continue;
    const Sum sum = product(a.given(), b);
    op.compare(out, sum.value, text({m, n}), sum.magnitude);
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.add", "every_size", add},
    {"op.rms_norm", "every_size", rms_norm},
    {"op.softmax", "every_size", softmax},
    {"op.argmax", "every_size", argmax},
    {"op.linear", "every_size", linear},
    {"op.activation", "of_many", activation},
    {"op.gated_activation", "of_many", gated_activation},
    {"op.layer_norm", "of_many", layer_norm},
    {"op.embedding", "of_many", embedding},
    {"op.copy", "of_many", copy},
    {"op.rope", "of_many", rope},
    {"op.cache_write", "of_many", cache_write},
    {"op.repetition_penalty", "of_many", repetition_penalty},
    {"op.linear_multi", "of_many", linear_multi},
    {"op.gated_linear", "of_many", gated_linear},
    {"op.quantized_linear", "of_many", quantized_linear},
    {"op.multiply", "of_many", multiply},
    {"op.scaled_add", "of_many", scaled_add},
    {"op.matmul", "of_many", matmul},
};

}  // namespace
}  // namespace op_size_group

std::span<const Case> op_size_cases() { return op_size_group::cases; }

}  // namespace anyaccel::conformance
