// DeepSpeed's own surface of "InferenceBuilder", beside ops::Inference, whose ops it has too: what its injected layers call.
//
// Names, argument order and meaning are DeepSpeed's, but for the suffixes _fp16, _bf16 and _fp32: a function works in the dtype T of its
// first tensor (fp32, fp16, bf16), with fp32 arithmetic. Rows are [.., K]. "w" is a weight [K, N], or [N, K] with `transposed`. With
// q_int8 it is I8, and its scales are fp32 [groups]: each scales an equal part of it, in memory's order. An absent tensor is an
// empty one. Results are new tensors unless a comment says "in place".
//
// Everything is enqueued on the calling thread's current stream and does not block. InvalidArgument names the argument, what was
// found and what was expected.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "anyaccel/ops/training.h"

namespace anyaccel::ops {

enum class ActivationFuncType : int32_t { UNKNOWN = 0, GELU = 1, ReLU = 2, GATED_GELU = 3, GATED_SILU = 4 };

// The results of softmax_context: the context, and the keys and values of the layer's cache so far, views [B, nkv,
// length, d]. (Those of softmax_context_int8 have other shapes.)
struct AttentionContext {
  Tensor context;  // [B, S, heads * d]
  Tensor keys;
  Tensor values;
};

class TransformerInference : public Training {
 public:
  explicit TransformerInference(Accelerator& accelerator);
  ~TransformerInference() override;
  using Inference::gated_activation;
  using Inference::layer_norm;
  using Inference::rms_norm;
  using Inference::softmax;

  // scores [B, nh, q, k], in place and returned: softmax(scores * layer_scale + alibi + mask). mask [B or 1, nh or 1, q or 1, k] or absent;
  // alibi [nh * mp_size, 1, k] or [B * nh * mp_size, 1, k], of which the heads from head_offset on count, or absent. triangular: query i sees
  // the keys up to i + k - q; local_attention: of these the last window_size. recompute and async_op have no effect.
  Tensor softmax(const Tensor& scores, const Tensor& mask, const Tensor& alibi, bool triangular, bool recompute,
                 bool local_attention, int window_size, bool async_op, float layer_scale, int head_offset, int mp_size);

  // -- attention with a cache of keys and values that the library keeps for each layer

  // Says how large caches may get; memory is taken by the first softmax_context of a layer. Forgets what there was. rank and external_cache
  // have no effect.
  void allocate_workspace(int64_t hidden, int64_t heads, int64_t prompt, int64_t batch, int64_t layers, int mp_size = 1,
                          bool external_cache = false, int rank = 0, int64_t max_out_tokens = 1024,
                          int64_t min_out_tokens = 1);
  // Frees the caches; retake_workspace lets them be taken again, empty, and says whether there is a workspace to take.
  void release_workspace();
  bool retake_workspace();
  // The caches hold no token.
  void reset_cache();
  // Sequence i of the first source_batch ones becomes the sequences i * repeats to (i + 1) * repeats - 1, in every layer.
  void repeat_kv_cache(int64_t source_batch, int64_t repeats);
  // qkv [B, S, (heads + 2 num_kv) * d], the heads of queries, keys and values (num_kv 0: as many as heads). The S tokens follow those of the
  // layer's cache, or begin it anew with is_prompt. Queries and keys are rotated in their first rotary_dim elements, by halves
  // (rotate_half) or in pairs (rotate_every_two), at position_ids [B, S] (I32 or I64) or where they stand; both are multiplied by
  // norm_factor. mask and alibi as in `softmax`, k being all tokens so far; no_masking leaves the mask out. num_layers must be that of the
  // workspace, token_idx absent. Blocks while small tables are copied to the device.
  AttentionContext softmax_context(const Tensor& qkv, const Tensor& mask, int rotary_dim, bool rotate_half,
                                   bool rotate_every_two, int heads, int num_kv, float norm_factor, bool triangular,
                                   bool local_attention, int window_size, bool no_masking, int layer_id, int num_layers,
                                   const Tensor& alibi, float rope_theta, bool is_prompt, const Tensor& token_idx = {},
                                   const Tensor& position_ids = {});

  // Attention over keys and values that the caller keeps, prev_* [B, P, heads * d], and new ones, new_* [B, N, heads * d] or absent.
  // query [B, S, heads * d]: softmax(norm_factor * q k^T + mask) v as [B, heads, S, d], and all keys and all values, [B, P + N,
  // heads * d] (those given where there are no new ones). mask as in `softmax`; no_masking leaves it out. With `triangular` query i sees the keys up to i + P + N - S, with
  // local_attention the last window_size of these. merging has no effect. norm_factor multiplies once here.
  AttentionContext softmax_context_int8(const Tensor& query, const Tensor& prev_key, const Tensor& new_key,
                                        const Tensor& mask, const Tensor& prev_value, const Tensor& new_value,
                                        int heads, float norm_factor, bool merging, bool triangular,
                                        bool local_attention, int window_size, bool no_masking);
  // Rotates the first rotary_dim elements of each head of q and k [B, S, num_heads * d] for positions offset, offset + 1, ..: halves
  // together (rotate_half), or neighbours. In place, and returned; what is not contiguous is copied.
  std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, int rotary_dim, int offset,
                                                 int num_heads, bool rotate_half, float rope_theta);

  // x w + bias (with add_bias), [B, S, N]. With do_flash_attn N is 3 * H, x being [B, S, H], and the result [3, B, num_heads, S, p]: heads of
  // d = H / num_heads elements and zeros up to p, which is d where that is a multiple of 64, else 32 (d < 32), 64 (d < 64) or 128.
  // rope_theta has no effect.
  Tensor linear_layer(const Tensor& x, const Tensor& w, const Tensor& bias, bool add_bias, bool do_flash_attn,
                      int num_heads, bool transposed, float rope_theta);
  struct PaddedHeads {
    Tensor q, k, v;
  };
  // q [B, nh, S, d] as [B, nh, S, p], and k and v [B, nh, K, d], K <= 128, as [B, nh, 128, p], with zeros behind; p is 32 (d < 32), 64 (d <
  // 64) or 128.
  PaddedHeads add_padding(const Tensor& q, const Tensor& k, const Tensor& v);
  // q [B, S, heads * d] and k, v [B, K, heads * d] by head, [B, heads, .., d]; with add_padding padded as add_padding does.
  PaddedHeads pad_transform(const Tensor& q, const Tensor& k, const Tensor& v, int heads, bool add_padding);

  // act(x + bias), in place and returned. gelu by tanh. bias [K].
  Tensor bias_gelu(const Tensor& x, const Tensor& bias);
  Tensor bias_relu(const Tensor& x, const Tensor& bias);
  Tensor bias_add(const Tensor& x, const Tensor& bias);
  // x + residual + bias, in place and returned.
  Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias);
  // x [.., C] with bias [C] or absent: [.., C / 2], the first half times act of the second. GATED_GELU or GATED_SILU.
  Tensor gated_activation(const Tensor& x, const Tensor& bias, ActivationFuncType act);

  Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps);
  // layer_norm(x + residual + bias)
  Tensor layer_norm_residual(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                             const Tensor& beta, float eps);
  // The same, and the sum.
  std::pair<Tensor, Tensor> layer_norm_residual_store_pre_ln_res(const Tensor& x, const Tensor& bias,
                                                                 const Tensor& residual, const Tensor& gamma,
                                                                 const Tensor& beta, float eps);
  Tensor rms_norm(const Tensor& x, const Tensor& gamma, float eps);
  // rms_norm(x + residual), and the sum.
  std::pair<Tensor, Tensor> pre_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma, float eps);

  // layer_norm(x) w + bias (with add_bias), and layer_norm(x).
  std::pair<Tensor, Tensor> qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale, const Tensor& bias,
                                     const Tensor& gamma, const Tensor& beta, float eps, bool add_bias, bool q_int8,
                                     bool transposed);
  std::pair<Tensor, Tensor> rms_qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale, const Tensor& gamma,
                                         float eps, bool q_int8, bool transposed);
  // r = layer_norm(x + residual + input_bias), or layer_norm(x) without mlp_after_attn; [act(r w_inter + bias) w_out, r]. GELU or ReLU.
  // preLayerNorm has no effect on the mathematics.
  std::pair<Tensor, Tensor> mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                                     const Tensor& w_inter, const Tensor& w_out, const Tensor& bias,
                                     const Tensor& gamma, const Tensor& beta, float eps, bool preLayerNorm,
                                     bool mlp_after_attn, const Tensor& scale1, const Tensor& scale2, bool q_int8,
                                     ActivationFuncType act, bool transposed);
  // residual += x first, in place; w_inter gives [up | gate] of rms_norm(residual): [(act(gate) * up) w_out, residual]. GATED_GELU or
  // GATED_SILU.
  std::pair<Tensor, Tensor> rms_mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& w_inter,
                                         const Tensor& w_out, const Tensor& gamma, float eps, const Tensor& scale1,
                                         const Tensor& scale2, bool q_int8, ActivationFuncType act, bool transposed);
  Tensor vector_matmul(const Tensor& x, const Tensor& w, bool async_op, const Tensor& q_scale, bool q_int8,
                       bool transposed);
  // w I8 with q_scale fp32 [groups * merge_count]. x fp16.
  Tensor vector_matmul_int8(const Tensor& x, const Tensor& w, const Tensor& q_scale, int groups, int merge_count);
  // act(x w + bias) w_out, act being gelu.
  Tensor fused_gemm_gelu(const Tensor& x, const Tensor& w, const Tensor& w_scale, const Tensor& bias,
                         const Tensor& w_out, const Tensor& w_out_scale, bool q_int8, bool transposed);
  // The residual of a layer split over mp_size ranks, in place of `residual` and returned:
  //   mlp_after_attn and preln:    (residual + attention_output + attention_bias + final_bias) / mp_size + hidden
  //   mlp_after_attn, not preln:   residual + hidden + final_bias
  //   else:                        hidden + attention_output + (residual + final_bias [+ attention_bias with add_bias]) / mp_size
  Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual, const Tensor& attention_output,
                           const Tensor& attention_bias, const Tensor& final_bias, int mp_size, bool mlp_after_attn,
                           bool add_bias, bool preln);
  // Q [S, E, C], W [S, M]: [E, C, M], the sum over S.
  Tensor einsum_sec_sm_ecm(const Tensor& Q, const Tensor& W);
  // output = residual * coef[.. M] + output * coef[M ..], in place; all [B, S, M], coef [2M].
  Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output);
  // a = gamma * a + b, in place.
  Tensor vector_add(const Tensor& a, const Tensor& b, float gamma);
  // I8 [rows, columns] as fp16: each of `groups` equal parts times its scale, fp32 [groups].
  Tensor dequantize(const Tensor& w, const Tensor& scale, int groups);

 private:
  Tensor product(const char* function, const Tensor& x, const Tensor& w, const Tensor& scale, bool q_int8,
                 bool transposed, const Tensor& bias = {});
  Tensor sum(const Tensor& a, const Tensor& b);
  void rotate(const Tensor& q, const Tensor& k, const Tensor& positions, int rotary_dim, float theta, bool pairs);

  struct Workspace;
  Accelerator& accelerator_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace anyaccel::ops
