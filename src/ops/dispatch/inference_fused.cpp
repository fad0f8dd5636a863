// The fused ops of anyaccel/ops/inference.h: one call where the accelerator has it, else the sequence it stands for.
#include <array>

#include "ops/dispatch/inference_impl.h"

namespace anyaccel::ops {

void Inference::norm_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w, float eps,
                            const Tensor& normed, const Tensor& bias) {
  if (impl_->may_fuse(Op::NormLinear, normed)) {
    auto params = make_params<aa_norm_params>();
    params.eps = eps;
    if (impl_->run_native(Op::NormLinear, std::array{&out, &x, &norm, &w, &bias}, &params, sizeof(params))) return;
  }
  rms_norm(normed, x, norm, eps);
  linear(out, normed, w, bias);
}

void Inference::norm_gated_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w_gate,
                                  const Tensor& w_up, ops::Activation kind, float eps, const Tensor& normed,
                                  const Tensor& bias_gate, const Tensor& bias_up) {
  if (impl_->may_fuse(Op::NormGatedLinear, normed)) {
    auto params = make_params<aa_norm_activation_params>();
    params.eps = eps;
    params.kind = static_cast<int32_t>(kind);
    const std::array tensors{&out, &x, &norm, &w_gate, &w_up, &bias_gate, &bias_up};
    if (impl_->run_native(Op::NormGatedLinear, tensors, &params, sizeof(params))) return;
  }
  rms_norm(normed, x, norm, eps);
  gated_linear(out, normed, w_gate, w_up, kind, bias_gate, bias_up);
}

void Inference::norm_qkv_rope(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& x,
                              const Tensor& norm, const QkvWeights& weights, const Tensor& cos, const Tensor& sin,
                              const Tensor& sequence, const Tensor& positions, float eps, const QkvScratch& scratch,
                              bool interleaved) {
  if (impl_->may_fuse(Op::NormQkvRope, scratch.normed)) {
    auto params = make_params<aa_norm_rope_params>();
    params.eps = eps;
    params.interleaved = interleaved ? 1 : 0;
    const std::array tensors{&q,
                             &k_cache,
                             &v_cache,
                             &x,
                             &norm,
                             &weights.w_q,
                             &weights.bias_q,
                             &weights.w_k,
                             &weights.bias_k,
                             &weights.w_v,
                             &weights.bias_v,
                             &cos,
                             &sin,
                             &sequence,
                             &positions};
    if (impl_->run_native(Op::NormQkvRope, tensors, &params, sizeof(params))) return;
  }
  rms_norm(scratch.normed, x, norm, eps);
  const std::array<LinearPart, 3> parts = {{{scratch.q, weights.w_q, weights.bias_q},
                                            {scratch.k, weights.w_k, weights.bias_k},
                                            {scratch.v, weights.w_v, weights.bias_v}}};
  linear_multi(scratch.normed, parts);
  rope(q, scratch.k_heads, cos, sin, interleaved);
  cache_write(k_cache, v_cache, scratch.k_heads, scratch.v_heads, sequence, positions);
}

}  // namespace anyaccel::ops
