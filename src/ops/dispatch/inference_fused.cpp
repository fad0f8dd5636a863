// Implements the fused ops of anyaccel/ops/inference.h: a single call if the accelerator has the op, else the
// equivalent sequence of ops, with intermediate tensors in the workspace.
#include <array>

#include "anyaccel/error.h"
#include "ops/dispatch/inference_impl.h"

namespace anyaccel::ops {
namespace {

// The tensors of Op::NormQkvRope and Op::NormQuantizedQkvRope, in their order.
std::array<const Tensor*, 15> tensors_of_qkv_rope(const Tensor& q, const CacheSlots& cache, const Tensor& x,
                                                  const Tensor& norm, const QkvWeights& weights,
                                                  const Rotation& rotation) {
  return {&q,
          &cache.keys,
          &cache.values,
          &x,
          &norm,
          &weights.w_q,
          &weights.bias_q,
          &weights.w_k,
          &weights.bias_k,
          &weights.w_v,
          &weights.bias_v,
          &rotation.cos,
          &rotation.sin,
          &cache.sequence,
          &cache.positions};
}

}  // namespace

void Inference::norm_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w, float eps,
                            const Tensor& bias, DType between) {
  const std::array tensors{&out, &x, &norm, &w, &bias};
  if (impl_->may_fuse(Op::NormLinear)) {
    auto params = make_params<aa_norm_linear_params>();
    params.eps = eps;
    params.normed = static_cast<int32_t>(between);
    if (impl_->run_native(Op::NormLinear, tensors, &params, sizeof(params))) return;
  }
  impl_->check_sequence(Op::NormLinear, tensors);
  Workspace::Scratch scratch(impl_->workspace, x, Workspace::bytes(x.shape(), between));
  const Tensor normed = scratch.tensor(x.shape(), between);
  rms_norm(normed, x, norm, eps);
  linear(out, normed, w, bias);
}

void Inference::norm_gated_linear(const Tensor& out, const Tensor& x, const Tensor& norm, const Tensor& w_gate,
                                  const Tensor& w_up, ops::Activation kind, float eps, const Tensor& bias_gate,
                                  const Tensor& bias_up, DType between) {
  const std::array tensors{&out, &x, &norm, &w_gate, &w_up, &bias_gate, &bias_up};
  if (impl_->may_fuse(Op::NormGatedLinear)) {
    auto params = make_params<aa_norm_activation_params>();
    params.eps = eps;
    params.normed = static_cast<int32_t>(between);
    params.kind = static_cast<int32_t>(kind);
    if (impl_->run_native(Op::NormGatedLinear, tensors, &params, sizeof(params))) return;
  }
  impl_->check_sequence(Op::NormGatedLinear, tensors);
  Workspace::Scratch scratch(impl_->workspace, x, Workspace::bytes(x.shape(), between));
  const Tensor normed = scratch.tensor(x.shape(), between);
  rms_norm(normed, x, norm, eps);
  gated_linear(out, normed, w_gate, w_up, kind, bias_gate, bias_up);
}

void Inference::norm_qkv_rope(const Tensor& q, const CacheSlots& cache, const Tensor& x, const Tensor& norm,
                              const QkvWeights& weights, const Rotation& rotation, float eps, DType between) {
  const auto tensors = tensors_of_qkv_rope(q, cache, x, norm, weights, rotation);
  const bool norms_heads = weights.q_norm || weights.k_norm;
  if (!norms_heads && impl_->may_fuse(Op::NormQkvRope)) {
    auto params = make_params<aa_norm_rope_params>();
    params.eps = eps;
    params.normed = static_cast<int32_t>(between);
    params.interleaved = rotation.interleaved ? 1 : 0;
    if (impl_->run_native(Op::NormQkvRope, tensors, &params, sizeof(params))) return;
  }
  impl_->check_sequence(Op::NormQkvRope, tensors);
  if (q.ndim() != 3 || cache.keys.ndim() != 4) {
    throw InvalidArgument("norm_qkv_rope: tensor \"q\" has shape " + q.shape().to_string() +
                          " and tensor \"k_cache\" has shape " + cache.keys.shape().to_string() +
                          ", expected [T, Hq, D] and [B, Hk, S, D]");
  }
  const int64_t tokens = q.size(0), heads = q.size(1), size = q.size(2), kv_heads = cache.keys.size(1);
  const Shape rows{tokens, kv_heads * size};
  Workspace::Scratch scratch(impl_->workspace, x,
                             Workspace::bytes(x.shape(), between) + 2 * Workspace::bytes(rows, DType::F32));
  const Tensor normed = scratch.tensor(x.shape(), between);
  const Tensor k = scratch.tensor(rows, DType::F32);
  const Tensor v = scratch.tensor(rows, DType::F32);
  rms_norm(normed, x, norm, eps);
  const Tensor q_rows = q.view({tokens, heads * size});
  const std::array<LinearPart, 3> parts = {
      {{q_rows, weights.w_q, weights.bias_q}, {k, weights.w_k, weights.bias_k}, {v, weights.w_v, weights.bias_v}}};
  linear_multi(normed, parts);
  if (weights.q_norm) {
    const Tensor each = q.view({tokens * heads, size});
    rms_norm(each, each, weights.q_norm, eps);
  }
  if (weights.k_norm) {
    const Tensor each = k.view({tokens * kv_heads, size});
    rms_norm(each, each, weights.k_norm, eps);
  }
  const Tensor k_heads = k.view({tokens, kv_heads, size});
  rope(q, k_heads, rotation.cos, rotation.sin, rotation.interleaved);
  cache_write(cache.keys, cache.values, k_heads, v.view({tokens, kv_heads, size}), cache.sequence, cache.positions);
}

void Inference::norm_quantized_gated_linear(const Tensor& out, const Tensor& x, const Tensor& norm,
                                            const Tensor& w_gate, const Tensor& w_up, aa_block_format format,
                                            bool rounded, ops::Activation kind, float eps, const Tensor& bias_gate,
                                            const Tensor& bias_up) {
  const std::array tensors{&out, &x, &norm, &w_gate, &w_up, &bias_gate, &bias_up};
  if (impl_->may_fuse(Op::NormQuantizedGatedLinear)) {
    auto params = make_params<aa_norm_quantized_params>();
    params.eps = eps;
    params.format = format;
    params.rounding = rounded ? AA_QUANTIZED_ROUNDED : AA_QUANTIZED_EXACT;
    params.kind = static_cast<int32_t>(kind);
    if (impl_->run_native(Op::NormQuantizedGatedLinear, tensors, &params, sizeof(params))) return;
  }
  impl_->check_sequence(Op::NormQuantizedGatedLinear, tensors);
  Workspace::Scratch scratch(impl_->workspace, x,
                             Workspace::bytes(x.shape(), DType::F32) + 2 * Workspace::bytes(out.shape(), DType::F32));
  const Tensor normed = scratch.tensor(x.shape(), DType::F32);
  const Tensor gate = scratch.tensor(out.shape(), DType::F32);
  const Tensor up = scratch.tensor(out.shape(), DType::F32);
  rms_norm(normed, x, norm, eps);
  quantized_linear(gate, normed, w_gate, format, rounded, bias_gate);
  quantized_linear(up, normed, w_up, format, rounded, bias_up);
  gated_activation(out, gate, up, kind);
}

void Inference::norm_quantized_qkv_rope(const Tensor& q, const CacheSlots& cache, const Tensor& x, const Tensor& norm,
                                        const QkvWeights& weights, aa_block_format format, bool rounded,
                                        const Rotation& rotation, float eps) {
  const auto tensors = tensors_of_qkv_rope(q, cache, x, norm, weights, rotation);
  if (impl_->may_fuse(Op::NormQuantizedQkvRope)) {
    auto params = make_params<aa_norm_quantized_params>();
    params.eps = eps;
    params.format = format;
    params.rounding = rounded ? AA_QUANTIZED_ROUNDED : AA_QUANTIZED_EXACT;
    params.interleaved = rotation.interleaved ? 1 : 0;
    if (impl_->run_native(Op::NormQuantizedQkvRope, tensors, &params, sizeof(params))) return;
  }
  impl_->check_sequence(Op::NormQuantizedQkvRope, tensors);
  if (q.ndim() != 3 || cache.keys.ndim() != 4) {
    throw InvalidArgument("norm_quantized_qkv_rope: tensor \"q\" has shape " + q.shape().to_string() +
                          " and tensor \"k_cache\" has shape " + cache.keys.shape().to_string() +
                          ", expected [T, Hq, D] and [B, Hk, S, D]");
  }
  const int64_t tokens = q.size(0), heads = q.size(1), size = q.size(2), kv_heads = cache.keys.size(1);
  const Shape rows{tokens, kv_heads * size};
  Workspace::Scratch scratch(impl_->workspace, x,
                             Workspace::bytes(x.shape(), DType::F32) + 2 * Workspace::bytes(rows, DType::F32));
  const Tensor normed = scratch.tensor(x.shape(), DType::F32);
  const Tensor k = scratch.tensor(rows, DType::F32);
  const Tensor v = scratch.tensor(rows, DType::F32);
  rms_norm(normed, x, norm, eps);
  quantized_linear(q.view({tokens, heads * size}), normed, weights.w_q, format, rounded, weights.bias_q);
  quantized_linear(k, normed, weights.w_k, format, rounded, weights.bias_k);
  quantized_linear(v, normed, weights.w_v, format, rounded, weights.bias_v);
  const Tensor k_heads = k.view({tokens, kv_heads, size});
  rope(q, k_heads, rotation.cos, rotation.sin, rotation.interleaved);
  cache_write(cache.keys, cache.values, k_heads, v.view({tokens, kv_heads, size}), cache.sequence, cache.positions);
}

}  // namespace anyaccel::ops
