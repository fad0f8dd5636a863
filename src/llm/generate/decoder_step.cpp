// Runs the layers of a decoder as a sequence of ops.
#include "llm/generate/decoder_step.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"
#include "anyaccel/error.h"
#include "llm/generate/weight_product.h"

namespace anyaccel::llm {

namespace {

// Decoding uses one number of tokens, a prompt's chunks at most two; a few more cover batches that shrink.
constexpr size_t kept_views = 6;

constexpr int64_t cache_block_values = 32, cache_block_bytes = 34;  // of AA_BLOCK_Q8_0

int64_t quantized_row_bytes(int64_t head_dim) { return head_dim / cache_block_values * cache_block_bytes; }

void check_quantized_cache(const Model& model, const ops::Inference& ops) {
  if (!ops.takes_quantized_caches()) {
    throw NotImplementedError("session: a cache of keys and values in 8 bits was asked for, and the accelerator " +
                              model.accelerator().name() +
                              " has no ops for it (quantized_attention); expected the model's dtype");
  }
  // Of latent attention, values are the first elements of their heads.
  const ModelConfig& config = model.config();
  const int64_t value = config.latent.rank > 0 ? config.latent.value : config.head_dim;
  for (const int64_t size : {config.head_dim, value}) {
    if (size % cache_block_values == 0) continue;
    throw InvalidArgument(
        "session: a cache of keys and values in 8 bits was asked for, and the heads of this model have " +
        std::to_string(size) + " elements; expected a multiple of " + std::to_string(cache_block_values) +
        ", or a cache in the model's dtype");
  }
}

}  // namespace

DecoderStep::DecoderStep(std::shared_ptr<const Model> model, int64_t sequences, int64_t context, int64_t max_tokens,
                         CacheType cache)
    : model_(std::move(model)),
      group_(model_->group().get()),
      ops_(model_->accelerator().create_op_builder("InferenceBuilder")->load_as<ops::Inference>()),
      products_(*ops_, *model_, sequences, max_tokens) {
  const ModelConfig& config = model_->config();
  const ModelShard& shard = model_->shard();
  const Device device = model_->device();

  dynamic_rope_ = config.rope.type == RopeType::Dynamic || config.rope.type == RopeType::Longrope;
  const std::vector<float> inv_freq = rope_inv_freq(config).inv_freq;
  const int64_t rotary_half = static_cast<int64_t>(inv_freq.size());
  const int64_t rows = dynamic_rope_ ? sequences : 1;
  inv_freq_ = Tensor::empty({rows, rotary_half}, DType::F32, device);
  for (int64_t row = 0; row < rows; ++row) {
    inv_freq_views_.push_back(inv_freq_.select(0, row));
    inv_freq_views_.back().copy_from(Tensor::from_host(inv_freq.data(), {rotary_half}, DType::F32));
  }
  if (dynamic_rope_) longest_.assign(static_cast<size_t>(sequences), 0);

  if (gathers()) {
    const int64_t value = config.latent.rank > 0 ? config.latent.value : config.head_dim;
    for (const ModelShard& each : model_->shards()) {
      attended_begins_.push_back(each.query_heads.begin * value);
      gated_begins_.push_back(each.intermediate.begin);
      hidden_begins_.push_back(each.hidden.begin);
    }
    attended_begins_.push_back(config.num_attention_heads * value);
    gated_begins_.push_back(config.intermediate_size);
    hidden_begins_.push_back(config.hidden_size);
  }

  plain_ = config.is_plain();
  if (std::ranges::count(config.experts.in_layer, 1) > 0) experts_ = std::make_unique<ExpertBlock>(*model_, max_tokens);
  if (config.positions == Positions::Learned && context > config.max_position_embeddings) {
    throw InvalidArgument("model: a context of " + std::to_string(context) +
                          " tokens was asked for, and a model of type " + std::string(family_name(config.family)) +
                          " has learned positions for " + std::to_string(config.max_position_embeddings) +
                          " tokens; expected at most as many");
  }
  embedding_multiplier_ = config.embedding_multiplier;
  if (config.rounds_embedding_multiplier && model_->dtype() == DType::BF16) {
    embedding_multiplier_ = bf16_to_float(float_to_bf16(embedding_multiplier_));
  } else if (config.rounds_embedding_multiplier && model_->dtype() == DType::F16) {
    embedding_multiplier_ = fp16_to_float(float_to_fp16(embedding_multiplier_));
  }
  if (const std::vector<float> slopes = alibi_slopes(config); !slopes.empty() && shard.query_heads.size() > 0) {
    slopes_ = Tensor::empty({shard.query_heads.size()}, DType::F32, device);
    slopes_.copy_from(
        Tensor::from_host(slopes.data() + shard.query_heads.begin, {shard.query_heads.size()}, DType::F32));
  }
  int64_t window_half = 0;
  if (config.window_rope) {
    ModelConfig windows = config;
    windows.rope = *config.window_rope;
    const std::vector<float> frequencies = rope_inv_freq(windows).inv_freq;
    window_half = static_cast<int64_t>(frequencies.size());
    window_inv_freq_ = Tensor::empty({window_half}, DType::F32, device);
    window_inv_freq_.copy_from(Tensor::from_host(frequencies.data(), {window_half}, DType::F32));
  }

  if (cache != CacheType::Model) {
    check_quantized_cache(*model_, *ops_);
    cache_format_ = cache == CacheType::Int8 ? AA_CACHE_Q8_0 : AA_CACHE_F8_E4M3;
  }
  const int64_t cache_row = cache_format_ == AA_CACHE_Q8_0 ? quantized_row_bytes(config.head_dim) : config.head_dim;
  const DType cache_dtype = cache_format_ == 0 ? model_->dtype() : DType::U8;
  const Shape cache_shape = {sequences, shard.kv_heads.size(), context, cache_row};
  for (int64_t layer = 0; layer < config.num_hidden_layers && cache_shape.numel() > 0; ++layer) {
    key_cache_.push_back(Tensor::empty(cache_shape, cache_dtype, device));
    value_cache_.push_back(Tensor::empty(cache_shape, cache_dtype, device));
  }

  const bool splits = !plain_ || !model_->quantized_formats().empty() || cache_format_ != 0 || products_.has_adapters();
  storage_ = StepTensors(*model_, max_tokens, rotary_half, window_half, splits);
  chosen_ = Tensor::empty({max_tokens, config.hidden_size}, DType::F32, device);
}

void DecoderStep::prepare(int64_t tokens) {
  products_.prepare(tokens);
  for (current_ = 0; current_ < views_.size(); ++current_) {
    if (views_[current_].tokens == tokens) return;
  }
  if (views_.size() == kept_views) views_.erase(views_.begin());
  views_.push_back(storage_.rows(*model_, tokens));
  current_ = views_.size() - 1;
}

void DecoderStep::forward(const StepInput& input, std::span<const SequenceRange> ranges, const BetweenGraphs& between) {
  between_ = between ? &between : nullptr;
  prepare(input.ids.numel());
  const ModelWeights& weights = model_->weights();
  products_.begin_step(input.sequence);
  embed(input);
  set_rotations(input, ranges);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    if (plain_) {
      attention_block(weights.layers[i], i, input);
      mlp_block(weights.layers[i]);
    } else {
      composed_layer(weights.layers[i], i, input);
    }
  }
}

void DecoderStep::set_rotations(const StepInput& input, std::span<const SequenceRange> ranges) {
  const ModelConfig& config = model_->config();
  if (config.positions != Positions::Rope) return;
  const StepTensors& views = views_[current_];
  const float rope_scale = config.rope.attention_factor;
  if (config.window_rope) {
    ops_->rope_table(views.window_cos, views.window_sin, window_inv_freq_, input.positions,
                     config.window_rope->attention_factor);
  }
  if (dynamic_rope_) {
    for (const SequenceRange& range : ranges) {
      ops_->rope_table(views.cos.slice(0, range.begin, range.end), views.sin.slice(0, range.begin, range.end),
                       inv_freq_views_[static_cast<size_t>(range.sequence)],
                       input.positions.slice(0, range.begin, range.end), rope_scale);
    }
  } else {
    ops_->rope_table(views.cos, views.sin, inv_freq_views_[0], input.positions, rope_scale);
  }
}

void DecoderStep::embed(const StepInput& input) {
  const StepTensors& views = views_[current_];
  const Tensor& hidden = views.hidden;
  const Tensor& ids = input.ids;
  const ModelWeights& weights = model_->weights();
  const Tensor& table = weights.embedding;
  if (!group_) {
    if (const aa_block_format format = weights.embedding_format; format != 0) {
      ops_->quantized_embedding(hidden, table, format, ids);
    } else {
      ops_->embedding(hidden, table, ids);
    }
  } else {
    const int64_t first = model_->shard().vocabulary.begin;
    if (!table) {
      hidden.fill(0);
    } else if (const aa_block_format format = weights.embedding_format; format != 0) {
      ops_->quantized_embedding_shard(hidden, table, format, ids, first);
    } else {
      ops_->embedding_shard(hidden, table, ids, first);
    }
    group_->inference_all_reduce(hidden);
  }
  if (embedding_multiplier_ != 1.0f) ops_->scaled_add(hidden, hidden, embedding_multiplier_);
  if (weights.positions) {
    ops_->embedding(views.branch, weights.positions, input.positions);
    ops_->add(hidden, hidden, views.branch);
  }
  if (weights.embedding_norm) norm(hidden, hidden, weights.embedding_norm, weights.embedding_norm_bias);
}

void DecoderStep::gather(const Tensor& all, const std::vector<int64_t>& begins) {
  if (gathers()) group_->inference_gather_columns(all, begins);
}

void DecoderStep::add_product(const MatrixProduct& last) {
  const StepTensors& views = views_[current_];
  const Tensor& hidden = views.hidden;
  if (!group_ || gathers()) {
    products_.run(views.own_hidden, last, views.own_hidden);
    gather(hidden, hidden_begins_);
    return;
  }
  const bool has_residual = model_->shard().rank == 0;
  if (last.w) {
    products_.run(hidden, last, has_residual ? hidden : Tensor());
  } else if (!has_residual) {
    hidden.fill(0);
  }
  group_->inference_all_reduce(hidden);
}

void DecoderStep::attention_block(const LayerWeights& layer, size_t index, const StepInput& input) {
  const ModelConfig& config = model_->config();
  const StepTensors& views = views_[current_];
  const MatrixProduct last = {views.attended, layer.o, layer.formats.o, layer.o_bias, layer.adapters.o};
  if (!layer.q) {
    gather(views.attended, attended_begins_);
    add_product(last);
    return;
  }
  const ops::CacheSlots cache = {key_cache_[index], value_cache_[index], input.sequence, input.positions};
  const aa_block_format format = layer.formats.q;
  const bool same_format = format == layer.formats.k && format == layer.formats.v;
  if (format != 0 && same_format && !adapting() && cache_format_ == 0 && !layer.q_norm && !layer.k_norm) {
    ops_->norm_quantized_qkv_rope(views.q3, cache, views.hidden, layer.input_norm,
                                  {layer.q, layer.q_bias, layer.k, layer.k_bias, layer.v, layer.v_bias, {}, {}}, format,
                                  model_->rounds_quantized(), {views.cos, views.sin, layer.rotates_pairs},
                                  config.rms_norm_eps);
  } else if (adapting() || format != 0 || !same_format || cache_format_ != 0) {
    ops_->rms_norm(views.normed, views.hidden, layer.input_norm, config.rms_norm_eps);
    queries_keys_values(views.normed, layer, index, cache);
  } else {
    ops_->norm_qkv_rope(
        views.q3, cache, views.hidden, layer.input_norm,
        {layer.q, layer.q_bias, layer.k, layer.k_bias, layer.v, layer.v_bias, layer.q_norm, layer.k_norm},
        {views.cos, views.sin}, config.rms_norm_eps, model_->product_dtype());
  }
  attend_cache(index, input, 1.0f / std::sqrt(static_cast<float>(config.head_dim)), 0.0f);
  gather(views.attended, attended_begins_);
  add_product(last);
}

void DecoderStep::queries_keys_values(const Tensor& x, const LayerWeights& layer, size_t index,
                                      const ops::CacheSlots& cache) {
  const ModelConfig& config = model_->config();
  const StepTensors& views = views_[current_];
  const int64_t tokens = views.tokens, heads = views.q3.size(1), size = views.q3.size(2);
  const int64_t kv_heads = cache.keys.size(1);
  const Tensor q = views.q3.view({tokens, heads * size});
  if (layer.formats.q == 0 && layer.formats.k == 0 && layer.formats.v == 0) {
    const std::array<ops::LinearPart, 3> parts = {
        {{q, layer.q, layer.q_bias}, {views.k, layer.k, layer.k_bias}, {views.v, layer.v, layer.v_bias}}};
    ops_->linear_multi(x, parts);
    products_.add_adapters(q, x, layer.adapters.q);
    products_.add_adapters(views.k, x, layer.adapters.k);
    products_.add_adapters(views.v, x, layer.adapters.v);
  } else {
    products_.run(q, {x, layer.q, layer.formats.q, layer.q_bias, layer.adapters.q});
    products_.run(views.k, {x, layer.k, layer.formats.k, layer.k_bias, layer.adapters.k});
    products_.run(views.v, {x, layer.v, layer.formats.v, layer.v_bias, layer.adapters.v});
  }
  const Tensor k3 = views.k.view({tokens, kv_heads, size});
  if (layer.q_norm) norm_heads(views.q3, layer.q_norm, layer.q_norm_bias);
  if (layer.k_norm) norm_heads(k3, layer.k_norm, layer.k_norm_bias);
  const auto number = static_cast<int64_t>(index);
  if (config.rotates(number)) {
    const bool of_window = config.window_rope && config.window_of_layer(number) > 0;
    ops_->rope(views.q3, k3, of_window ? views.window_cos : views.cos, of_window ? views.window_sin : views.sin,
               layer.rotates_pairs || config.rope_interleaved);
  }
  write_cache(cache, k3, views.v.view({tokens, kv_heads, size}));
}

void DecoderStep::write_cache(const ops::CacheSlots& cache, const Tensor& k, const Tensor& v) {
  if (cache_format_ != 0) {
    ops_->quantized_cache_write(cache.keys, cache.values, cache_format_, k, v, cache.sequence, cache.positions);
  } else {
    ops_->cache_write(cache.keys, cache.values, k, v, cache.sequence, cache.positions);
  }
}

void DecoderStep::attend_cache(size_t index, const StepInput& input, float scale, float softcap) {
  const StepTensors& views = views_[current_];
  const auto window = static_cast<int>(model_->config().window_of_layer(static_cast<int64_t>(index)));
  const Tensor &keys = key_cache_[index], &values = value_cache_[index];
  const Tensor& sinks = model_->weights().layers[index].sinks;
  if (cache_format_ != 0) {
    ops_->quantized_attention(views.attended3, views.q3, keys, values, cache_format_, input.sequence, input.positions,
                              scale, window, softcap, slopes_, sinks);
  } else {
    ops_->attention(views.attended3, views.q3, keys, values, input.sequence, input.positions, scale, window, softcap,
                    slopes_, sinks);
  }
}

void DecoderStep::latent_queries_keys_values(const Tensor& x, const LayerWeights& layer, const ops::CacheSlots& cache) {
  constexpr float eps = 1e-6f;  // of these norms, whatever the model's is
  const LatentConfig& latent = model_->config().latent;
  const StepTensors& views = views_[current_];
  const int64_t tokens = views.tokens, heads = views.q3.size(1), size = views.q3.size(2), plain = latent.plain;
  const Tensor q = views.q3.view({tokens, heads * size});
  if (layer.q_a) {
    products_.run(views.q_latent, {x, layer.q_a, layer.formats.q_a, layer.q_a_bias, {}});
    ops_->rms_norm(views.q_normed, views.q_latent, layer.q_a_norm, eps);
    products_.run(q, {views.q_normed, layer.q, layer.formats.q, {}, {}});
  } else {
    products_.run(q, {x, layer.q, layer.formats.q, {}, {}});
  }
  products_.run(views.kv_latent, {x, layer.kv_a, layer.formats.kv_a, layer.kv_a_bias, {}});
  ops_->rms_norm(views.kv_normed, views.kv_latent.slice(1, 0, latent.rank), layer.kv_a_norm, eps);
  products_.run(views.kv, {views.kv_normed, layer.kv_b, layer.formats.kv_b, {}, {}});

  const int64_t width = latent.rank + latent.rotated;
  const Tensor rotated = views.kv_latent.view({tokens, 1, width}).slice(2, latent.rank, width);
  ops_->rope(views.q3.slice(2, plain, size), rotated, views.cos, views.sin, model_->config().rope_interleaved);
  const Tensor k3 = views.k.view({tokens, heads, size}), v3 = views.v.view({tokens, heads, size});
  const Tensor kv = views.kv.view({tokens, heads, plain + latent.value});
  ops_->copy(k3.slice(2, 0, plain), kv.slice(2, 0, plain));
  ops_->copy(k3.slice(2, plain, size), rotated.expand({tokens, heads, latent.rotated}));
  ops_->copy(v3.slice(2, 0, latent.value), kv.slice(2, plain, plain + latent.value));
  write_cache(cache, k3, v3);
}

// `heads` is [T, heads, D] and contiguous.
void DecoderStep::norm_heads(const Tensor& heads, const Tensor& weight, const Tensor& bias) {
  const ModelConfig& config = model_->config();
  const int64_t tokens = heads.size(0), count = heads.size(1), size = heads.size(2);
  const Tensor each = heads.view({tokens * count, size});
  if (config.head_norm == HeadNorm::EachLayer) {
    for (int64_t head = 0; head < count; ++head) {
      const Tensor one = heads.select(1, head);
      ops_->layer_norm(one, one, weight.slice(0, head * size, (head + 1) * size), {}, config.rms_norm_eps);
    }
  } else if (config.head_norm == HeadNorm::Layer) {
    ops_->layer_norm(each, each, weight, bias, config.rms_norm_eps);
  } else if (config.head_norm == HeadNorm::Whole) {
    const Tensor all = heads.view({tokens, count * size});
    ops_->rms_norm(all, all, weight, config.rms_norm_eps);
  } else {
    ops_->rms_norm(each, each, weight, config.rms_norm_eps);
  }
}

void DecoderStep::norm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const ModelConfig& config = model_->config();
  if (config.norm == NormKind::Layer) {
    ops_->layer_norm(out, x, weight, bias, config.rms_norm_eps);
  } else {
    ops_->rms_norm(out, x, weight, config.rms_norm_eps);
  }
}

bool DecoderStep::attend(const Tensor& x, const LayerWeights& layer, size_t index, const StepInput& input) {
  const StepTensors& views = views_[current_];
  const Tensor& result = views.values ? views.values : views.attended;
  if (!layer.q) {
    gather(result, attended_begins_);
    return gathers();
  }
  const ModelConfig& config = model_->config();
  const auto number = static_cast<int64_t>(index);
  const ops::CacheSlots cache = {key_cache_[index], value_cache_[index], input.sequence, input.positions};
  if (layer.kv_b) {
    latent_queries_keys_values(x, layer, cache);
  } else {
    queries_keys_values(x, layer, index, cache);
  }
  attend_cache(index, input, config.scale_of_layer(number), config.attention_softcap);
  if (const int64_t value = config.latent.value; layer.kv_b) {
    ops_->copy(views.own_values.view({views.tokens, views.attended3.size(1), value}),
               views.attended3.slice(2, 0, value));
  }
  gather(result, attended_begins_);
  return true;
}

void DecoderStep::inner_mlp(const Tensor& x, const LayerWeights& layer) {
  const ModelConfig& config = model_->config();
  const StepTensors& views = views_[current_];
  if (!layer.up) {
    // This rank holds nothing of it.
  } else if (!config.gated) {
    products_.run(views.up, {x, layer.up, layer.formats.up, layer.up_bias, layer.adapters.up});
    ops_->activation(views.own_gated, views.up, config.hidden_act);
  } else if (splits(layer)) {
    gated_products(x, layer);
  } else {
    ops_->gated_linear(views.own_gated, x, layer.gate, layer.up, config.hidden_act, layer.gate_bias, layer.up_bias);
  }
  gather(views.gated, gated_begins_);
}

void DecoderStep::gated_products(const Tensor& x, const LayerWeights& layer) {
  const StepTensors& views = views_[current_];
  products_.run(views.gate, {x, layer.gate, layer.formats.gate, layer.gate_bias, layer.adapters.gate});
  products_.run(views.up, {x, layer.up, layer.formats.up, layer.up_bias, layer.adapters.up});
  ops_->gated_activation(views.own_gated, views.gate, views.up, model_->config().hidden_act);
}

void DecoderStep::add_branch(const MatrixProduct& last, const Tensor& norm_weight) {
  const StepTensors& views = views_[current_];
  const float multiplier = model_->config().residual_multiplier;
  if (!group_ || gathers()) {
    products_.run(views.own_branch, last);
    gather(views.branch, hidden_begins_);
  } else {
    if (last.w) {
      products_.run(views.branch, last);
    } else {
      views.branch.fill(0);
    }
    group_->inference_all_reduce(views.branch);
  }
  if (norm_weight) norm(views.branch, views.branch, norm_weight, {});
  if (multiplier == 1.0f) {
    ops_->add(views.hidden, views.hidden, views.branch);
  } else {
    ops_->scaled_add(views.hidden, views.hidden, 1.0f, views.branch, multiplier);
  }
}

void DecoderStep::composed_layer(const LayerWeights& layer, size_t index, const StepInput& input) {
  const ModelConfig& config = model_->config();
  const StepTensors& views = views_[current_];
  const bool norms_input = config.norm_place == NormPlace::Before || config.norm_place == NormPlace::Both;
  const auto input_of = [&](const Tensor& weight, const Tensor& bias) {
    if (!norms_input) {
      if (views.normed.dtype() == views.hidden.dtype()) return views.hidden;
      ops_->copy(views.normed, views.hidden);  // rounds
      return views.normed;
    }
    const Tensor& normed = config.adds_to_normed ? views.hidden : views.normed;
    norm(normed, views.hidden, weight, bias);
    return normed;
  };
  Tensor x = input_of(layer.input_norm, layer.input_norm_bias);
  const bool attends = attend(x, layer, index, input);
  const Tensor none{};
  const MatrixProduct attention = {views.values ? views.values : views.attended, attends ? layer.o : none,
                                   layer.formats.o, layer.o_bias, layer.adapters.o};
  const MatrixProduct mlp = {views.gated, layer.down, layer.formats.down, layer.down_bias, layer.adapters.down};
  if (config.residual != Residual::Serial) {
    if (config.residual == Residual::ParallelTwo) x = input_of(layer.post_norm, layer.post_norm_bias);
    inner_mlp(x, layer);
    add_both(attention, mlp);
    return;
  }
  const auto add = [&](const MatrixProduct& last, const Tensor& norm_weight) {
    if (norm_weight || config.residual_multiplier != 1.0f) {
      add_branch(last, norm_weight);
    } else {
      add_product(last);
    }
  };
  const bool norms_sum = config.norm_place == NormPlace::AfterSum;
  add(attention, layer.attention_norm);
  if (norms_sum) norm(views.hidden, views.hidden, layer.input_norm, layer.input_norm_bias);
  const Tensor mlp_input = input_of(layer.post_norm, layer.post_norm_bias);
  if (config.has_experts(static_cast<int64_t>(index))) {
    add_experts(mlp_input, index);
    return;
  }
  inner_mlp(mlp_input, layer);
  add(mlp, layer.mlp_norm);
  if (norms_sum) norm(views.hidden, views.hidden, layer.post_norm, layer.post_norm_bias);
}

void DecoderStep::add_experts(const Tensor& x, size_t index) {
  const StepTensors& views = views_[current_];
  const float multiplier = model_->config().residual_multiplier;
  const Tensor& sum = multiplier == 1.0f ? views.hidden : views.branch;
  if (multiplier != 1.0f || (group_ && model_->shard().rank != 0)) sum.fill(0);
  experts_->enqueue_router(x, index);
  if (between_ != nullptr) {
    (*between_)([this, sum, x, index] { experts_->run(sum, x, index); });
  } else {
    experts_->run(sum, x, index);
  }
  if (group_) group_->inference_all_reduce(sum);
  if (multiplier != 1.0f) ops_->scaled_add(views.hidden, views.hidden, 1.0f, views.branch, multiplier);
}

// A single sum or gathering serves both.
void DecoderStep::add_both(const MatrixProduct& attention, const MatrixProduct& mlp) {
  const StepTensors& views = views_[current_];
  const bool sums = group_ && !gathers();
  if (sums && model_->shard().rank != 0) views.hidden.fill(0);
  for (const MatrixProduct* last : {&attention, &mlp}) {
    if (last->w) products_.run(sums ? views.hidden : views.own_hidden, *last, sums ? views.hidden : views.own_hidden);
  }
  if (sums) group_->inference_all_reduce(views.hidden);
  gather(views.hidden, hidden_begins_);
}

void DecoderStep::mlp_block(const LayerWeights& layer) {
  const StepTensors& views = views_[current_];
  const ModelConfig& config = model_->config();
  const aa_block_format format = layer.formats.gate;
  if (layer.gate && format != 0 && format == layer.formats.up && !adapting()) {
    ops_->norm_quantized_gated_linear(views.own_gated, views.hidden, layer.post_norm, layer.gate, layer.up, format,
                                      model_->rounds_quantized(), config.hidden_act, config.rms_norm_eps,
                                      layer.gate_bias, layer.up_bias);
  } else if (layer.gate && splits(layer)) {
    ops_->rms_norm(views.normed, views.hidden, layer.post_norm, config.rms_norm_eps);
    gated_products(views.normed, layer);
  } else if (layer.gate) {
    ops_->norm_gated_linear(views.own_gated, views.hidden, layer.post_norm, layer.gate, layer.up, config.hidden_act,
                            config.rms_norm_eps, layer.gate_bias, layer.up_bias, model_->product_dtype());
  }
  gather(views.gated, gated_begins_);
  add_product({views.gated, layer.down, layer.formats.down, layer.down_bias, layer.adapters.down});
}

void DecoderStep::logits(const Tensor& out, const Tensor& rows) {
  const ModelWeights& weights = model_->weights();
  const float eps = model_->config().rms_norm_eps;
  Tensor part = out;
  if (group_) {
    out.fill(0);
    part = out.slice(1, model_->shard().vocabulary.begin, model_->shard().vocabulary.end);
  }
  if (!weights.lm_head) {
    // This rank holds no part of the vocabulary.
  } else {
    const Tensor last = last_states(rows);
    if (weights.lm_head_format != 0 || !plain_) {
      Tensor normed = last;
      if (weights.final_norm) {
        normed = rows_as(storage_.normed, last.size(0), model_->product_dtype());
        norm(normed, last, weights.final_norm, weights.final_norm_bias);
      }
      weight_product(*ops_, *model_, part, normed, weights.lm_head, weights.lm_head_format, weights.lm_head_bias);
    } else {
      ops_->norm_linear(part, last, weights.final_norm, weights.lm_head, eps, {}, model_->product_dtype());
    }
    cap_logits(part);
  }
  if (group_) group_->inference_all_reduce(out);
}

Tensor DecoderStep::last_states(const Tensor& rows) {
  const StepTensors& views = views_[current_];
  if (!rows) return views.hidden;
  Tensor last = chosen_.slice(0, 0, rows.numel());
  ops_->embedding(last, views.hidden, rows);
  return last;
}

void DecoderStep::hidden_states(const Tensor& out, const Tensor& rows) {
  const ModelWeights& weights = model_->weights();
  const Tensor last = last_states(rows);
  if (weights.final_norm) {
    norm(out, last, weights.final_norm, weights.final_norm_bias);
  } else {
    out.copy_from(last);
  }
}

void DecoderStep::cap_logits(const Tensor& logits) {
  const ModelConfig& config = model_->config();
  const float cap = config.logits_softcap;
  const float multiplier = cap > 0.0f ? config.logits_multiplier / cap : config.logits_multiplier;
  if (multiplier != 1.0f) ops_->scaled_add(logits, logits, multiplier);
  if (cap == 0.0f) return;
  ops_->activation(logits, logits, ops::Activation::Tanh);
  ops_->scaled_add(logits, logits, cap);
}

}  // namespace anyaccel::llm
