// Cases of ops at the sizes where kernels change: around every power of two up to 257 rows and columns, where groups,
// vectors and tiles have a remainder, and at the sizes of models. Before each call another stream is given work.
#include <cmath>

#include "conformance/op_run.h"
#include "conformance/product_reference.h"

namespace anyaccel::conformance {
namespace op_size_group {
namespace {

constexpr int64_t boundaries[] = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17, 31,
                                  32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};

// Rows and columns of tensors with a last dimension.
std::vector<Shape> row_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t size : boundaries) {
    shapes.push_back({3, size});
    shapes.push_back({size, 5});
  }
  shapes.insert(shapes.end(), {{129, 257}, {2, 4097}, {1, 11008}});
  return shapes;
}

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

std::string text(const Shape& shape) { return std::to_string(shape[0]) + " rows of " + std::to_string(shape[1]); }

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
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.add", "every_size", add},       {"op.rms_norm", "every_size", rms_norm}, {"op.softmax", "every_size", softmax},
    {"op.argmax", "every_size", argmax}, {"op.linear", "every_size", linear},
};

}  // namespace
}  // namespace op_size_group

std::span<const Case> op_size_cases() { return op_size_group::cases; }

}  // namespace anyaccel::conformance
