// Reads the tensors of the matmul ops into a Matmul; the host has checked dtypes and shapes.
#include "accelerators/cpu/kernels/matmul_args.h"

#include <cstddef>

#include "accelerators/cpu/kernels/quantized_linear.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

Matrix matrix(const aa_tensor& tensor) {
  if (tensor.dtype == AA_DTYPE_NONE) return {};
  return {tensor.data, static_cast<DType>(tensor.dtype), tensor.strides[0], tensor.strides[1]};
}

Matrix row_vector(const aa_tensor& tensor) {
  if (tensor.dtype == AA_DTYPE_NONE) return {};
  return {tensor.data, static_cast<DType>(tensor.dtype), 0, tensor.strides[0]};
}

Matmul with_x(const aa_tensor& x) {
  Matmul args;
  args.x = matrix(x);
  args.m = x.shape[0];
  args.k = x.shape[1];
  return args;
}

}  // namespace

bool is_small(const Matmul& args) noexcept {
  constexpr double kSmall = 32768;  // multiply-adds: about 1 us on one thread
  double columns = 0;
  for (int i = 0; i < args.part_count; ++i) columns += static_cast<double>(args.parts[static_cast<size_t>(i)].n);
  return static_cast<double>(args.m) * static_cast<double>(args.k) * columns * args.weights() < kSmall;
}

bool has_bf16_rows(const Matmul& args) noexcept {
  for (int i = 0; i < args.part_count; ++i) {
    for (int j = 0; j < args.weights(); ++j) {
      const Matrix& weight = args.parts[static_cast<size_t>(i)].weight[static_cast<size_t>(j)];
      if (weight.dtype != DType::BF16 || weight.column_stride != 1 || weight.row_stride < args.k) return false;
    }
  }
  return true;
}

Matmul rows_of(const Matmul& args, int64_t begin, int64_t count) {
  Matmul part = args;
  part.m = count;
  part.x.data = args.x.at(begin, 0);
  for (int i = 0; i < args.part_count; ++i) {
    MatmulPart& p = part.parts[static_cast<size_t>(i)];
    p.out.data = p.out.at(begin, 0);
    if (p.residual) p.residual.data = p.residual.at(begin, 0);
  }
  return part;
}

Matmul linear_args(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;  // out, x, w, bias, residual
  Matmul args = with_x(t[1]);
  MatmulPart& part = args.parts[0];
  part.n = t[0].shape[1];
  part.out = matrix(t[0]);
  part.weight[0] = matrix(t[2]);
  if (call.tensor_count > 3) part.bias[0] = row_vector(t[3]);
  if (call.tensor_count > 4) part.residual = matrix(t[4]);
  args.part_count = 1;
  return args;
}

QuantizedProduct quantized_linear_args(const aa_op_call& call) {
  const aa_tensor& w = call.tensors[2];
  const auto& params = params_of<aa_quantized_params>(call);
  QuantizedProduct product;
  product.args = linear_args(call);
  product.args.parts[0].weight[0] = {};
  product.format = find_block_format(static_cast<uint32_t>(params.format));
  product.w = static_cast<const uint8_t*>(w.data);
  product.w_stride = w.strides[0];
  product.rounded = params.rounding == AA_QUANTIZED_ROUNDED;
  return product;
}

Matmul linear_multi_args(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;  // x, then out, w, bias of each part
  Matmul args = with_x(t[0]);
  args.part_count = static_cast<int>((call.tensor_count - 1) / 3);
  for (int i = 0; i < args.part_count; ++i) {
    const aa_tensor* p = t + 1 + 3 * static_cast<ptrdiff_t>(i);
    MatmulPart& part = args.parts[static_cast<size_t>(i)];
    part.n = p[0].shape[1];
    part.out = matrix(p[0]);
    part.weight[0] = matrix(p[1]);
    part.bias[0] = row_vector(p[2]);
  }
  return args;
}

Matmul gated_linear_args(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;  // out, x, w_gate, w_up, bias_gate, bias_up
  Matmul args = with_x(t[1]);
  MatmulPart& part = args.parts[0];
  part.n = t[0].shape[1];
  part.out = matrix(t[0]);
  part.weight = {matrix(t[2]), matrix(t[3])};
  if (call.tensor_count > 4) part.bias[0] = row_vector(t[4]);
  if (call.tensor_count > 5) part.bias[1] = row_vector(t[5]);
  args.part_count = 1;
  args.gated = true;
  args.activation = static_cast<aa_activation>(params_of<aa_activation_params>(call).kind);
  return args;
}

}  // namespace anyaccel::cpu
