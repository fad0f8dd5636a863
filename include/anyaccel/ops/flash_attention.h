// Attention with memory that grows with the length and not with its square: the library that "FlashAttentionBuilder" loads, the
// name under which DeepSpeed has it for XPUs.
#pragma once

#include <optional>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"

namespace anyaccel::ops {

class FlashAttention : public OpLibrary {
 public:
  explicit FlashAttention(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  // q [B, Sq, nh, d], k and v [B, Sk, nkv, d], nh a multiple of nkv, of one dtype of fp32, fp16 and bf16: softmax(q k' * softmax_scale) v,
  // [B, Sq, nh, d]. The scale is 1 / sqrt(d) unless given. With is_causal, query i sees the keys up to i + Sk - Sq: the last of both stand
  // at the same position. dropout_p must be 0. Sk is at least 1, and at least Sq with is_causal. Enqueued on the current stream.
  Tensor flash_attn_func(const Tensor& q, const Tensor& k, const Tensor& v, float dropout_p = 0,
                         std::optional<float> softmax_scale = {}, bool is_causal = false);

  // The gradients of q, k and v for grad_out, which is of the result's shape and dtype; the other arguments as they were. Scores
  // are computed anew for some queries at a time, so that memory beside the tensors grows with Sk and not with Sq * Sk; sums
  // are fp32. Blocks while a table is copied to the device with is_causal.
  struct Gradients {
    Tensor q, k, v;
  };
  Gradients flash_attn_backward(const Tensor& grad_out, const Tensor& q, const Tensor& k, const Tensor& v,
                                std::optional<float> softmax_scale = {}, bool is_causal = false);

 private:
  Accelerator& accelerator_;
  Training ops_;
};

}  // namespace anyaccel::ops
