// Implements the layers and their gradients with the ops for training.
#include "anyaccel/nn/layers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "anyaccel/error.h"
#include "anyaccel/op_builder.h"

namespace anyaccel::nn {
namespace {

void require_kept(const Tensor& kept, const char* layer) {
  if (!kept) {
    throw InvalidArgument(std::string("nn::") + layer + ": backward() without a forward() of a context that trains",
                          AA_FAILED_PRECONDITION);
  }
}

void require_columns(const Tensor& x, int64_t columns, const char* layer, const std::string& parameter) {
  if (x.ndim() == 2 && x.size(1) == columns) return;
  throw InvalidArgument(std::string("nn::") + layer + ": x has the shape " + x.shape().to_string() + ", expected [N, " +
                        std::to_string(columns) + "] for " + parameter);
}

}  // namespace

// -- Linear

Linear::Linear(Parameters& parameters, const std::string& name, int64_t inputs, int64_t outputs, bool bias,
               double deviation)
    : context_(parameters.context()),
      weight_(parameters.add(name + ".weight", {outputs, inputs}, Init::normal(deviation), true)) {
  if (bias) bias_ = &parameters.add(name + ".bias", {outputs}, Init::value(0), false);
}

Tensor Linear::forward(const Tensor& x, const Tensor& residual) {
  require_columns(x, weight_.shape[1], "Linear", weight_.name);
  const Tensor out = context_.empty({x.size(0), weight_.shape[0]}, residual ? DType::F32 : context_.dtype());
  context_.ops().linear(out, x, weight_.weight, bias(), residual);
  if (context_.training) x_ = x;
  return out;
}

void Linear::backward(const Tensor& dy, const Tensor& dx, bool add) {
  require_kept(x_, "Linear");
  const Tensor upstream = context_.in_dtype(dy);
  input_gradient(upstream, dx, add);
  weight_gradient(upstream, x_);
  x_ = Tensor();
}

void Linear::input_gradient(const Tensor& dy, const Tensor& dx, bool add) {
  context_.ops().matmul(dx, dy, weight_.weight, add);
}

void Linear::weight_gradient(const Tensor& dy, const Tensor& x) {
  context_.ops().matmul(weight_.gradient, dy.transpose(0, 1), x, true);
  if (bias_) context_.ops().column_sums(bias_->gradient, dy, true);
}

// -- Embedding

Embedding::Embedding(Parameters& parameters, const std::string& name, int64_t rows, int64_t size, double deviation)
    : context_(parameters.context()),
      weight_(parameters.add(name + ".weight", {rows, size}, Init::normal(deviation), true)) {}

Tensor Embedding::forward(const Tensor& ids, DType dtype) {
  const Tensor out = context_.empty({ids.numel(), weight_.shape[1]}, dtype);
  context_.ops().embedding(out, weight_.weight, ids);
  if (context_.training) ids_ = ids;
  return out;
}

void Embedding::backward(const Tensor& dy) {
  require_kept(ids_, "Embedding");
  context_.ops().embedding_backward(weight_.gradient, dy, ids_);
  ids_ = Tensor();
}

// -- Norm

Norm::Norm(Parameters& parameters, const std::string& name, int64_t size, double eps, bool centred)
    : context_(parameters.context()),
      eps_(static_cast<float>(eps)),
      weight_(parameters.add(name + ".weight", {size}, Init::value(1), false)) {
  if (centred) bias_ = &parameters.add(name + ".bias", {size}, Init::value(0), false);
}

Tensor Norm::forward(const Tensor& x) {
  require_columns(x, weight_.shape[0], "Norm", weight_.name);
  const Tensor out = context_.empty(x.shape());
  if (bias_) {
    context_.ops().layer_norm(out, x, weight_.weight, bias_->weight, eps_);
  } else {
    context_.ops().rms_norm(out, x, weight_.weight, eps_);
  }
  if (context_.training) {
    x_ = x;
    mean_ = context_.empty({x.size(0)}, DType::F32);
    variance_ = context_.empty({x.size(0)}, DType::F32);
    context_.ops().moments(mean_, variance_, x, eps_, bias_ != nullptr);
  }
  return out;
}

void Norm::backward(const Tensor& dy, const Tensor& dx, bool add) {
  require_kept(x_, "Norm");
  const Tensor to = add ? context_.empty(dx.shape(), DType::F32) : dx;
  context_.ops().norm_backward(to, weight_.gradient, bias_ ? bias_->gradient : Tensor(), dy, x_, weight_.weight,
                               bias_ ? mean_ : Tensor(), variance_, true);
  if (add) context_.ops().add(dx, dx, to);
  x_ = mean_ = variance_ = Tensor();
}

// -- Positions

Positions::Positions(Context& context, int64_t sequences, int64_t length, int64_t head_dim, double theta)
    : sequences(sequences), length(length) {
  const int64_t rows = sequences * length, angles = head_dim / 2;
  std::vector<int32_t> of_sequence, of_position;
  for (int64_t row = 0; row < rows; ++row) {
    of_sequence.push_back(static_cast<int32_t>(row / length));
    of_position.push_back(static_cast<int32_t>(row % length));
  }
  sequence = Tensor::from_host(of_sequence.data(), {rows}, DType::I32, context.device());
  position = Tensor::from_host(of_position.data(), {rows}, DType::I32, context.device());
  std::vector<float> frequencies;
  for (int64_t i = 0; i < angles; ++i) {
    frequencies.push_back(
        static_cast<float>(1 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim))));
  }
  const Tensor inv_freq = Tensor::from_host(frequencies.data(), {angles}, DType::F32, context.device());
  cos = context.empty({rows, angles}, DType::F32);
  sin = context.empty({rows, angles}, DType::F32);
  back_sin = context.empty({rows, angles}, DType::F32);
  context.ops().rope_table(cos, sin, inv_freq, position, 1);
  context.ops().scaled_add(back_sin, sin, -1);
  const int64_t columns = length + block;
  std::vector<float> strip(static_cast<size_t>(block * columns));
  for (int64_t i = 0; i < block; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      strip[static_cast<size_t>(i * columns + j)] = j - length > i ? -std::numeric_limits<float>::infinity() : 0.0f;
    }
  }
  strip_ = Tensor::from_host(strip.data(), {block, columns}, DType::F32, context.device());
}

Tensor Positions::mask(int64_t first, int64_t rows) const {
  return strip_.slice(0, 0, rows).slice(1, length - first, length + rows);
}

// -- CausalAttention

CausalAttention::CausalAttention(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads,
                                 int64_t kv_heads, int64_t head_dim, double deviation, double out_deviation)
    : context_(parameters.context()),
      heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      q_(parameters, name + ".q_proj", hidden, heads * head_dim, false, deviation),
      k_(parameters, name + ".k_proj", hidden, kv_heads * head_dim, false, deviation),
      v_(parameters, name + ".v_proj", hidden, kv_heads * head_dim, false, deviation),
      o_(parameters, name + ".o_proj", heads * head_dim, hidden, false, out_deviation) {
  if (kv_heads < 1 || heads % kv_heads != 0) {
    throw InvalidArgument("nn::CausalAttention: heads is " + std::to_string(heads) +
                          ", expected a multiple of kv_heads, " + std::to_string(kv_heads));
  }
  if (head_dim < 2 || head_dim % 2 != 0) {
    throw InvalidArgument("nn::CausalAttention: head_dim is " + std::to_string(head_dim) + ", expected an even number");
  }
}

float CausalAttention::scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim_)); }

Tensor CausalAttention::forward(const Tensor& x, const Tensor& residual, const Positions& positions) {
  require_columns(x, q_.weight().shape[1], "CausalAttention", q_.weight().name);
  const int64_t rows = x.size(0), batch = positions.sequences, length = positions.length;
  if (rows != batch * length) {
    throw InvalidArgument("nn::CausalAttention: x has " + std::to_string(rows) + " rows, expected " +
                          std::to_string(batch) + " sequences of " + std::to_string(length) + " positions");
  }
  ops::Training& ops = context_.ops();
  const Tensor q = context_.empty({rows, heads_ * head_dim_}), k = context_.empty({rows, kv_heads_ * head_dim_});
  const Tensor v = context_.empty(k.shape()), out = context_.empty(q.shape());
  const Tensor no_bias;
  const ops::LinearPart parts[] = {
      {q, q_.weight().weight, no_bias}, {k, k_.weight().weight, no_bias}, {v, v_.weight().weight, no_bias}};
  ops.linear_multi(x, parts);
  const Tensor q_heads = q.view({rows, heads_, head_dim_}), k_heads = k.view({rows, kv_heads_, head_dim_});
  ops.rope(q_heads, k_heads, positions.cos, positions.sin);
  const auto as_cache = [&](const Tensor& t) { return t.view({batch, length, kv_heads_, head_dim_}).transpose(1, 2); };
  ops.attention(out.view(q_heads.shape()), q_heads, as_cache(k), as_cache(v), positions.sequence, positions.position,
                scale());
  if (context_.training) {
    positions_ = &positions;
    x_ = x;
    queries_ = q;
    keys_ = k;
    values_ = v;
  }
  return o_.forward(out, residual);
}

void CausalAttention::backward(const Tensor& dy, const Tensor& dx) {
  require_kept(x_, "CausalAttention");
  const Tensor d_out = context_.empty(queries_.shape());
  o_.backward(dy, d_out);
  const Tensor dq = context_.empty(queries_.shape()), dk = context_.empty(keys_.shape());
  const Tensor dv = context_.empty(values_.shape());
  attention_gradients(d_out, dq, dk, dv);
  const int64_t rows = dq.size(0);
  context_.ops().rope(dq.view({rows, heads_, head_dim_}), dk.view({rows, kv_heads_, head_dim_}), positions_->cos,
                      positions_->back_sin);
  q_.input_gradient(dq, dx);
  k_.input_gradient(dk, dx, true);
  v_.input_gradient(dv, dx, true);
  q_.weight_gradient(dq, x_);
  k_.weight_gradient(dk, x_);
  v_.weight_gradient(dv, x_);
  x_ = queries_ = keys_ = values_ = Tensor();
}

// Computes the gradients for a block of queries of all sequences and heads at a time. With P = softmax(scale * Q K' +
// mask) and out = P V: dV += P' dO, dS = softmax's gradient of dO V', dQ = dS K, dK += dS' Q. No query of a block sees
// a key after the block's last position. The queries of the heads that share a key/value head are stacked as rows of
// one matrix, so that one product sums over them.
void CausalAttention::attention_gradients(const Tensor& d_out, const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  ops::Training& ops = context_.ops();
  const int64_t batch = positions_->sequences, length = positions_->length, shared = heads_ / kv_heads_;
  if (d_out.numel() == 0) return;
  const auto by_head = [&](const Tensor& t) {  // [B, kv_heads, shared, T, D]
    return t.view({batch, length, kv_heads_, shared, head_dim_}).permute({0, 2, 3, 1, 4});
  };
  const auto by_kv_head = [&](const Tensor& t) {  // [B, kv_heads, T, D]
    return t.view({batch, length, kv_heads_, head_dim_}).transpose(1, 2);
  };
  const Tensor q = by_head(queries_), upstream = by_head(d_out), q_gradient = by_head(dq);
  const Tensor k = by_kv_head(keys_), v = by_kv_head(values_);
  const Tensor k_sums = context_.empty({batch, kv_heads_, length, head_dim_}, DType::F32);
  const Tensor v_sums = context_.empty(k_sums.shape(), DType::F32);
  const int64_t blocks = (length + Positions::block - 1) / Positions::block;
  for (int64_t block = blocks - 1; block >= 0; --block) {
    const int64_t first = block * Positions::block, rows = std::min(Positions::block, length - first);
    const int64_t end = first + rows;
    const bool add = block < blocks - 1;  // the last block has written all keys
    const Shape one_by_one{batch, kv_heads_, shared, rows, head_dim_},
        together{batch, kv_heads_, shared * rows, head_dim_};
    const Shape scores_one_by_one{batch, kv_heads_, shared, rows, end};
    const auto block_of = [&](const Tensor& t) {
      const Tensor out = context_.empty(together);
      ops.copy(out.view(one_by_one), t.slice(3, first, end));
      return out;
    };
    const Tensor block_q = block_of(q), block_d = block_of(upstream);
    const Tensor seen_k = k.slice(2, 0, end), seen_v = v.slice(2, 0, end);
    const Tensor weights = context_.empty({batch, kv_heads_, shared * rows, end}, DType::F32);
    ops.matmul(weights, block_q, seen_k.transpose(2, 3));
    ops.softmax_masked(weights.view(scores_one_by_one), weights.view(scores_one_by_one),
                       positions_->mask(first, rows).expand(scores_one_by_one), scale());
    ops.matmul(v_sums.slice(2, 0, end), weights.transpose(2, 3), block_d, add);
    const Tensor d_scores = context_.empty(weights.shape(), DType::F32);
    ops.matmul(d_scores, block_d, seen_v.transpose(2, 3));
    ops.softmax_backward(d_scores, weights, d_scores, scale());
    ops.matmul(k_sums.slice(2, 0, end), d_scores.transpose(2, 3), block_q, add);
    ops.matmul(block_d, d_scores, seen_k);
    ops.copy(q_gradient.slice(3, first, end), block_d.view(one_by_one));
  }
  ops.copy(by_kv_head(dk), k_sums);
  ops.copy(by_kv_head(dv), v_sums);
}

// -- GatedMlp

GatedMlp::GatedMlp(Parameters& parameters, const std::string& name, int64_t hidden, int64_t intermediate,
                   double deviation, double out_deviation)
    : context_(parameters.context()),
      gate_(parameters, name + ".gate_proj", hidden, intermediate, false, deviation),
      up_(parameters, name + ".up_proj", hidden, intermediate, false, deviation),
      down_(parameters, name + ".down_proj", intermediate, hidden, false, out_deviation) {}

Tensor GatedMlp::forward(const Tensor& x, const Tensor& residual) {
  require_columns(x, gate_.weight().shape[1], "GatedMlp", gate_.weight().name);
  ops::Training& ops = context_.ops();
  const Tensor gates = context_.empty({x.size(0), gate_.weight().shape[0]}), ups = context_.empty(gates.shape());
  const Tensor no_bias;
  const ops::LinearPart parts[] = {{gates, gate_.weight().weight, no_bias}, {ups, up_.weight().weight, no_bias}};
  ops.linear_multi(x, parts);
  if (context_.training) {
    x_ = x;
    gates_ = gates;
    ups_ = ups;
  }
  const Tensor activated = context_.training ? context_.empty(gates.shape()) : gates;
  ops.gated_activation(activated, gates, ups, ops::Activation::Silu);
  const Tensor out = context_.empty({x.size(0), x.size(1)}, DType::F32);
  ops.linear(out, activated, down_.weight().weight, {}, residual);
  return out;
}

void GatedMlp::backward(const Tensor& dy, const Tensor& dx) {
  require_kept(x_, "GatedMlp");
  const Tensor upstream = context_.in_dtype(dy);
  // The input of down_ is recomputed in the memory of its gradient; the gradients of gates and ups overwrite gates and
  // ups.
  const Tensor activated = context_.empty(gates_.shape());
  down_.input_gradient(upstream, activated);
  context_.ops().gated_activation_backward(gates_, ups_, activated, gates_, ups_, activated, ops::Activation::Silu);
  down_.weight_gradient(upstream, activated);
  gate_.input_gradient(gates_, dx);
  up_.input_gradient(ups_, dx, true);
  gate_.weight_gradient(gates_, x_);
  up_.weight_gradient(ups_, x_);
  x_ = gates_ = ups_ = Tensor();
}

// -- DecoderLayer

DecoderLayer::DecoderLayer(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads,
                           int64_t kv_heads, int64_t head_dim, int64_t intermediate, double eps, double deviation,
                           double out_deviation)
    : context_(parameters.context()),
      input_norm_(parameters, name + ".input_layernorm", hidden, eps, false),
      attention_(parameters, name + ".self_attn", hidden, heads, kv_heads, head_dim, deviation, out_deviation),
      post_norm_(parameters, name + ".post_attention_layernorm", hidden, eps, false),
      mlp_(parameters, name + ".mlp", hidden, intermediate, deviation, out_deviation) {}

Tensor DecoderLayer::forward(const Tensor& x, const Positions& positions) {
  const Tensor middle = attention_.forward(input_norm_.forward(x), x, positions);
  return mlp_.forward(post_norm_.forward(middle), middle);
}

void DecoderLayer::backward(const Tensor& d) {
  const Tensor d_normed = context_.empty(d.shape(), DType::F32);
  mlp_.backward(d, d_normed);
  post_norm_.backward(d_normed, d, true);
  attention_.backward(d, d_normed);
  input_norm_.backward(d_normed, d, true);
}

// -- EncoderLayer

namespace {
// Layers of ops::Transformer are registered for the whole process, by number.
std::atomic<uint32_t> next_encoder_layer{0x4e4e0000};
}  // namespace

EncoderLayer::EncoderLayer(Parameters& parameters, const std::string& name, const Sizes& sizes, double deviation,
                           double out_deviation)
    : context_(parameters.context()),
      library_(context_.accelerator().create_op_builder("TransformerBuilder")->load_as<ops::Transformer>()),
      id_(next_encoder_layer++),
      pre_norm_(sizes.pre_norm) {
  const int64_t h = sizes.hidden, i = sizes.intermediate;
  const auto matrix = [&](const char* part, int64_t rows, int64_t columns, double d) {
    return &parameters.add(name + part, {rows, columns}, Init::normal(d), true);
  };
  const auto vector = [&](const char* part, int64_t size, double value) {
    return &parameters.add(name + part, {size}, Init::value(value), false);
  };
  qkv_w_ = matrix(".attn_qkvw", 3 * h, h, deviation);
  qkv_b_ = vector(".attn_qkvb", 3 * h, 0);
  o_w_ = matrix(".attn_ow", h, h, out_deviation);
  o_b_ = vector(".attn_ob", h, 0);
  attention_norm_w_ = vector(".attn_nw", h, 1);
  attention_norm_b_ = vector(".attn_nb", h, 0);
  inter_w_ = matrix(".inter_w", i, h, deviation);
  inter_b_ = vector(".inter_b", i, 0);
  output_w_ = matrix(".output_w", h, i, out_deviation);
  output_b_ = vector(".output_b", h, 0);
  norm_w_ = vector(".norm_w", h, 1);
  norm_b_ = vector(".norm_b", h, 0);
  const auto create = context_.dtype() == DType::F32    ? &ops::Transformer::create_transformer_layer_fp32
                      : context_.dtype() == DType::BF16 ? &ops::Transformer::create_transformer_layer_bf16
                                                        : &ops::Transformer::create_transformer_layer_fp16;
  (*library_.*create)(id_, static_cast<uint32_t>(sizes.largest_batch), static_cast<uint32_t>(h),
                      static_cast<uint32_t>(sizes.heads), static_cast<uint32_t>(i), sizes.attention_dropout,
                      sizes.hidden_dropout, static_cast<float>(sizes.eps), -1, sizes.pre_norm, false, false, false,
                      false, false);
}

ops::TransformerWeights EncoderLayer::weights() const {
  return {qkv_w_->weight,
          qkv_b_->weight,
          o_w_->weight,
          o_b_->weight,
          attention_norm_w_->weight,
          attention_norm_b_->weight,
          inter_w_->weight,
          inter_b_->weight,
          output_w_->weight,
          output_b_->weight,
          norm_w_->weight,
          norm_b_->weight};
}

Tensor EncoderLayer::forward(const Tensor& x, const Tensor& mask) {
  const auto forward = context_.dtype() == DType::F32    ? &ops::Transformer::forward_fp32
                       : context_.dtype() == DType::BF16 ? &ops::Transformer::forward_bf16
                                                         : &ops::Transformer::forward_fp16;
  auto activations = (*library_.*forward)(id_, x, mask, weights(), context_.training, pre_norm_, false, false, false);
  const Tensor output = activations.output;
  if (context_.training) {
    x_ = x;
    mask_ = mask;
    kept_ = std::move(activations);
  }
  return output;
}

Tensor EncoderLayer::backward(const Tensor& dy) {
  require_kept(x_, "EncoderLayer");
  const auto backward = context_.dtype() == DType::F32    ? &ops::Transformer::backward_fp32
                        : context_.dtype() == DType::BF16 ? &ops::Transformer::backward_bf16
                                                          : &ops::Transformer::backward_fp16;
  const ops::TransformerGradients g = (*library_.*backward)(id_, context_.in_dtype(dy), *kept_, x_, mask_, weights());
  const auto add = [&](const Parameter* parameter, const Tensor& gradient) {
    context_.ops().add(parameter->gradient, parameter->gradient, gradient);
  };
  add(qkv_w_, g.attn_qkvw);
  add(qkv_b_, g.attn_qkvb);
  add(o_w_, g.attn_ow);
  add(o_b_, g.attn_ob);
  add(attention_norm_w_, g.attn_nw);
  add(attention_norm_b_, g.attn_nb);
  add(inter_w_, g.inter_w);
  add(inter_b_, g.inter_b);
  add(output_w_, g.output_w);
  add(output_b_, g.output_b);
  add(norm_w_, g.norm_w);
  add(norm_b_, g.norm_b);
  x_ = mask_ = Tensor();
  kept_.reset();
  return g.input;
}

// -- LanguageHead

LanguageHead::LanguageHead(Parameters& parameters, const std::string& name, int64_t tokens, int64_t hidden,
                           double deviation)
    : context_(parameters.context()),
      weight_(parameters.add(name + ".weight", {tokens, hidden}, Init::normal(deviation), true)) {}

LanguageHead::LanguageHead(Parameters& parameters, Parameter& tied) : context_(parameters.context()), weight_(tied) {}

Tensor LanguageHead::losses(const Tensor& x, const Tensor& targets) { return run(x, targets, 1, {}); }

Tensor LanguageHead::losses_and_gradients(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx) {
  return run(x, targets, scale, dx);
}

Tensor LanguageHead::run(const Tensor& x, const Tensor& targets, float scale, const Tensor& dx) {
  constexpr int64_t kScores = int64_t{4} << 20;  // at most this many are in memory at once
  require_columns(x, weight_.shape[1], "LanguageHead", weight_.name);
  ops::Training& ops = context_.ops();
  const int64_t rows = x.size(0), tokens = weight_.shape[0], step = std::clamp<int64_t>(kScores / tokens, 1, rows + 1);
  const Tensor losses = context_.empty({rows}, DType::F32);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    const auto part = [&](const Tensor& t) { return t.slice(0, begin, end); };
    const Tensor scores = context_.empty({end - begin, tokens}, DType::F32);
    ops.linear(scores, part(x), weight_.weight);
    if (!dx) {
      ops.cross_entropy(part(losses), {}, scores, part(targets), scale);
      continue;
    }
    const Tensor d_scores = context_.dtype() == DType::F32 ? scores : context_.empty(scores.shape());
    ops.cross_entropy(part(losses), d_scores, scores, part(targets), scale);
    ops.matmul(part(dx), d_scores, weight_.weight);
    ops.matmul(weight_.gradient, d_scores.transpose(0, 1), part(x), true);
  }
  return losses;
}

}  // namespace anyaccel::nn
