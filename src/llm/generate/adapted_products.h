// Multiplies the rows of a step by a model's matrices and adds the products of the LoRA adapters that their sequences
// have. Adapters stay apart from the weights, so that sequences of one batch may have different ones or none.
#pragma once

#include <cstdint>
#include <span>

#include "anyaccel/llm/model.h"
#include "anyaccel/ops/inference.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

// x * transpose(w) + bias, with the adapters of that matrix. Refers to what it was made from.
struct MatrixProduct {
  const Tensor& x;
  const Tensor& w;  // empty: this rank contributes nothing
  aa_block_format format;
  const Tensor& bias;
  const LowRank& adapters;
};

class AdaptedProducts {
 public:
  // For `sequences` sequences and steps of at most `max_tokens` tokens. Allocates nothing for a model without adapters.
  // `ops` and `model` must outlive this.
  AdaptedProducts(ops::Inference& ops, const Model& model, int64_t sequences, int64_t max_tokens);

  bool has_adapters() const noexcept { return static_cast<bool>(sequence_columns_); }
  // Returns whether a sequence has an adapter, which adds ops to a step.
  bool adapting() const noexcept { return adapting_; }
  // Sets the adapter (an index in Model::adapters(), or -1) of each sequence; those that are not named have none. Returns
  // whether a captured step is out of date, because its ops with and without adapters differ. Waits for the device.
  bool set_adapters(std::span<const int32_t> adapters);
  // Gives a sequence the adapter of another.
  void copy_sequence(int32_t from, int32_t to);

  // Makes the views for steps of `tokens` tokens.
  void prepare(int64_t tokens);
  // Looks up the adapters of the tokens of a step, whose sequences are given: I32 [T]. Call before its products.
  void begin_step(const Tensor& sequence);
  // out = x * transpose(w) + bias + residual + the products of the adapters, for weights of any format.
  void run(const Tensor& out, const MatrixProduct& product, const Tensor& residual = {});
  // out += the products of the adapters.
  void add_adapters(const Tensor& out, const Tensor& x, const LowRank& factors);

 private:
  // [T, R], with the ranks of all adapters side by side: 1 in the columns of a token's adapter, and products of low rank
  // before and after the multiplication with it.
  struct Scratch {
    Tensor columns, low_rank, chosen_rank;
  };

  ops::Inference& ops_;
  const Model& model_;
  bool adapting_ = false;
  Tensor sequence_columns_;  // [B, R]: 1 in the columns of a sequence's adapter
  Scratch storage_;          // for max_tokens
  Scratch views_;            // for the tokens of the step
};

}  // namespace anyaccel::llm
