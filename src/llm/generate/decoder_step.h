// Runs one step of a decoder model over T tokens whose ids, sequences and positions are device tensors: enqueues the
// ops of every layer, allocates nothing and reads nothing back, so that a step can be captured in a graph and replayed;
// but a step of a model with experts reads back which of them it needs (expert_block.h).
//
// If the model is sharded over ranks (see tensor_parallel.h), every rank runs the step on its shard: the second product
// of each half of a layer yields the rank's part of the new hidden state, which on rank 0 includes the residual, and
// the sum of the parts is the hidden state of all ranks. Ranks that share host memory gather the inputs of that product
// instead, compute some of the elements of the hidden state each, and gather these. Embedding and logits are sums, of parts
// that are zero outside a rank's vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "anyaccel/llm/model.h"
#include "anyaccel/llm/session.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/tensor.h"
#include "llm/generate/adapted_products.h"
#include "llm/generate/expert_block.h"
#include "llm/generate/graph_cache.h"
#include "llm/generate/step_tensors.h"

namespace anyaccel::llm {

// The tokens of a step; all I32 [T] on the device.
struct StepInput {
  Tensor ids;
  Tensor sequence;
  Tensor positions;
};

// Consecutive tokens [begin, end) of one sequence. Needed only for rope whose frequencies depend on a sequence's
// length.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t sequence = 0;
};

class DecoderStep {
 public:
  // Allocates the cache for `sequences` of `context` tokens, and the tensors between the layers for steps of at most
  // `max_tokens`. All ranks of a group construct theirs together. Throws as a Session does for a cache type that cannot
  // be used.
  DecoderStep(std::shared_ptr<const Model> model, int64_t sequences, int64_t context, int64_t max_tokens,
              CacheType cache);

  ops::Inference& ops() const noexcept { return *ops_; }
  uint64_t cache_bytes() const noexcept;
  // Returns keys and values of each layer: [B, Hk, S, D] in the model's dtype, or bytes.
  std::vector<Tensor> caches() const;
  // Copies keys and values of tokens [begin, end) from one sequence to another, and what depends on its length.
  void copy_sequence(int32_t from, int32_t to, int64_t begin, int64_t end);
  // Returns whether the host reads results of a step to go on with it, so that a captured step has work between graphs.
  bool reads_back() const noexcept { return experts_ != nullptr; }
  // Returns whether a sequence has an adapter, which adds ops to a step.
  bool adapting() const noexcept { return products_.adapting(); }

  // Returns whether the frequencies depend on the length of the sequence ("dynamic" rope scaling and "longrope").
  bool dynamic_rope() const noexcept { return dynamic_rope_; }
  // Call on the host before the step that extends a sequence to `length` tokens (`restart`: a new sequence): recomputes
  // the frequencies of the sequence if they depend on the length. Does nothing for the other types of rope.
  void set_sequence_length(int32_t sequence, int64_t length, bool restart);

  // Sets the adapter of each sequence, as AdaptedProducts does.
  bool set_adapters(std::span<const int32_t> adapters) { return products_.set_adapters(adapters); }

  // Prepares the tensors of a step of `tokens` tokens, so that forward() with that many only enqueues.
  void prepare(int64_t tokens);
  // Runs the embedding and all layers. `ranges` cover the tokens in order; they may be empty unless dynamic_rope().
  // `between` takes the host's part of a step that is being captured; without it, that runs at once.
  void forward(const StepInput& input, std::span<const SequenceRange> ranges, const BetweenGraphs& between = {});
  // Returns the logits (fp32 [R, V], contiguous) after those tokens of the last forward() that `rows` (indices, [R])
  // selects; an empty handle selects all. Every rank gets the logits of the whole vocabulary.
  void logits(const Tensor& out, const Tensor& rows);
  // The same with the hidden states after the final norm (fp32 [R, H], contiguous), which every rank has.
  void hidden_states(const Tensor& out, const Tensor& rows);

 private:
  void embed(const StepInput& input);
  void attention_block(const LayerWeights& layer, size_t index, const StepInput& input);
  void mlp_block(const LayerWeights& layer);
  // Runs norm_qkv_rope as a sequence of ops without the norm, for quantized weights and caches, and for layers that are not
  // Llama's.
  void queries_keys_values(const Tensor& x, const LayerWeights& layer, size_t index, const ops::CacheSlots& cache);
  // The same for latent attention.
  void latent_queries_keys_values(const Tensor& x, const LayerWeights& layer, const ops::CacheSlots& cache);
  // Runs a layer of any family, composed of the parts that the configuration names.
  void composed_layer(const LayerWeights& layer, size_t index, const StepInput& input);
  void norm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias);
  void norm_heads(const Tensor& heads, const Tensor& weight, const Tensor& bias);
  // Writes keys and values [T, heads, D] to the cache, quantized if that is.
  void write_cache(const ops::CacheSlots& cache, const Tensor& k, const Tensor& v);
  // Computes views.attended from views.q3 and the cache.
  void attend_cache(size_t index, const StepInput& input, float scale, float softcap);
  // Computes views.attended (of latent attention views.values) from the normalized rows x; returns whether this rank's last
  // product has something to read.
  bool attend(const Tensor& x, const LayerWeights& layer, size_t index, const StepInput& input);
  // Computes views.gated from the normalized rows x, with separate products for gate and up.
  void gated_products(const Tensor& x, const LayerWeights& layer);
  // Computes views.gated from the normalized rows x.
  void inner_mlp(const Tensor& x, const LayerWeights& layer);
  // Returns whether a layer's products are not fused with what follows, so that adapters can be added to them.
  bool splits(const LayerWeights& layer) const {
    return adapting() || layer.formats.gate != 0 || layer.formats.up != 0;
  }
  // hidden += residual_multiplier * norm(product of all ranks).
  void add_branch(const MatrixProduct& product, const Tensor& norm_weight);
  // hidden += residual_multiplier * the experts' results for the normalized rows x, summed over all ranks.
  void add_experts(const Tensor& x, size_t index);
  // hidden += both products; their inputs are one norm or two norms of the same hidden state.
  void add_both(const MatrixProduct& attention, const MatrixProduct& mlp);
  // Multiplies the logits and applies the soft cap.
  void cap_logits(const Tensor& logits);
  // Returns the hidden states of the rows, before the final norm; of all tokens for an empty handle.
  Tensor last_states(const Tensor& rows);
  void set_rotations(const StepInput& input, std::span<const SequenceRange> ranges);
  // hidden += the product, of all ranks.
  void add_product(const MatrixProduct& last);
  // Returns whether the ranks gather what the last product of half a layer reads and what it writes, instead of summing
  // parts of the latter.
  bool gathers() const { return model_->shard().hidden.size() > 0; }
  // Gathers the columns of the tensor of all ranks; does nothing unless they gather.
  void gather(const Tensor& all, const std::vector<int64_t>& begins);

  std::shared_ptr<const Model> model_;
  comm::ProcessGroup* group_ = nullptr;  // the model's; null if there is one rank
  std::shared_ptr<ops::Inference> ops_;
  AdaptedProducts products_;
  // Where the columns of each rank begin, and their end, if the ranks gather: of what attention and the feed-forward
  // block pass to their last products, and of the hidden state.
  std::vector<int64_t> attended_begins_, gated_begins_, hidden_begins_;
  std::unique_ptr<ExpertBlock> experts_;  // null if no layer has experts
  bool dynamic_rope_ = false;
  bool plain_ = true;                       // layers have Llama's structure
  const BetweenGraphs* between_ = nullptr;  // of the step that is being captured; null otherwise
  float embedding_multiplier_ = 1.0f;
  Tensor window_inv_freq_;              // [R] of layers with a window, if they rotate differently
  Tensor slopes_;                       // [heads] of this rank, of models with ALiBi
  Tensor inv_freq_;                     // [R], or [B, R] when it depends on the sequence's length
  std::vector<int64_t> longest_;        // of each sequence; dynamic rope only
  std::vector<Tensor> inv_freq_views_;  // [R] each; one, or one for each sequence
  aa_cache_format cache_format_{};      // of the cache's rows; 0: floats
  // One for each layer: [B, Hk, S, D], or U8 [B, Hk, S, bytes of D elements]; none on a rank without heads.
  std::vector<Tensor> key_cache_;
  std::vector<Tensor> value_cache_;
  StepTensors storage_;             // for max_tokens
  Tensor chosen_;                   // [T, H]: the rows whose logits are requested
  std::vector<StepTensors> views_;  // for recently used numbers of tokens
  size_t current_ = 0;              // in views_
};

}  // namespace anyaccel::llm
