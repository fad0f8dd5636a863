// Computes experts one after the other: gathers their rows, runs their products, and sums each token's results.
#include "llm/generate/expert_block.h"

#include <algorithm>
#include <array>

#include "anyaccel/accelerator.h"
#include "llm/generate/step_tensors.h"
#include "llm/generate/weight_product.h"

namespace anyaccel::llm {

ExpertBlock::ExpertBlock(const Model& model, int64_t max_tokens) : model_(model), ops_(model.accelerator()) {
  const ModelConfig& config = model.config();
  const ExpertsConfig& experts = config.experts;
  const int64_t choices = experts.per_token + (experts.shared_inner > 0 ? 1 : 0);
  const int64_t inner = std::max({model.shard().expert.size(), model.shard().shared.size(), int64_t{1}});
  const auto scratch = [&](const Shape& shape, DType dtype = DType::F32) {
    return Tensor::empty(shape, dtype, model.device());
  };
  logits_ = scratch({max_tokens * (experts.count + 1)});
  host_logits_ = model.accelerator().pin_memory(Tensor::empty(logits_.shape(), DType::F32), /*make_copy=*/false,
                                                /*match_shape=*/true, /*required=*/false);
  for (const LayerWeights& layer : model.weights().layers) {
    biases_.push_back(layer.choice_bias ? layer.choice_bias.to_vector<float>() : std::vector<float>());
  }
  row_tokens_ = scratch({max_tokens * choices}, DType::I32);
  choice_rows_ = scratch({max_tokens * choices}, DType::I32);
  weights_ = scratch({max_tokens * choices});
  gathered_ = scratch({max_tokens, config.hidden_size});
  gated_ = scratch({max_tokens, inner});
  if (experts.limit > 0.0f) {
    limit_ = scratch({1});
    limit_.fill(experts.limit);
  }
  if (!model.quantized_formats().empty() || limit_) {
    gate_ = scratch({max_tokens, inner});
    up_ = scratch({max_tokens, inner});
  }
  results_ = scratch({max_tokens * choices, config.hidden_size});
  ordered_ = scratch({max_tokens * choices, config.hidden_size});
}

void ExpertBlock::enqueue_router(const Tensor& x, size_t index) {
  const LayerWeights& layer = model_.weights().layers[index];
  const ExpertsConfig& config = model_.config().experts;
  const int64_t tokens = x.size(0);
  const int64_t routed = tokens * config.count;
  weight_product(ops_, model_, logits_.slice(0, 0, routed).view({tokens, config.count}), x, layer.router,
                 layer.formats.router, layer.router_bias);
  if (layer.shared_weight) {
    weight_product(ops_, model_, logits_.slice(0, routed, routed + tokens).view({tokens, 1}), x, layer.shared_weight,
                   layer.formats.shared_weight);
  }
}

void ExpertBlock::choose(int64_t tokens, size_t index) {
  const ExpertsConfig& config = model_.config().experts;
  const int64_t routed = tokens * config.count;
  const int64_t count = routed + (model_.weights().layers[index].shared_weight ? tokens : 0);
  host_logits_.slice(0, 0, count).copy_from(logits_.slice(0, 0, count));
  model_.accelerator().current_stream(model_.device().index).synchronize();
  const std::span<const float> values(host_logits_.data_as<float>(), static_cast<size_t>(count));
  choose_experts(config, values.first(static_cast<size_t>(routed)), values.subspan(static_cast<size_t>(routed)),
                 biases_[index], choice_);
}

// The ops have no minimum and maximum: min(x, limit) is limit - relu(limit - x).
void ExpertBlock::clamped_activation(const Tensor& gated, const Tensor& gate, const Tensor& up) {
  const float limit = model_.config().experts.limit, gain = model_.config().experts.gain;
  const Tensor limits = limit_.view({1, 1}).expand(gate.shape());
  for (const Tensor* x : {&gate, &up}) {
    ops_.scaled_add(*x, limits, 1.0f, *x, -1.0f);
    ops_.activation(*x, *x, ops::Activation::Relu);
  }
  // Silu of the gate times the gain is the gain times what is wanted.
  ops_.scaled_add(gate, limits, gain, gate, -gain);
  // max(min(up, limit), -limit) + limit, and then (that - limit + 1) / gain.
  ops_.scaled_add(up, limits, 2.0f, up, -1.0f);
  ops_.activation(up, up, ops::Activation::Relu);
  ops_.scaled_add(up, up, 1.0f / gain, limits, (1.0f - limit) / (gain * limit));
  ops_.gated_activation(gated, gate, up, ops::Activation::Silu);
}

void ExpertBlock::run_expert(const Tensor& out, const Tensor& x, const ExpertWeights& expert) {
  if (!expert.up) {  // this rank has nothing of it
    out.fill(0);
    return;
  }
  const int64_t rows = x.size(0);
  const int64_t inner = expert.up.size(0);
  const ops::Activation kind = model_.config().hidden_act;
  const auto part = [&](const Tensor& storage, DType dtype) {
    const std::array<int64_t, 2> strides = {inner, 1};
    return Tensor(storage.storage(), dtype, {rows, inner}, strides);
  };
  const Tensor gated = part(gated_, x.dtype());
  if (expert.formats.gate == 0 && expert.formats.up == 0 && !limit_) {
    ops_.gated_linear(gated, x, expert.gate, expert.up, kind);
  } else {
    const Tensor gate = part(gate_, DType::F32), up = part(up_, DType::F32);
    weight_product(ops_, model_, gate, x, expert.gate, expert.formats.gate, expert.gate_bias);
    weight_product(ops_, model_, up, x, expert.up, expert.formats.up, expert.up_bias);
    if (limit_) {
      clamped_activation(gated, gate, up);
    } else {
      ops_.gated_activation(gated, gate, up, kind);
    }
  }
  weight_product(ops_, model_, out, gated, expert.down, expert.formats.down, expert.down_bias);
}

void ExpertBlock::run(const Tensor& out, const Tensor& x, size_t index) {
  choose(x.size(0), index);
  const LayerWeights& layer = model_.weights().layers[index];
  const int64_t tokens = x.size(0), hidden = x.size(1), choices = choice_.choices;
  const int64_t rows = tokens * choices;
  const auto upload = [](const Tensor& to, const auto& values) {
    to.copy_from(Tensor::from_host(values.data(), to.shape(), to.dtype()));
  };
  const Tensor weights = weights_.slice(0, 0, rows);
  upload(weights, choice_.weights);
  // With one token, rows and choices are in the same order.
  if (tokens > 1) upload(row_tokens_.slice(0, 0, rows), choice_.row_tokens);
  if (tokens > 1) upload(choice_rows_.slice(0, 0, rows), choice_.choice_rows);
  static const ExpertWeights none;
  for (size_t i = 0; i < choice_.rows.size(); ++i) {
    const Slice& of = choice_.rows[i];
    if (of.size() == 0) continue;
    Tensor input = x;
    if (of.size() < tokens) {
      input = rows_as(gathered_, of.size(), x.dtype());
      ops_.embedding(input, x, row_tokens_.slice(0, of.begin, of.end));
    }
    // A rank that has nothing of any expert has no list of them.
    run_expert(results_.slice(0, of.begin, of.end), input, i < layer.experts.size() ? layer.experts[i] : none);
  }
  Tensor ordered = results_.slice(0, 0, rows);
  if (tokens > 1) {
    ordered = ordered_.slice(0, 0, rows);
    ops_.embedding(ordered, results_.slice(0, 0, rows), choice_rows_.slice(0, 0, rows));
  }
  ops_.matmul(out.view({tokens, 1, hidden}), weights.view({tokens, 1, choices}),
              ordered.view({tokens, choices, hidden}), /*accumulate=*/true);
}

}  // namespace anyaccel::llm
