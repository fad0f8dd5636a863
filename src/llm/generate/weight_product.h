// Multiplies rows by a model's matrix, whatever its format.
#pragma once

#include "anyaccel/llm/model.h"
#include "anyaccel/ops/inference.h"

namespace anyaccel::llm {

// out = x * transpose(w) + bias + residual, for weights of any format.
inline void weight_product(ops::Inference& ops, const Model& model, const Tensor& out, const Tensor& x, const Tensor& w,
                           aa_block_format format, const Tensor& bias = {}, const Tensor& residual = {}) {
  if (format == 0) {
    ops.linear(out, x, w, bias, residual);
  } else {
    ops.quantized_linear(out, x, w, format, model.rounds_quantized(), bias, residual);
  }
}

}  // namespace anyaccel::llm
