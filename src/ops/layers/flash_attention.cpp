// ops::FlashAttention over the op "attention": keys and values are a cache that holds the whole sequence.
#include "anyaccel/ops/flash_attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {

Tensor FlashAttention::flash_attn_func(const Tensor& q, const Tensor& k, const Tensor& v, float dropout_p,
                                       std::optional<float> softmax_scale, bool is_causal) {
  ArgumentChecks check(accelerator_, "flash_attn_func");
  check.one_of("q", q, {DType::F32, DType::F16, DType::BF16});
  check.rank("q", q, 4, "[B, Sq, nh, d]");
  check.rank("k", k, 4, "[B, Sk, nkv, d]");
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), size = q.size(3);
  const int64_t keys = k.size(1), kv_heads = k.size(2);
  check.tensor("k", k, q.dtype(), {batch, keys, kv_heads, size});
  check.tensor("v", v, q.dtype(), {batch, keys, kv_heads, size});
  check.require(
      kv_heads > 0 && heads % kv_heads == 0,
      "q has " + std::to_string(heads) + " heads, expected a multiple of those of k, " + std::to_string(kv_heads));
  check.require(dropout_p == 0, "dropout_p is " + std::to_string(dropout_p) + ", expected 0");
  const float scale = softmax_scale.value_or(1.0f / std::sqrt(static_cast<float>(size)));
  check.require(std::isfinite(scale), "softmax_scale is " + std::to_string(scale) + ", expected a finite number");
  const Tensor out = Tensor::empty({batch, queries, heads, size}, q.dtype(), q.device());
  if (out.numel() == 0) return out;
  check.require(keys >= (is_causal ? queries : 1), "k has " + std::to_string(keys) + " positions, expected at least " +
                                                       std::to_string(is_causal ? queries : 1));
  // A query sees the slots up to its position.
  std::vector<int32_t> sequence, positions;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < queries; ++i) {
      sequence.push_back(static_cast<int32_t>(b));
      positions.push_back(static_cast<int32_t>(is_causal ? i + keys - queries : keys - 1));
    }
  }
  const Shape tokens{batch * queries};
  ops_.attention(out.view({batch * queries, heads, size}), q.reshape({batch * queries, heads, size}), k.transpose(1, 2),
                 v.transpose(1, 2), Tensor::from_host(sequence.data(), tokens, DType::I32, q.device()),
                 Tensor::from_host(positions.data(), tokens, DType::I32, q.device()), scale);
  return out;
}

std::unique_ptr<OpBuilder> make_flash_attention_builder(Accelerator& accelerator) {
  return std::make_unique<IncludedOpBuilder<FlashAttention>>("FlashAttentionBuilder", accelerator);
}

}  // namespace anyaccel::ops
