// Attention for protein models, with a bias for each key and one for each pair: the library that "EvoformerAttnBuilder"
// loads.
//
//   o = softmax(q k^T / sqrt(d) + bias1 + bias2) v, over the L positions of each sequence
//
// q, k, v and o are [*, L, nh, d], usually [B, N, L, nh, d] with N sequences that share a pair bias; bias1 (keys) is
// [B, N, 1, 1, L], bias2 (pairs) [B, 1, nh, L, L]. All are of one dtype, float32, float16 or bfloat16; arithmetic is
// fp32. An absent tensor, or one without elements, means that there is no bias. lse and delta are float32 with room for
// [B * N, nh, L rounded up to a multiple of 32]: the logarithm of the sum of exponentials of each row, -infinity for a
// row that sees nothing, whose result is zeros; places beyond L are not written.
//
// Scores are computed in parts, so memory in addition to the arguments is linear in L. Unlike DeepSpeed's kernels,
// these accept any L and any d. Tensors are on one device; calls enqueue on the calling thread's current stream of it,
// except that an accelerator without portable kernels computes on the host and returns when the result is complete. An
// InvalidArgument names the tensor. Thread-safe.
#pragma once

#include <memory>
#include <span>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

class EvoformerAttn : public OpLibrary {
 public:
  EvoformerAttn(Accelerator& accelerator, std::shared_ptr<HostOpLibrary> code);
  ~EvoformerAttn() override;

  // Writes o and lse.
  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias1, const Tensor& bias2,
                 const Tensor& o, const Tensor& lse);
  // Writes the gradients gq, gk and gv for go, and adds to gb1 and gb2, which are float32 of the biases' shapes, zeros
  // on entry, or without elements if they are not needed. delta is scratch. o and lse are those of the forward call.
  void attention_bwd(const Tensor& go, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                     const Tensor& lse, const Tensor& delta, const Tensor& bias1, const Tensor& bias2, const Tensor& gq,
                     const Tensor& gk, const Tensor& gv, const Tensor& gb1, const Tensor& gb2);

  // The same, but it allocates its results. `biases`: none, bias1, or bias1 and bias2, either of which may be absent.
  struct Saved {
    Tensor o, lse;
  };
  Tensor DS4Sci_EvoformerAttention(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const Tensor> biases,
                                   Saved* saved = nullptr);
  struct Gradients {
    Tensor q, k, v;
    Tensor bias1, bias2;  // of the biases' dtype; absent where there is no such bias
  };
  Gradients backward(const Tensor& go, const Tensor& q, const Tensor& k, const Tensor& v,
                     std::span<const Tensor> biases, const Saved& saved);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
