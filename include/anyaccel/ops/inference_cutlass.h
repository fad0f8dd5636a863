// Products with quantized weights and with the weights of many experts: the library that "InferenceCutlassBuilder"
// loads, under DeepSpeed's names, argument order and meaning.
//
//   y = act(x w * scale + bias)
//
// x, out, scales and bias are of one dtype, float16, bfloat16 or float32; arithmetic is fp32, rounded once when y is
// stored. A quantized weight is int8, one element to a byte (num_bits 8), or int8 or uint8 with two to a byte (num_bits
// 4), in which the element of even number has the lower four bits; both are two's complement. DeepSpeed's own library
// then rearranges a weight for one vendor's cores; here a weight is used in this order on every accelerator. There is
// one scale for each column (of each expert). act is GELU (by tanh), RELU, SILU or IDENTITY, applied after the bias;
// the bias may be absent.
//
// Tensors that are not contiguous are copied; all are on one device. Calls enqueue on the calling thread's current
// stream of it, except that an accelerator without portable kernels computes on the host and returns when the result is
// complete. An InvalidArgument names the tensor, what was found and what was expected. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference_core.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class InferenceCutlass : public OpLibrary {
 public:
  InferenceCutlass(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~InferenceCutlass() override;

  // out [T, N], x [T, K], w [K, N] (num_bits 8) or [K, N / 2] (num_bits 4, N even), scales [N], bias [N].
  void mixed_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& scales, const Tensor& bias,
                  int num_bits, ActivationType act);
  // out [T, N]; x [T, K], ordered by expert; w [E, K, N] of x's dtype; bias [E, N]. rows_before_expert int64 [E] is the
  // number of rows of the experts up to and including each one. Rows of out from rows_before_expert[E - 1] on are
  // unchanged.
  void moe_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& rows_before_expert, ActivationType act);
  // The same with w [E, K, N] or [E, K, N / 2] of num_bits, and scales [E, N].
  void mixed_moe_gemm(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& scales, const Tensor& bias,
                      const Tensor& rows_before_expert, int num_bits, ActivationType act);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
