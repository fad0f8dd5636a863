// Cases of the ops extension: a few ops in F32, each against the plain formula on the host.
//
// They find wrong tensor orders, strides, parameters and grids. The exactness of every op on every dtype is for the
// tests of the op libraries, which compare with the CPU's reference version.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "anyaccel/abi/ops.h"
#include "conformance/context.h"

namespace anyaccel::conformance {
namespace {

aa_ops_table ops(const Context& c) { return c.extension<aa_ops_table>(AA_OPS_EXTENSION, AA_OPS_VERSION); }

// A dense tensor in memory of the device.
class Tensor {
 public:
  template <class T>
  Tensor(const Context& c, aa_dtype dtype, std::vector<int64_t> shape, const std::vector<T>& values)
      : memory_(std::make_unique<Memory>(c, values.size() * sizeof(T))) {
    c.upload(memory_->data(), values.data(), memory_->size());
    view.data = memory_->data();
    view.dtype = dtype;
    view.ndim = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (size_t i = AA_MAX_DIMS; i-- > 0;) {
      view.shape[i] = i < shape.size() ? shape[i] : 1;
      view.strides[i] = i < shape.size() ? stride : 0;
      if (i < shape.size()) stride *= shape[i];
    }
  }

  template <class T>
  std::vector<T> values(const Context& c) const {
    std::vector<T> result(memory_->size() / sizeof(T));
    c.download(result.data(), memory_->data(), memory_->size());
    return result;
  }

  aa_tensor view{};

 private:
  std::unique_ptr<Memory> memory_;
};

constexpr aa_tensor absent{};

// Numbers between -2 and 2.
std::vector<float> numbers(size_t count, unsigned seed) {
  const Bytes bytes = pattern(count * 2, seed);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((bytes[2 * i] << 8 | bytes[2 * i + 1]) - 32768) / 16384.0f;
  }
  return values;
}

// Runs an op; ends the case as unsupported when the driver does not have it or refuses the call.
void run(const Context& c, const char* name, const std::vector<aa_tensor>& tensors, const void* params = nullptr,
         size_t params_size = 0) {
  const aa_ops_table table = ops(c);
  int32_t op = -1;
  aa_status* found = table.find(c.instance, name, &op);
  if (found && c.host.status_code(found) == AA_NOT_FOUND) {
    c.drop(found);
    c.unsupported(std::string("the driver has no op \"") + name + "\"");
  }
  c.ok_or_unsupported(found, std::string("find of \"") + name + "\"");
  c.expect(op >= 0, "find gave a negative number");

  std::vector<aa_tensor> shapes = tensors;
  for (aa_tensor& tensor : shapes) tensor.data = nullptr;
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = op;
  call.tensors = shapes.data();
  call.tensor_count = static_cast<uint32_t>(shapes.size());
  call.params = params;
  call.params_size = static_cast<uint32_t>(params_size);
  int32_t supported = -1;
  c.ok(table.supports(c.device, &call, &supported), "supports with null data");
  if (!supported) c.unsupported(std::string("the driver refuses \"") + name + "\" in F32");
  call.tensors = tensors.data();
  c.ok(table.enqueue(c.stream, &call), std::string("enqueue of \"") + name + "\"");
}

void expect_close(const Context& c, const std::vector<float>& found, const std::vector<double>& expected,
                  double tolerance) {
  c.expect(found.size() == expected.size(), "the output has another size");
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::fabs(found[i] - expected[i]);
    c.expect(difference <= tolerance * (1 + std::fabs(expected[i])), "element " + std::to_string(i) + " is " +
                                                                         std::to_string(found[i]) + " and must be " +
                                                                         std::to_string(expected[i]));
  }
}

void unknown_op_is_not_found(const Context& c) {
  int32_t op = -77;
  c.error(ops(c).find(c.instance, "no_such_op", &op), {AA_NOT_FOUND}, "find of an unknown op");
  c.expect(op == -77, "find failed but wrote a number");
}

void unknown_number_is_refused(const Context& c) {
  aa_op_call call{};
  call.struct_size = sizeof(call);
  call.op = std::numeric_limits<int32_t>::max();
  c.any_error(ops(c).enqueue(c.stream, &call), "enqueue of a number that find never gave");
}

void add(const Context& c) {
  const auto a = numbers(1003, 1);
  const auto b = numbers(1003, 2);
  Tensor out(c, AA_DTYPE_F32, {1003}, std::vector<float>(1003));
  Tensor left(c, AA_DTYPE_F32, {1003}, a);
  Tensor right(c, AA_DTYPE_F32, {1003}, b);
  run(c, "add", {out.view, left.view, right.view});
  std::vector<double> expected(a.size());
  for (size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + b[i];
  expect_close(c, out.values<float>(c), expected, 0);
}

void copy_converts_and_transposes(const Context& c) {
  const std::vector<float> values = {1.9f, -1.9f, 0.4f, 3e10f, -3e10f, std::nanf("")};
  Tensor out(c, AA_DTYPE_I32, {3, 2}, std::vector<int32_t>(6));
  Tensor in(c, AA_DTYPE_F32, {2, 3}, values);
  aa_tensor transposed = in.view;
  transposed.shape[0] = 3;
  transposed.shape[1] = 2;
  transposed.strides[0] = 1;
  transposed.strides[1] = 3;
  run(c, "copy", {out.view, transposed});
  const std::vector<int32_t> expected = {1, INT32_MAX, -1, INT32_MIN, 0, 0};
  const auto found = out.values<int32_t>(c);
  for (size_t i = 0; i < expected.size(); ++i) {
    c.expect(found[i] == expected[i], "element " + std::to_string(i) + " is " + std::to_string(found[i]) +
                                          " and must be " + std::to_string(expected[i]));
  }
}

void increment(const Context& c) {
  Tensor x(c, AA_DTYPE_I32, {4}, std::vector<int32_t>{0, 5, -7, 100});
  aa_increment_params params{};
  params.struct_size = sizeof(params);
  params.amount = 3;
  run(c, "increment", {x.view}, &params, sizeof(params));
  c.expect(x.values<int32_t>(c) == std::vector<int32_t>{3, 8, -4, 103}, "3 added to each gave something else");
}

void argmax_takes_the_lowest_index(const Context& c) {
  constexpr size_t width = 300;
  auto values = numbers(3 * width, 3);
  values[17] = values[200] = 9;
  values[width + 299] = 9;
  values[2 * width] = 9;
  Tensor out(c, AA_DTYPE_I32, {3}, std::vector<int32_t>(3, -1));
  Tensor in(c, AA_DTYPE_F32, {3, width}, values);
  run(c, "argmax", {out.view, in.view});
  c.expect(out.values<int32_t>(c) == std::vector<int32_t>{17, 299, 0}, "wrong indices");
}

void embedding_gathers_rows(const Context& c) {
  constexpr size_t width = 33;
  const auto table = numbers(10 * width, 4);
  const std::vector<int32_t> ids = {9, 0, 3, 3};
  Tensor out(c, AA_DTYPE_F32, {4, width}, std::vector<float>(4 * width));
  Tensor rows(c, AA_DTYPE_F32, {10, width}, table);
  Tensor which(c, AA_DTYPE_I32, {4}, ids);
  run(c, "embedding", {out.view, rows.view, which.view});
  std::vector<double> expected;
  for (const int32_t id : ids) {
    for (size_t j = 0; j < width; ++j) expected.push_back(table[static_cast<size_t>(id) * width + j]);
  }
  expect_close(c, out.values<float>(c), expected, 0);
}

void rms_norm(const Context& c) {
  constexpr size_t width = 200;
  const auto x = numbers(2 * width, 5);
  const auto weight = numbers(width, 6);
  Tensor out(c, AA_DTYPE_F32, {2, width}, std::vector<float>(2 * width));
  Tensor in(c, AA_DTYPE_F32, {2, width}, x);
  Tensor scale(c, AA_DTYPE_F32, {width}, weight);
  aa_norm_params params{};
  params.struct_size = sizeof(params);
  params.eps = 1e-5f;
  run(c, "rms_norm", {out.view, in.view, scale.view, absent}, &params, sizeof(params));
  std::vector<double> expected;
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t j = 0; j < width; ++j) sum += std::pow(x[row * width + j], 2);
    for (size_t j = 0; j < width; ++j) {
      expected.push_back(x[row * width + j] / std::sqrt(sum / width + params.eps) * weight[j]);
    }
  }
  expect_close(c, out.values<float>(c), expected, 1e-5);
}

void linear(const Context& c) {
  constexpr size_t rows = 3;
  constexpr size_t outputs = 17;
  constexpr size_t inputs = 70;
  const auto x = numbers(rows * inputs, 7);
  const auto w = numbers(outputs * inputs, 8);
  const auto bias = numbers(outputs, 9);
  Tensor out(c, AA_DTYPE_F32, {rows, outputs}, std::vector<float>(rows * outputs));
  Tensor in(c, AA_DTYPE_F32, {rows, inputs}, x);
  Tensor weight(c, AA_DTYPE_F32, {outputs, inputs}, w);
  Tensor shift(c, AA_DTYPE_F32, {outputs}, bias);
  run(c, "linear", {out.view, in.view, weight.view, shift.view, absent});
  std::vector<double> expected;
  for (size_t m = 0; m < rows; ++m) {
    for (size_t n = 0; n < outputs; ++n) {
      double sum = bias[n];
      for (size_t k = 0; k < inputs; ++k) sum += static_cast<double>(x[m * inputs + k]) * w[n * inputs + k];
      expected.push_back(sum);
    }
  }
  expect_close(c, out.values<float>(c), expected, 1e-4);
}

void softmax(const Context& c) {
  constexpr size_t width = 130;
  const auto x = numbers(2 * width, 10);
  Tensor out(c, AA_DTYPE_F32, {2, width}, std::vector<float>(2 * width));
  Tensor in(c, AA_DTYPE_F32, {2, width}, x);
  aa_softmax_params params{};
  params.struct_size = sizeof(params);
  params.scale = 3;
  run(c, "softmax", {out.view, in.view}, &params, sizeof(params));
  std::vector<double> expected;
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (size_t j = 0; j < width; ++j) sum += std::exp(3.0 * x[row * width + j]);
    for (size_t j = 0; j < width; ++j) expected.push_back(std::exp(3.0 * x[row * width + j]) / sum);
  }
  expect_close(c, out.values<float>(c), expected, 1e-5);
}

void gated_activation(const Context& c) {
  const auto gate = numbers(500, 11);
  const auto up = numbers(500, 12);
  Tensor out(c, AA_DTYPE_F32, {500}, std::vector<float>(500));
  Tensor left(c, AA_DTYPE_F32, {500}, gate);
  Tensor right(c, AA_DTYPE_F32, {500}, up);
  aa_activation_params params{};
  params.struct_size = sizeof(params);
  params.kind = AA_ACTIVATION_SILU;
  run(c, "gated_activation", {out.view, left.view, right.view}, &params, sizeof(params));
  std::vector<double> expected;
  for (size_t i = 0; i < gate.size(); ++i) {
    expected.push_back(static_cast<double>(gate[i]) / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i]);
  }
  expect_close(c, out.values<float>(c), expected, 1e-5);
}

void random_bits_are_philox(const Context& c) {
  // The vectors of Random123 for Philox 4x32-10 with counter 0 and key 0.
  Tensor out(c, AA_DTYPE_I32, {4}, std::vector<uint32_t>(4));
  aa_random_params params{};
  params.struct_size = sizeof(params);
  params.kind = AA_RANDOM_BITS;
  run(c, "random", {out.view}, &params, sizeof(params));
  c.expect(out.values<uint32_t>(c) == std::vector<uint32_t>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
           "the first four words of seed 0 are not those of Philox 4x32-10");
}

constexpr Case cases[] = {
    {"ops", "unknown_op_is_not_found", unknown_op_is_not_found},
    {"ops", "unknown_number_is_refused", unknown_number_is_refused},
    {"ops", "add", add},
    {"ops", "copy_converts_and_transposes", copy_converts_and_transposes},
    {"ops", "increment", increment},
    {"ops", "argmax_takes_the_lowest_index", argmax_takes_the_lowest_index},
    {"ops", "embedding_gathers_rows", embedding_gathers_rows},
    {"ops", "rms_norm", rms_norm},
    {"ops", "linear", linear},
    {"ops", "softmax", softmax},
    {"ops", "gated_activation", gated_activation},
    {"ops", "random_bits_are_philox", random_bits_are_philox},
};

}  // namespace

std::span<const Case> op_cases() { return cases; }

}  // namespace anyaccel::conformance
