// Cases of the fused ops: norm_linear, norm_gated_linear, norm_qkv_rope, and the last two with quantized weights. A driver need not
// have any.
#include <algorithm>
#include <cmath>

#include "conformance/product_reference.h"

namespace anyaccel::conformance {
namespace fused_group {
namespace {

constexpr double eps = 1e-5;

// A product's limit (product_cases.cpp), and the rounding of the norm, which enters every term.
constexpr double factor = 290 * 0x1p-24;

struct Sizes {
  int64_t rows, outputs, inputs;
};
constexpr Sizes sizes[] = {{1, 1, 1},   {1, 17, 70},  {1, 64, 256}, {2, 64, 128}, {3, 17, 70},
                           {5, 65, 33}, {8, 48, 192}, {9, 32, 64},  {16, 32, 64}, {40, 48, 260}};

std::string text(const Sizes& s, int32_t x, int32_t w, bool full) {
  return "M " + std::to_string(s.rows) + ", N " + std::to_string(s.outputs) + ", K " + std::to_string(s.inputs) +
         ", x " + dtype_text(x) + ", w " + dtype_text(w) + (full ? ", norm's weight, bias" : "");
}

size_t count(int64_t a, int64_t b) { return static_cast<size_t>(a * b); }

// rms_norm of the rows of x [M,K].
Values normed(const OpTensor& x, const OpTensor* weight) {
  const auto width = static_cast<size_t>(x.shape()[1]);
  Values result = x.given();
  for (size_t row = 0; row < result.size(); row += width) {
    double square = 0;
    for (size_t j = 0; j < width; ++j) square += result[row + j] * result[row + j];
    const double scale = 1 / std::sqrt(square / static_cast<double>(width) + eps);
    for (size_t j = 0; j < width; ++j) result[row + j] *= scale * (weight ? weight->given()[j] : 1);
  }
  return result;
}

// Of a row whose elements are 1 or -1, weights whose products with it are not near the middle of two bf16 numbers, so that every
// implementation rounds the norm's result to the same ones.
Values signs(int64_t rows, int64_t inputs) {
  Values values = numbers(count(rows, inputs), 22);
  for (double& value : values) value = value < 0 ? -1 : 1;
  return values;
}
Values between_bf16(int64_t inputs) {
  Values values;
  for (int64_t j = 0; j < inputs; ++j) {
    values.push_back(1 + (static_cast<double>(j % 5) + (j % 2 == 0 ? 0.3 : 0.7)) * 0x1p-7);
  }
  return values;
}
Values rounded_to_bf16(Values values) {
  for (double& value : values) value = std::nearbyint(value * 0x1p7) * 0x1p-7;  // of magnitudes from 1 to 2
  return values;
}

// Rows of Q8_0 blocks [N, K / 32 * 34] whose scale is 1/64, and what they decode to.
Values blocks(int64_t rows, int64_t inputs, int seed) {
  Values bytes;
  const Values values = numbers(count(rows, inputs), seed, 1);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 32 == 0) bytes.insert(bytes.end(), {0x00, 0x24});
    bytes.push_back(static_cast<double>(static_cast<int>(std::lround(values[i] * 50)) & 255));
  }
  return bytes;
}
Values decoded(const OpTensor& w) {
  const Values& bytes = w.given();
  Values values;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 34 > 1) values.push_back((bytes[i] < 128 ? bytes[i] : bytes[i] - 256) / 64);
  }
  return values;
}
// Each value of the norm may be rounded to 127ths of the largest one of 32, and weights to bf16.
constexpr double rounded_factor = 1.0 / 64;

void norm_linear(const Context& c) {
  OpRun op(c, "norm_linear", {.factor = factor, .scale_text = "sum of |norm(x) w| and |bias|"});
  aa_norm_linear_params params{};
  params.eps = static_cast<float>(eps);
  params.normed = AA_DTYPE_F32;
  for (const int32_t x_dtype : float_dtypes) {
    for (const int32_t w_dtype : float_dtypes) {
      for (const Sizes& s : sizes) {
        for (const bool full : {false, true}) {
          OpTensor x(c, x_dtype, {s.rows, s.inputs}, numbers(count(s.rows, s.inputs), 1), full ? dense : padded);
          OpTensor norm(c, w_dtype, {s.inputs}, numbers(count(s.inputs, 1), 2));
          OpTensor w(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 3, 1),
                     full ? dense : padded);
          OpTensor bias(c, w_dtype, {s.outputs}, numbers(count(s.outputs, 1), 4));
          OpTensor out(c, full ? AA_DTYPE_F32 : x_dtype, {s.rows, s.outputs}, {}, full ? dense : padded);
          if (!op.run({out.view(), x.view(), full ? norm.view() : absent, w.view(), full ? bias.view() : absent},
                      params)) {
            continue;
          }
          Sum sum = product(normed(x, full ? &norm : nullptr), w);
          if (full) add_to(sum, bias.given());
          op.compare(out, sum.value, text(s, x_dtype, w_dtype, full), sum.magnitude);
          op.unchanged(x, "x");
        }
      }
    }
  }
  op.finish();
}

void norm_gated_linear(const Context& c) {
  OpRun op(c, "norm_gated_linear",
           {.relative = 1e-5, .factor = factor, .scale_text = "2.2 (sum of |norm(x) w_gate|) (sum of |norm(x) w_up|)"});
  aa_norm_activation_params params{};
  params.eps = static_cast<float>(eps);
  params.kind = AA_ACTIVATION_SILU;
  params.normed = AA_DTYPE_F32;
  for (const int32_t w_dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      for (const bool full : {false, true}) {
        OpTensor x(c, AA_DTYPE_F32, {s.rows, s.inputs}, numbers(count(s.rows, s.inputs), 5), full ? dense : padded);
        OpTensor norm(c, w_dtype, {s.inputs}, numbers(count(s.inputs, 1), 6));
        OpTensor gate(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 7, 1));
        OpTensor up(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 8, 1),
                    full ? dense : padded);
        OpTensor gate_bias(c, w_dtype, {s.outputs}, numbers(count(s.outputs, 1), 9));
        OpTensor up_bias(c, w_dtype, {s.outputs}, numbers(count(s.outputs, 1), 10));
        OpTensor out(c, AA_DTYPE_F32, {s.rows, s.outputs}, {}, full ? padded : dense);
        if (!op.run({out.view(), x.view(), full ? norm.view() : absent, gate.view(), up.view(),
                     full ? gate_bias.view() : absent, full ? up_bias.view() : absent},
                    params)) {
          continue;
        }
        const Values rows = normed(x, full ? &norm : nullptr);
        Sum left = product(rows, gate);
        Sum right = product(rows, up);
        if (full) {
          add_to(left, gate_bias.given());
          add_to(right, up_bias.given());
        }
        Values expected;
        Values scale;
        for (size_t i = 0; i < left.value.size(); ++i) {
          const double g = left.value[i];
          expected.push_back(g / (1 + std::exp(-g)) * right.value[i]);
          scale.push_back(2.2 * left.magnitude[i] * right.magnitude[i]);
        }
        op.compare(out, expected, text(s, AA_DTYPE_F32, w_dtype, full), scale);
        op.unchanged(x, "x");
      }
    }
  }
  op.finish();
}

constexpr Sizes rounded_sizes[] = {{1, 17, 64}, {1, 64, 256}, {2, 33, 64}, {3, 17, 72}, {8, 40, 192}, {17, 32, 64}};

// With a norm's result of bf16. A driver that keeps F32 there fails.
void norm_linear_rounds(const Context& c) {
  OpRun op(c, "norm_linear", {.factor = factor, .scale_text = "sum of |norm(x) w|"});
  aa_norm_linear_params params{};
  params.eps = static_cast<float>(eps);
  params.normed = AA_DTYPE_BF16;
  for (const int32_t w_dtype : float_dtypes) {
    for (const Sizes& s : rounded_sizes) {
      OpTensor x(c, AA_DTYPE_F32, {s.rows, s.inputs}, signs(s.rows, s.inputs));
      OpTensor norm(c, AA_DTYPE_F32, {s.inputs}, between_bf16(s.inputs));
      OpTensor w(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 3, 1));
      OpTensor out(c, AA_DTYPE_F32, {s.rows, s.outputs}, {});
      if (!op.run({out.view(), x.view(), norm.view(), w.view(), absent}, params)) continue;
      const Sum sum = product(rounded_to_bf16(normed(x, &norm)), w);
      op.compare(out, sum.value, text(s, AA_DTYPE_F32, w_dtype, false), sum.magnitude);
    }
  }
  op.finish();
}

void norm_gated_linear_rounds(const Context& c) {
  OpRun op(c, "norm_gated_linear",
           {.relative = 1e-5, .factor = factor, .scale_text = "(sum of |norm(x) w_gate|) (sum of |norm(x) w_up|)"});
  aa_norm_activation_params params{};
  params.eps = static_cast<float>(eps);
  params.kind = AA_ACTIVATION_RELU;
  params.normed = AA_DTYPE_BF16;
  for (const int32_t w_dtype : float_dtypes) {
    for (const Sizes& s : rounded_sizes) {
      OpTensor x(c, AA_DTYPE_F32, {s.rows, s.inputs}, signs(s.rows, s.inputs));
      OpTensor norm(c, AA_DTYPE_F32, {s.inputs}, between_bf16(s.inputs));
      OpTensor gate(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 7, 1));
      OpTensor up(c, w_dtype, {s.outputs, s.inputs}, numbers(count(s.outputs, s.inputs), 8, 1));
      OpTensor out(c, AA_DTYPE_F32, {s.rows, s.outputs}, {});
      if (!op.run({out.view(), x.view(), norm.view(), gate.view(), up.view(), absent, absent}, params)) continue;
      const Values rows = rounded_to_bf16(normed(x, &norm));
      const Sum left = product(rows, gate), right = product(rows, up);
      Values expected, scale;
      for (size_t i = 0; i < left.value.size(); ++i) {
        expected.push_back(std::max(left.value[i], 0.0) * right.value[i]);
        scale.push_back(left.magnitude[i] * right.magnitude[i]);
      }
      op.compare(out, expected, text(s, AA_DTYPE_F32, w_dtype, false), scale);
    }
  }
  op.finish();
}

void norm_quantized_gated_linear(const Context& c, aa_quantized_rounding rounding) {
  const bool rounds = rounding == AA_QUANTIZED_ROUNDED;
  OpRun op(c, "norm_quantized_gated_linear",
           {.relative = 1e-5,
            .factor = rounds ? 2 * rounded_factor : factor,
            .scale_text = "2.2 (sum of |norm(x) w_gate|) (sum of |norm(x) w_up|)"});
  aa_norm_quantized_params params{};
  params.eps = static_cast<float>(eps);
  params.format = AA_BLOCK_Q8_0;
  params.rounding = rounding;
  params.kind = AA_ACTIVATION_SILU;
  for (const Sizes& s : {Sizes{1, 33, 256}, Sizes{3, 17, 64}, Sizes{8, 40, 512}, Sizes{17, 32, 256}}) {
    for (const bool full : {false, true}) {
      OpTensor x(c, AA_DTYPE_F32, {s.rows, s.inputs}, numbers(count(s.rows, s.inputs), 5), full ? dense : padded);
      OpTensor norm(c, AA_DTYPE_BF16, {s.inputs}, numbers(count(s.inputs, 1), 6));
      const int64_t bytes = s.inputs / 32 * 34;
      OpTensor gate(c, AA_DTYPE_U8, {s.outputs, bytes}, blocks(s.outputs, s.inputs, 7), of_blocks);
      OpTensor up(c, AA_DTYPE_U8, {s.outputs, bytes}, blocks(s.outputs, s.inputs, 8), of_blocks);
      OpTensor gate_bias(c, AA_DTYPE_F32, {s.outputs}, numbers(count(s.outputs, 1), 9));
      OpTensor up_bias(c, AA_DTYPE_BF16, {s.outputs}, numbers(count(s.outputs, 1), 10));
      OpTensor out(c, AA_DTYPE_F32, {s.rows, s.outputs}, {}, full ? padded : dense);
      if (!op.run({out.view(), x.view(), full ? norm.view() : absent, gate.view(), up.view(),
                   full ? gate_bias.view() : absent, full ? up_bias.view() : absent},
                  params)) {
        continue;
      }
      const Values rows = normed(x, full ? &norm : nullptr);
      Sum left = product(rows, decoded(gate), static_cast<size_t>(s.inputs));
      Sum right = product(rows, decoded(up), static_cast<size_t>(s.inputs));
      if (full) {
        add_to(left, gate_bias.given());
        add_to(right, up_bias.given());
      }
      Values expected;
      Values scale;
      for (size_t i = 0; i < left.value.size(); ++i) {
        const double g = left.value[i];
        expected.push_back(g / (1 + std::exp(-g)) * right.value[i]);
        scale.push_back(2.2 * left.magnitude[i] * right.magnitude[i]);
      }
      op.compare(out, expected, text(s, AA_DTYPE_F32, AA_DTYPE_U8, full), scale);
      op.unchanged(x, "x");
    }
  }
  op.finish();
}

// ---- norm_qkv_rope -----------------------------------------------------------------------------------------------------

struct Heads {
  int64_t tokens, heads, key_heads, size, rotated, inputs;  // `rotated` is R: half of the number of rotated elements
};
constexpr Heads shapes[] = {{1, 1, 1, 2, 1, 3},   {1, 4, 2, 64, 32, 128}, {2, 8, 2, 16, 8, 64},  {5, 4, 4, 20, 6, 33},
                            {3, 6, 2, 32, 5, 70}, {8, 4, 1, 128, 64, 64}, {16, 2, 2, 64, 32, 96}};
constexpr int64_t sequences = 3;
constexpr int64_t slots = 7;

// The tensors of one call.
struct Step {
  Step(const Context& c, const Heads& h, int32_t w_dtype, bool full, const Values& sequence_of, const Values& slot_of,
       bool quantized = false)
      : heads(h),
        q(c, AA_DTYPE_F32, {h.tokens, h.heads, h.size}, {}, full ? dense : padded),
        k_cache(c, w_dtype, {sequences, h.key_heads, slots, h.size},
                numbers(count(sequences * h.key_heads, slots * h.size), 11)),
        v_cache(c, w_dtype, {sequences, h.key_heads, slots, h.size},
                numbers(count(sequences * h.key_heads, slots * h.size), 12), full ? padded : dense),
        x(c, AA_DTYPE_F32, {h.tokens, h.inputs}, numbers(count(h.tokens, h.inputs), 13)),
        norm(c, w_dtype, {h.inputs}, numbers(count(h.inputs, 1), 14)),
        w_q(weight(c, h.heads * h.size, h.inputs, w_dtype, quantized, 15)),
        w_k(weight(c, h.key_heads * h.size, h.inputs, w_dtype, quantized, 16)),
        w_v(weight(c, h.key_heads * h.size, h.inputs, w_dtype, quantized, 17)),
        bias_q(c, w_dtype, {h.heads * h.size}, numbers(count(h.heads, h.size), 18)),
        bias_k(c, w_dtype, {h.key_heads * h.size}, numbers(count(h.key_heads, h.size), 19)),
        bias_v(c, w_dtype, {h.key_heads * h.size}, numbers(count(h.key_heads, h.size), 20)),
        cosine(c, AA_DTYPE_F32, {h.tokens, h.rotated}, turns(h, false), full ? padded : dense),
        sine(c, AA_DTYPE_F32, {h.tokens, h.rotated}, turns(h, true)),
        sequence(c, AA_DTYPE_I32, {h.tokens}, sequence_of),
        positions(c, AA_DTYPE_I32, {h.tokens}, slot_of, full ? spread : dense),
        has_all(full),
        has_blocks(quantized) {}

  static OpTensor weight(const Context& c, int64_t rows, int64_t inputs, int32_t dtype, bool quantized, int seed) {
    if (quantized) return OpTensor(c, AA_DTYPE_U8, {rows, inputs / 32 * 34}, blocks(rows, inputs, seed), of_blocks);
    return OpTensor(c, dtype, {rows, inputs}, numbers(count(rows, inputs), seed, 1));
  }
  static Values turns(const Heads& h, bool sine) {
    Values angles = numbers(count(h.tokens, h.rotated), 21, 3);
    for (double& angle : angles) angle = sine ? std::sin(angle) : std::cos(angle);
    return angles;
  }
  std::vector<aa_tensor> tensors() const {
    const auto maybe = [&](const OpTensor& tensor) { return has_all ? tensor.view() : absent; };
    return {q.view(),      k_cache.view(), v_cache.view(), x.view(),        maybe(norm),
            w_q.view(),    maybe(bias_q),  w_k.view(),     maybe(bias_k),   w_v.view(),
            maybe(bias_v), cosine.view(),  sine.view(),    sequence.view(), positions.view()};
  }
  Sum projected(const OpTensor& w, const OpTensor& bias) const {
    Sum sum = product(normed(x, has_all ? &norm : nullptr), has_blocks ? decoded(w) : w.given(),
                      static_cast<size_t>(heads.inputs));
    if (has_all) add_to(sum, bias.given());
    return sum;
  }
  // Rotates as the op "rope" does; the magnitudes are rotated too.
  void rotate(Sum& sum, int64_t of_heads, bool interleaved) const {
    const auto r = static_cast<size_t>(heads.rotated);
    const auto size = static_cast<size_t>(heads.size);
    for (size_t head = 0; head < count(heads.tokens, of_heads); ++head) {
      const size_t token = head / static_cast<size_t>(of_heads);
      for (size_t i = 0; i < r; ++i) {
        const size_t first = head * size + (interleaved ? 2 * i : i);
        const size_t second = head * size + (interleaved ? 2 * i + 1 : i + r);
        const double cos = cosine.given()[token * r + i], sin = sine.given()[token * r + i];
        const double a = sum.value[first], b = sum.value[second];
        sum.value[first] = a * cos - b * sin;
        sum.value[second] = b * cos + a * sin;
        sum.magnitude[first] = sum.magnitude[second] = sum.magnitude[first] + sum.magnitude[second];
      }
    }
  }
  // Returns the cache after keys or values of every token in range were written, and the magnitudes of those.
  Sum written(const OpTensor& cache, const Sum& rows) const {
    Sum result{cache.given(), Values(cache.given().size())};
    const auto size = static_cast<size_t>(heads.size);
    for (size_t t = 0; t < static_cast<size_t>(heads.tokens); ++t) {
      const double b = sequence.given()[t], slot = positions.given()[t];
      if (b < 0 || b >= sequences || slot < 0 || slot >= slots) continue;
      for (size_t h = 0; h < static_cast<size_t>(heads.key_heads); ++h) {
        const auto row =
            (static_cast<size_t>(b) * static_cast<size_t>(heads.key_heads) + h) * slots + static_cast<size_t>(slot);
        const size_t from = (t * static_cast<size_t>(heads.key_heads) + h) * size;
        for (size_t d = 0; d < size; ++d) {
          result.value[row * size + d] = rows.value[from + d];
          result.magnitude[row * size + d] = rows.magnitude[from + d];
        }
      }
    }
    return result;
  }

  Heads heads;
  OpTensor q, k_cache, v_cache, x, norm, w_q, w_k, w_v, bias_q, bias_k, bias_v, cosine, sine, sequence, positions;
  bool has_all, has_blocks;
};

constexpr Limit rope_limit{
    .absolute = 1e-7, .factor = factor, .scale_text = "sum of |norm(x) w| and |bias| over the elements of a pair"};

void norm_qkv_rope(const Context& c) {
  OpRun op(c, "norm_qkv_rope", rope_limit);
  for (const int32_t w_dtype : float_dtypes) {
    for (const Heads& h : shapes) {
      for (const int32_t interleaved : {0, 1}) {
        for (const bool full : {false, true}) {
          Values which, where;
          for (int64_t t = 0; t < h.tokens; ++t) {
            which.push_back(static_cast<double>(t % sequences));
            where.push_back(static_cast<double>((t * 5 + t / (sequences * slots)) % slots));
          }
          if (h.tokens > 2)
            which.back() = which[0], where.back() = where[0];  // the last token takes the first one's slot
          Step step(c, h, w_dtype, full, which, where);
          aa_norm_rope_params params{};
          params.struct_size = sizeof(params);
          params.eps = static_cast<float>(eps);
          params.interleaved = interleaved;
          params.normed = AA_DTYPE_F32;
          if (!op.run(step.tensors(), &params, sizeof(params), "", true)) continue;
          const std::string what = std::to_string(h.tokens) + " tokens, heads of " + std::to_string(h.size) + ", w " +
                                   dtype_text(w_dtype) + (interleaved ? ", interleaved" : "") +
                                   (full ? ", norm's weight, biases" : "");
          Sum queries = step.projected(step.w_q, step.bias_q);
          step.rotate(queries, h.heads, interleaved != 0);
          op.compare(step.q, queries.value, "q, " + what, queries.magnitude);
          Sum keys = step.projected(step.w_k, step.bias_k);
          step.rotate(keys, h.key_heads, interleaved != 0);
          keys = step.written(step.k_cache, keys);
          op.compare(step.k_cache, keys.value, "k_cache, " + what, keys.magnitude);
          const Sum values = step.written(step.v_cache, step.projected(step.w_v, step.bias_v));
          op.compare(step.v_cache, values.value, "v_cache, " + what, values.magnitude);
          op.unchanged(step.x, "x");
        }
      }
    }
  }
  op.finish();
}

void norm_qkv_rope_rounds(const Context& c) {
  OpRun op(c, "norm_qkv_rope", rope_limit);
  for (const int32_t w_dtype : float_dtypes) {
    for (const Heads& h : {Heads{1, 4, 2, 64, 32, 256}, Heads{3, 2, 1, 32, 5, 64}, Heads{8, 4, 1, 128, 64, 192}}) {
      Values which, where;
      for (int64_t t = 0; t < h.tokens; ++t) {
        which.push_back(static_cast<double>(t % sequences));
        where.push_back(static_cast<double>(t % slots));
      }
      Step step(c, h, w_dtype, false, which, where);
      const OpTensor x(c, AA_DTYPE_F32, {h.tokens, h.inputs}, signs(h.tokens, h.inputs));
      const OpTensor norm(c, AA_DTYPE_F32, {h.inputs}, between_bf16(h.inputs));
      aa_norm_rope_params params{};
      params.struct_size = sizeof(params);
      params.eps = static_cast<float>(eps);
      params.normed = AA_DTYPE_BF16;
      std::vector<aa_tensor> tensors = step.tensors();
      tensors[3] = x.view();
      tensors[4] = norm.view();
      if (!op.run(tensors, &params, sizeof(params), "", true)) continue;
      const Values rows = rounded_to_bf16(normed(x, &norm));
      const std::string what = std::to_string(h.tokens) + " tokens, w " + dtype_text(w_dtype);
      Sum queries = product(rows, step.w_q), keys = product(rows, step.w_k);
      step.rotate(queries, h.heads, false);
      op.compare(step.q, queries.value, "q, " + what, queries.magnitude);
      step.rotate(keys, h.key_heads, false);
      keys = step.written(step.k_cache, keys);
      op.compare(step.k_cache, keys.value, "k_cache, " + what, keys.magnitude);
      const Sum values = step.written(step.v_cache, product(rows, step.w_v));
      op.compare(step.v_cache, values.value, "v_cache, " + what, values.magnitude);
    }
  }
  op.finish();
}

void norm_quantized_qkv_rope(const Context& c, aa_quantized_rounding rounding) {
  Limit limit = rope_limit;
  if (rounding == AA_QUANTIZED_ROUNDED) limit.factor = rounded_factor;
  OpRun op(c, "norm_quantized_qkv_rope", limit);
  aa_norm_quantized_params params{};
  params.struct_size = sizeof(params);
  params.eps = static_cast<float>(eps);
  params.format = AA_BLOCK_Q8_0;
  params.rounding = rounding;
  for (const Heads& h : {Heads{1, 4, 2, 64, 32, 256}, Heads{3, 2, 1, 32, 5, 64}, Heads{8, 4, 1, 128, 64, 512}}) {
    for (const bool full : {false, true}) {
      Values which, where;
      for (int64_t t = 0; t < h.tokens; ++t) {
        which.push_back(static_cast<double>(t % sequences));
        where.push_back(static_cast<double>((t * 5 + t / (sequences * slots)) % slots));
      }
      Step step(c, h, AA_DTYPE_BF16, full, which, where, true);
      params.interleaved = full ? 1 : 0;
      if (!op.run(step.tensors(), &params, sizeof(params), "", true)) continue;
      const std::string what = std::to_string(h.tokens) + " tokens, heads of " + std::to_string(h.size) + ", " +
                               (full ? "interleaved, norm's weight, biases, " : "") +
                               (rounding == AA_QUANTIZED_ROUNDED ? "rounded" : "exact");
      Sum queries = step.projected(step.w_q, step.bias_q);
      step.rotate(queries, h.heads, full);
      op.compare(step.q, queries.value, "q, " + what, queries.magnitude);
      Sum keys = step.projected(step.w_k, step.bias_k);
      step.rotate(keys, h.key_heads, full);
      keys = step.written(step.k_cache, keys);
      op.compare(step.k_cache, keys.value, "k_cache, " + what, keys.magnitude);
      const Sum values = step.written(step.v_cache, step.projected(step.w_v, step.bias_v));
      op.compare(step.v_cache, values.value, "v_cache, " + what, values.magnitude);
      op.unchanged(step.x, "x");
    }
  }
  op.finish();
}

void norm_qkv_rope_stays_in_its_tensors(const Context& c) {
  // Positions and sequences out of range: an error, or nothing written for those tokens.
  OpRun op(c, "norm_qkv_rope", rope_limit);
  for (const int32_t w_dtype : float_dtypes) {
    Step step(c, {4, 4, 2, 64, 32, 128}, w_dtype, false, {0, 3, -1, 1}, {slots, 0, 2, 6});
    aa_norm_rope_params params{};
    params.struct_size = sizeof(params);
    params.eps = static_cast<float>(eps);
    params.normed = AA_DTYPE_F32;
    aa_status* status = nullptr;
    if (!op.run(step.tensors(), &params, sizeof(params), "", false, &status)) continue;
    if (status) {
      c.error(status, {AA_OUT_OF_RANGE}, "\"norm_qkv_rope\" of positions out of range");
      op.unchanged(step.k_cache, "its keys");
      op.unchanged(step.v_cache, "its values");
      continue;
    }
    Sum keys = step.projected(step.w_k, step.bias_k);
    step.rotate(keys, 2, false);
    keys = step.written(step.k_cache, keys);
    op.compare(step.k_cache, keys.value, "k_cache", keys.magnitude);
    const Sum values = step.written(step.v_cache, step.projected(step.w_v, step.bias_v));
    op.compare(step.v_cache, values.value, "v_cache", values.magnitude);
    step.q.found();
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.norm_linear", "products_of_normed_rows", norm_linear},
    {"op.norm_linear", "rounds_the_norm", norm_linear_rounds},
    {"op.norm_gated_linear", "products_of_normed_rows", norm_gated_linear},
    {"op.norm_gated_linear", "rounds_the_norm", norm_gated_linear_rounds},
    {"op.norm_quantized_gated_linear", "exact",
     [](const Context& c) { norm_quantized_gated_linear(c, AA_QUANTIZED_EXACT); }},
    {"op.norm_quantized_gated_linear", "rounded",
     [](const Context& c) { norm_quantized_gated_linear(c, AA_QUANTIZED_ROUNDED); }},
    {"op.norm_qkv_rope", "by_its_parts", norm_qkv_rope},
    {"op.norm_qkv_rope", "rounds_the_norm", norm_qkv_rope_rounds},
    {"op.norm_quantized_qkv_rope", "exact", [](const Context& c) { norm_quantized_qkv_rope(c, AA_QUANTIZED_EXACT); }},
    {"op.norm_quantized_qkv_rope", "rounded",
     [](const Context& c) { norm_quantized_qkv_rope(c, AA_QUANTIZED_ROUNDED); }},
    {"op.norm_qkv_rope", "stays_in_its_tensors", norm_qkv_rope_stays_in_its_tensors},
};

}  // namespace
}  // namespace fused_group

std::span<const Case> fused_cases() { return fused_group::cases; }

}  // namespace anyaccel::conformance
