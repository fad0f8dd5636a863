// Implements ops::InferenceCore with the ops of ops::Training.
#include "anyaccel/ops/inference_core.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "base/scalar_convert.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {
namespace {

void check_norm(ArgumentChecks& check, const Tensor& in, const Tensor& gamma, const Tensor& beta, bool layer) {
  check.one_of("in", in, float_dtypes);
  if (layer) {
    check.require(in.ndim() == 2 || in.ndim() == 3,
                  "in has shape " + in.shape().to_string() + ", expected 2 or 3 dimensions");
  } else {
    check.rank("in", in, 2, "[rows, cols]");
  }
  check.tensor("gamma", gamma, in.dtype(), {in.size(-1)});
  if (layer) check.tensor("beta", beta, in.dtype(), {in.size(-1)});
}

std::string name_of(ActivationType act) {
  constexpr const char* names[] = {"GELU", "RELU", "SILU", "GEGLU", "ReGLU", "SiGLU", "IDENTITY"};
  const auto i = static_cast<size_t>(act);
  return i < 7 ? names[i] : std::to_string(i);
}

// -- FP6: a code consists of a sign, three bits of exponent and two of mantissa. A value is A + B * mantissa, where A
// and B follow from sign and exponent, which are the four bits of weight_4bit.

double fp6_step(unsigned high) {
  const int exponent = std::max<int>(static_cast<int>(high & 7), 1);
  return std::ldexp((high & 8) != 0 ? -0.25 : 0.25, exponent - 3);
}
double fp6_base(unsigned high) { return (high & 7) == 0 ? 0 : 4 * fp6_step(high); }

// Returns the code of a value; -1 if there is none.
int fp6_code(double value) {
  const unsigned sign = std::signbit(value) ? 8 : 0;
  for (unsigned exponent = 0; exponent < 8; ++exponent) {
    const unsigned high = sign | exponent;
    const double mantissa = (value - fp6_base(high)) / fp6_step(high);
    if (mantissa == 0 || mantissa == 1 || mantissa == 2 || mantissa == 3) {
      return static_cast<int>(high << 2) | static_cast<int>(mantissa);
    }
  }
  return -1;
}

// Returns a table with a row of fp16 numbers for each value of a byte.
template <class Function>
Tensor byte_table(const Device& device, int64_t columns, Function value) {
  std::vector<uint16_t> rows;
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (int64_t c = 0; c < columns; ++c) {
      rows.push_back(float_to_fp16(static_cast<float>(value(byte >> (8 / columns * c) & ((1u << 8 / columns) - 1)))));
    }
  }
  return Tensor::from_host(rows.data(), {256, columns}, DType::F16, device);
}

}  // namespace

// Returns the sum in fp32.
Tensor InferenceCore::with_bias(const Tensor& x, const Tensor& bias) {
  const Tensor sum = Tensor::empty(x.shape(), DType::F32, x.device());
  ops_.add(sum, x, bias.expand(x.shape()));
  return sum;
}

void InferenceCore::bias_activation(const Tensor& x, const Tensor& bias, ActivationType act) {
  ArgumentChecks check(accelerator_, "bias_activation");
  check.one_of("x", x, {DType::F16, DType::BF16});
  check.rank("x", x, 2, "[rows, cols]");
  check.optional("bias", bias, x.dtype(), {x.size(1)});
  check.require(act == ActivationType::GELU || act == ActivationType::RELU || act == ActivationType::SILU ||
                    act == ActivationType::IDENTITY,
                "act is " + name_of(act) + ", expected GELU, RELU, SILU or IDENTITY");
  const Tensor sum = bias ? with_bias(x, bias) : x;
  if (act == ActivationType::IDENTITY) {
    if (bias) ops_.copy(x, sum);
    return;
  }
  ops_.activation(x, sum,
                  act == ActivationType::GELU   ? Activation::GeluTanh
                  : act == ActivationType::RELU ? Activation::Relu
                                                : Activation::Silu);
}

void InferenceCore::layer_norm(const Tensor& out, const Tensor& in, const Tensor& gamma, const Tensor& beta,
                               float eps) {
  ArgumentChecks check(accelerator_, "layer_norm");
  check_norm(check, in, gamma, beta, true);
  check.tensor("out", out, in.dtype(), in.shape());
  ops_.layer_norm(out, in, gamma, beta, eps);
}

void InferenceCore::pre_layer_norm(const Tensor& res_out, const Tensor& norm_out, const Tensor& in,
                                   const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps) {
  ArgumentChecks check(accelerator_, "pre_layer_norm");
  check_norm(check, in, gamma, beta, true);
  check.tensor("residual", residual, in.dtype(), in.shape());
  check.tensor("res_out", res_out, in.dtype(), in.shape());
  check.tensor("norm_out", norm_out, in.dtype(), in.shape());
  check.apart("res_out", res_out, "norm_out", norm_out);
  check.apart("res_out", res_out, "gamma", gamma);
  check.apart("res_out", res_out, "beta", beta);
  ops_.add(res_out, in, residual);
  ops_.layer_norm(norm_out, res_out, gamma, beta, eps);
}

void InferenceCore::post_layer_norm(const Tensor& out, const Tensor& in, const Tensor& residual, const Tensor& gamma,
                                    const Tensor& beta, float eps) {
  ArgumentChecks check(accelerator_, "post_layer_norm");
  check_norm(check, in, gamma, beta, true);
  check.tensor("residual", residual, in.dtype(), in.shape());
  check.tensor("out", out, in.dtype(), in.shape());
  ops_.layer_norm(out, with_bias(in, residual), gamma, beta, eps);
}

void InferenceCore::rms_norm(const Tensor& out, const Tensor& in, const Tensor& gamma, float eps) {
  ArgumentChecks check(accelerator_, "rms_norm");
  check_norm(check, in, gamma, {}, false);
  check.tensor("out", out, in.dtype(), in.shape());
  ops_.rms_norm(out, in, gamma, eps);
}

void InferenceCore::rms_pre_norm(const Tensor& norm_out, const Tensor& res_out, const Tensor& in,
                                 const Tensor& residual, const Tensor& gamma, float eps) {
  ArgumentChecks check(accelerator_, "rms_pre_norm");
  check_norm(check, in, gamma, {}, false);
  check.tensor("residual", residual, in.dtype(), in.shape());
  check.tensor("norm_out", norm_out, in.dtype(), in.shape());
  check.tensor("res_out", res_out, in.dtype(), in.shape());
  check.apart("res_out", res_out, "norm_out", norm_out);
  check.apart("res_out", res_out, "gamma", gamma);
  ops_.add(res_out, in, residual);
  ops_.rms_norm(norm_out, res_out, gamma, eps);
}

void InferenceCore::gated_activation(const Tensor& out, const Tensor& in, const Tensor& bias, ActivationType act) {
  ArgumentChecks check(accelerator_, "gated_activation");
  check.one_of("in", in, float_dtypes);
  check.rank("in", in, 2, "[rows, C]");
  check.require(in.size(1) % 2 == 0, "in has " + std::to_string(in.size(1)) + " columns, expected an even number");
  check.tensor("out", out, in.dtype(), {in.size(0), in.size(1) / 2});
  check.optional("bias", bias, in.dtype(), {in.size(1)});
  check.require(act == ActivationType::GEGLU || act == ActivationType::ReGLU || act == ActivationType::SiGLU,
                "act is " + name_of(act) + ", expected GEGLU, ReGLU or SiGLU");
  if (out.numel() == 0) return;
  const Tensor both = bias ? with_bias(in, bias) : in;
  const int64_t columns = in.size(1);
  ops_.gated_activation(out, both.slice(1, 0, columns, 2), both.slice(1, 1, columns, 2),
                        act == ActivationType::GEGLU   ? Activation::GeluTanh
                        : act == ActivationType::ReGLU ? Activation::Relu
                                                       : Activation::Silu);
}

void InferenceCore::blas_linear(const Tensor& out, const Tensor& x, const Tensor& w) {
  ArgumentChecks check(accelerator_, "blas_linear");
  check.one_of("x", x, float_dtypes);
  check.require(x.ndim() >= 1, "x has shape " + x.shape().to_string() + ", expected [.., K]");
  check.rank("w", w, 2, "[N, K]");
  check.tensor("w", w, x.dtype(), {w.size(0), x.size(-1)});
  std::vector<int64_t> sizes(x.shape().dims().begin(), x.shape().dims().end());
  sizes.back() = w.size(0);
  check.tensor("out", out, x.dtype(), Shape(sizes));
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.size(d);
  const Tensor flat = out.reshape(Shape{rows, w.size(0)});  // a copy if the strides of `out` cannot be merged
  ops_.linear(flat, x.reshape(Shape{rows, x.size(-1)}), w);
  if (flat.storage() != out.storage()) out.copy_from(flat.view(out.shape()));
}

void InferenceCore::blas_4d_matmul(const Tensor& C, const Tensor& B, const Tensor& A) {
  ArgumentChecks check(accelerator_, "blas_4d_matmul");
  check.one_of("A", A, float_dtypes);
  check.require(A.ndim() >= 2, "A has shape " + A.shape().to_string() + ", expected [.., N, K]");
  check.rank("B", B, A.ndim(), "[.., K, M]");
  std::vector<int64_t> sizes(A.shape().dims().begin(), A.shape().dims().end());
  const size_t last = sizes.size() - 1;
  sizes[last - 1] = A.size(-1);
  sizes[last] = B.size(-1);
  check.tensor("B", B, A.dtype(), Shape(sizes));
  sizes[last - 1] = A.size(-2);
  check.tensor("C", C, A.dtype(), Shape(sizes));
  ops_.matmul(C, A, B);
}

std::pair<Tensor, Tensor> InferenceCore::preprocess_weight(const Tensor& w) {
  ArgumentChecks check(accelerator_, "preprocess_weight");
  check.require(static_cast<bool>(w), "w is absent, expected a tensor");
  check.require(w.device().is_host(),
                "w lies on " + w.device().name() + ", expected the host; copy it with Tensor::to()");
  check.require(w.dtype() == DType::F16, "w has dtype " + std::string(dtype_name(w.dtype())) + ", expected float16");
  check.require(w.ndim() == 2, "w has shape " + w.shape().to_string() + ", expected [M, K]");
  check.require(w.size(1) % 4 == 0, "w has K = " + std::to_string(w.size(1)) + ", expected a multiple of 4");
  const std::vector<float> values = w.to_vector<float>();
  const Tensor low = Tensor::zeros({w.numel() / 4}, DType::U8), high = Tensor::zeros({w.numel() / 2}, DType::U8);
  auto* const low_bytes = low.data_as<uint8_t>();
  auto* const high_bytes = high.data_as<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = fp6_code(static_cast<double>(values[i]));
    if (code < 0) {
      check.fail("Input value out of range for FP6: element " + std::to_string(i) + " is " + std::to_string(values[i]) +
                 ", expected 0 or a number with 2 bits of mantissa, of magnitude 0.0625 to 28");
    }
    low_bytes[i / 4] = static_cast<uint8_t>(low_bytes[i / 4] | (code & 3) << 2 * (i % 4));
    high_bytes[i / 2] = static_cast<uint8_t>(high_bytes[i / 2] | (code >> 2) << 4 * (i % 2));
  }
  return {low, high};
}

void InferenceCore::wf6af16_linear(const Tensor& out, const Tensor& x, const Tensor& weight_2bit,
                                   const Tensor& weight_4bit, const Tensor& scales, const Tensor& workspace, int64_t M,
                                   int64_t N, int64_t K, int64_t split_k) {
  ArgumentChecks check(accelerator_, "wf6af16_linear");
  const auto multiple = [&](const char* name, int64_t value, int64_t of) {
    check.require(value > 0 && value % of == 0, std::string(name) + " is " + std::to_string(value) +
                                                    ", expected a positive multiple of " + std::to_string(of));
  };
  multiple("M", M, 256);
  multiple("K", K, 64);
  check.require(N >= 0, "N is " + std::to_string(N) + ", expected at least 0");
  check.require(split_k >= 1, "split_k is " + std::to_string(split_k) + ", expected at least 1");
  check.tensor("x", x, DType::F16, {N, K});
  check.tensor("out", out, DType::F16, {N, M});
  check.tensor("weight_2bit", weight_2bit, DType::U8, {M * K / 4});
  check.tensor("weight_4bit", weight_4bit, DType::U8, {M * K / 2});
  check.tensor("scales", scales, DType::F16, {M});
  check.tensor("workspace", workspace, DType::F32, {M * N * split_k});
  if (N == 0) return;
  const Device device = x.device();
  // Each byte selects a row of a table, which has two or four numbers.
  const auto look_up = [&](const Tensor& bytes, int64_t columns, auto value) {
    const Tensor ids = Tensor::empty(bytes.shape(), DType::I32, device);
    ops_.copy(ids, bytes);
    const Tensor found = Tensor::empty({bytes.numel(), columns}, DType::F16, device);
    ops_.embedding(found, byte_table(device, columns, value), ids);
    return found.view(Shape{M, K});
  };
  const Tensor weight = look_up(weight_2bit, 4, [](unsigned mantissa) { return static_cast<double>(mantissa); });
  ops_.multiply(weight, weight, look_up(weight_4bit, 2, fp6_step));
  ops_.add(weight, weight, look_up(weight_4bit, 2, fp6_base));
  const Tensor sums = workspace.slice(0, 0, N * M).view(Shape{N, M});
  ops_.linear(sums, x, weight);
  ops_.multiply(out, sums, scales.expand({N, M}));
}

std::unique_ptr<OpBuilder> make_inference_core_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<InferenceCore>>("InferenceCoreBuilder", accelerator);
}

}  // namespace anyaccel::ops
