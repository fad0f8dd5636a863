// Counts a model's work from its weights, which a family's matrices are all among.
#include "cli/bench/model_work.h"

#include <algorithm>

namespace anyaccel::cli::bench {
namespace {

double count(const Tensor& tensor) { return tensor ? static_cast<double>(tensor.numel()) : 0.0; }
double bytes_of(const Tensor& tensor) { return tensor ? static_cast<double>(tensor.nbytes()) : 0.0; }

double bytes_of(const llm::ExpertWeights& expert) {
  return bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down) + bytes_of(expert.gate_bias) +
         bytes_of(expert.up_bias) + bytes_of(expert.down_bias);
}

}  // namespace

double weight_bytes_per_token(const llm::Model& model) {
  const llm::ModelWeights& weights = model.weights();
  auto bytes = static_cast<double>(model.weight_bytes());
  const auto read_one_row = [&](const Tensor& table) {
    if (table) bytes -= bytes_of(table) * (1.0 - 1.0 / static_cast<double>(table.size(0)));
  };
  if (!model.config().tie_word_embeddings) read_one_row(weights.embedding);
  read_one_row(weights.positions);
  const llm::ExpertsConfig& experts = model.config().experts;
  for (const llm::LayerWeights& layer : weights.layers) {
    if (layer.experts.empty()) continue;
    bytes -= static_cast<double>(experts.count - experts.per_token) * bytes_of(layer.experts.front());
  }
  return bytes;
}

double cache_bytes_per_position(const llm::Model& model) {
  const llm::ModelConfig& config = model.config();
  return 2.0 * static_cast<double>(config.num_hidden_layers * config.num_key_value_heads * config.head_dim) *
         static_cast<double>(dtype_size(model.dtype()));
}

double prefill_operations(const llm::Model& model, double n) {
  const llm::ModelConfig& config = model.config();
  const auto hidden = static_cast<double>(config.hidden_size);
  const auto size = static_cast<double>(config.head_dim);
  const llm::ExpertsConfig& experts = config.experts;
  const auto of_experts = static_cast<double>(experts.per_token * experts.inner + experts.shared_inner);
  const llm::LatentConfig& latent = config.latent;
  double matrices = 0;
  for (size_t i = 0; i < model.weights().layers.size(); ++i) {
    const llm::LayerWeights& layer = model.weights().layers[i];
    // Quantized matrices have bytes where others have elements, so that sizes come from the configuration.
    double heads = hidden * size * 2 * static_cast<double>(config.num_attention_heads + config.num_key_value_heads);
    if (latent.rank > 0) {
      heads = count(layer.q_a) + count(layer.q) + count(layer.kv_a) + count(layer.kv_b) + count(layer.o);
    }
    matrices += heads;
    if (config.has_experts(static_cast<int64_t>(i))) {
      matrices += hidden * (3 * of_experts + static_cast<double>(experts.count));
    } else {
      matrices += hidden * (config.gated ? 3 : 2) * static_cast<double>(config.intermediate_size);
    }
  }
  const double attention = 4.0 * static_cast<double>(config.num_attention_heads) * size * n * (n + 1) / 2 *
                           static_cast<double>(config.num_hidden_layers);
  return 2.0 * n * matrices + attention + 2.0 * hidden * static_cast<double>(config.vocab_size);
}

}  // namespace anyaccel::cli::bench
