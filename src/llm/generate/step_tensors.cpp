// Allocates the tensors between the layers of a decoder.
#include "llm/generate/step_tensors.h"

#include <array>

#include "anyaccel/comm/process_group.h"

namespace anyaccel::llm {

Tensor rows_as(const Tensor& storage, int64_t rows, DType dtype) {
  if (dtype == storage.dtype()) return storage.slice(0, 0, rows);
  const int64_t width = storage.size(1);
  const std::array<int64_t, 2> strides = {width, 1};
  return Tensor(storage.storage(), dtype, {rows, width}, strides);
}

StepTensors::StepTensors(const Model& model, int64_t max_tokens, int64_t rotary_half, int64_t window_half, bool splits)
    : tokens(max_tokens) {
  const ModelConfig& config = model.config();
  const ModelShard& shard = model.shard();
  const Device device = model.device();
  const int64_t heads = shard.query_heads.size(), kv_heads = shard.kv_heads.size(), size = config.head_dim;
  const auto scratch = [&](int64_t width) { return Tensor::empty({max_tokens, width}, DType::F32, device); };
  const auto shared = [&](int64_t width) {
    if (!model.group()) return scratch(width);
    return model.group()->shared_tensor({max_tokens, width}, DType::F32, device);
  };
  // What the last product of half a layer reads: `own` columns, or all if the ranks gather them.
  const auto gathered = [&](int64_t own, int64_t all) { return shard.hidden.size() > 0 ? shared(all) : scratch(own); };
  if (window_half > 0) {
    window_cos = scratch(window_half);
    window_sin = scratch(window_half);
  }
  hidden = shared(config.hidden_size);
  q3 = scratch(heads * size);
  // Of latent attention, `values` is what the product reads.
  attended = config.latent.rank > 0 ? scratch(heads * size) : gathered(heads * size, config.num_attention_heads * size);
  gated = gathered(shard.intermediate.size(), config.intermediate_size);
  if (!config.is_plain()) branch = shared(config.hidden_size);
  if (splits) {
    normed = scratch(config.hidden_size);
    k = scratch(kv_heads * size);
    v = scratch(kv_heads * size);
    gate = scratch(shard.intermediate.size());
    up = scratch(shard.intermediate.size());
  }
  if (const LatentConfig& latent = config.latent; latent.rank > 0) {
    if (latent.query_rank > 0) q_latent = scratch(latent.query_rank);
    if (latent.query_rank > 0) q_normed = scratch(latent.query_rank);
    kv_latent = scratch(latent.rank + latent.rotated);
    kv_normed = scratch(latent.rank);
    kv = scratch(heads * (latent.plain + latent.value));
    values = gathered(heads * latent.value, config.num_attention_heads * latent.value);
    v.fill(0);  // what follows a head's value stays zero
  }
  cos = scratch(rotary_half);
  sin = scratch(rotary_half);
}

StepTensors StepTensors::rows(const Model& model, int64_t count) const {
  const ModelShard& shard = model.shard();
  const int64_t heads = shard.query_heads.size(), size = model.config().head_dim;
  const DType product = model.product_dtype();
  const bool latent = model.config().latent.rank > 0;
  const auto first = [count](const Tensor& storage) { return storage ? storage.slice(0, 0, count) : Tensor(); };
  const auto operand = [&](const Tensor& storage) { return storage ? rows_as(storage, count, product) : Tensor(); };
  const auto own = [&](const Tensor& all, const Slice& columns, int64_t width) {
    if (!all || shard.hidden.size() == 0) return all;
    return all.slice(1, columns.begin * width, columns.end * width);
  };
  StepTensors views;
  views.tokens = count;
  views.hidden = first(hidden);
  views.q3 = first(q3).view({count, heads, size});
  views.attended = operand(attended);
  const Tensor own_attended = latent ? views.attended : own(views.attended, shard.query_heads, size);
  views.attended3 = own_attended.view({count, heads, size});
  views.gated = operand(gated);
  views.own_gated = own(views.gated, shard.intermediate, 1);
  views.cos = first(cos);
  views.sin = first(sin);
  views.window_cos = first(window_cos);
  views.window_sin = first(window_sin);
  views.branch = first(branch);
  views.own_hidden = own(views.hidden, shard.hidden, 1);
  views.own_branch = own(views.branch, shard.hidden, 1);
  views.normed = operand(normed);
  views.k = first(k);
  views.v = first(v);
  views.gate = first(gate);
  views.up = first(up);
  views.q_latent = first(q_latent);
  views.q_normed = operand(q_normed);
  views.kv_latent = first(kv_latent);
  views.kv_normed = operand(kv_normed);
  views.kv = first(kv);
  views.values = operand(values);
  views.own_values = own(views.values, shard.query_heads, model.config().latent.value);
  return views;
}

}  // namespace anyaccel::llm
