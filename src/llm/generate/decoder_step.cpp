// Runs the layers of Llama, Mistral, Qwen2 and Qwen3 as a sequence of ops.
#include "llm/generate/decoder_step.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "anyaccel/accelerator.h"
#include "anyaccel/comm/process_group.h"

namespace anyaccel::llm {

namespace {

// Decoding uses one number of tokens, a prompt's chunks at most two; a few more cover batches that shrink.
constexpr size_t kept_views = 6;

// The first rows of a scratch tensor, with its memory reinterpreted as elements of a dtype that is not larger.
Tensor rows_as(const Tensor& storage, int64_t tokens, DType dtype) {
  if (dtype == storage.dtype()) return storage.slice(0, 0, tokens);
  const int64_t width = storage.size(1);
  const std::array<int64_t, 2> strides = {width, 1};
  return Tensor(storage.storage(), dtype, {tokens, width}, strides);
}

}  // namespace

DecoderStep::DecoderStep(std::shared_ptr<const Model> model, int64_t sequences, int64_t context, int64_t max_tokens)
    : model_(std::move(model)), group_(model_->group().get()), max_tokens_(max_tokens) {
  const ModelConfig& config = model_->config();
  const ModelShard& shard = model_->shard();
  const Device device = model_->device();
  ops_ = model_->accelerator().create_op_builder("InferenceBuilder")->load_as<ops::Inference>();

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

  const Shape cache_shape = {sequences, shard.kv_heads.size(), context, config.head_dim};
  for (int64_t layer = 0; layer < config.num_hidden_layers && cache_shape.numel() > 0; ++layer) {
    key_cache_.push_back(Tensor::empty(cache_shape, model_->dtype(), device));
    value_cache_.push_back(Tensor::empty(cache_shape, model_->dtype(), device));
  }

  const auto scratch = [&](int64_t width) { return Tensor::empty({max_tokens, width}, DType::F32, device); };
  storage_.hidden = group_ ? group_->shared_tensor({max_tokens, config.hidden_size}, DType::F32, device)
                           : scratch(config.hidden_size);
  chosen_ = scratch(config.hidden_size);
  storage_.q3 = scratch(shard.query_heads.size() * config.head_dim);
  storage_.attended = scratch(shard.query_heads.size() * config.head_dim);
  storage_.gated = scratch(shard.intermediate.size());
  if (!model_->quantized_formats().empty()) {
    storage_.normed = scratch(config.hidden_size);
    storage_.k = scratch(shard.kv_heads.size() * config.head_dim);
    storage_.v = scratch(shard.kv_heads.size() * config.head_dim);
    storage_.gate = scratch(shard.intermediate.size());
    storage_.up = scratch(shard.intermediate.size());
  }
  storage_.cos = scratch(rotary_half);
  storage_.sin = scratch(rotary_half);
}

uint64_t DecoderStep::cache_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const Tensor& tensor : key_cache_) bytes += 2 * tensor.nbytes();
  return bytes;
}

void DecoderStep::set_sequence_length(int32_t sequence, int64_t length, bool restart) {
  if (!dynamic_rope_) return;
  // As transformers does it: frequencies follow the longest length seen, starting from the trained one, and are
  // computed when a step makes the sequence longer. Keys already in the cache keep the rotation they were stored with.
  int64_t& longest = longest_[static_cast<size_t>(sequence)];
  const ModelConfig& config = model_->config();
  const bool two_lists = config.rope.type == RopeType::Longrope;  // one up to the trained length, one beyond
  const int64_t trained = two_lists ? config.rope.original_max_position_embeddings : config.max_position_embeddings;
  if (restart || longest == 0) longest = -1;
  const int64_t wanted = two_lists ? std::min(std::max(length, trained), trained + 1) : std::max(length, trained);
  if (wanted <= longest) return;
  longest = wanted;
  const std::vector<float> inv_freq = rope_inv_freq(config, wanted).inv_freq;
  inv_freq_views_[static_cast<size_t>(sequence)].copy_from(
      Tensor::from_host(inv_freq.data(), {static_cast<int64_t>(inv_freq.size())}, DType::F32));
}

DecoderStep::Views DecoderStep::make_views(int64_t tokens) const {
  const int64_t heads = model_->shard().query_heads.size();
  const int64_t head_dim = model_->config().head_dim;
  const auto rows = [tokens](const Tensor& storage) { return storage.slice(0, 0, tokens); };
  Views views;
  views.tokens = tokens;
  views.hidden = rows(storage_.hidden);
  const DType product = model_->product_dtype();
  views.q3 = rows(storage_.q3).view({tokens, heads, head_dim});
  views.attended = rows_as(storage_.attended, tokens, product);
  views.gated = rows_as(storage_.gated, tokens, product);
  views.cos = rows(storage_.cos);
  views.sin = rows(storage_.sin);
  if (storage_.normed) {
    views.normed = rows(storage_.normed);
    views.k = rows(storage_.k);
    views.v = rows(storage_.v);
    views.gate = rows(storage_.gate);
    views.up = rows(storage_.up);
  }
  views.attended3 = views.attended.view({tokens, heads, head_dim});
  return views;
}

void DecoderStep::prepare(int64_t tokens) {
  for (current_ = 0; current_ < views_.size(); ++current_) {
    if (views_[current_].tokens == tokens) return;
  }
  if (views_.size() == kept_views) views_.erase(views_.begin());
  views_.push_back(make_views(tokens));
  current_ = views_.size() - 1;
}

void DecoderStep::forward(const StepInput& input, std::span<const SequenceRange> ranges) {
  prepare(input.ids.numel());
  const Views& views = views_[current_];
  const ModelWeights& weights = model_->weights();
  const float rope_scale = model_->config().rope.attention_factor;

  embed(input.ids);
  if (dynamic_rope_) {
    for (const SequenceRange& range : ranges) {
      ops_->rope_table(views.cos.slice(0, range.begin, range.end), views.sin.slice(0, range.begin, range.end),
                       inv_freq_views_[static_cast<size_t>(range.sequence)],
                       input.positions.slice(0, range.begin, range.end), rope_scale);
    }
  } else {
    ops_->rope_table(views.cos, views.sin, inv_freq_views_[0], input.positions, rope_scale);
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    attention_block(weights.layers[i], i, input);
    mlp_block(weights.layers[i]);
  }
}

void DecoderStep::embed(const Tensor& ids) {
  const Tensor& hidden = views_[current_].hidden;
  const Tensor& table = model_->weights().embedding;
  if (!group_) {
    if (const aa_block_format format = model_->weights().embedding_format; format != 0) {
      ops_->quantized_embedding(hidden, table, format, ids);
    } else {
      ops_->embedding(hidden, table, ids);
    }
    return;
  }
  if (table) {
    ops_->embedding_shard(hidden, table, ids, model_->shard().vocabulary.begin);
  } else {
    hidden.fill(0);
  }
  group_->inference_all_reduce(hidden);
}

void DecoderStep::product(const Tensor& out, const Tensor& x, const Tensor& w, aa_block_format format,
                          const Tensor& bias, const Tensor& residual) {
  if (format == 0) {
    ops_->linear(out, x, w, bias, residual);
  } else {
    ops_->quantized_linear(out, x, w, format, model_->rounds_quantized(), bias, residual);
  }
}

void DecoderStep::add_product(const Tensor& x, const Tensor& w, aa_block_format format, const Tensor& bias) {
  const Tensor& hidden = views_[current_].hidden;
  if (!group_) {
    product(hidden, x, w, format, bias, hidden);
    return;
  }
  const bool has_residual = model_->shard().rank == 0;
  if (w) {
    product(hidden, x, w, format, bias, has_residual ? hidden : Tensor());
  } else if (!has_residual) {
    hidden.fill(0);
  }
  group_->inference_all_reduce(hidden);
}

void DecoderStep::attention_block(const LayerWeights& layer, size_t index, const StepInput& input) {
  const ModelConfig& config = model_->config();
  const Views& views = views_[current_];
  if (!layer.q) {
    add_product({}, {}, {}, {});
    return;
  }
  const ops::CacheSlots cache = {key_cache_[index], value_cache_[index], input.sequence, input.positions};
  if (layer.formats.q != 0 || layer.formats.k != 0 || layer.formats.v != 0) {
    quantized_qkv(layer, cache);
  } else {
    ops_->norm_qkv_rope(
        views.q3, cache, views.hidden, layer.input_norm,
        {layer.q, layer.q_bias, layer.k, layer.k_bias, layer.v, layer.v_bias, layer.q_norm, layer.k_norm},
        {views.cos, views.sin}, config.rms_norm_eps, model_->product_dtype());
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  ops_->attention(views.attended3, views.q3, key_cache_[index], value_cache_[index], input.sequence, input.positions,
                  scale, static_cast<int>(config.window_of_layer(static_cast<int64_t>(index))));
  add_product(views.attended, layer.o, layer.formats.o, layer.o_bias);
}

void DecoderStep::quantized_qkv(const LayerWeights& layer, const ops::CacheSlots& cache) {
  const Views& views = views_[current_];
  const float eps = model_->config().rms_norm_eps;
  const int64_t tokens = views.tokens, heads = views.q3.size(1), size = views.q3.size(2);
  const int64_t kv_heads = cache.keys.size(1);
  ops_->rms_norm(views.normed, views.hidden, layer.input_norm, eps);
  product(views.q3.view({tokens, heads * size}), views.normed, layer.q, layer.formats.q, layer.q_bias);
  product(views.k, views.normed, layer.k, layer.formats.k, layer.k_bias);
  product(views.v, views.normed, layer.v, layer.formats.v, layer.v_bias);
  if (layer.q_norm) {
    const Tensor each = views.q3.view({tokens * heads, size});
    ops_->rms_norm(each, each, layer.q_norm, eps);
  }
  if (layer.k_norm) {
    const Tensor each = views.k.view({tokens * kv_heads, size});
    ops_->rms_norm(each, each, layer.k_norm, eps);
  }
  const Tensor k3 = views.k.view({tokens, kv_heads, size});
  ops_->rope(views.q3, k3, views.cos, views.sin, layer.rotates_pairs);
  ops_->cache_write(cache.keys, cache.values, k3, views.v.view({tokens, kv_heads, size}), cache.sequence,
                    cache.positions);
}

void DecoderStep::mlp_block(const LayerWeights& layer) {
  const Views& views = views_[current_];
  const ModelConfig& config = model_->config();
  if (layer.gate && (layer.formats.gate != 0 || layer.formats.up != 0)) {
    ops_->rms_norm(views.normed, views.hidden, layer.post_norm, config.rms_norm_eps);
    product(views.gate, views.normed, layer.gate, layer.formats.gate, layer.gate_bias);
    product(views.up, views.normed, layer.up, layer.formats.up, layer.up_bias);
    ops_->gated_activation(views.gated, views.gate, views.up, config.hidden_act);
  } else if (layer.gate) {
    ops_->norm_gated_linear(views.gated, views.hidden, layer.post_norm, layer.gate, layer.up, config.hidden_act,
                            config.rms_norm_eps, layer.gate_bias, layer.up_bias, model_->product_dtype());
  }
  add_product(views.gated, layer.down, layer.formats.down, layer.down_bias);
}

void DecoderStep::logits(const Tensor& out, const Tensor& rows) {
  const Views& views = views_[current_];
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
    Tensor last = views.hidden;
    if (rows) {
      last = chosen_.slice(0, 0, rows.numel());
      ops_->embedding(last, views.hidden, rows);
    }
    if (weights.lm_head_format != 0) {
      const Tensor normed = storage_.normed.slice(0, 0, last.size(0));
      ops_->rms_norm(normed, last, weights.final_norm, eps);
      product(part, normed, weights.lm_head, weights.lm_head_format, {});
    } else {
      ops_->norm_linear(part, last, weights.final_norm, weights.lm_head, eps, {}, model_->product_dtype());
    }
  }
  if (group_) group_->inference_all_reduce(out);
}

}  // namespace anyaccel::llm
