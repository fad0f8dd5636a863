// The definition of the matmul ops: plain loops, sums in double, one rounding at the end.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "accelerators/cpu/kernels/matmul_args.h"
#include "accelerators/cpu/kernels/quantized_linear.h"
#include "accelerators/cpu/ops.h"
#include "anyaccel/dtype.h"

namespace anyaccel::cpu {
namespace {

double element(const Matrix& matrix, int64_t row, int64_t column) {
  const void* p = matrix.at(row, column);
  switch (matrix.dtype) {
    case DType::BF16: return bf16_to_float(*static_cast<const uint16_t*>(p));
    case DType::F16: return fp16_to_float(*static_cast<const uint16_t*>(p));
    default: return *static_cast<const float*>(p);
  }
}

void store(const Matrix& matrix, int64_t row, int64_t column, double value) {
  void* p = matrix.at(row, column);
  const auto single = static_cast<float>(value);
  switch (matrix.dtype) {
    case DType::BF16: *static_cast<uint16_t*>(p) = float_to_bf16(single); break;
    case DType::F16: *static_cast<uint16_t*>(p) = float_to_fp16(single); break;
    default: *static_cast<float*>(p) = single; break;
  }
}

double activate(aa_activation kind, double x) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x / (1 + std::exp(-x));
    case AA_ACTIVATION_GELU: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case AA_ACTIVATION_GELU_TANH: {
      constexpr double kSqrt2OverPi = 0.79788456080286535588;
      return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
    }
    case AA_ACTIVATION_RELU: return x < 0 ? 0 : x;
    case AA_ACTIVATION_SIGMOID: return 1 / (1 + std::exp(-x));
    case AA_ACTIVATION_TANH: return std::tanh(x);
  }
  return x;
}

// Row m of x times row n of one weight, plus its bias.
double product(const Matmul& args, const Matrix& weight, const Matrix& bias, int64_t m, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < args.k; ++k) sum += element(args.x, m, k) * element(weight, n, k);
  return bias ? sum + element(bias, 0, n) : sum;
}

void run_reference(const Matmul& args) {
  for (int i = 0; i < args.part_count; ++i) {
    const MatmulPart& part = args.parts[static_cast<size_t>(i)];
    for (int64_t m = 0; m < args.m; ++m) {
      for (int64_t n = 0; n < part.n; ++n) {
        double value = product(args, part.weight[0], part.bias[0], m, n);
        if (args.gated) {
          value = activate(args.activation, value) * product(args, part.weight[1], part.bias[1], m, n);
        }
        if (part.residual) value += element(part.residual, m, n);
        store(part.out, m, n, value);
      }
    }
  }
}

}  // namespace

void linear_reference(const aa_op_call& call) { run_reference(linear_args(call)); }
void quantized_linear_reference(const aa_op_call& call) {
  QuantizedProduct product = quantized_linear_args(call);
  const int64_t k = product.args.k, n = product.args.parts[0].n;
  const auto row_bytes = static_cast<size_t>(k / product.format->values * product.format->bytes);
  std::vector<float> weights(static_cast<size_t>(n * k));
  for (int64_t row = 0; row < n; ++row) {
    decode_blocks(*product.format, std::as_bytes(std::span(product.w + row * product.w_stride, row_bytes)),
                  std::span(weights).subspan(static_cast<size_t>(row * k), static_cast<size_t>(k)));
  }
  product.args.parts[0].weight[0] = {weights.data(), DType::F32, k, 1};
  run_reference(product.args);
}

void linear_multi_reference(const aa_op_call& call) { run_reference(linear_multi_args(call)); }
void gated_linear_reference(const aa_op_call& call) { run_reference(gated_linear_args(call)); }

}  // namespace anyaccel::cpu
