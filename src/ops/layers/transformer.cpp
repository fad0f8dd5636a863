// Implements the encoder layer of ops::Transformer with the ops of ops::Training.
#include "anyaccel/ops/transformer.h"

#include <cmath>
#include <map>
#include <mutex>
#include <string>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/training.h"
#include "base/text/number_text.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {
namespace {

struct Layer {
  DType dtype;
  int64_t batch_size, hidden, heads, intermediate;
  float attention_ratio, hidden_ratio, eps;
  bool pre_norm, attention_checkpoint, invertible, gelu_checkpoint;

  int64_t head_size() const { return hidden / heads; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_size())); }
};

// The layers of the process, by number.
class Registry {
 public:
  void set(uint32_t id, const Layer& layer) {
    const std::lock_guard lock(mutex_);
    layers_[id] = layer;
  }
  Layer get(uint32_t id, DType dtype, const std::string& function) const {
    const std::lock_guard lock(mutex_);
    const auto found = layers_.find(id);
    const std::string suffix = function.substr(function.find('_'));
    if (found == layers_.end()) {
      throw InvalidArgument(function + ": layer_id " + std::to_string(id) +
                            " is not registered; call create_transformer_layer" + suffix + " first");
    }
    if (found->second.dtype != dtype) {
      throw InvalidArgument(function + ": layer " + std::to_string(id) + " was created for " +
                            std::string(dtype_name(found->second.dtype)) + ", expected " +
                            std::string(dtype_name(dtype)));
    }
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, Layer> layers_;
};

Registry& registry() {
  static Registry layers;
  return layers;
}

// The sizes of a call, and its checks.
struct Sizes {
  int64_t batch, length, rows, hidden, heads, head, intermediate;

  Shape input() const { return {batch, length, hidden}; }
  Shape flat() const { return {rows, hidden}; }
  Shape wide() const { return {rows, intermediate}; }
  Shape scores() const { return {batch * heads * length, length}; }
  Shape score_matrices() const { return {batch, heads, length, length}; }
};

const char* function_suffix(DType dtype) {
  return dtype == DType::F32 ? "_fp32" : dtype == DType::F16 ? "_fp16" : "_bf16";
}

Sizes check_input(ArgumentChecks& check, const Layer& layer, const Tensor& input, const Tensor& mask) {
  check.rank("input", input, 3, "[B, S, H]");
  const Sizes sizes{input.size(0),     input.size(1),     input.size(0) * input.size(1), layer.hidden, layer.heads,
                    layer.head_size(), layer.intermediate};
  check.tensor("input", input, layer.dtype, {sizes.batch, sizes.length, layer.hidden});
  check.require(sizes.batch <= layer.batch_size, "input has " + std::to_string(sizes.batch) +
                                                     " sequences, expected at most " +
                                                     std::to_string(layer.batch_size) + ", the layer's batch_size");
  check.optional("input_mask", mask, layer.dtype, {sizes.batch, 1, 1, sizes.length});
  return sizes;
}

void check_weights(ArgumentChecks& check, const Layer& layer, const TransformerWeights& w) {
  const int64_t h = layer.hidden, i = layer.intermediate;
  check.tensor("attn_qkvw", w.attn_qkvw, layer.dtype, {3 * h, h});
  check.tensor("attn_qkvb", w.attn_qkvb, layer.dtype, {3 * h});
  check.tensor("attn_ow", w.attn_ow, layer.dtype, {h, h});
  check.tensor("attn_ob", w.attn_ob, layer.dtype, {h});
  check.tensor("attn_nw", w.attn_nw, layer.dtype, {h});
  check.tensor("attn_nb", w.attn_nb, layer.dtype, {h});
  check.tensor("inter_w", w.inter_w, layer.dtype, {i, h});
  check.tensor("inter_b", w.inter_b, layer.dtype, {i});
  check.tensor("output_w", w.output_w, layer.dtype, {h, i});
  check.tensor("output_b", w.output_b, layer.dtype, {h});
  check.tensor("norm_w", w.norm_w, layer.dtype, {h});
  check.tensor("norm_b", w.norm_b, layer.dtype, {h});
}

void check_activations(ArgumentChecks& check, const Layer& layer, const Sizes& sizes, const TransformerActivations& a) {
  check.tensor("output", a.output, layer.dtype, sizes.input());
  check.tensor("inp_norm", a.inp_norm, layer.dtype, sizes.input());
  check.tensor("qkv_tf", a.qkv_tf, layer.dtype, {sizes.rows, 3 * sizes.hidden});
  check.tensor("soft_out", a.soft_out, layer.dtype, sizes.scores());
  check.tensor("ctx_bufB", a.ctx_bufB, layer.dtype, sizes.scores());
  check.tensor("attn_o_inp", a.attn_o_inp, layer.dtype, sizes.input());
  check.tensor("add_res", a.add_res, layer.dtype, sizes.input());
  check.tensor("ff1_inp", a.ff1_inp, layer.dtype, sizes.input());
  check.tensor("gelu_inp", a.gelu_inp, layer.dtype, sizes.wide());
  check.tensor("ff2_inp", a.ff2_inp, layer.dtype, sizes.wide());
  check.optional("attn_prob_dropout_mask", a.attn_prob_dropout_mask, DType::U8, sizes.scores());
  check.optional("attn_output_dropout_mask", a.attn_output_dropout_mask, DType::U8, sizes.flat());
  check.optional("layer_output_dropout_mask", a.layer_output_dropout_mask, DType::U8, sizes.flat());
  check.tensor("attn_layer_norm_var", a.attn_layer_norm_var, DType::F32, {sizes.rows});
  check.tensor("attn_layer_norm_mean", a.attn_layer_norm_mean, DType::F32, {sizes.rows});
  check.tensor("layer_norm_var", a.layer_norm_var, DType::F32, {sizes.rows});
  check.tensor("layer_norm_mean", a.layer_norm_mean, DType::F32, {sizes.rows});
}

// One pass through a layer. Here, tensors of rows are [B*S, ..].
class Pass {
 public:
  Pass(Training& ops, const Layer& layer, const Sizes& sizes, Device device)
      : ops_(ops), layer_(layer), sizes_(sizes), device_(device) {}

  TransformerActivations forward(const Tensor& input, const Tensor& mask, const TransformerWeights& w, bool training) {
    TransformerActivations a;
    const Tensor x = input.reshape(sizes_.flat());
    const float attention_ratio = training ? layer_.attention_ratio : 0;
    const float hidden_ratio = training ? layer_.hidden_ratio : 0;
    Tensor x1 = x;
    if (layer_.pre_norm) {
      x1 = norm(x, w.norm_w, w.norm_b, a.layer_norm_mean, a.layer_norm_var);
      a.inp_norm = x1.view(sizes_.input());
    }

    a.qkv_tf = heads_of(product(x1, w.attn_qkvw, w.attn_qkvb));
    a.soft_out = attention_weights(a.qkv_tf, mask);
    Tensor dropped = a.soft_out;
    if (attention_ratio > 0) {
      dropped = make(sizes_.scores());
      a.attn_prob_dropout_mask = make(sizes_.scores(), DType::U8);
      ops_.dropout(dropped, a.attn_prob_dropout_mask, a.soft_out, attention_ratio);
    }
    a.ctx_bufB = layer_.attention_checkpoint ? a.soft_out : dropped;
    const Tensor context = make(sizes_.flat());
    ops_.matmul(by_head(context), dropped.view(sizes_.score_matrices()), head_tensor(a.qkv_tf, 2));
    dropped = Tensor();
    a.attn_o_inp = context.view(sizes_.input());

    const Tensor sum = residual_product(context, w.attn_ow, w.attn_ob, x, hidden_ratio, a.attn_output_dropout_mask);
    const Tensor ff1 = norm(sum, w.attn_nw, w.attn_nb, a.attn_layer_norm_mean, a.attn_layer_norm_var);
    a.ff1_inp = ff1.view(sizes_.input());
    const Tensor gelu_input = product(ff1, w.inter_w, w.inter_b);
    const Tensor activated = make(sizes_.wide());
    ops_.activation(activated, gelu_input, Activation::GeluTanh);
    a.gelu_inp = gelu_input;
    a.ff2_inp = layer_.gelu_checkpoint ? gelu_input : activated;
    const Tensor last = residual_product(activated, w.output_w, w.output_b, layer_.pre_norm ? sum : ff1, hidden_ratio,
                                         a.layer_output_dropout_mask);
    if (layer_.pre_norm) {
      a.output = last.view(sizes_.input());
    } else {
      a.output = norm(last, w.norm_w, w.norm_b, a.layer_norm_mean, a.layer_norm_var).view(sizes_.input());
      a.inp_norm = layer_.invertible ? a.output : last.view(sizes_.input());
    }
    a.add_res = layer_.invertible ? a.inp_norm : sum.view(sizes_.input());
    return a;
  }

  TransformerGradients backward(const Tensor& grad_output, const TransformerActivations& a, const Tensor& input,
                                const TransformerWeights& w) {
    TransformerGradients g;
    const Tensor upstream = grad_output.reshape(sizes_.flat());
    const Tensor x = input.reshape(sizes_.flat());
    const Tensor ff1 = a.ff1_inp.view(sizes_.flat());

    // The gradient of the layer's last sum, which is its output or the input of its last norm.
    Tensor d_last = upstream;
    if (!layer_.pre_norm) {
      const Tensor normed = layer_.invertible
                                ? inverse(a.output, w.norm_w, w.norm_b, a.layer_norm_mean, a.layer_norm_var)
                                : a.inp_norm.view(sizes_.flat());
      d_last = norm_gradient(upstream, normed, w.norm_w, a.layer_norm_mean, a.layer_norm_var, g.norm_w, g.norm_b);
    }
    Tensor activated = a.ff2_inp;
    if (layer_.gelu_checkpoint) {
      activated = make(sizes_.wide());
      ops_.activation(activated, a.gelu_inp, Activation::GeluTanh);
    }
    const Tensor d_wide = make(sizes_.wide());
    product_gradients(dropped_gradient(d_last, a.layer_output_dropout_mask, layer_.hidden_ratio), activated, w.output_w,
                      d_wide, g.output_w, g.output_b);
    activated = Tensor();
    ops_.activation_backward(d_wide, a.gelu_inp, d_wide, Activation::GeluTanh);
    const Tensor d_ff1 = make(sizes_.flat());
    product_gradients(d_wide, ff1, w.inter_w, d_ff1, g.inter_w, g.inter_b);
    if (!layer_.pre_norm) ops_.add(d_ff1, d_ff1, d_last);

    // The sum after attention, whose gradient follows.
    const Tensor sum = layer_.invertible
                           ? inverse(a.ff1_inp, w.attn_nw, w.attn_nb, a.attn_layer_norm_mean, a.attn_layer_norm_var)
                           : a.add_res.view(sizes_.flat());
    const Tensor d_sum =
        norm_gradient(d_ff1, sum, w.attn_nw, a.attn_layer_norm_mean, a.attn_layer_norm_var, g.attn_nw, g.attn_nb);
    if (layer_.pre_norm) ops_.add(d_sum, d_sum, d_last);
    const Tensor d_context = make(sizes_.flat());
    product_gradients(dropped_gradient(d_sum, a.attn_output_dropout_mask, layer_.hidden_ratio),
                      a.attn_o_inp.view(sizes_.flat()), w.attn_ow, d_context, g.attn_ow, g.attn_ob);

    const Tensor d_qkv = attention_gradient(d_context, a);
    const Tensor d_x1 = make(sizes_.flat());
    product_gradients(d_qkv, layer_.pre_norm ? a.inp_norm.view(sizes_.flat()) : x, w.attn_qkvw, d_x1, g.attn_qkvw,
                      g.attn_qkvb);
    const Tensor d_input =
        layer_.pre_norm ? norm_gradient(d_x1, x, w.norm_w, a.layer_norm_mean, a.layer_norm_var, g.norm_w, g.norm_b)
                        : d_x1;
    ops_.add(d_input, d_input, d_sum);
    g.input = d_input.view(sizes_.input());
    return g;
  }

 private:
  Tensor make(const Shape& shape) { return make(shape, layer_.dtype); }
  Tensor make(const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype, device_); }

  // -- The forward pass.

  Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& mean, Tensor& variance) {
    mean = make({sizes_.rows}, DType::F32);
    variance = make({sizes_.rows}, DType::F32);
    ops_.moments(mean, variance, x, layer_.eps);
    const Tensor out = make(sizes_.flat());
    ops_.layer_norm(out, x, weight, bias, layer_.eps);
    return out;
  }

  Tensor product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual = {}) {
    const Tensor out = make({x.size(0), w.size(0)});
    ops_.linear(out, x, w, bias, residual);
    return out;
  }

  // Returns residual + dropout(x * w' + bias).
  Tensor residual_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual, float ratio,
                          Tensor& mask) {
    if (ratio <= 0) return product(x, w, bias, residual);
    const Tensor out = product(x, w, bias);
    mask = make(sizes_.flat(), DType::U8);
    ops_.dropout(out, mask, out, ratio);
    ops_.add(out, out, residual);
    return out;
  }

  // Reorders [B*S, 3H] by position to [B*S, 3H] by part and head.
  Tensor heads_of(const Tensor& qkv) {
    const Tensor out = make(qkv.shape());
    const Shape by_position{sizes_.batch, sizes_.length, 3, sizes_.heads, sizes_.head};
    const Shape by_part{3, sizes_.batch, sizes_.heads, sizes_.length, sizes_.head};
    ops_.copy(out.view(by_part), qkv.view(by_position).permute({2, 0, 3, 1, 4}));
    return out;
  }
  // Returns part 0 (Q), 1 (K) or 2 (V) of qkv_tf as [B, nh, S, d].
  Tensor head_tensor(const Tensor& qkv_tf, int part) const {
    return part_of(qkv_tf.view({3, sizes_.batch, sizes_.heads, sizes_.length, sizes_.head}), part);
  }
  // Returns element `part` of the first dimension; 0 is used if there are no elements, because `part` would begin
  // outside the memory.
  static Tensor part_of(const Tensor& parts, int part) { return parts.select(0, parts.numel() == 0 ? 0 : part); }
  // Returns rows [B*S, H] as [B, nh, S, d].
  Tensor by_head(const Tensor& rows) const {
    return rows.view({sizes_.batch, sizes_.length, sizes_.heads, sizes_.head}).transpose(1, 2);
  }

  Tensor attention_weights(const Tensor& qkv_tf, const Tensor& mask) {
    const Tensor out = make(sizes_.scores());
    // Before they are scaled, scores may be too large for 16 bits.
    const Tensor scores =
        (layer_.dtype == DType::F32 ? out : make(sizes_.scores(), DType::F32)).view(sizes_.score_matrices());
    ops_.matmul(scores, head_tensor(qkv_tf, 0), head_tensor(qkv_tf, 1).transpose(2, 3));
    ops_.softmax_masked(out.view(sizes_.score_matrices()), scores,
                        mask ? mask.expand(sizes_.score_matrices()) : Tensor(), layer_.scale());
    return out;
  }

  // -- The backward pass.

  Tensor inverse(const Tensor& y, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                 const Tensor& variance) {
    const Tensor x = make(sizes_.flat());
    ops_.layer_norm_inverse(x, y.view(sizes_.flat()), weight, bias, mean, variance);
    return x;
  }

  Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& variance, Tensor& dweight, Tensor& dbias) {
    const Tensor dx = make(sizes_.flat());
    dweight = make(weight.shape());
    dbias = make(weight.shape());
    ops_.norm_backward(dx, dweight, dbias, dy, x, weight, mean, variance);
    return dx;
  }

  Tensor dropped_gradient(const Tensor& dy, const Tensor& mask, float ratio) {
    if (!mask) return dy;
    const Tensor dx = make(dy.shape());
    ops_.apply_mask(dx, dy, mask, 1 / (1 - ratio));
    return dx;
  }

  // Computes the gradients of y = x * w' + bias.
  void product_gradients(const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& dx, Tensor& dw, Tensor& db) {
    dw = make(w.shape());
    db = make({w.size(0)});
    ops_.matmul(dw, dy.transpose(0, 1), x);
    ops_.column_sums(db, dy);
    ops_.matmul(dx, dy, w);
  }

  // Returns the gradient of [Q K V] by position: [B*S, 3H].
  Tensor attention_gradient(const Tensor& d_context, const TransformerActivations& a) {
    const Tensor d_qkv = make({sizes_.rows, 3 * sizes_.hidden});
    const Tensor parts =
        d_qkv.view({sizes_.batch, sizes_.length, 3, sizes_.heads, sizes_.head}).permute({2, 0, 3, 1, 4});
    const Tensor q = head_tensor(a.qkv_tf, 0), k = head_tensor(a.qkv_tf, 1), v = head_tensor(a.qkv_tf, 2);
    const Tensor d_heads = by_head(d_context);
    const Tensor weights = a.soft_out;
    const float keep = 1 / (1 - layer_.attention_ratio);
    Tensor dropped = a.ctx_bufB;
    if (a.attn_prob_dropout_mask && layer_.attention_checkpoint) {
      dropped = make(sizes_.scores());
      ops_.apply_mask(dropped, weights, a.attn_prob_dropout_mask, keep);
    }
    ops_.matmul(part_of(parts, 2), dropped.view(sizes_.score_matrices()).transpose(2, 3), d_heads);
    dropped = Tensor();
    const Tensor d_scores = make(sizes_.scores());
    const Tensor d_matrices = d_scores.view(sizes_.score_matrices());
    ops_.matmul(d_matrices, d_heads, v.transpose(2, 3));
    if (a.attn_prob_dropout_mask) ops_.apply_mask(d_scores, d_scores, a.attn_prob_dropout_mask, keep);
    ops_.softmax_backward(d_scores, weights, d_scores, layer_.scale());
    ops_.matmul(part_of(parts, 0), d_matrices, k);
    ops_.matmul(part_of(parts, 1), d_matrices.transpose(2, 3), q);
    return d_qkv;
  }

  Training& ops_;
  const Layer& layer_;
  const Sizes& sizes_;
  Device device_;
};

}  // namespace

struct Transformer::Impl {
  explicit Impl(Accelerator& active) : accelerator(active), ops(active) {}

  int create(DType dtype, uint32_t id, Layer layer, int seed) {
    const ArgumentChecks check(accelerator, std::string("create_transformer_layer") + function_suffix(dtype));
    const auto above_zero = [&](const char* name, int64_t value) {
      check.require(value > 0, std::string(name) + " is " + std::to_string(value) + ", expected at least 1");
    };
    above_zero("batch_size", layer.batch_size);
    above_zero("hidden_dim", layer.hidden);
    above_zero("num_heads", layer.heads);
    above_zero("intermediate_size", layer.intermediate);
    check.require(layer.hidden % layer.heads == 0,
                  "hidden_dim is " + std::to_string(layer.hidden) +
                      ", expected a multiple of num_heads = " + std::to_string(layer.heads));
    const auto ratio = [&](const char* name, float value) {
      check.require(value >= 0 && value < 1,
                    std::string(name) + " is " + number_text(value) + ", expected a number from 0 to below 1");
    };
    ratio("attn_dropout_ratio", layer.attention_ratio);
    ratio("hidden_dropout_ratio", layer.hidden_ratio);
    check.require(layer.eps >= 0 && std::isfinite(layer.eps),
                  "layer_norm_eps is " + number_text(layer.eps) + ", expected a finite number, at least 0");
    layer.dtype = dtype;
    registry().set(id, layer);
    if (seed >= 0) accelerator.random().manual_seed(static_cast<uint64_t>(seed));
    return 0;
  }

  TransformerActivations forward(DType dtype, uint32_t id, const Tensor& input, const Tensor& mask,
                                 const TransformerWeights& weights, bool training, bool pre_norm,
                                 bool attention_checkpoint, bool invertible, bool gelu_checkpoint) {
    const std::string function = std::string("forward") + function_suffix(dtype);
    const Layer layer = registry().get(id, dtype, function);
    ArgumentChecks check(accelerator, function);
    const auto same = [&](const char* name, bool found, bool expected) {
      check.require(found == expected, std::string(name) + " is " + (found ? "true" : "false") + ", expected " +
                                           (expected ? "true" : "false") + ", as layer " + std::to_string(id) +
                                           " was created");
    };
    same("prelayernorm", pre_norm, layer.pre_norm);
    same("attn_dropout_checkpoint", attention_checkpoint, layer.attention_checkpoint);
    same("normalize_invertible", invertible, layer.invertible);
    same("gelu_checkpoint", gelu_checkpoint, layer.gelu_checkpoint);
    const Sizes sizes = check_input(check, layer, input, mask);
    check_weights(check, layer, weights);
    return Pass(ops, layer, sizes, input.device()).forward(input, mask, weights, training);
  }

  TransformerGradients backward(DType dtype, uint32_t id, const Tensor& grad_output, const TransformerActivations& a,
                                const Tensor& input, const Tensor& mask, const TransformerWeights& weights) {
    const std::string function = std::string("backward") + function_suffix(dtype);
    const Layer layer = registry().get(id, dtype, function);
    ArgumentChecks check(accelerator, function);
    const Sizes sizes = check_input(check, layer, input, mask);
    check.tensor("grad_output", grad_output, dtype, sizes.input());
    check_activations(check, layer, sizes, a);
    check_weights(check, layer, weights);
    return Pass(ops, layer, sizes, input.device()).backward(grad_output, a, input, weights);
  }

  Accelerator& accelerator;
  Training ops;
};

Transformer::Transformer(Accelerator& accelerator) : impl_(std::make_unique<Impl>(accelerator)) {}
Transformer::~Transformer() = default;

#define ANYACCEL_TRANSFORMER_FUNCTIONS(suffix, dtype)                                                                  \
  int Transformer::create_transformer_layer_##suffix(                                                                  \
      uint32_t layer_id, uint32_t batch_size, uint32_t hidden_dim, uint32_t num_heads, uint32_t intermediate_size,     \
      float attn_dropout_ratio, float hidden_dropout_ratio, float layer_norm_eps, int seed, bool pre_or_postLayerNorm, \
      bool /*test_gemm*/, bool attn_dropout_checkpoint, bool normalize_invertible, bool gelu_checkpoint,               \
      bool /*stochastic_mode*/) {                                                                                      \
    return impl_->create(                                                                                              \
        dtype, layer_id,                                                                                               \
        {dtype, batch_size, hidden_dim, num_heads, intermediate_size, attn_dropout_ratio, hidden_dropout_ratio,        \
         layer_norm_eps, pre_or_postLayerNorm, attn_dropout_checkpoint, normalize_invertible, gelu_checkpoint},        \
        seed);                                                                                                         \
  }                                                                                                                    \
  TransformerActivations Transformer::forward_##suffix(                                                                \
      uint32_t layer_id, const Tensor& input, const Tensor& input_mask, const TransformerWeights& weights,             \
      bool training_mode, bool prelayernorm, bool attn_dropout_checkpoint, bool normalize_invertible,                  \
      bool gelu_checkpoint) {                                                                                          \
    return impl_->forward(dtype, layer_id, input, input_mask, weights, training_mode, prelayernorm,                    \
                          attn_dropout_checkpoint, normalize_invertible, gelu_checkpoint);                             \
  }                                                                                                                    \
  TransformerGradients Transformer::backward_##suffix(uint32_t layer_id, const Tensor& grad_output,                    \
                                                      const TransformerActivations& activations, const Tensor& input,  \
                                                      const Tensor& input_mask, const TransformerWeights& weights) {   \
    return impl_->backward(dtype, layer_id, grad_output, activations, input, input_mask, weights);                     \
  }
ANYACCEL_TRANSFORMER_FUNCTIONS(fp32, DType::F32)
ANYACCEL_TRANSFORMER_FUNCTIONS(fp16, DType::F16)
ANYACCEL_TRANSFORMER_FUNCTIONS(bf16, DType::BF16)
#undef ANYACCEL_TRANSFORMER_FUNCTIONS

std::unique_ptr<OpBuilder> make_transformer_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<Transformer>>("TransformerBuilder", accelerator);
}
std::unique_ptr<OpBuilder> make_stochastic_transformer_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<Transformer>>("StochasticTransformerBuilder", accelerator);
}

}  // namespace anyaccel::ops
