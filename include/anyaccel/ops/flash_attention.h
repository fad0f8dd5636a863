// Attention whose memory grows with the length and not with its square: the library that "FlashAttentionBuilder" loads,
// the name under which DeepSpeed has it for XPUs.
#pragma once

#include <optional>

#include "anyaccel/op_builder.h"
#include "anyaccel/ops/training.h"

namespace anyaccel::ops {

class FlashAttention : public OpLibrary {
 public:
  explicit FlashAttention(Accelerator& accelerator) : accelerator_(accelerator), ops_(accelerator) {}

  // Returns softmax(q k' * softmax_scale) v, [B, Sq, nh, d], for q [B, Sq, nh, d], k and v [B, Sk, nkv, d], where nh is
  // a multiple of nkv, all of the same dtype: fp32, fp16 or bf16. The scale is 1 / sqrt(d) unless given. With
  // is_causal, query i sees the keys up to i + Sk - Sq: the last query and the last key are at the same position.
  // dropout_p must be 0. Sk is at least 1, and at least Sq with is_causal. Enqueues on the current stream, after
  // waiting for the work on it while two small tables are copied to the device.
  Tensor flash_attn_func(const Tensor& q, const Tensor& k, const Tensor& v, float dropout_p = 0,
                         std::optional<float> softmax_scale = {}, bool is_causal = false);

  // Returns the gradients of q, k and v for grad_out, which has the result's shape and dtype; the other arguments are
  // those of the forward call. Scores are recomputed for some queries at a time, so that memory in addition to the
  // tensors grows with Sk and not with Sq * Sk; sums are fp32. With is_causal it blocks while a table is copied to the
  // device.
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
