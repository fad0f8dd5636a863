// Implements the products of a step with LoRA adapters.
#include "llm/generate/adapted_products.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "llm/generate/step_tensors.h"
#include "llm/generate/weight_product.h"

namespace anyaccel::llm {

AdaptedProducts::AdaptedProducts(ops::Inference& ops, const Model& model, int64_t sequences, int64_t max_tokens)
    : ops_(ops), model_(model) {
  if (model.adapters().empty()) return;
  const int64_t rank = model.adapter_ranks().back().end;
  sequence_columns_ = Tensor::zeros({sequences, rank}, DType::F32, model.device());
  for (Tensor* tensor : {&storage_.columns, &storage_.low_rank, &storage_.chosen_rank}) {
    *tensor = Tensor::empty({max_tokens, rank}, DType::F32, model.device());
  }
}

bool AdaptedProducts::set_adapters(std::span<const int32_t> adapters) {
  if (!sequence_columns_) return false;
  const bool before = adapting_;
  adapting_ = false;
  const int64_t rank = sequence_columns_.size(1);
  std::vector<float> columns(static_cast<size_t>(sequence_columns_.numel()), 0.0f);
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (adapters[i] < 0) continue;
    adapting_ = true;
    const Slice& of = model_.adapter_ranks()[static_cast<size_t>(adapters[i])];
    const auto row = columns.begin() + static_cast<ptrdiff_t>(i) * rank;
    std::fill(row + of.begin, row + of.end, 1.0f);
  }
  sequence_columns_.copy_from(Tensor::from_host(columns.data(), sequence_columns_.shape(), DType::F32));
  return adapting_ != before;
}

void AdaptedProducts::copy_sequence(int32_t from, int32_t to) {
  if (sequence_columns_) sequence_columns_.select(0, to).copy_from(sequence_columns_.select(0, from));
}

void AdaptedProducts::prepare(int64_t tokens) {
  if (!sequence_columns_ || (views_.columns && views_.columns.size(0) == tokens)) return;
  views_.columns = storage_.columns.slice(0, 0, tokens);
  views_.low_rank = storage_.low_rank.slice(0, 0, tokens);
  views_.chosen_rank = rows_as(storage_.chosen_rank, tokens, model_.product_dtype());
}

void AdaptedProducts::begin_step(const Tensor& sequence) {
  if (adapting_) ops_.embedding(views_.columns, sequence_columns_, sequence);
}

void AdaptedProducts::run(const Tensor& out, const MatrixProduct& product, const Tensor& residual) {
  weight_product(ops_, model_, out, product.x, product.w, product.format, product.bias, residual);
  add_adapters(out, product.x, product.adapters);
}

// A row of the batch takes the columns of its own adapter; those of the others are multiplied by 0, so that one product
// serves rows with different adapters.
void AdaptedProducts::add_adapters(const Tensor& out, const Tensor& x, const LowRank& factors) {
  if (!adapting_ || !factors.a) return;
  ops_.linear(views_.low_rank, x, factors.a);
  ops_.gated_activation(views_.chosen_rank, views_.columns, views_.low_rank, ops::Activation::Relu);
  ops_.linear(out, views_.chosen_rank, factors.b, {}, out);
}

}  // namespace anyaccel::llm
