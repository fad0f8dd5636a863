// DeepSpeed's own functions of "InferenceBuilder", which its injected layers call, in addition to the ops of
// ops::Inference.
//
// Names, argument order and meaning are DeepSpeed's, except for the suffixes _fp16, _bf16 and _fp32: a function uses
// the dtype T of its first tensor (fp32, fp16, bf16), with fp32 arithmetic. Rows are [.., K]. "w" is a weight [K, N],
// or [N, K] with `transposed`. With q_int8 it is I8, and its scales are fp32 [groups]: each scales an equal part of it,
// in memory's order. An absent tensor is an empty one. Results are new tensors unless a comment says "in place".
//
// Everything is enqueued on the calling thread's current stream and does not block, except that softmax() with
// `triangular` or `local_attention`, softmax_context(), softmax_context_int8() and apply_rotary_pos_emb() wait for the
// work on the stream while small tables are copied to the device. An InvalidArgument names the argument, what was found
// and what was expected.
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

  // Computes softmax(scores * layer_scale + alibi + mask) of scores [B, nh, q, k], in place, and returns scores. mask
  // [B or 1, nh or 1, q or 1, k or 1] or absent; alibi [nh * mp_size, 1, k] or [B * nh * mp_size, 1, k], of which the
  // heads from head_offset on are used, or absent. Query i is at the position p = i + k - q of the keys. triangular
  // hides the keys after p from it; local_attention hides those at p - window_size and before. recompute and async_op
  // have no effect.
  Tensor softmax(const Tensor& scores, const Tensor& mask, const Tensor& alibi, bool triangular, bool recompute,
                 bool local_attention, int window_size, bool async_op, float layer_scale, int head_offset, int mp_size);

  // -- attention with a cache of keys and values that the library keeps for each layer

  // Sets the maximum size of the caches, which the first softmax_context of a layer allocates. Discards earlier caches.
  // rank and external_cache have no effect.
  void allocate_workspace(int64_t hidden, int64_t heads, int64_t prompt, int64_t batch, int64_t layers, int mp_size = 1,
                          bool external_cache = false, int rank = 0, int64_t max_out_tokens = 1024,
                          int64_t min_out_tokens = 1);
  // release_workspace frees the caches; after retake_workspace they can be allocated again, empty. It returns whether
  // there is a workspace.
  void release_workspace();
  bool retake_workspace();
  // Empties the caches.
  void reset_cache();
  // Copies sequence i of the first source_batch ones to the sequences i * repeats to (i + 1) * repeats - 1, in every
  // layer.
  void repeat_kv_cache(int64_t source_batch, int64_t repeats);
  // qkv [B, S, (heads + 2 num_kv) * d], the heads of queries, keys and values (num_kv 0: as many as heads). The S
  // tokens are appended to the layer's cache, or with is_prompt replace its contents. Queries and keys are rotated in
  // their first rotary_dim elements, by halves (rotate_half) or in pairs (rotate_every_two), at position_ids [B, S]
  // (I32 or I64) or, without them, at their positions in the sequence. Scores are multiplied by the square of
  // norm_factor; the keys in the cache are not. mask and alibi as in `softmax`, k being all tokens so far; no_masking
  // leaves the mask out. num_layers must be that of the workspace, token_idx absent. Blocks while small tables are
  // copied to the device.
  AttentionContext softmax_context(const Tensor& qkv, const Tensor& mask, int rotary_dim, bool rotate_half,
                                   bool rotate_every_two, int heads, int num_kv, float norm_factor, bool triangular,
                                   bool local_attention, int window_size, bool no_masking, int layer_id, int num_layers,
                                   const Tensor& alibi, float rope_theta, bool is_prompt, const Tensor& token_idx = {},
                                   const Tensor& position_ids = {});

  // Computes attention over keys and values that the caller keeps, prev_* [B, P, heads * d], and new ones, new_* [B, N,
  // heads * d] or absent. For query [B, S, heads * d] it returns softmax(norm_factor * q k^T + mask) v as [B, heads, S,
  // d], and all keys and all values, [B, P + N, heads * d] (those given if there are no new ones). mask as in
  // `softmax`; no_masking leaves it out. With `triangular` query i sees the keys up to i + P + N - S, with
  // local_attention the last window_size of these. merging has no effect. norm_factor is applied only once here.
  AttentionContext softmax_context_int8(const Tensor& query, const Tensor& prev_key, const Tensor& new_key,
                                        const Tensor& mask, const Tensor& prev_value, const Tensor& new_value,
                                        int heads, float norm_factor, bool merging, bool triangular,
                                        bool local_attention, int window_size, bool no_masking);
  // Rotates the first rotary_dim elements of each head of q and k [B, S, num_heads * d] for positions offset, offset +
  // 1, ..: halves together (rotate_half), or neighbours. In place, and returned; tensors that are not contiguous are
  // copied.
  std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, int rotary_dim, int offset,
                                                 int num_heads, bool rotate_half, float rope_theta);

  // Returns x w + bias (with add_bias), [B, S, N]. With do_flash_attn N is 3 * H, x being [B, S, H], and the result [3,
  // B, num_heads, S, p]: heads of d = H / num_heads elements and zeros up to p, which is d where that is a multiple of
  // 64, else 32 (d < 32), 64 (d < 64) or 128. rope_theta has no effect.
  Tensor linear_layer(const Tensor& x, const Tensor& w, const Tensor& bias, bool add_bias, bool do_flash_attn,
                      int num_heads, bool transposed, float rope_theta);
  struct PaddedHeads {
    Tensor q, k, v;
  };
  // Pads q [B, nh, S, d] with zeros to [B, nh, S, p], and k and v [B, nh, K, d], K <= 128, to [B, nh, 128, p]; p is 32
  // (d < 32), 64 (d < 64) or 128.
  PaddedHeads add_padding(const Tensor& q, const Tensor& k, const Tensor& v);
  // Rearranges q [B, S, heads * d] and k, v [B, K, heads * d] by head, to [B, heads, .., d]; with add_padding pads them
  // as add_padding() does.
  PaddedHeads pad_transform(const Tensor& q, const Tensor& k, const Tensor& v, int heads, bool add_padding);

  // Compute act(x + bias), in place, and return x. GELU is the form with tanh. bias [K].
  Tensor bias_gelu(const Tensor& x, const Tensor& bias);
  Tensor bias_relu(const Tensor& x, const Tensor& bias);
  Tensor bias_add(const Tensor& x, const Tensor& bias);
  // Computes x + residual + bias, in place, and returns x.
  Tensor bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias);
  // x [.., C]; bias [C] or absent. Returns [.., C / 2], the first half of x + bias times act of the second. GATED_GELU
  // or GATED_SILU.
  Tensor gated_activation(const Tensor& x, const Tensor& bias, ActivationFuncType act);

  Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps);
  // Returns layer_norm(x + residual + bias).
  Tensor layer_norm_residual(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                             const Tensor& beta, float eps);
  // Returns the same, and the sum.
  std::pair<Tensor, Tensor> layer_norm_residual_store_pre_ln_res(const Tensor& x, const Tensor& bias,
                                                                 const Tensor& residual, const Tensor& gamma,
                                                                 const Tensor& beta, float eps);
  Tensor rms_norm(const Tensor& x, const Tensor& gamma, float eps);
  // Returns rms_norm(x + residual), and the sum.
  std::pair<Tensor, Tensor> pre_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma, float eps);

  // Returns layer_norm(x) w + bias (with add_bias), and layer_norm(x).
  std::pair<Tensor, Tensor> qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale, const Tensor& bias,
                                     const Tensor& gamma, const Tensor& beta, float eps, bool add_bias, bool q_int8,
                                     bool transposed);
  std::pair<Tensor, Tensor> rms_qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale, const Tensor& gamma,
                                         float eps, bool q_int8, bool transposed);
  // Returns [act(r w_inter + bias) w_out, r] with r = layer_norm(x + residual + input_bias), or layer_norm(x) without
  // mlp_after_attn. GELU or ReLU. preLayerNorm does not change the computation.
  std::pair<Tensor, Tensor> mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& input_bias,
                                     const Tensor& w_inter, const Tensor& w_out, const Tensor& bias,
                                     const Tensor& gamma, const Tensor& beta, float eps, bool preLayerNorm,
                                     bool mlp_after_attn, const Tensor& scale1, const Tensor& scale2, bool q_int8,
                                     ActivationFuncType act, bool transposed);
  // First residual += x, in place. Then w_inter gives [up | gate] of rms_norm(residual). Returns [(act(gate) * up)
  // w_out, residual]. GATED_GELU or GATED_SILU.
  std::pair<Tensor, Tensor> rms_mlp_gemm(const Tensor& x, const Tensor& residual, const Tensor& w_inter,
                                         const Tensor& w_out, const Tensor& gamma, float eps, const Tensor& scale1,
                                         const Tensor& scale2, bool q_int8, ActivationFuncType act, bool transposed);
  Tensor vector_matmul(const Tensor& x, const Tensor& w, bool async_op, const Tensor& q_scale, bool q_int8,
                       bool transposed);
  // w I8 with q_scale fp32 [groups * merge_count]. x fp16.
  Tensor vector_matmul_int8(const Tensor& x, const Tensor& w, const Tensor& q_scale, int groups, int merge_count);
  // Returns gelu(x w + bias) w_out.
  Tensor fused_gemm_gelu(const Tensor& x, const Tensor& w, const Tensor& w_scale, const Tensor& bias,
                         const Tensor& w_out, const Tensor& w_out_scale, bool q_int8, bool transposed);
  // Computes the residual of a layer split over mp_size ranks, in place in `residual`, and returns it:
  //   mlp_after_attn and preln:    (residual + attention_output + attention_bias + final_bias) / mp_size + hidden
  //   mlp_after_attn, not preln:   residual + hidden + final_bias
  //   else:                        hidden + attention_output +
  //                                (residual + final_bias [+ attention_bias with add_bias]) / mp_size
  Tensor residual_add_bias(const Tensor& hidden, const Tensor& residual, const Tensor& attention_output,
                           const Tensor& attention_bias, const Tensor& final_bias, int mp_size, bool mlp_after_attn,
                           bool add_bias, bool preln);
  // Q [S, E, C], W [S, M]. Returns [E, C, M], summed over S.
  Tensor einsum_sec_sm_ecm(const Tensor& Q, const Tensor& W);
  // output = residual * coef[.. M] + output * coef[M ..], in place; all [B, S, M], coef [2M].
  Tensor moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output);
  // a = gamma * a + b, in place.
  Tensor vector_add(const Tensor& a, const Tensor& b, float gamma);
  // Converts I8 [rows, columns] to fp16: each of `groups` equal parts is multiplied by its scale, fp32 [groups].
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
