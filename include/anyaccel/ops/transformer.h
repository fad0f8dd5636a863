// The encoder layer of BERT for training, forward and backward: the library that "TransformerBuilder" and
// "StochasticTransformerBuilder" load. Functions, argument order and the order of results are DeepSpeed's.
//
//   pre-norm:   x1 = norm(input); a = input + drop(attention(x1) * Wo' + ob)
//               output = a + drop(gelu(norm(a) * Wi' + ib) * W2' + b2)
//   post-norm:  x1 = input; a as above; n = norm(a) + drop(gelu(norm(a) * Wi' + ib) * W2' + b2)
//               output = norm(n)
//
// attention(x1): for each head drop(softmax(Q K' / sqrt(d) + mask)) V, with [Q K V] = x1 * Wqkv' + b. gelu is the form
// with tanh. drop(x, r) keeps an element with probability 1 - r and divides it by that; it is omitted when a layer does
// not train. Its random numbers come from the default generator of the input's device, so that equal states give equal
// masks on every accelerator.
//
// Products are summed in fp32; intermediate results are stored in the layer's dtype. Everything is enqueued on the
// calling thread's current stream of the input's device, and does not block. An InvalidArgument names the argument,
// what was found and what was expected. Layers are registered by number for the whole process; any thread may call the
// functions.
#pragma once

#include <cstdint>
#include <memory>

#include "anyaccel/op_builder.h"
#include "anyaccel/tensor.h"

namespace anyaccel::ops {

// B sequences of S positions, H hidden size, I intermediate size; all of the layer's dtype.
struct TransformerWeights {
  Tensor attn_qkvw;  // [3H, H]: rows of Q, then K, then V
  Tensor attn_qkvb;  // [3H]
  Tensor attn_ow;    // [H, H]
  Tensor attn_ob;    // [H]
  Tensor attn_nw;    // [H]: the norm after attention
  Tensor attn_nb;    // [H]
  Tensor inter_w;    // [I, H]
  Tensor inter_b;    // [I]
  Tensor output_w;   // [H, I]
  Tensor output_b;   // [H]
  Tensor norm_w;     // [H]: the norm before attention (pre-norm) or after the layer
  Tensor norm_b;     // [H]
};

// The tensors that forward returns and backward takes. Masks are absent (empty) if nothing was dropped. nh: heads, d =
// H / nh.
struct TransformerActivations {
  Tensor output;                    // [B, S, H]
  Tensor inp_norm;                  // [B, S, H]: x1 (pre-norm), or n; with normalize_invertible n is `output` itself
  Tensor qkv_tf;                    // [B*S, 3H]: Q, K and V, each as [B, nh, S, d]
  Tensor soft_out;                  // [B*nh*S, S]
  Tensor ctx_bufB;                  // [B*nh*S, S]: soft_out after dropout; soft_out itself with attn_dropout_checkpoint
  Tensor attn_o_inp;                // [B, S, H]
  Tensor add_res;                   // [B, S, H]: a; inp_norm itself with normalize_invertible
  Tensor ff1_inp;                   // [B, S, H]: norm(a)
  Tensor gelu_inp;                  // [B*S, I], with its bias
  Tensor ff2_inp;                   // [B*S, I]; gelu_inp itself with gelu_checkpoint
  Tensor attn_prob_dropout_mask;    // U8 [B*nh*S, S]
  Tensor attn_output_dropout_mask;  // U8 [B*S, H]
  Tensor layer_output_dropout_mask;  // U8 [B*S, H]
  Tensor attn_layer_norm_var;        // F32 [B*S]: variance + eps of a
  Tensor attn_layer_norm_mean;       // F32 [B*S]
  Tensor layer_norm_var;             // F32 [B*S]: of the input of the other norm
  Tensor layer_norm_mean;            // F32 [B*S]
};

struct TransformerGradients {
  Tensor input;  // [B, S, H]; the others have the shapes of their weights
  Tensor attn_qkvw, attn_qkvb, attn_ow, attn_ob, attn_nw, attn_nb, inter_w, inter_b, output_w, output_b, norm_w, norm_b;
};

class Transformer : public OpLibrary {
 public:
  explicit Transformer(Accelerator& accelerator);
  ~Transformer() override;

  // Registers a layer under `layer_id`, replacing an earlier one, and returns 0. batch_size is the largest B. A seed of
  // 0 or more seeds the default generator of the current device. test_gemm and stochastic_mode have no effect: there is
  // only one implementation of a layer, and it is deterministic.
  int create_transformer_layer_fp32(uint32_t layer_id, uint32_t batch_size, uint32_t hidden_dim, uint32_t num_heads,
                                    uint32_t intermediate_size, float attn_dropout_ratio, float hidden_dropout_ratio,
                                    float layer_norm_eps, int seed, bool pre_or_postLayerNorm, bool test_gemm,
                                    bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint,
                                    bool stochastic_mode);
  int create_transformer_layer_fp16(uint32_t layer_id, uint32_t batch_size, uint32_t hidden_dim, uint32_t num_heads,
                                    uint32_t intermediate_size, float attn_dropout_ratio, float hidden_dropout_ratio,
                                    float layer_norm_eps, int seed, bool pre_or_postLayerNorm, bool test_gemm,
                                    bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint,
                                    bool stochastic_mode);
  int create_transformer_layer_bf16(uint32_t layer_id, uint32_t batch_size, uint32_t hidden_dim, uint32_t num_heads,
                                    uint32_t intermediate_size, float attn_dropout_ratio, float hidden_dropout_ratio,
                                    float layer_norm_eps, int seed, bool pre_or_postLayerNorm, bool test_gemm,
                                    bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint,
                                    bool stochastic_mode);

  // input [B, S, H]; input_mask [B, 1, 1, S], added to the scores of each key (0, or about -10000, or -infinity), or
  // absent. The flags must be those that the layer was created with.
  TransformerActivations forward_fp32(uint32_t layer_id, const Tensor& input, const Tensor& input_mask,
                                      const TransformerWeights& weights, bool training_mode, bool prelayernorm,
                                      bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint);
  TransformerActivations forward_fp16(uint32_t layer_id, const Tensor& input, const Tensor& input_mask,
                                      const TransformerWeights& weights, bool training_mode, bool prelayernorm,
                                      bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint);
  TransformerActivations forward_bf16(uint32_t layer_id, const Tensor& input, const Tensor& input_mask,
                                      const TransformerWeights& weights, bool training_mode, bool prelayernorm,
                                      bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint);

  // Returns the gradients, given the gradient `grad_output` [B, S, H] of the layer's output.
  TransformerGradients backward_fp32(uint32_t layer_id, const Tensor& grad_output,
                                     const TransformerActivations& activations, const Tensor& input,
                                     const Tensor& input_mask, const TransformerWeights& weights);
  TransformerGradients backward_fp16(uint32_t layer_id, const Tensor& grad_output,
                                     const TransformerActivations& activations, const Tensor& input,
                                     const Tensor& input_mask, const TransformerWeights& weights);
  TransformerGradients backward_bf16(uint32_t layer_id, const Tensor& grad_output,
                                     const TransformerActivations& activations, const Tensor& input,
                                     const Tensor& input_mask, const TransformerWeights& weights);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyaccel::ops
