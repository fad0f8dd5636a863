// Cases of ops that work element by element: activations, add, copy with conversion, increment.
#include <cmath>
#include <limits>
#include <numbers>

#include "conformance/op_run.h"

namespace anyaccel::conformance {
namespace elementwise_group {
namespace {

const Shape shapes[] = {{}, {1}, {7}, {1003}, {3, 65}, {2, 3, 4, 5}, {0}, {4, 0}};

double activation(int32_t kind, double x) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    case AA_ACTIVATION_GELU_TANH:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case AA_ACTIVATION_RELU: return x > 0 ? x : 0;
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    default: return std::tanh(x);
  }
}

constexpr const char* activation_names[] = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid", "tanh"};

aa_activation_params activation_params(int32_t kind) {
  aa_activation_params params{};
  params.kind = kind;
  return params;
}

void activations(const Context& c) {
  OpRun op(c, "activation", {.absolute = 2e-6, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      for (const Layout& layout : {dense, padded, spread}) {
        const Shape shape = layout.inner == 1 && layout.gap == 0 ? Shape{1003} : Shape{5, 67};
        OpTensor x(c, dtype, shape, numbers(count_of(shape), 1, 9), layout);
        OpTensor out(c, dtype, shape, {}, layout);
        if (!op.run({out.view(), x.view()}, activation_params(kind))) continue;
        Values expected;
        for (const double value : x.given()) expected.push_back(activation(kind, value));
        op.compare(out, expected, std::string(activation_names[kind]) + ", " + layout.name);
        op.unchanged(x, "its input");
      }
    }
  }
  for (const Shape& shape : shapes) {  // in place
    OpTensor x(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 2, 30));
    if (!op.run({x.view(), x.view()}, activation_params(AA_ACTIVATION_SILU))) continue;
    Values expected;
    for (const double value : x.given()) expected.push_back(activation(AA_ACTIVATION_SILU, value));
    op.compare(x, expected, "in place");
  }
  op.finish();
}

void gated_activations(const Context& c) {
  OpRun op(c, "gated_activation", {.absolute = 2e-6, .relative = 1e-5});
  for (int32_t kind = AA_ACTIVATION_SILU; kind <= AA_ACTIVATION_TANH; ++kind) {
    for (const int32_t dtype : float_dtypes) {
      for (const Layout& layout : {dense, padded, spread}) {
        const Shape shape{3, 129};
        OpTensor gate(c, dtype, shape, numbers(count_of(shape), 3, 8), layout);
        OpTensor up(c, dtype, shape, numbers(count_of(shape), 4), dense);
        OpTensor out(c, dtype, shape, {}, layout);
        if (!op.run({out.view(), gate.view(), up.view()}, activation_params(kind))) continue;
        Values expected;
        for (size_t i = 0; i < count_of(shape); ++i) {
          expected.push_back(activation(kind, gate.given()[i]) * up.given()[i]);
        }
        op.compare(out, expected, std::string(activation_names[kind]) + ", " + layout.name);
      }
    }
  }
  // Gate and up as the two halves of one tensor, as a fused product leaves them; the result over the gate.
  const Shape shape{3, 64};
  OpTensor both(c, AA_DTYPE_F32, {3, 128}, numbers(384, 5), always_dense);
  aa_tensor gate = both.view();
  gate.shape[1] = 64;
  aa_tensor up = gate;
  up.data = static_cast<float*>(up.data) + 64;
  if (op.run({gate, gate, up}, activation_params(AA_ACTIVATION_SILU))) {
    Values expected = both.given();
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 64; ++j) {
        expected[i * 128 + j] =
            activation(AA_ACTIVATION_SILU, both.given()[i * 128 + j]) * both.given()[i * 128 + 64 + j];
      }
    }
    op.compare(both, expected, "halves of one tensor, in place");
  }
  op.finish();
}

void add(const Context& c) {
  // F32 sums of F32 are exact to one rounding; a sum of smaller formats rounds a second time when it is stored.
  OpRun op(c, "add", {.relative = 0x1p-24});
  for (const int32_t left : float_dtypes) {
    for (const int32_t right : float_dtypes) {
      for (const int32_t output : float_dtypes) {
        const Shape shape{3, 67};
        OpTensor a(c, left, shape, numbers(count_of(shape), 6), padded);
        OpTensor b(c, right, shape, numbers(count_of(shape), 7), spread);
        OpTensor out(c, output, shape, {}, left == right ? dense : padded);
        if (!op.run({out.view(), a.view(), b.view()})) continue;
        Values expected;
        for (size_t i = 0; i < count_of(shape); ++i) expected.push_back(a.given()[i] + b.given()[i]);
        op.compare(out, expected, std::string(dtype_text(left)) + " and " + dtype_text(right));
      }
    }
  }
  for (const Shape& shape : shapes) {
    OpTensor a(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 8));
    OpTensor b(c, AA_DTYPE_F32, shape, numbers(count_of(shape), 9));
    if (!op.run({a.view(), a.view(), b.view()})) continue;
    Values expected;
    for (size_t i = 0; i < count_of(shape); ++i) expected.push_back(a.given()[i] + b.given()[i]);
    op.compare(a, expected, "in place");
  }
  // A row added to every row, and the rows of the other input backwards.
  OpTensor a(c, AA_DTYPE_F32, {4, 33}, numbers(132, 10), always_dense);
  OpTensor row(c, AA_DTYPE_F32, {33}, numbers(33, 11), always_dense);
  OpTensor out(c, AA_DTYPE_F32, {4, 33});
  aa_tensor backwards = a.view();
  backwards.data = static_cast<float*>(backwards.data) + 3 * 33;
  backwards.strides[0] = -33;
  aa_tensor repeated = row.view();
  repeated.ndim = 2;
  repeated.shape[0] = 4;
  repeated.shape[1] = 33;
  repeated.strides[0] = 0;
  repeated.strides[1] = 1;
  if (op.run({out.view(), backwards, repeated})) {
    Values expected;
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 0; j < 33; ++j) expected.push_back(a.given()[(3 - i) * 33 + j] + row.given()[j]);
    }
    op.compare(out, expected, "a repeated row and rows backwards");
  }
  op.finish();
}

// By the rules of "copy", for a value that the source dtype holds exactly.
double converted(double value, int32_t from, int32_t to) {
  const bool narrows = !is_float(from) && !is_float(to) && to != AA_DTYPE_BOOL;
  if (!narrows) return rounded(value, to);
  const auto integer = static_cast<int64_t>(value);
  switch (to) {
    case AA_DTYPE_U8: return static_cast<uint8_t>(integer);
    case AA_DTYPE_I8: return static_cast<int8_t>(integer);
    case AA_DTYPE_I16: return static_cast<int16_t>(integer);
    case AA_DTYPE_I32: return static_cast<int32_t>(integer);
    default: return static_cast<double>(integer);
  }
}

void copies_between_all_dtypes(const Context& c) {
  // Halfway cases of the small formats, the ends of every range, denormals, and what is not a number.
  const Values interesting = {0,
                              1,
                              -1,
                              0.4,
                              -0.6,
                              1.5,
                              2.5,
                              -2.5,
                              127,
                              128,
                              -128,
                              -129,
                              255,
                              256,
                              300,
                              -300,
                              448,
                              464,
                              465,
                              500,
                              2048,
                              2049,
                              2051,
                              32767,
                              32768,
                              -32769,
                              57344,
                              61440,
                              65504,
                              65519,
                              65520,
                              1e5,
                              -1e5,
                              0x1p-14,
                              0x1p-24,
                              0x1p-25,
                              0x1.8p-25,
                              0x1p-9,
                              0x1p-10,
                              0x1.8p-10,
                              0x1p-16,
                              0x1p-17,
                              1 + 0x1p-8,
                              1 + 0x1.8p-8,
                              1 + 0x1p-9,
                              1 + 0x1p-11,
                              0x1p-130,
                              0x1p-149,
                              0x1p31,
                              -0x1p31,
                              0x1p32,
                              0x1p40,
                              3e10,
                              -3e10,
                              1e30,
                              -1e38,
                              3.4e38,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
  OpRun op(c, "copy");
  for (int32_t from = AA_DTYPE_BOOL; from <= AA_DTYPE_F8_E5M2; ++from) {
    for (int32_t to = AA_DTYPE_BOOL; to <= AA_DTYPE_F8_E5M2; ++to) {
      if (!((c.props.dtypes_storable >> from) & (c.props.dtypes_storable >> to) & 1u)) continue;
      const Shape shape{static_cast<int64_t>(interesting.size())};
      Values values = interesting;
      for (double& value : values) {
        if (from == AA_DTYPE_I64 && std::fabs(value) > 0x1p50) value = -0x1p50;  // the suite's doubles hold no more
      }
      OpTensor in(c, from, shape, values);
      OpTensor out(c, to, shape);
      if (!op.run({out.view(), in.view()})) continue;
      Values expected;
      for (const double value : in.given()) expected.push_back(converted(value, from, to));
      op.compare(out, expected, std::string("from ") + dtype_text(from));
    }
  }
  op.finish();
}

void copies_of_any_layout(const Context& c) {
  OpRun op(c, "copy");
  for (const int32_t dtype : {AA_DTYPE_U8, AA_DTYPE_F16, AA_DTYPE_F32, AA_DTYPE_I64}) {
    for (const Shape& shape : shapes) {
      for (const Layout& from : {dense, padded, spread}) {
        for (const Layout& to : {dense, spread}) {
          Values values(count_of(shape));
          for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251);
          OpTensor in(c, dtype, shape, values, from);
          OpTensor out(c, dtype, shape, {}, to);
          if (!op.run({out.view(), in.view()})) continue;
          op.compare(out, in.given(), std::string(from.name) + " to " + to.name);
        }
      }
    }
  }
  // A transposed matrix.
  OpTensor in(c, AA_DTYPE_F32, {33, 20}, numbers(660, 12));
  OpTensor out(c, AA_DTYPE_BF16, {20, 33});
  aa_tensor transposed = in.view();
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  if (op.run({out.view(), transposed})) {
    Values expected;
    for (size_t i = 0; i < 20; ++i) {
      for (size_t j = 0; j < 33; ++j) expected.push_back(in.given()[j * 20 + i]);
    }
    op.compare(out, expected, "transposed");
  }
  op.finish();
}

void increments(const Context& c) {
  OpRun op(c, "increment");
  for (const int32_t dtype : {AA_DTYPE_I32, AA_DTYPE_I64}) {
    for (const Layout& layout : {dense, spread}) {
      for (const Shape& shape : shapes) {
        Values values = numbers(count_of(shape), 13, 1e6);
        for (double& value : values) value = std::trunc(value);
        OpTensor x(c, dtype, shape, values, layout);
        aa_increment_params params{};
        params.amount = -3;
        if (!op.run({x.view()}, params)) continue;
        Values expected = x.given();
        for (double& value : expected) value -= 3;
        op.compare(x, expected, layout.name);
      }
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.activation", "every_kind", activations},
    {"op.gated_activation", "every_kind", gated_activations},
    {"op.add", "every_dtype", add},
    {"op.copy", "between_all_dtypes", copies_between_all_dtypes},
    {"op.copy", "of_any_layout", copies_of_any_layout},
    {"op.increment", "adds", increments},
};

}  // namespace
}  // namespace elementwise_group

std::span<const Case> elementwise_cases() { return elementwise_group::cases; }

}  // namespace anyaccel::conformance
