// Implements ops::FlashAttention with the op "attention": keys and values are a cache that holds the whole sequence.
#include "anyaccel/ops/flash_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "base/text/number_text.h"
#include "ops/builders.h"
#include "ops/layers/argument_checks.h"
#include "runtime/ops/included_op_builder.h"

namespace anyaccel::ops {

namespace {

struct FlashSizes {
  int64_t batch, queries, heads, size, keys, kv_heads;
  float scale;
};

FlashSizes check_flash(ArgumentChecks& check, const Tensor& q, const Tensor& k, const Tensor& v,
                       std::optional<float> softmax_scale, bool is_causal) {
  check.one_of("q", q, {DType::F32, DType::F16, DType::BF16});
  check.rank("q", q, 4, "[B, Sq, nh, d]");
  check.rank("k", k, 4, "[B, Sk, nkv, d]");
  FlashSizes s{q.size(0), q.size(1), q.size(2), q.size(3), k.size(1), k.size(2), 0};
  check.tensor("k", k, q.dtype(), {s.batch, s.keys, s.kv_heads, s.size});
  check.tensor("v", v, q.dtype(), {s.batch, s.keys, s.kv_heads, s.size});
  check.require(
      s.kv_heads > 0 && s.heads % s.kv_heads == 0,
      "q has " + std::to_string(s.heads) + " heads, expected a multiple of those of k, " + std::to_string(s.kv_heads));
  s.scale = softmax_scale.value_or(1.0f / std::sqrt(static_cast<float>(s.size)));
  check.require(std::isfinite(s.scale), "softmax_scale is " + number_text(s.scale) + ", expected a finite number");
  const int64_t least = is_causal ? s.queries : 1;
  check.require(q.numel() == 0 || s.keys >= least,
                "k has " + std::to_string(s.keys) + " positions, expected at least " + std::to_string(least));
  return s;
}

// The number of scores that exist at a time.
constexpr int64_t scores_at_a_time = int64_t{1} << 22;

// Returns a table of additions to scores that hides keys from query i of a part of `rows` queries, for a part that
// begins anywhere: for the part that begins at query r, whose position is key r + offset, key j is column keys - r -
// offset + j.
Tensor causal_table(int64_t rows, int64_t keys, Device device) {
  std::vector<float> table(static_cast<size_t>(rows * (keys + rows)));
  for (int64_t i = 0; i < rows; ++i) {
    float* row = table.data() + i * (keys + rows);
    std::fill(row + keys + i + 1, row + keys + rows, -std::numeric_limits<float>::infinity());
  }
  return Tensor::from_host(table.data(), {rows, keys + rows}, DType::F32, device);
}

}  // namespace

FlashAttention::Gradients FlashAttention::flash_attn_backward(const Tensor& grad_out, const Tensor& q, const Tensor& k,
                                                              const Tensor& v, std::optional<float> softmax_scale,
                                                              bool is_causal) {
  ArgumentChecks check(accelerator_, "flash_attn_backward");
  const FlashSizes s = check_flash(check, q, k, v, softmax_scale, is_causal);
  check.tensor("grad_out", grad_out, q.dtype(), q.shape());
  const auto empty_like = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
  const Gradients out{empty_like(q), empty_like(k), empty_like(v)};
  if (q.numel() == 0) {
    if (k.numel() > 0) {
      out.k.fill(0);
      out.v.fill(0);
    }
    return out;
  }
  const Device device = q.device();
  const int64_t group = s.heads / s.kv_heads, offset = s.keys - s.queries;
  const int64_t most = std::clamp<int64_t>(scores_at_a_time / (s.batch * s.heads * s.keys), 1, s.queries);
  const Tensor keys = k.transpose(1, 2), values = v.transpose(1, 2);  // [B, nkv, Sk, d]
  const Shape sums{s.batch, s.kv_heads, s.keys, s.size};
  const Tensor dk = Tensor::zeros(sums, DType::F32, device), dv = Tensor::zeros(sums, DType::F32, device);
  const Tensor table = is_causal ? causal_table(most, s.keys, device) : Tensor();
  const int64_t scores = s.batch * s.heads * most * s.keys;
  const Tensor room = Tensor::empty({scores}, DType::F32, device),
               other_room = Tensor::empty({scores}, DType::F32, device);
  for (int64_t first = 0; first < s.queries; first += most) {
    const int64_t rows = std::min(most, s.queries - first), seen = is_causal ? first + offset + rows : s.keys;
    // The queries of a part by key head, with those of a group next to one another: [B, nkv, rows * group, d].
    const Shape by_key_head{s.batch, s.kv_heads, rows, group, s.size},
        matrix{s.batch, s.kv_heads, rows * group, s.size};
    const auto part = [&](const Tensor& x) {
      return x.slice(1, first, first + rows)
          .reshape(Shape{s.batch, rows, s.kv_heads, group, s.size})
          .permute({0, 2, 1, 3, 4});
    };
    const Tensor queries = part(q).contiguous().view(matrix), gradients = part(grad_out).contiguous().view(matrix);
    const Shape of_scores{s.batch, s.kv_heads, rows * group, seen}, of_rows{s.batch, s.kv_heads, rows, group, seen};
    const auto in = [&](const Tensor& memory) { return memory.slice(0, 0, of_scores.numel()).view(of_scores); };
    const Tensor change = in(room), weights = in(other_room);
    const Tensor near_keys = keys.slice(2, 0, seen), near_values = values.slice(2, 0, seen);
    ops_.matmul(change, queries, near_keys.transpose(2, 3));
    const Tensor hidden =
        is_causal
            ? table.slice(0, 0, rows).slice(1, s.keys - first - offset, s.keys + rows).unsqueeze(1).expand(of_rows)
            : Tensor();
    ops_.softmax_masked(weights.view(of_rows), change.view(of_rows), hidden, s.scale);
    ops_.matmul(dv.slice(2, 0, seen), weights.transpose(2, 3), gradients, true);
    ops_.matmul(change, gradients, near_values.transpose(2, 3));
    ops_.softmax_backward(change, weights, change, s.scale);
    ops_.matmul(dk.slice(2, 0, seen), change.transpose(2, 3), queries, true);
    const Tensor dq = Tensor::empty(matrix, q.dtype(), device);
    ops_.matmul(dq, change, near_keys);
    ops_.copy(out.q.view(Shape{s.batch, s.queries, s.kv_heads, group, s.size})
                  .slice(1, first, first + rows)
                  .permute({0, 2, 1, 3, 4}),
              dq.view(by_key_head));
  }
  ops_.copy(out.k.transpose(1, 2), dk);
  ops_.copy(out.v.transpose(1, 2), dv);
  return out;
}

Tensor FlashAttention::flash_attn_func(const Tensor& q, const Tensor& k, const Tensor& v, float dropout_p,
                                       std::optional<float> softmax_scale, bool is_causal) {
  ArgumentChecks check(accelerator_, "flash_attn_func");
  const auto [batch, queries, heads, size, keys, kv_heads, scale] =
      check_flash(check, q, k, v, softmax_scale, is_causal);
  check.require(dropout_p == 0, "dropout_p is " + std::to_string(dropout_p) + ", expected 0");
  const Tensor out = Tensor::empty({batch, queries, heads, size}, q.dtype(), q.device());
  if (out.numel() == 0) return out;
  // A query attends to the slots up to its position.
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
