// Tensors of calls as the kernels of kernels/cuda/decode_*.cu take them.
#pragma once

#include "accelerators/cuda/ops/decode_plan.h"
#include "accelerators/cuda/ops/op_group.h"

namespace anyaccel::cuda {

// The norm before a product.
struct CallNorm {
  const aa_tensor& weight;  // may be absent
  float eps;
  int32_t dtype = AA_DTYPE_F32;  // of its result; decode_tiles.cpp does not read it: each of its formats has one
};

// A weight with its results and bias, in units of `unit` rows.
aa_decode_part part_of(const aa_tensor& out, const aa_tensor& w, const aa_tensor& bias, int unit);
aa_decode_residual residual_of(const aa_tensor& residual);

// Of "norm_qkv_rope" and "norm_quantized_qkv_rope", whose tensors have one order.
struct QkvArguments {
  aa_decode_heads q, k, v;
  aa_decode_rope rope;
};
QkvArguments qkv_arguments(const aa_tensor* tensors, int32_t interleaved);

}  // namespace anyaccel::cuda
