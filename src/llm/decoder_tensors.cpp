// Hugging Face's tensor names for Llama, Mistral, Qwen2 and Qwen3; see decoder_tensors.h.
#include "llm/decoder_tensors.h"

#include <utility>

namespace anyaccel::llm {

std::vector<TensorSlot> decoder_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t intermediate = config.intermediate_size;
  const int64_t q_size = config.num_attention_heads * config.head_dim;
  const int64_t kv_size = config.num_key_value_heads * config.head_dim;

  std::vector<TensorSlot> slots;
  const auto add_model = [&](std::string name, Shape shape, TensorKind kind, Tensor ModelWeights::*member) {
    slots.push_back({std::move(name), shape, kind, -1, nullptr, member});
  };
  add_model("model.embed_tokens.weight", {config.vocab_size, hidden}, TensorKind::Matrix, &ModelWeights::embedding);

  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](const std::string& name, Shape shape, TensorKind kind, Tensor LayerWeights::*member) {
      slots.push_back({prefix + name, shape, kind, layer, member, nullptr});
    };
    const auto add_linear = [&](const std::string& name, int64_t outputs, int64_t inputs, Tensor LayerWeights::*weight,
                                Tensor LayerWeights::*bias, bool has_bias) {
      add(name + ".weight", {outputs, inputs}, TensorKind::Matrix, weight);
      if (has_bias) add(name + ".bias", {outputs}, TensorKind::Bias, bias);
    };
    using Layer = LayerWeights;
    add("input_layernorm.weight", {hidden}, TensorKind::Norm, &Layer::input_norm);
    add_linear("self_attn.q_proj", q_size, hidden, &Layer::q, &Layer::q_bias, config.qkv_bias);
    add_linear("self_attn.k_proj", kv_size, hidden, &Layer::k, &Layer::k_bias, config.qkv_bias);
    add_linear("self_attn.v_proj", kv_size, hidden, &Layer::v, &Layer::v_bias, config.qkv_bias);
    if (config.qk_norm) {
      add("self_attn.q_norm.weight", {config.head_dim}, TensorKind::Norm, &Layer::q_norm);
      add("self_attn.k_norm.weight", {config.head_dim}, TensorKind::Norm, &Layer::k_norm);
    }
    add_linear("self_attn.o_proj", hidden, q_size, &Layer::o, &Layer::o_bias, config.o_bias);
    add("post_attention_layernorm.weight", {hidden}, TensorKind::Norm, &Layer::post_norm);
    add_linear("mlp.gate_proj", intermediate, hidden, &Layer::gate, &Layer::gate_bias, config.mlp_bias);
    add_linear("mlp.up_proj", intermediate, hidden, &Layer::up, &Layer::up_bias, config.mlp_bias);
    add_linear("mlp.down_proj", hidden, intermediate, &Layer::down, &Layer::down_bias, config.mlp_bias);
  }
  add_model("model.norm.weight", {hidden}, TensorKind::Norm, &ModelWeights::final_norm);
  if (!config.tie_word_embeddings) {
    add_model("lm_head.weight", {config.vocab_size, hidden}, TensorKind::Matrix, &ModelWeights::lm_head);
  }
  return slots;
}

}  // namespace anyaccel::llm
