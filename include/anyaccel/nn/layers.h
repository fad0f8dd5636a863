// Layers with their gradients.
//
// forward() keeps what backward() needs, unless the context does not train; backward() is called once after it, adds to the
// gradients of the layer's parameters, and lets go of what was kept. A backward() without a forward() is an InvalidArgument.
//
// N rows are B sequences of T positions each, one after the other. dtype "context" is Context::dtype(). Gradients of inputs are
// written to `dx`, which may be of any float dtype and is added to where `add` is set.
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
  // Weight [outputs, inputs] `name`.weight, and `name`.bias [outputs] of zeros where there is a bias.
  Linear(Parameters& parameters, const std::string& name, int64_t inputs, int64_t outputs, bool bias, double deviation);

  // x [N, inputs], y [N, outputs], both context. With residual F32 [N, outputs]: y is F32, and the sum with it.
  Tensor forward(const Tensor& x, const Tensor& residual = {});
  // dy [N, outputs], dx [N, inputs].
  void backward(const Tensor& dy, const Tensor& dx, bool add = false);

  // The two halves of backward(), for layers that keep or remake x themselves. dy is context.
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

// Rows of a table.
class Embedding {
 public:
  // Weight [rows, size] `name`.weight.
  Embedding(Parameters& parameters, const std::string& name, int64_t rows, int64_t size, double deviation);
  // ids I32 or I64 [N]; the result [N, size] of `dtype`.
  Tensor forward(const Tensor& ids, DType dtype);
  void backward(const Tensor& dy);
  Parameter& weight() noexcept { return weight_; }

 private:
  Context& context_;
  Parameter& weight_;
  Tensor ids_;
};

// rms_norm, or layer_norm where it is centred, over the last dimension; `name`.weight of ones, `name`.bias of zeros where centred.
class Norm {
 public:
  Norm(Parameters& parameters, const std::string& name, int64_t size, double eps, bool centred);
  // x [N, size] F32 or context; the result is context.
  Tensor forward(const Tensor& x);
  // dx [N, size] of any float dtype; F32 where it is added to.
  void backward(const Tensor& dy, const Tensor& dx, bool add);

 private:
  Context& context_;
  float eps_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  Tensor x_, mean_, variance_;
};

// The places of B sequences of T positions, and the angles of rotary embeddings; what all layers of a decoder share.
class Positions {
 public:
  // theta: the base of the angles. head_dim is even.
  Positions(Context& context, int64_t sequences, int64_t length, int64_t head_dim, double theta);

  int64_t sequences, length;
  Tensor sequence, position;  // I32 [N]
  Tensor cos, sin, back_sin;  // F32 [N, head_dim / 2]; back_sin = -sin turns back
  // F32 [block, length + block]: 0 and -infinity, of which mask(first, rows) is a part.
  static constexpr int64_t block = 64;  // most rows of a mask
  // [rows, first + rows]: row i, which is position first + i, sees the columns up to that.
  Tensor mask(int64_t first, int64_t rows) const;

 private:
  Tensor strip_;
};

// Attention of a decoder: each position sees those before it and itself. Query head h reads key/value head h / (heads / kv_heads).
// Backward computes the weights again, Positions::block queries at a time, so memory grows with the length and not its square.
class CausalAttention {
 public:
  // `name`.q_proj, k_proj, v_proj, o_proj. The deviation of o_proj's weights is `out_deviation`.
  CausalAttention(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, double deviation, double out_deviation);
  // x [N, hidden] context; residual and the result, which is the sum with it, F32.
  Tensor forward(const Tensor& x, const Tensor& residual, const Positions& positions);
  // dy [N, hidden] F32 (that of the residual is dy itself). dx [N, hidden].
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
  // `name`.gate_proj, up_proj, down_proj.
  GatedMlp(Parameters& parameters, const std::string& name, int64_t hidden, int64_t intermediate, double deviation,
           double out_deviation);
  // As CausalAttention's.
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
  // `name`.input_layernorm, self_attn, post_attention_layernorm, mlp.
  DecoderLayer(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads, int64_t kv_heads,
               int64_t head_dim, int64_t intermediate, double eps, double deviation, double out_deviation);
  // x [N, hidden] F32.
  Tensor forward(const Tensor& x, const Positions& positions);
  // The gradient of the output in, of the input out: in place.
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
  // x [B, T, hidden] context, and so is the result. mask [B, 1, 1, T] context or absent, added to the scores.
  Tensor forward(const Tensor& x, const Tensor& mask);
  // [B, T, hidden], of the layer's dtype.
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

// Scores of all tokens and their cross-entropy. Works on some rows at a time, so that not all scores are in memory at once.
class LanguageHead {
 public:
  // With weights of its own, `name`.weight [tokens, hidden]; or those of an embedding.
  LanguageHead(Parameters& parameters, const std::string& name, int64_t tokens, int64_t hidden, double deviation);
  LanguageHead(Parameters& parameters, Parameter& tied);

  // Losses F32 [N] of x [N, hidden] context. targets I32 or I64 [N]; negative ones count nothing.
  Tensor losses(const Tensor& x, const Tensor& targets);
  // The same, with dx [N, hidden] the gradient of scale * their sum, and that of the weights added.
  Tensor losses_and_gradients(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx);

 private:
  Tensor run(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx);

  Context& context_;
  Parameter& weight_;
};

}  // namespace anyaccel::nn
