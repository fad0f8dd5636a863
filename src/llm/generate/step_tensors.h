// The tensors between the layers of a decoder: scratch memory for the largest step, and views of its first rows for the
// others.
#pragma once

#include <cstdint>

#include "anyaccel/llm/model.h"
#include "anyaccel/tensor.h"

namespace anyaccel::llm {

// T is the number of tokens. The numbers of heads and I are those of this rank; attended, values and gated belong to all
// ranks if these gather them (ModelShard::hidden). own_* are the columns that this rank computes, or the same tensors.
struct StepTensors {
  int64_t tokens = 0;
  Tensor hidden, own_hidden;   // [T, H]
  Tensor q3;                   // [T, heads, D]
  Tensor attended, attended3;  // [T, heads * D], and this rank's columns as [T, heads, D]
  Tensor gated, own_gated;     // [T, I]
  Tensor cos, sin;             // [T, R]
  // Only for layers that are not Llama's: cos and sin of layers with a window, if they rotate differently; and the
  // branch [T, H] that is added to the hidden state after a norm or a multiplication.
  Tensor window_cos, window_sin;
  Tensor branch, own_branch;
  // Only for those, for quantized weights and caches and for adapters: the normalized rows [T, H], keys and values
  // [T, heads * D], and gate and up [T, I].
  Tensor normed, k, v, gate, up;
  // Only for latent attention: queries of few elements [T, Q] before and after their norm, what keys and values are
  // computed from [T, R + rotated] and its norm [T, R], keys and values [T, heads * (plain + value)], and attention's
  // result [T, heads * value].
  Tensor q_latent, q_normed, kv_latent, kv_normed, kv, values, own_values;

  StepTensors() = default;
  // Allocates fp32 tensors for steps of at most `max_tokens`; of a sharded model, all ranks together. `rotary_half`: the
  // rope's number of frequencies; `window_half`: of layers with a window, 0 if they rotate as the others. `splits`: some
  // products are not fused with what follows. q3 is [T, heads * D] here, and what is a part of another tensor empty.
  StepTensors(const Model& model, int64_t max_tokens, int64_t rotary_half, int64_t window_half, bool splits);

  // Returns views of the first rows, in which what products read has the model's product dtype.
  StepTensors rows(const Model& model, int64_t tokens) const;
};

// Returns the first rows of a scratch tensor [.., width], with its memory reinterpreted as elements of a dtype that is
// not larger.
Tensor rows_as(const Tensor& storage, int64_t rows, DType dtype);

}  // namespace anyaccel::llm
