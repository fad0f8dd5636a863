// Layers with their gradients.
//
// forward() keeps the tensors that backward() needs, unless the context does not train; backward() is called once after
// it, adds to the gradients of the layer's parameters, and releases those tensors. backward() without a forward()
// throws InvalidArgument.
//
// N rows are B sequences of T positions each, one after the other. dtype "context" is Context::dtype(). Gradients of
// inputs are written to `dx`, which may be of any float dtype, or added to it if `add` is set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "anyaccel/nn/context.h"
#include "anyaccel/ops/transformer.h"

namespace anyaccel::nn {

// y = x W' + bias
class Linear {
 public:
  // Adds the parameters `name`.weight [outputs, inputs] and, with a bias, `name`.bias [outputs] of zeros.
  Linear(Parameters& parameters, const std::string& name, int64_t inputs, int64_t outputs, bool bias, double deviation);

  // x [N, inputs], y [N, outputs], both context. With residual F32 [N, outputs], the residual is added, and y is F32.
  Tensor forward(const Tensor& x, const Tensor& residual = {});
  // dy [N, outputs], dx [N, inputs].
  void backward(const Tensor& dy, const Tensor& dx, bool add = false);

  // The two halves of backward(), for layers that keep or recompute x themselves. dy is context.
  void input_gradient(const Tensor& dy, const Tensor& dx, bool add = false);
  void weight_gradient(const Tensor& dy, const Tensor& x);

  const Parameter& weight() const noexcept { return weight_; }
  const Tensor bias() const { return bias_ ? bias_->weight : Tensor(); }

 private:
  Context& context_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  Tensor x_;
};

// Looks up rows of a table.
class Embedding {
 public:
  // Adds the parameter `name`.weight [rows, size].
  Embedding(Parameters& parameters, const std::string& name, int64_t rows, int64_t size, double deviation);
  // ids I32 or I64 [N]; the result is [N, size] of `dtype`.
  Tensor forward(const Tensor& ids, DType dtype);
  void backward(const Tensor& dy);
  Parameter& weight() noexcept { return weight_; }

 private:
  Context& context_;
  Parameter& weight_;
  Tensor ids_;
};

// rms_norm, or layer_norm if it is centred, over the last dimension. Its parameters are `name`.weight of ones and, if
// centred, `name`.bias of zeros.
class Norm {
 public:
  Norm(Parameters& parameters, const std::string& name, int64_t size, double eps, bool centred);
  // x [N, size] F32 or context; the result is context.
  Tensor forward(const Tensor& x);
  // dx [N, size] of any float dtype; F32 if `add` is set.
  void backward(const Tensor& dy, const Tensor& dx, bool add);

 private:
  Context& context_;
  float eps_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  Tensor x_, mean_, variance_;
};

// The positions of B sequences of T tokens, and the angles of rotary embeddings, which all layers of a decoder share.
class Positions {
 public:
  // theta: the base of the angles. head_dim is even.
  Positions(Context& context, int64_t sequences, int64_t length, int64_t head_dim, double theta);

  int64_t sequences, length;
  Tensor sequence, position;  // I32 [N]
  Tensor cos, sin, back_sin;  // F32 [N, head_dim / 2]; back_sin = -sin rotates back
  // The maximum number of rows of a mask. Masks are views of one F32 tensor [block, length + block] of 0 and -infinity.
  static constexpr int64_t block = 64;
  // Returns the mask [rows, first + rows]: row i is position first + i and sees the columns up to that position.
  Tensor mask(int64_t first, int64_t rows) const;

 private:
  Tensor strip_;
};

// Attention of a decoder: each position sees itself and those before it. Query head h reads key/value head h / (heads /
// kv_heads). backward() recomputes the attention weights, Positions::block queries at a time, so memory grows with the
// length and not with its square.
class CausalAttention {
 public:
  // Adds the layers `name`.q_proj, k_proj, v_proj and o_proj. The deviation of o_proj's weights is `out_deviation`.
  CausalAttention(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, double deviation, double out_deviation);
  // x [N, hidden] is context; residual and the result, to which it is added, are F32.
  Tensor forward(const Tensor& x, const Tensor& residual, const Positions& positions);
  // dy [N, hidden] F32 (the gradient of the residual is dy itself). dx [N, hidden].
  void backward(const Tensor& dy, const Tensor& dx);

 private:
  void attention_gradients(const Tensor& d_out, const Tensor& dq, const Tensor& dk, const Tensor& dv);
  float scale() const;

  Context& context_;
  int64_t heads_, kv_heads_, head_dim_;
  Linear q_, k_, v_, o_;
  const Positions* positions_ = nullptr;
  Tensor x_, queries_, keys_, values_;
};

// down(silu(gate(x)) * up(x))
class GatedMlp {
 public:
  // Adds the layers `name`.gate_proj, up_proj and down_proj.
  GatedMlp(Parameters& parameters, const std::string& name, int64_t hidden, int64_t intermediate, double deviation,
           double out_deviation);
  // The same as in CausalAttention.
  Tensor forward(const Tensor& x, const Tensor& residual);
  void backward(const Tensor& dy, const Tensor& dx);

 private:
  Context& context_;
  Linear gate_, up_, down_;
  Tensor x_, gates_, ups_;
};

// x + attention(norm(x)), then the same with the MLP: a layer of Llama.
class DecoderLayer {
 public:
  // Adds `name`.input_layernorm, self_attn, post_attention_layernorm and mlp.
  DecoderLayer(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads, int64_t kv_heads,
               int64_t head_dim, int64_t intermediate, double eps, double deviation, double out_deviation);
  // x [N, hidden] F32.
  Tensor forward(const Tensor& x, const Positions& positions);
  // On entry `d` is the gradient of the output, on return that of the input.
  void backward(const Tensor& d);

 private:
  Context& context_;
  Norm input_norm_;
  CausalAttention attention_;
  Norm post_norm_;
  GatedMlp mlp_;
};

// The encoder layer of "TransformerBuilder" (anyaccel/ops/transformer.h).
class EncoderLayer {
 public:
  struct Sizes {
    int64_t hidden, heads, intermediate;
    int64_t largest_batch;  // sequences
    double eps;
    float attention_dropout, hidden_dropout;
    bool pre_norm;
  };
  EncoderLayer(Parameters& parameters, const std::string& name, const Sizes& sizes, double deviation,
               double out_deviation);
  // x [B, T, hidden] and the result are context. mask [B, 1, 1, T], context or absent, is added to the scores.
  Tensor forward(const Tensor& x, const Tensor& mask);
  // dy and the result are [B, T, hidden], of the layer's dtype.
  Tensor backward(const Tensor& dy);

 private:
  ops::TransformerWeights weights() const;

  Context& context_;
  std::shared_ptr<ops::Transformer> library_;
  uint32_t id_;
  bool pre_norm_;
  Parameter *qkv_w_, *qkv_b_, *o_w_, *o_b_, *attention_norm_w_, *attention_norm_b_, *inter_w_, *inter_b_, *output_w_,
      *output_b_, *norm_w_, *norm_b_;
  Tensor x_, mask_;
  std::optional<ops::TransformerActivations> kept_;
};

// Computes the scores of all tokens and their cross-entropy. It processes some rows at a time, so that not all scores
// are in memory at once.
class LanguageHead {
 public:
  // Uses weights of its own, `name`.weight [tokens, hidden], or those of an embedding.
  LanguageHead(Parameters& parameters, const std::string& name, int64_t tokens, int64_t hidden, double deviation);
  LanguageHead(Parameters& parameters, Parameter& tied);

  // Returns the losses F32 [N] of x [N, hidden] context. targets I32 or I64 [N]; rows with a negative target have loss
  // 0.
  Tensor losses(const Tensor& x, const Tensor& targets);
  // The same; also writes the gradient of scale * their sum to dx [N, hidden], and adds that of the weights.
  Tensor losses_and_gradients(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx);

 private:
  Tensor run(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx);

  Context& context_;
  Parameter& weight_;
};

}  // namespace anyaccel::nn
