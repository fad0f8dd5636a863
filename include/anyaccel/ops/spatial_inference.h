// Additions of biases in diffusion models, under DeepSpeed's names: the library that "SpatialInferenceBuilder" loads.
//
// x and `other` are fp16, [N, C, H, W] with the channels innermost in memory (channels last) or [N, S, C] contiguous; C
// is a multiple of 8. Every sum is rounded to fp16. The result is a new tensor with the memory layout of x. Calls are
// enqueued on the calling thread's current stream and do not block. An InvalidArgument names the argument, what was
// found and what was expected.
#pragma once

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel::ops {

class SpatialInference : public OpLibrary {
 public:
  explicit SpatialInference(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  // x + bias
  Tensor nhwc_bias_add(const Tensor& x, const Tensor& bias);
  // x + bias + other
  Tensor nhwc_bias_add_add(const Tensor& x, const Tensor& bias, const Tensor& other);
  // (x + bias) + (other + other_bias)
  Tensor nhwc_bias_add_bias_add(const Tensor& x, const Tensor& bias, const Tensor& other, const Tensor& other_bias);

 private:
  Accelerator& accelerator_;
  Inference ops_;
};

}  // namespace anyaccel::ops
