// Runs feed-forward blocks that consist of experts. The router's logits are read back, and the host chooses the experts
// and gathers the rows of each, so that a step reads the weights of those experts only. A step is therefore captured
// as several graphs, between which the experts run (graph_cache.h).
#pragma once

#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/ops/training.h"
#include "anyaccel/tensor.h"
#include "llm/generate/expert_choice.h"

namespace anyaccel::llm {

class ExpertBlock {
 public:
  // For a model with experts, and steps of at most `max_tokens`.
  ExpertBlock(const Model& model, int64_t max_tokens);

  // Enqueues the router's product with x, which is that of run(). Can be captured.
  void enqueue_router(const Tensor& x, size_t layer);
  // out += the weighted sum of the experts' results for the rows of x. out is fp32 [T, H]; x is [T, H] of the model's
  // product dtype. Of a model that is split over ranks, this rank's part of the results is added. Blocks until the
  // router's logits are known, so it cannot be captured. Call enqueue_router() before.
  void run(const Tensor& out, const Tensor& x, size_t layer);

 private:
  void choose(int64_t tokens, size_t layer);
  // gated = (up + 1) * gate * sigmoid(gain * gate), both within the limit; changes gate and up.
  void clamped_activation(const Tensor& gated, const Tensor& gate, const Tensor& up);
  void run_expert(const Tensor& out, const Tensor& x, const ExpertWeights& expert);

  const Model& model_;
  ops::Training ops_;
  ExpertChoice choice_;
  std::vector<std::vector<float>> biases_;  // of each layer's router; empty if it has none
  Tensor logits_, host_logits_;      // fp32 [max_tokens * (E + 1)]: those of the router, then of the shared expert
  Tensor row_tokens_, choice_rows_;  // I32 [max_tokens * K]
  Tensor weights_;                   // fp32 [max_tokens * K]
  Tensor gathered_;                  // [max_tokens, H]: the rows of one expert
  Tensor gated_, gate_, up_;         // [max_tokens, I]
  Tensor limit_;                     // [1]: of the activation, if it has one
  Tensor results_, ordered_;         // [max_tokens * K, H] by rows, and by tokens
};

}  // namespace anyaccel::llm
