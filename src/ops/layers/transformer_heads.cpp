// Implements the calls of ops::TransformerInference that arrange heads: rotation, padding, and attention over the
// caller's keys and values.
#include <algorithm>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/transformer_inference.h"
#include "ops/layers/argument_checks.h"

namespace anyaccel::ops {
namespace {

// Returns the number of elements to which a head of d is padded.
int64_t padded_head(const ArgumentChecks& check, int64_t d) {
  check.require(d >= 1 && d <= 128, "heads have " + std::to_string(d) + " elements, expected 1 to 128");
  return d < 32 ? 32 : d < 64 ? 64 : 128;
}

// Returns x in the corner of a tensor of zeros with other sizes in the last two dimensions.
Tensor in_corner(const Tensor& x, int64_t rows, int64_t columns) {
  std::vector<int64_t> sizes(x.shape().dims().begin(), x.shape().dims().end());
  sizes[sizes.size() - 2] = rows;
  sizes.back() = columns;
  const Tensor out = Tensor::zeros(Shape(sizes), x.dtype(), x.device());
  if (x.numel() > 0) out.slice(-2, 0, x.size(-2)).slice(-1, 0, x.size(-1)).copy_from(x);
  return out;
}

// Returns [B, S, heads * d] as a view [B, heads, S, d].
Tensor by_heads(const Tensor& x, int64_t heads) {
  return x.contiguous().view(Shape{x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

void check_heads(const ArgumentChecks& check, const char* name, const Tensor& x, int64_t heads) {
  check.require(heads >= 1 && x.size(2) > 0 && x.size(2) % heads == 0,
                std::string(name) + " has rows of " + std::to_string(x.size(2)) +
                    ", expected a multiple of the number of heads, " + std::to_string(heads));
}

}  // namespace

AttentionContext TransformerInference::softmax_context_int8(const Tensor& query, const Tensor& prev_key,
                                                            const Tensor& new_key, const Tensor& mask,
                                                            const Tensor& prev_value, const Tensor& new_value,
                                                            int heads, float norm_factor, bool /*merging*/,
                                                            bool triangular, bool local_attention, int window_size,
                                                            bool no_masking) {
  ArgumentChecks check(accelerator_, "softmax_context_int8");
  check.one_of("query", query, float_dtypes);
  check.rank("query", query, 3, "[B, S, heads * d]");
  check_heads(check, "query", query, heads);
  const int64_t batch = query.size(0), count = query.size(1), hidden = query.size(2), d = hidden / heads;
  check.rank("prev_key", prev_key, 3, "[B, P, heads * d]");
  const int64_t before = prev_key.size(1);
  check.tensor("prev_key", prev_key, query.dtype(), {batch, before, hidden});
  check.tensor("prev_value", prev_value, query.dtype(), {batch, before, hidden});
  check.require(static_cast<bool>(new_key) == static_cast<bool>(new_value),
                "one of new_key and new_value is absent, expected both or none");
  int64_t added = 0;
  if (new_key) {
    check.rank("new_key", new_key, 3, "[B, N, heads * d]");
    added = new_key.size(1);
    check.tensor("new_key", new_key, query.dtype(), {batch, added, hidden});
    check.tensor("new_value", new_value, query.dtype(), {batch, added, hidden});
  }
  const int64_t length = before + added;
  check.require(length >= (triangular ? std::max<int64_t>(count, 1) : 1),
                "there are " + std::to_string(length) + " keys, expected at least " +
                    std::to_string(triangular ? std::max<int64_t>(count, 1) : 1));
  const auto joined = [&](const Tensor& first, const Tensor& second) {
    if (added == 0) return first;
    const Tensor all = Tensor::empty({batch, length, hidden}, query.dtype(), query.device());
    if (first.numel() > 0) all.slice(1, 0, before).copy_from(first);
    if (second.numel() > 0) all.slice(1, before, length).copy_from(second);
    return all;
  };
  const Tensor keys = joined(prev_key, new_key), values = joined(prev_value, new_value);
  const Tensor context = Tensor::empty({batch, heads, count, d}, query.dtype(), query.device());
  if (context.numel() == 0) return {context, keys, values};
  const Tensor scores = Tensor::empty({batch, heads, count, length}, DType::F32, query.device());
  matmul(scores, by_heads(query, heads), by_heads(keys, heads).transpose(2, 3));
  softmax(scores, no_masking ? Tensor() : mask, {}, triangular, false, local_attention, window_size, false, norm_factor,
          0, 1);
  matmul(context, scores, by_heads(values, heads));
  return {context, keys, values};
}

std::pair<Tensor, Tensor> TransformerInference::apply_rotary_pos_emb(const Tensor& q, const Tensor& k, int rotary_dim,
                                                                     int offset, int num_heads, bool rotate_half,
                                                                     float rope_theta) {
  ArgumentChecks check(accelerator_, "apply_rotary_pos_emb");
  check.one_of("q", q, float_dtypes);
  check.rank("q", q, 3, "[B, S, num_heads * d]");
  check_heads(check, "q", q, num_heads);
  check.tensor("k", k, q.dtype(), q.shape());
  const int64_t d = q.size(2) / num_heads, tokens = q.size(0) * q.size(1);
  check.require(
      rotary_dim >= 0 && rotary_dim % 2 == 0 && rotary_dim <= d,
      "rotary_dim is " + std::to_string(rotary_dim) + ", expected an even number from 0 to " + std::to_string(d));
  check.require(offset >= 0, "offset is " + std::to_string(offset) + ", expected at least 0");
  check.require(rope_theta > 0, "rope_theta is " + std::to_string(rope_theta) + ", expected a number above 0");
  const Tensor queries = q.contiguous(), keys = k.contiguous();
  if (q.numel() > 0 && rotary_dim > 0) {
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < tokens; ++i) positions.push_back(static_cast<int32_t>(offset + i % q.size(1)));
    const Shape by_head{tokens, num_heads, d};
    rotate(queries.view(by_head), keys.view(by_head),
           Tensor::from_host(positions.data(), {tokens}, DType::I32, q.device()), rotary_dim, rope_theta, !rotate_half);
  }
  return {queries, keys};
}

Tensor TransformerInference::linear_layer(const Tensor& x, const Tensor& w, const Tensor& bias, bool add_bias,
                                          bool do_flash_attn, int num_heads, bool transposed, float /*rope_theta*/) {
  ArgumentChecks check(accelerator_, "linear_layer");
  check.one_of("x", x, float_dtypes);
  check.rank("x", x, 3, "[B, S, H]");
  if (add_bias) check.present("bias", bias);
  const Tensor out = product("linear_layer", x, w, {}, false, transposed, add_bias ? bias : Tensor());
  if (!do_flash_attn) return out;
  check_heads(check, "x", x, num_heads);
  const int64_t batch = x.size(0), count = x.size(1), d = x.size(2) / num_heads;
  check.require(out.size(2) == 3 * x.size(2), "w gives rows of " + std::to_string(out.size(2)) +
                                                  ", expected 3 * H = " + std::to_string(3 * x.size(2)));
  const Tensor heads = out.view(Shape{batch, count, 3, num_heads, d}).permute({2, 0, 3, 1, 4});
  return d % 64 == 0 ? heads.contiguous() : in_corner(heads, count, padded_head(check, d));
}

TransformerInference::PaddedHeads TransformerInference::add_padding(const Tensor& q, const Tensor& k, const Tensor& v) {
  ArgumentChecks check(accelerator_, "add_padding");
  check.one_of("q", q, float_dtypes);
  check.rank("q", q, 4, "[B, nh, S, d]");
  check.rank("k", k, 4, "[B, nh, K, d]");
  const int64_t keys = k.size(2);
  const Shape shape{q.size(0), q.size(1), keys, q.size(3)};
  check.tensor("k", k, q.dtype(), shape);
  check.tensor("v", v, q.dtype(), shape);
  check.require(keys <= 128, "k has " + std::to_string(keys) + " positions, expected at most 128");
  const int64_t size = padded_head(check, q.size(3));
  return {in_corner(q, q.size(2), size), in_corner(k, 128, size), in_corner(v, 128, size)};
}

TransformerInference::PaddedHeads TransformerInference::pad_transform(const Tensor& q, const Tensor& k, const Tensor& v,
                                                                      int heads, bool add_padding) {
  ArgumentChecks check(accelerator_, "pad_transform");
  check.one_of("q", q, float_dtypes);
  check.rank("q", q, 3, "[B, S, heads * d]");
  check_heads(check, "q", q, heads);
  check.rank("k", k, 3, "[B, K, heads * d]");
  const Shape shape{q.size(0), k.size(1), q.size(2)};
  check.tensor("k", k, q.dtype(), shape);
  check.tensor("v", v, q.dtype(), shape);
  const Tensor queries = by_heads(q, heads), keys = by_heads(k, heads), values = by_heads(v, heads);
  if (add_padding) return this->add_padding(queries, keys, values);
  return {queries.contiguous(), keys.contiguous(), values.contiguous()};
}

}  // namespace anyaccel::ops
