// Lists Hugging Face's tensor names for Llama, Mistral, Qwen2 and Qwen3.
#include "llm/model/decoder_tensors.h"

#include <utility>

namespace anyaccel::llm {

Slice held_slice(const TensorSlot& slot, const ModelShard& shard, int64_t head_dim) {
  switch (slot.split) {
    case SplitBy::QueryHeads: return {shard.query_heads.begin * head_dim, shard.query_heads.end * head_dim};
    case SplitBy::KvHeads: return {shard.kv_heads.begin * head_dim, shard.kv_heads.end * head_dim};
    case SplitBy::Intermediate: return shard.intermediate;
    case SplitBy::Vocabulary: return shard.vocabulary;
    case SplitBy::FirstRank: return {0, shard.rank == 0 ? slot.shape[0] : 0};
    case SplitBy::Nothing: break;
  }
  return {0, slot.shape[slot.split_dim]};
}

Shape held_shape(const TensorSlot& slot, const Slice& held) {
  std::vector<int64_t> dims(slot.shape.dims().begin(), slot.shape.dims().end());
  dims[static_cast<size_t>(slot.split_dim)] = held.size();
  return Shape(dims);
}

std::vector<TensorSlot> decoder_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t intermediate = config.intermediate_size;
  const int64_t q_size = config.num_attention_heads * config.head_dim;
  const int64_t kv_size = config.num_key_value_heads * config.head_dim;

  std::vector<TensorSlot> slots;
  const auto add_model = [&](std::string name, Shape shape, TensorKind kind, SplitBy split,
                             Tensor ModelWeights::*member, aa_block_format ModelWeights::*format = nullptr) {
    slots.push_back({std::move(name), shape, kind, split, 0, -1, nullptr, member, nullptr, format});
  };
  add_model("model.embed_tokens.weight", {config.vocab_size, hidden}, TensorKind::Matrix, SplitBy::Vocabulary,
            &ModelWeights::embedding, &ModelWeights::embedding_format);

  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const std::string& name, Shape shape, TensorKind kind, SplitBy split, int split_dim,
                         Tensor LayerWeights::*member, aa_block_format MatrixFormats::*format = nullptr) {
      slots.push_back({prefix + name, shape, kind, split, split_dim, layer, member, nullptr, format, nullptr});
    };
    const auto add_norm = [&](const std::string& name, int64_t size, Tensor LayerWeights::*member) {
      add(name + ".weight", {size}, TensorKind::Norm, SplitBy::Nothing, 0, member);
    };
    // split_dim 0: by outputs, as the bias is; 1: by inputs, and the bias is added once.
    const auto add_linear = [&](const std::string& name, int64_t outputs, int64_t inputs, SplitBy split, int split_dim,
                                Tensor LayerWeights::*weight, aa_block_format MatrixFormats::*format,
                                Tensor LayerWeights::*bias, bool has_bias) {
      add(name + ".weight", {outputs, inputs}, TensorKind::Matrix, split, split_dim, weight, format);
      if (!has_bias) return;
      add(name + ".bias", {outputs}, TensorKind::Bias, split_dim == 0 ? split : SplitBy::FirstRank, 0, bias);
    };
    using Layer = LayerWeights;
    add_norm("input_layernorm", hidden, &Layer::input_norm);
    add_linear("self_attn.q_proj", q_size, hidden, SplitBy::QueryHeads, 0, &Layer::q, &MatrixFormats::q, &Layer::q_bias,
               config.qkv_bias);
    add_linear("self_attn.k_proj", kv_size, hidden, SplitBy::KvHeads, 0, &Layer::k, &MatrixFormats::k, &Layer::k_bias,
               config.qkv_bias);
    add_linear("self_attn.v_proj", kv_size, hidden, SplitBy::KvHeads, 0, &Layer::v, &MatrixFormats::v, &Layer::v_bias,
               config.qkv_bias);
    if (config.qk_norm) {
      add_norm("self_attn.q_norm", config.head_dim, &Layer::q_norm);
      add_norm("self_attn.k_norm", config.head_dim, &Layer::k_norm);
    }
    add_linear("self_attn.o_proj", hidden, q_size, SplitBy::QueryHeads, 1, &Layer::o, &MatrixFormats::o, &Layer::o_bias,
               config.o_bias);
    add_norm("post_attention_layernorm", hidden, &Layer::post_norm);
    add_linear("mlp.gate_proj", intermediate, hidden, SplitBy::Intermediate, 0, &Layer::gate, &MatrixFormats::gate,
               &Layer::gate_bias, config.mlp_bias);
    add_linear("mlp.up_proj", intermediate, hidden, SplitBy::Intermediate, 0, &Layer::up, &MatrixFormats::up,
               &Layer::up_bias, config.mlp_bias);
    add_linear("mlp.down_proj", hidden, intermediate, SplitBy::Intermediate, 1, &Layer::down, &MatrixFormats::down,
               &Layer::down_bias, config.mlp_bias);
  }
  add_model("model.norm.weight", {hidden}, TensorKind::Norm, SplitBy::Nothing, &ModelWeights::final_norm);
  if (!config.tie_word_embeddings) {
    add_model("lm_head.weight", {config.vocab_size, hidden}, TensorKind::Matrix, SplitBy::Vocabulary,
              &ModelWeights::lm_head, &ModelWeights::lm_head_format);
  }
  return slots;
}

}  // namespace anyaccel::llm
