// DeepSpeed's core ops of inference, version 2: the library that "InferenceCoreBuilder" loads. Names, argument order
// and meaning are DeepSpeed's.
//
// fp32, fp16 and bf16, with fp32 arithmetic and one rounding when a result is stored, unless stated otherwise.
// Everything but preprocess_weight and wf6af16_linear is enqueued on the calling thread's current stream and does not
// block. An InvalidArgument names the argument, what was found and what was expected.
#pragma once

#include <cstdint>
#include <utility>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"

namespace anyaccel::ops {

// GELU is the form with tanh. GEGLU, ReGLU and SiGLU take pairs: act(a) * b.
enum class ActivationType : int32_t { GELU = 0, RELU = 1, SILU = 2, GEGLU = 3, ReGLU = 4, SiGLU = 5, IDENTITY = 6 };

class InferenceCore : public OpLibrary {
 public:
  explicit InferenceCore(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  // x [rows, cols] = act(x + bias), in place; bias [cols] or absent. GELU, RELU, SILU or IDENTITY; fp16 or bf16.
  void bias_activation(const Tensor& x, const Tensor& bias, ActivationType act);

  // Tensors are 2-D or 3-D, gamma and beta have the size of the last dimension; all are of one dtype.
  void layer_norm(const Tensor& out, const Tensor& in, const Tensor& gamma, const Tensor& beta, float eps);
  // res_out = in + residual; norm_out = layer_norm(res_out).
  void pre_layer_norm(const Tensor& res_out, const Tensor& norm_out, const Tensor& in, const Tensor& residual,
                      const Tensor& gamma, const Tensor& beta, float eps);
  // out = layer_norm(in + residual), the sum in fp32.
  void post_layer_norm(const Tensor& out, const Tensor& in, const Tensor& residual, const Tensor& gamma,
                       const Tensor& beta, float eps);
  // Tensors are 2-D.
  void rms_norm(const Tensor& out, const Tensor& in, const Tensor& gamma, float eps);
  // res_out = in + residual; norm_out = rms_norm(res_out).
  void rms_pre_norm(const Tensor& norm_out, const Tensor& res_out, const Tensor& in, const Tensor& residual,
                    const Tensor& gamma, float eps);

  // out[.., j] = act(in[.., 2j] + bias[2j]) * (in[.., 2j + 1] + bias[2j + 1]); in [rows, C], out [rows, C / 2], bias
  // [C] or absent. GEGLU, ReGLU or SiGLU.
  void gated_activation(const Tensor& out, const Tensor& in, const Tensor& bias, ActivationType act);

  // out [.., N] = x [.., K] * w'; w [N, K] of any strides.
  void blas_linear(const Tensor& out, const Tensor& x, const Tensor& w);
  // C [.., N, M] = A [.., N, K] * B [.., K, M], of any strides. Note the order of the arguments.
  void blas_4d_matmul(const Tensor& C, const Tensor& B, const Tensor& A);
  // Does nothing, as there is no handle to create; kept so that programs that call it run.
  void create_handle() {}

  // -- FP6 weights: one sign bit, three bits of exponent (bias 3) and two of mantissa; the largest value is 28, the
  // smallest 0.0625.

  // Splits a weight fp16 [M, K] on the host in two parts, U8 [M * K / 4] and [M * K / 2]: the first holds the two bits
  // of each element's mantissa, the second its sign and exponent; the elements of a byte begin at its lowest bits. The
  // layout is specific to this library. Values must be exactly representable in FP6; K is a multiple of 4.
  std::pair<Tensor, Tensor> preprocess_weight(const Tensor& w);
  // In DeepSpeed's name a vendor's name precedes this one. out fp16 [N, M] = x fp16 [N, K] * weight' * scale; scales
  // fp16 [M], one for each row of the weight. M is a multiple of 256, K of 64. workspace F32 [M * N * split_k] holds
  // the sums; split_k >= 1 has no other effect. The weight is decoded to fp16 in each call, which waits for the work on
  // the stream while small tables are copied to the device.
  void wf6af16_linear(const Tensor& out, const Tensor& x, const Tensor& weight_2bit, const Tensor& weight_4bit,
                      const Tensor& scales, const Tensor& workspace, int64_t M, int64_t N, int64_t K, int64_t split_k);

 private:
  Tensor with_bias(const Tensor& x, const Tensor& bias);

  Accelerator& accelerator_;
  Training ops_;
};

}  // namespace anyaccel::ops
