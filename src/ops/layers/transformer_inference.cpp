// Implements ops::TransformerInference with the ops of ops::Training.
#include "anyaccel/ops/transformer_inference.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {
namespace {

// Checks a tensor of rows [.., K].
void check_rows(ArgumentChecks& check, const char* name, const Tensor& x) {
  check.one_of(name, x, float_dtypes);
  check.require(x.ndim() >= 1, std::string(name) + " has shape " + x.shape().to_string() + ", expected [.., K]");
}

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }
Tensor wide_like(const Tensor& x) { return Tensor::empty(x.shape(), DType::F32, x.device()); }

Shape with_last(const Shape& shape, int64_t last) {
  std::vector<int64_t> sizes(shape.dims().begin(), shape.dims().end());
  sizes.back() = last;
  return Shape(sizes);
}

Activation gate_of(const ArgumentChecks& check, ActivationFuncType act) {
  check.require(act == ActivationFuncType::GATED_GELU || act == ActivationFuncType::GATED_SILU,
                "act is " + std::to_string(static_cast<int>(act)) + ", expected GATED_GELU (3) or GATED_SILU (4)");
  return act == ActivationFuncType::GATED_GELU ? Activation::GeluTanh : Activation::Silu;
}

Activation plain_of(const ArgumentChecks& check, ActivationFuncType act) {
  check.require(act == ActivationFuncType::GELU || act == ActivationFuncType::ReLU,
                "act is " + std::to_string(static_cast<int>(act)) + ", expected GELU (1) or ReLU (2)");
  return act == ActivationFuncType::GELU ? Activation::GeluTanh : Activation::Relu;
}

}  // namespace

std::unique_ptr<OpBuilder> make_inference_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<TransformerInference>>("InferenceBuilder", accelerator);
}

// The caches of the layers. `mutex` guards all members, but not the enqueued work: calls that share a workspace must
// use one stream.
struct TransformerInference::Workspace {
  struct Layer {
    Tensor keys, values;  // [batch, nkv, most_tokens, d]
    int64_t length = 0;
  };
  std::mutex mutex;
  bool known = false;     // allocate_workspace has been called
  bool released = false;  // release_workspace has been called after it
  int64_t batch = 0, most_tokens = 0;
  std::vector<Layer> layers;
};

TransformerInference::TransformerInference(Accelerator& accelerator)
    : Training(accelerator), accelerator_(accelerator), workspace_(std::make_unique<Workspace>()) {}
TransformerInference::~TransformerInference() = default;

void TransformerInference::allocate_workspace(int64_t hidden, int64_t heads, int64_t prompt, int64_t batch,
                                              int64_t layers, int mp_size, bool /*external_cache*/, int /*rank*/,
                                              int64_t max_out_tokens, int64_t min_out_tokens) {
  const ArgumentChecks check(accelerator_, "allocate_workspace");
  const auto at_least_1 = [&](const char* name, int64_t value) {
    check.require(value >= 1, std::string(name) + " is " + std::to_string(value) + ", expected at least 1");
  };
  at_least_1("hidden", hidden);
  at_least_1("heads", heads);
  at_least_1("batch", batch);
  at_least_1("layers", layers);
  at_least_1("mp_size", mp_size);
  at_least_1("min_out_tokens", min_out_tokens);
  check.require(max_out_tokens >= min_out_tokens && max_out_tokens >= prompt,
                "max_out_tokens is " + std::to_string(max_out_tokens) + ", expected at least prompt = " +
                    std::to_string(prompt) + " and min_out_tokens = " + std::to_string(min_out_tokens));
  const std::lock_guard lock(workspace_->mutex);
  workspace_->known = true;
  workspace_->released = false;
  workspace_->batch = batch;
  workspace_->most_tokens = max_out_tokens;
  workspace_->layers.assign(static_cast<size_t>(layers), {});
}

void TransformerInference::release_workspace() {
  const std::lock_guard lock(workspace_->mutex);
  workspace_->released = true;
  workspace_->layers.assign(workspace_->layers.size(), {});
}

bool TransformerInference::retake_workspace() {
  const std::lock_guard lock(workspace_->mutex);
  workspace_->released = false;
  return workspace_->known;
}

void TransformerInference::reset_cache() {
  const std::lock_guard lock(workspace_->mutex);
  for (Workspace::Layer& layer : workspace_->layers) layer.length = 0;
}

void TransformerInference::repeat_kv_cache(int64_t source_batch, int64_t repeats) {
  const ArgumentChecks check(accelerator_, "repeat_kv_cache");
  const std::lock_guard lock(workspace_->mutex);
  check.require(source_batch >= 1 && repeats >= 1 && source_batch <= workspace_->batch / repeats,
                std::to_string(source_batch) + " sequences " + std::to_string(repeats) +
                    " times are too many or none, expected at most the workspace's batch of " +
                    std::to_string(workspace_->batch));
  for (const Workspace::Layer& layer : workspace_->layers) {
    if (!layer.keys || layer.length == 0) continue;
    for (const Tensor& cache : {layer.keys, layer.values}) {
      const Tensor used = cache.slice(2, 0, layer.length);
      const Tensor source = used.slice(0, 0, source_batch).clone();
      for (int64_t i = 0; i < source_batch * repeats; ++i) used.select(0, i).copy_from(source.select(0, i / repeats));
    }
  }
}

AttentionContext TransformerInference::softmax_context(const Tensor& qkv, const Tensor& mask, int rotary_dim,
                                                       bool rotate_half, bool rotate_every_two, int heads, int num_kv,
                                                       float norm_factor, bool triangular, bool local_attention,
                                                       int window_size, bool no_masking, int layer_id, int num_layers,
                                                       const Tensor& alibi, float rope_theta, bool is_prompt,
                                                       const Tensor& token_idx, const Tensor& position_ids) {
  ArgumentChecks check(accelerator_, "softmax_context");
  check.one_of("qkv", qkv, float_dtypes);
  check.rank("qkv", qkv, 3, "[B, S, (heads + 2 num_kv) * d]");
  const int64_t nkv = num_kv > 0 ? num_kv : heads;
  check.require(heads >= 1 && heads % nkv == 0,
                "heads is " + std::to_string(heads) + ", expected a multiple of num_kv = " + std::to_string(nkv));
  const int64_t batch = qkv.size(0), count = qkv.size(1), all = heads + 2 * nkv;
  check.require(qkv.size(2) > 0 && qkv.size(2) % all == 0,
                "qkv has rows of " + std::to_string(qkv.size(2)) +
                    ", expected a multiple of heads + 2 num_kv = " + std::to_string(all));
  const int64_t d = qkv.size(2) / all;
  check.require(!token_idx, "token_idx is given, expected none");
  check.require(
      rotary_dim >= 0 && rotary_dim % 2 == 0 && rotary_dim <= d,
      "rotary_dim is " + std::to_string(rotary_dim) + ", expected an even number from 0 to " + std::to_string(d));
  check.require(rotary_dim == 0 || rotate_half != rotate_every_two,
                "rotate_half and rotate_every_two are equal, expected one of them");
  check.require(count >= 1 && batch >= 1, "qkv has shape " + qkv.shape().to_string() + ", expected a token at least");
  const std::lock_guard lock(workspace_->mutex);
  check.require(workspace_->known && !workspace_->released,
                "there is no workspace; call allocate_workspace or retake_workspace first");
  check.require(num_layers == static_cast<int>(workspace_->layers.size()) && layer_id >= 0 && layer_id < num_layers,
                "layer_id is " + std::to_string(layer_id) + " of " + std::to_string(num_layers) +
                    " layers, expected one of the workspace's " + std::to_string(workspace_->layers.size()));
  check.require(batch <= workspace_->batch, "qkv has " + std::to_string(batch) + " sequences, expected at most " +
                                                std::to_string(workspace_->batch) + ", the workspace's batch");
  Workspace::Layer& layer = workspace_->layers[static_cast<size_t>(layer_id)];
  const int64_t before = is_prompt ? 0 : layer.length, length = before + count;
  check.require(length <= workspace_->most_tokens,
                "the cache would hold " + std::to_string(length) +
                    " tokens, expected at most max_out_tokens = " + std::to_string(workspace_->most_tokens));
  if (position_ids) {
    check.one_of("position_ids", position_ids, {DType::I32, DType::I64});
    check.tensor("position_ids", position_ids, position_ids.dtype(), {batch, count});
  }
  const Device device = qkv.device();
  const Shape cache{workspace_->batch, nkv, workspace_->most_tokens, d};
  if (!layer.keys || layer.keys.shape() != cache || layer.keys.dtype() != qkv.dtype() ||
      layer.keys.device() != device) {
    check.require(before == 0, "qkv has other heads, dtype or device than the tokens in the cache, expected the same");
    layer.keys = Tensor::empty(cache, qkv.dtype(), device);
    layer.values = Tensor::empty(cache, qkv.dtype(), device);
  }

  const int64_t tokens = batch * count;
  std::vector<int32_t> sequences, slots;
  for (int64_t i = 0; i < tokens; ++i) {
    sequences.push_back(static_cast<int32_t>(i / count));
    slots.push_back(static_cast<int32_t>(before + i % count));
  }
  const Tensor sequence = Tensor::from_host(sequences.data(), {tokens}, DType::I32, device);
  const Tensor slot = Tensor::from_host(slots.data(), {tokens}, DType::I32, device);
  const Tensor parts = qkv.reshape(Shape{tokens, all, d});
  Tensor q = parts.slice(1, 0, heads), k = parts.slice(1, heads, heads + nkv);
  const Tensor v = parts.slice(1, heads + nkv, all);
  if (rotary_dim > 0) {
    q = q.clone();
    k = k.clone();
    rotate(q, k, position_ids ? position_ids.reshape(Shape{tokens}).to(DType::I32) : slot, rotary_dim, rope_theta,
           rotate_every_two);
  }
  cache_write(layer.keys, layer.values, k, v, sequence, slot);
  layer.length = length;

  // The query heads of one key head are adjacent: [B, nkv, group, S, d].
  const int64_t group = heads / nkv;
  const Tensor keys = layer.keys.slice(0, 0, batch).slice(2, 0, length);
  const Tensor values = layer.values.slice(0, 0, batch).slice(2, 0, length);
  const auto grouped = [&](const Tensor& rows) {
    return rows.view(Shape{batch, count, nkv, group, d}).permute({0, 2, 3, 1, 4});
  };
  const auto repeated = [&](const Tensor& t) { return t.unsqueeze(2).expand(Shape{batch, nkv, group, length, d}); };
  const Tensor scores = Tensor::empty({batch, nkv, group, count, length}, DType::F32, device);
  matmul(scores, grouped(q.is_contiguous() ? q : q.clone()), repeated(keys).transpose(3, 4));
  softmax(scores.view(Shape{batch, heads, count, length}), no_masking ? Tensor() : mask, alibi, triangular, false,
          local_attention, window_size, false, norm_factor * norm_factor, 0, 1);
  const Tensor context = Tensor::empty({batch, count, heads * d}, qkv.dtype(), device);
  matmul(grouped(context), scores, repeated(values));
  return {context, keys, values};
}

// Rotates q and k, [tokens, heads, d], in place.
void TransformerInference::rotate(const Tensor& q, const Tensor& k, const Tensor& positions, int rotary_dim,
                                  float theta, bool pairs) {
  const Device device = q.device();
  const Shape angles{q.size(0), rotary_dim / 2};
  std::vector<float> frequencies;
  for (int i = 0; i < rotary_dim; i += 2) {
    frequencies.push_back(std::pow(theta, -static_cast<float>(i) / static_cast<float>(rotary_dim)));
  }
  const Tensor cos = Tensor::empty(angles, DType::F32, device), sin = Tensor::empty(angles, DType::F32, device);
  rope_table(cos, sin, Tensor::from_host(frequencies.data(), {rotary_dim / 2}, DType::F32, device), positions, 1);
  rope(q, k, cos, sin, pairs);
}

// Returns a + b in fp32; b is repeated along leading dimensions that it lacks.
Tensor TransformerInference::sum(const Tensor& a, const Tensor& b) {
  const Tensor out = wide_like(a);
  add(out, a, b.expand(a.shape()));
  return out;
}

Tensor TransformerInference::softmax(const Tensor& scores, const Tensor& mask, const Tensor& alibi, bool triangular,
                                     bool /*recompute*/, bool local_attention, int window_size, bool /*async_op*/,
                                     float layer_scale, int head_offset, int mp_size) {
  ArgumentChecks check(accelerator_, "softmax");
  check.one_of("scores", scores, float_dtypes);
  check.rank("scores", scores, 4, "[B, nh, q, k]");
  const int64_t batch = scores.size(0), heads = scores.size(1), queries = scores.size(2), keys = scores.size(3);
  check.require(mp_size >= 1, "mp_size is " + std::to_string(mp_size) + ", expected at least 1");
  check.require(!local_attention || window_size >= 1,
                "window_size is " + std::to_string(window_size) + ", expected at least 1");
  if (mask) {
    check.one_of("mask", mask, float_dtypes);
    check.rank("mask", mask, 4, "[B, nh, q, k], each as that of scores or 1");
    for (int d = 0; d < 4; ++d) {
      check.require(
          mask.size(d) == scores.size(d) || mask.size(d) == 1,
          "mask has shape " + mask.shape().to_string() + ", expected sizes of 1 or of " + scores.shape().to_string());
    }
  }
  Tensor slopes;
  if (alibi) {
    check.one_of("alibi", alibi, float_dtypes);
    check.rank("alibi", alibi, 3, "[nh * mp_size, 1, k]");
    const int64_t all = heads * mp_size;
    check.require((alibi.size(0) == all || alibi.size(0) == batch * all) && alibi.size(1) == 1 && alibi.size(2) == keys,
                  "alibi has shape " + alibi.shape().to_string() + ", expected [" + std::to_string(all) + " or " +
                      std::to_string(batch * all) + ", 1, " + std::to_string(keys) + "]");
    check.require(head_offset >= 0 && head_offset + heads <= all,
                  "head_offset is " + std::to_string(head_offset) + ", expected 0 to " + std::to_string(all - heads));
    const int64_t sets = alibi.size(0) / all;
    slopes = alibi.reshape(Shape{sets, all, 1, keys}).slice(1, head_offset, head_offset + heads).expand(scores.shape());
  }
  if (scores.numel() == 0) return scores;
  const Tensor sums = wide_like(scores);
  scaled_add(sums, scores, layer_scale);
  if (slopes) add(sums, sums, slopes);
  Tensor seen;
  if (triangular || local_attention) {
    std::vector<float> masked(static_cast<size_t>(queries * keys), 0.0f);
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t position = i + keys - queries;
      for (int64_t j = 0; j < keys; ++j) {
        const bool hidden = (triangular && j > position) || (local_attention && j <= position - window_size);
        if (hidden) masked[static_cast<size_t>(i * keys + j)] = -std::numeric_limits<float>::infinity();
      }
    }
    seen = Tensor::from_host(masked.data(), {queries, keys}, DType::F32, scores.device()).expand(scores.shape());
  }
  if (mask && seen) add(sums, sums, mask.expand(scores.shape()));
  softmax_masked(scores, sums, seen ? seen : mask ? mask.expand(scores.shape()) : Tensor());
  return scores;
}

Tensor TransformerInference::bias_gelu(const Tensor& x, const Tensor& bias) {
  ArgumentChecks check(accelerator_, "bias_gelu");
  check_rows(check, "x", x);
  check.tensor("bias", bias, x.dtype(), {x.size(-1)});
  activation(x, sum(x, bias), Activation::GeluTanh);
  return x;
}

Tensor TransformerInference::bias_relu(const Tensor& x, const Tensor& bias) {
  ArgumentChecks check(accelerator_, "bias_relu");
  check_rows(check, "x", x);
  check.tensor("bias", bias, x.dtype(), {x.size(-1)});
  activation(x, sum(x, bias), Activation::Relu);
  return x;
}

Tensor TransformerInference::bias_add(const Tensor& x, const Tensor& bias) {
  ArgumentChecks check(accelerator_, "bias_add");
  check_rows(check, "x", x);
  check.tensor("bias", bias, x.dtype(), {x.size(-1)});
  add(x, x, bias.expand(x.shape()));
  return x;
}

Tensor TransformerInference::bias_residual(const Tensor& x, const Tensor& residual, const Tensor& bias) {
  ArgumentChecks check(accelerator_, "bias_residual");
  check_rows(check, "x", x);
  check.tensor("residual", residual, x.dtype(), x.shape());
  check.tensor("bias", bias, x.dtype(), {x.size(-1)});
  add(x, sum(x, residual), bias.expand(x.shape()));
  return x;
}

Tensor TransformerInference::gated_activation(const Tensor& x, const Tensor& bias, ActivationFuncType act) {
  ArgumentChecks check(accelerator_, "gated_activation");
  check_rows(check, "x", x);
  const int64_t columns = x.size(-1);
  check.require(columns % 2 == 0, "x has " + std::to_string(columns) + " columns, expected an even number");
  check.optional("bias", bias, x.dtype(), {columns});
  const Activation kind = gate_of(check, act);
  const Tensor out = Tensor::empty(with_last(x.shape(), columns / 2), x.dtype(), x.device());
  if (out.numel() == 0) return out;
  const Tensor both = bias ? sum(x, bias) : x;
  Inference::gated_activation(out, both.slice(-1, columns / 2, columns), both.slice(-1, 0, columns / 2), kind);
  return out;
}

Tensor TransformerInference::layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, float eps) {
  ArgumentChecks check(accelerator_, "layer_norm");
  check_rows(check, "x", x);
  check.tensor("gamma", gamma, x.dtype(), {x.size(-1)});
  check.tensor("beta", beta, x.dtype(), {x.size(-1)});
  const Tensor out = like(x);
  Inference::layer_norm(out, x, gamma, beta, eps);
  return out;
}

Tensor TransformerInference::layer_norm_residual(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                                 const Tensor& gamma, const Tensor& beta, float eps) {
  return layer_norm_residual_store_pre_ln_res(x, bias, residual, gamma, beta, eps).first;
}

std::pair<Tensor, Tensor> TransformerInference::layer_norm_residual_store_pre_ln_res(
    const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma, const Tensor& beta, float eps) {
  ArgumentChecks check(accelerator_, "layer_norm_residual");
  check_rows(check, "x", x);
  check.tensor("bias", bias, x.dtype(), {x.size(-1)});
  check.tensor("residual", residual, x.dtype(), x.shape());
  check.tensor("gamma", gamma, x.dtype(), {x.size(-1)});
  check.tensor("beta", beta, x.dtype(), {x.size(-1)});
  const Tensor total = sum(sum(x, residual), bias);
  const Tensor out = like(x), stored = x.dtype() == DType::F32 ? total : like(x);
  Inference::layer_norm(out, total, gamma, beta, eps);
  if (x.dtype() != DType::F32) copy(stored, total);
  return {out, stored};
}

Tensor TransformerInference::rms_norm(const Tensor& x, const Tensor& gamma, float eps) {
  ArgumentChecks check(accelerator_, "rms_norm");
  check_rows(check, "x", x);
  check.tensor("gamma", gamma, x.dtype(), {x.size(-1)});
  const Tensor out = like(x);
  Inference::rms_norm(out, x, gamma, eps);
  return out;
}

std::pair<Tensor, Tensor> TransformerInference::pre_rms_norm(const Tensor& x, const Tensor& residual,
                                                             const Tensor& gamma, float eps) {
  ArgumentChecks check(accelerator_, "pre_rms_norm");
  check_rows(check, "x", x);
  check.tensor("residual", residual, x.dtype(), x.shape());
  check.tensor("gamma", gamma, x.dtype(), {x.size(-1)});
  const Tensor out = like(x), total = like(x);
  add(total, x, residual);
  Inference::rms_norm(out, total, gamma, eps);
  return {out, total};
}

// Returns x [.., K] times the weight; the result is [.., N] in x's dtype.
Tensor TransformerInference::product(const char* function, const Tensor& x, const Tensor& w, const Tensor& scale,
                                     bool q_int8, bool transposed, const Tensor& bias) {
  ArgumentChecks check(accelerator_, function);
  check_rows(check, "x", x);
  check.dtype("w", w, q_int8 ? DType::I8 : x.dtype());
  check.rank("w", w, 2, transposed ? "[N, K]" : "[K, N]");
  const int64_t k = x.size(-1), n = w.size(transposed ? 0 : 1);
  check.tensor("w", w, w.dtype(), transposed ? Shape{n, k} : Shape{k, n});
  check.optional("bias", bias, x.dtype(), {n});
  Tensor weight = w;
  if (q_int8) {
    check.dtype("q_scale", scale, DType::F32);
    check.require(scale.numel() > 0 && w.numel() % scale.numel() == 0,
                  "q_scale has " + std::to_string(scale.numel()) + " numbers, expected a divisor of the weight's " +
                      std::to_string(w.numel()) + " elements");
    const Shape parts{scale.numel(), w.numel() / scale.numel()};
    weight = Tensor::empty(w.shape(), x.dtype(), w.device());
    const Tensor numbers = Tensor::empty(parts, DType::F32, w.device());
    copy(numbers, w.reshape(parts));
    multiply(weight.view(parts), numbers, scale.reshape(Shape{parts[0], 1}).expand(parts));
  }
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.size(d);
  const Tensor out = Tensor::empty(with_last(x.shape(), n), x.dtype(), x.device());
  linear(out.view(Shape{rows, n}), x.reshape(Shape{rows, k}), transposed ? weight : weight.transpose(0, 1), bias);
  return out;
}

std::pair<Tensor, Tensor> TransformerInference::qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale,
                                                         const Tensor& bias, const Tensor& gamma, const Tensor& beta,
                                                         float eps, bool add_bias, bool q_int8, bool transposed) {
  const Tensor normed = layer_norm(x, gamma, beta, eps);
  return {product("qkv_gemm", normed, w, q_scale, q_int8, transposed, add_bias ? bias : Tensor()), normed};
}

std::pair<Tensor, Tensor> TransformerInference::rms_qkv_gemm(const Tensor& x, const Tensor& w, const Tensor& q_scale,
                                                             const Tensor& gamma, float eps, bool q_int8,
                                                             bool transposed) {
  const Tensor normed = rms_norm(x, gamma, eps);
  return {product("rms_qkv_gemm", normed, w, q_scale, q_int8, transposed), normed};
}

std::pair<Tensor, Tensor> TransformerInference::mlp_gemm(
    const Tensor& x, const Tensor& residual, const Tensor& input_bias, const Tensor& w_inter, const Tensor& w_out,
    const Tensor& bias, const Tensor& gamma, const Tensor& beta, float eps, bool /*preLayerNorm*/, bool mlp_after_attn,
    const Tensor& scale1, const Tensor& scale2, bool q_int8, ActivationFuncType act, bool transposed) {
  const Activation kind = plain_of(ArgumentChecks(accelerator_, "mlp_gemm"), act);
  const Tensor normed =
      mlp_after_attn ? layer_norm_residual(x, input_bias, residual, gamma, beta, eps) : layer_norm(x, gamma, beta, eps);
  const Tensor inner = product("mlp_gemm", normed, w_inter, scale1, q_int8, transposed, bias);
  activation(inner, inner, kind);
  return {product("mlp_gemm", inner, w_out, scale2, q_int8, transposed), normed};
}

std::pair<Tensor, Tensor> TransformerInference::rms_mlp_gemm(const Tensor& x, const Tensor& residual,
                                                             const Tensor& w_inter, const Tensor& w_out,
                                                             const Tensor& gamma, float eps, const Tensor& scale1,
                                                             const Tensor& scale2, bool q_int8, ActivationFuncType act,
                                                             bool transposed) {
  ArgumentChecks check(accelerator_, "rms_mlp_gemm");
  check_rows(check, "x", x);
  check.tensor("residual", residual, x.dtype(), x.shape());
  check.tensor("gamma", gamma, x.dtype(), {x.size(-1)});
  gate_of(check, act);
  add(residual, residual, x);
  const Tensor both = product("rms_mlp_gemm", rms_norm(residual, gamma, eps), w_inter, scale1, q_int8, transposed);
  return {product("rms_mlp_gemm", gated_activation(both, {}, act), w_out, scale2, q_int8, transposed), residual};
}

Tensor TransformerInference::vector_matmul(const Tensor& x, const Tensor& w, bool /*async_op*/, const Tensor& q_scale,
                                           bool q_int8, bool transposed) {
  return product("vector_matmul", x, w, q_scale, q_int8, transposed);
}

Tensor TransformerInference::vector_matmul_int8(const Tensor& x, const Tensor& w, const Tensor& q_scale, int groups,
                                                int merge_count) {
  ArgumentChecks check(accelerator_, "vector_matmul_int8");
  check.dtype("x", x, DType::F16);
  check.require(groups >= 1 && merge_count >= 1, "groups is " + std::to_string(groups) + " and merge_count " +
                                                     std::to_string(merge_count) + ", expected at least 1");
  check.require(q_scale && q_scale.numel() == int64_t{groups} * merge_count,
                "q_scale has " + std::to_string(q_scale ? q_scale.numel() : 0) + " numbers, expected " +
                    std::to_string(int64_t{groups} * merge_count));
  return product("vector_matmul_int8", x, w, q_scale, true, false);
}

Tensor TransformerInference::fused_gemm_gelu(const Tensor& x, const Tensor& w, const Tensor& w_scale,
                                             const Tensor& bias, const Tensor& w_out, const Tensor& w_out_scale,
                                             bool q_int8, bool transposed) {
  const Tensor inner = product("fused_gemm_gelu", x, w, w_scale, q_int8, transposed, bias);
  activation(inner, inner, Activation::GeluTanh);
  return product("fused_gemm_gelu", inner, w_out, w_out_scale, q_int8, transposed);
}

Tensor TransformerInference::residual_add_bias(const Tensor& hidden, const Tensor& residual,
                                               const Tensor& attention_output, const Tensor& attention_bias,
                                               const Tensor& final_bias, int mp_size, bool mlp_after_attn,
                                               bool add_bias, bool preln) {
  ArgumentChecks check(accelerator_, "residual_add_bias");
  check_rows(check, "hidden", hidden);
  const DType dtype = hidden.dtype();
  const Shape bias{hidden.size(-1)};
  check.tensor("residual", residual, dtype, hidden.shape());
  check.tensor("final_bias", final_bias, dtype, bias);
  check.require(mp_size >= 1, "mp_size is " + std::to_string(mp_size) + ", expected at least 1");
  const bool with_attention = !mlp_after_attn || preln;
  if (with_attention) check.tensor("attention_output", attention_output, dtype, hidden.shape());
  const bool with_attention_bias = mlp_after_attn ? preln : add_bias;
  if (with_attention_bias) check.tensor("attention_bias", attention_bias, dtype, bias);
  Tensor shared = sum(residual, final_bias);  // of which each rank adds its part
  if (with_attention_bias) shared = sum(shared, attention_bias);
  if (mlp_after_attn && !preln) {
    add(residual, shared, hidden);
    return residual;
  }
  const float part = 1.0f / static_cast<float>(mp_size);
  if (mlp_after_attn) {
    scaled_add(residual, sum(shared, attention_output), part, hidden, 1);
  } else {
    scaled_add(residual, shared, part, sum(hidden, attention_output), 1);
  }
  return residual;
}

Tensor TransformerInference::einsum_sec_sm_ecm(const Tensor& Q, const Tensor& W) {
  ArgumentChecks check(accelerator_, "einsum_sec_sm_ecm");
  check.one_of("Q", Q, float_dtypes);
  check.rank("Q", Q, 3, "[S, E, C]");
  check.rank("W", W, 2, "[S, M]");
  const int64_t tokens = Q.size(0), rows = Q.size(1) * Q.size(2), size = W.size(1);
  check.tensor("W", W, Q.dtype(), {tokens, size});
  const Tensor out = Tensor::empty({Q.size(1), Q.size(2), size}, Q.dtype(), Q.device());
  matmul(out.view(Shape{rows, size}), Q.reshape(Shape{tokens, rows}).transpose(0, 1), W);
  return out;
}

Tensor TransformerInference::moe_res_matmul(const Tensor& residual, const Tensor& coef, const Tensor& output) {
  ArgumentChecks check(accelerator_, "moe_res_matmul");
  check_rows(check, "residual", residual);
  const int64_t size = residual.size(-1);
  check.tensor("coef", coef, residual.dtype(), {2 * size});
  check.tensor("output", output, residual.dtype(), residual.shape());
  if (output.numel() == 0) return output;
  const Tensor left = wide_like(residual), right = wide_like(residual);
  multiply(left, residual, coef.slice(0, 0, size).expand(residual.shape()));
  multiply(right, output, coef.slice(0, size, 2 * size).expand(residual.shape()));
  add(output, left, right);
  return output;
}

Tensor TransformerInference::vector_add(const Tensor& a, const Tensor& b, float gamma) {
  ArgumentChecks check(accelerator_, "vector_add");
  check.one_of("a", a, float_dtypes);
  check.tensor("b", b, a.dtype(), a.shape());
  scaled_add(a, a, gamma, b, 1);
  return a;
}

Tensor TransformerInference::dequantize(const Tensor& w, const Tensor& scale, int groups) {
  ArgumentChecks check(accelerator_, "dequantize");
  check.dtype("w", w, DType::I8);
  check.rank("w", w, 2, "[rows, columns]");
  check.require(groups >= 1 && w.numel() % groups == 0, "groups is " + std::to_string(groups) +
                                                            ", expected a divisor of the weight's " +
                                                            std::to_string(w.numel()) + " elements");
  check.dtype("scale", scale, DType::F32);
  check.require(scale.numel() == groups,
                "scale has " + std::to_string(scale.numel()) + " numbers, expected groups = " + std::to_string(groups));
  const Shape parts{groups, w.numel() / groups};
  const Tensor out = Tensor::empty(w.shape(), DType::F16, w.device()),
               numbers = Tensor::empty(parts, DType::F32, w.device());
  copy(numbers, w.reshape(parts));
  multiply(out.view(parts), numbers, scale.reshape(Shape{groups, 1}).expand(parts));
  return out;
}

}  // namespace anyaccel::ops
