// Cases of positions, caches of keys and values, and attention.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>

#include "base/block_format.h"
#include "conformance/op_run.h"

namespace anyaccel::conformance {
namespace attention_group {
namespace {

void rope_table(const Context& c) {
  OpRun op(c, "rope_table", {.absolute = 1e-6, .relative = 1e-6});
  for (const int64_t r : {1, 16, 33}) {
    for (const float scale : {1.0f, 1.25f}) {
      const Values positions = {0, 1, 2, 77, 4095, 131071};
      Values frequencies;
      for (int64_t i = 0; i < r; ++i) {
        frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(r)));
      }
      OpTensor inv_freq(c, AA_DTYPE_F32, {r}, frequencies);
      OpTensor where(c, AA_DTYPE_I32, {6}, positions, scale == 1 ? dense : spread);
      OpTensor cosine(c, AA_DTYPE_F32, {6, r}, {}, scale == 1 ? dense : padded);
      OpTensor sine(c, AA_DTYPE_F32, {6, r});
      aa_rope_table_params params{};
      params.scale = scale;
      if (!op.run({cosine.view(), sine.view(), inv_freq.view(), where.view()}, params)) continue;
      Values cosines;
      Values sines;
      for (const double position : positions) {
        for (const double frequency : inv_freq.given()) {
          const float angle = static_cast<float>(position) * static_cast<float>(frequency);
          cosines.push_back(std::cos(static_cast<double>(angle)) * scale);
          sines.push_back(std::sin(static_cast<double>(angle)) * scale);
        }
      }
      op.compare(cosine, cosines, "cos");
      op.compare(sine, sines, "sin");
    }
  }
  op.finish();
}

Values rotated(const Values& x, const Values& cosine, const Values& sine, size_t tokens, size_t heads, size_t size,
               size_t r, bool interleaved) {
  Values result = x;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t head = 0; head < heads; ++head) {
      for (size_t i = 0; i < r; ++i) {
        const size_t base = (t * heads + head) * size;
        const size_t first = base + (interleaved ? 2 * i : i);
        const size_t second = base + (interleaved ? 2 * i + 1 : i + r);
        result[first] = x[first] * cosine[t * r + i] - x[second] * sine[t * r + i];
        result[second] = x[second] * cosine[t * r + i] + x[first] * sine[t * r + i];
      }
    }
  }
  return result;
}

void rope(const Context& c) {
  OpRun op(c, "rope", {.absolute = 1e-6, .relative = 1e-6});
  constexpr size_t tokens = 3;
  constexpr size_t heads = 4;
  constexpr size_t key_heads = 2;
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t interleaved : {0, 1}) {
      for (const auto& sizes : {std::pair<size_t, size_t>{8, 4}, {64, 32}, {20, 6}}) {
        const size_t size = sizes.first;
        const size_t r = sizes.second;
        for (const auto& [with_key, layout] : {std::pair{true, padded}, {true, dense}, {false, padded}}) {
          const auto d = static_cast<int64_t>(size);
          Values cosines;
          Values sines;
          for (const double angle : numbers(tokens * r, 1, 3)) {
            cosines.push_back(std::cos(angle));
            sines.push_back(std::sin(angle));
          }
          OpTensor cosine(c, AA_DTYPE_F32, {tokens, static_cast<int64_t>(r)}, cosines);
          OpTensor sine(c, AA_DTYPE_F32, {tokens, static_cast<int64_t>(r)}, sines);
          OpTensor q(c, dtype, {tokens, heads, d}, numbers(tokens * heads * size, 2), interleaved ? layout : dense);
          OpTensor k(c, dtype, {tokens, key_heads, d}, numbers(tokens * key_heads * size, 3), layout);
          aa_rope_params params{};
          params.interleaved = interleaved;
          if (!op.run({q.view(), with_key ? k.view() : absent, cosine.view(), sine.view()}, params)) continue;
          const std::string what = "heads of " + std::to_string(size) + (interleaved ? ", interleaved" : "");
          const auto turn = [&](const OpTensor& x, size_t count) {
            return rotated(x.given(), cosine.given(), sine.given(), tokens, count, size, r, interleaved != 0);
          };
          op.compare(q, turn(q, heads), "q, " + what);
          op.compare(k, with_key ? turn(k, key_heads) : k.given(), "k, " + what);
        }
      }
    }
  }
  op.finish();
}

void cache_write(const Context& c) {
  OpRun op(c, "cache_write");
  constexpr size_t heads = 2;
  constexpr size_t slots = 6;
  constexpr size_t size = 5;
  for (const int32_t dtype : float_dtypes) {
    for (const auto& [source, layout] :
         {std::pair{AA_DTYPE_F32, padded}, {AA_DTYPE_BF16, padded}, {AA_DTYPE_F16, padded}, {AA_DTYPE_BF16, dense}}) {
      const Shape cache_shape{3, heads, slots, size};
      const Values sequence = {0, 2, 2, 0, 2};
      const Values positions = {5, 0, 3, 1, 3};  // the last token takes the slot of the third
      OpTensor k_cache(c, dtype, cache_shape, numbers(count_of(cache_shape), 4), dense);
      OpTensor v_cache(c, dtype, cache_shape, numbers(count_of(cache_shape), 5), layout);
      OpTensor k(c, source, {5, heads, size}, numbers(5 * heads * size, 6), layout);
      OpTensor v(c, source, {5, heads, size}, numbers(5 * heads * size, 7));
      OpTensor which(c, AA_DTYPE_I32, {5}, sequence);
      OpTensor where(c, AA_DTYPE_I32, {5}, positions);
      if (!op.run({k_cache.view(), v_cache.view(), k.view(), v.view(), which.view(), where.view()})) continue;
      for (const auto& [cache, x] : {std::pair{&k_cache, &k}, {&v_cache, &v}}) {
        Values expected = cache->given();
        for (size_t t = 0; t < 5; ++t) {
          for (size_t h = 0; h < heads; ++h) {
            for (size_t i = 0; i < size; ++i) {
              const size_t row =
                  (static_cast<size_t>(sequence[t]) * heads + h) * slots + static_cast<size_t>(positions[t]);
              expected[row * size + i] = x->given()[(t * heads + h) * size + i];
            }
          }
        }
        op.compare(*cache, expected, std::string("from ") + dtype_text(source));
      }
    }
  }
  op.finish();
}

struct Attention {
  int64_t heads, key_heads, size, slots;
  aa_attention_params params;
  Values sequence, positions;
  Values slopes = {}, sinks = {};  // of all heads, or empty
};

Values attended(const Attention& a, const Values& q, const Values& k, const Values& v) {
  const auto heads = static_cast<size_t>(a.heads);
  const auto key_heads = static_cast<size_t>(a.key_heads);
  const auto size = static_cast<size_t>(a.size);
  const auto slots = static_cast<size_t>(a.slots);
  Values result;
  for (size_t t = 0; t < a.sequence.size(); ++t) {
    const auto end = static_cast<size_t>(a.positions[t]) + 1;
    const auto window = static_cast<size_t>(a.params.window);
    const size_t begin = window > 0 && end > window ? end - window : 0;
    for (size_t h = 0; h < heads; ++h) {
      const double* query = q.data() + (t * heads + h) * size;
      const size_t rows = (static_cast<size_t>(a.sequence[t]) * key_heads + h / (heads / key_heads)) * slots;
      Values weights;
      double largest = -std::numeric_limits<double>::infinity();
      for (size_t j = begin; j < end; ++j) {
        double score = 0;
        for (size_t i = 0; i < size; ++i) score += query[i] * k[(rows + j) * size + i];
        score *= a.params.scale;
        if (a.params.softcap > 0) score = a.params.softcap * std::tanh(score / a.params.softcap);
        if (!a.slopes.empty()) score += a.slopes[h] * (static_cast<double>(j) - a.positions[t]);
        weights.push_back(score);
        largest = std::max(largest, score);
      }
      if (!a.sinks.empty()) largest = std::max(largest, a.sinks[h]);
      double total = a.sinks.empty() ? 0 : std::exp(a.sinks[h] - largest);
      for (double& weight : weights) total += weight = std::exp(weight - largest);
      for (size_t i = 0; i < size; ++i) {
        double sum = 0;
        for (size_t j = begin; j < end; ++j) sum += weights[j - begin] * v[(rows + j) * size + i];
        result.push_back(sum / total);
      }
    }
  }
  return result;
}

// An optional tensor [Hq].
struct OfHeads {
  OfHeads(const Context& c, const Values& values) {
    if (!values.empty()) tensor.emplace(c, AA_DTYPE_F32, Shape{static_cast<int64_t>(values.size())}, values);
  }
  aa_tensor view() { return tensor ? tensor->view() : absent; }

  std::optional<OpTensor> tensor;
};

// How the rounding of queries and of weights to a type moves a result, in units of that rounding.
Values effect_of_rounding(const Attention& a, const Values& q, const Values& k) {
  const auto size = static_cast<size_t>(a.size);
  const auto range = [](const Values& values) {  // NaNs are not seen
    double largest = 0;
    for (const double value : values) largest = std::max(largest, std::isnan(value) ? 0 : std::fabs(value));
    return largest;
  };
  // A score is off by this much at most, and a weight by a share that is as large; values are below 2.
  const double score = static_cast<double>(a.size) * range(q) * range(k) * a.params.scale;
  return Values(a.sequence.size() * static_cast<size_t>(a.heads) * size, 2 * (score + 1));
}

// `type`: of queries, caches and output; AA_DTYPE_NONE: of several.
void check_attention(const Context& c, int32_t type) {
  OpRun op(c, "attention",
           type == AA_DTYPE_NONE ? Limit{.absolute = 2e-5, .relative = 1e-5}
                                 : Limit{.absolute = 2e-5,
                                         .relative = 1e-5,
                                         .factor = 2 * unit_roundoff(type),
                                         .scale_text = "largest value (largest score + 1)"});
  const auto params = [](float scale, int32_t window, float softcap) {
    aa_attention_params p{};
    p.scale = scale;
    p.window = window;
    p.softcap = softcap;
    return p;
  };
  const Attention shapes[] = {
      {1, 1, 1, 1, params(1, 0, 0), {0}, {0}},
      {4, 2, 16, 9, params(0.25f, 0, 0), {1}, {8}},                                      // one new token
      {4, 1, 64, 130, params(0.125f, 0, 0), {0, 1, 0}, {129, 64, 3}},                    // a batch of them
      {2, 2, 20, 40, params(0.3f, 0, 0), {0, 0, 0, 0, 0, 1, 1}, {0, 1, 2, 3, 4, 0, 1}},  // two prompts
      {8, 2, 32, 48, params(0.18f, 7, 0), {1, 0, 1}, {47, 5, 6}},                        // a window
      {4, 4, 33, 24, params(0.2f, 0, 2), {0, 1}, {23, 11}},                              // a soft cap
      {2, 1, 128, 70, params(0.09f, 33, 5), {0, 0, 1, 1}, {32, 33, 69, 0}},
      {4, 2, 32, 80, params(0.18f, 0, 0), {1, 0, 0, 0}, {79, 4, 5, 6}, {0.25, 0.0625, 0, 0.5}},  // ALiBi
      {4, 1, 16, 50, params(0.25f, 9, 0), {0, 1, 1}, {49, 0, 3}, {}, {0.5, -2, 3, 40}},          // sinks
  };
  for (const auto& [dtype, layout] :
       {std::pair{AA_DTYPE_F32, padded}, {AA_DTYPE_BF16, padded}, {AA_DTYPE_F16, padded}, {AA_DTYPE_BF16, dense}}) {
    if (type != AA_DTYPE_NONE && dtype != type) continue;
    for (const Attention& a : shapes) {
      const auto tokens = static_cast<int64_t>(a.sequence.size());
      const Shape q_shape{tokens, a.heads, a.size};
      const Shape cache_shape{2, a.key_heads, a.slots, a.size};
      OpTensor q(c, a.slots % 2 && type == AA_DTYPE_NONE ? AA_DTYPE_F32 : dtype, q_shape, numbers(count_of(q_shape), 8),
                 layout);
      // Slots that no token sees hold NaN.
      const auto seen = [&](unsigned seed) {
        Values values = numbers(count_of(cache_shape), seed);
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t j = 0; j < a.slots; ++j) {
            bool visible = false;
            for (size_t t = 0; t < a.sequence.size(); ++t) {
              const auto position = static_cast<int64_t>(a.positions[t]);
              visible |= static_cast<int64_t>(a.sequence[t]) == b && j <= position &&
                         (a.params.window == 0 || j > position - a.params.window);
            }
            for (int64_t h = 0; h < a.key_heads && !visible; ++h) {
              for (int64_t i = 0; i < a.size; ++i) {
                values[static_cast<size_t>(((b * a.key_heads + h) * a.slots + j) * a.size + i)] = std::nan("");
              }
            }
          }
        }
        return values;
      };
      OpTensor k(c, dtype, cache_shape, seen(9), a.size % 2 ? layout : dense);
      OpTensor v(c, dtype, cache_shape, seen(10));
      OpTensor which(c, AA_DTYPE_I32, {tokens}, a.sequence);
      OpTensor where(c, AA_DTYPE_I32, {tokens}, a.positions);
      OpTensor out(c, type == AA_DTYPE_NONE ? AA_DTYPE_F32 : type, q_shape, {},
                   a.size % 2 && layout.gap != 0 ? spread : dense);
      OfHeads slopes(c, a.slopes), sinks(c, a.sinks);
      if (!op.run({out.view(), q.view(), k.view(), v.view(), which.view(), where.view(), slopes.view(), sinks.view()},
                  a.params)) {
        continue;
      }
      op.compare(out, attended(a, q.given(), k.given(), v.given()),
                 std::to_string(a.heads) + " heads of " + std::to_string(a.size) + ", cache of " +
                     std::to_string(a.slots) + " slots of " + dtype_text(dtype),
                 type == AA_DTYPE_NONE ? Values() : effect_of_rounding(a, q.given(), k.given()));
    }
  }
  op.finish();
}

void attention(const Context& c) { check_attention(c, AA_DTYPE_NONE); }
void attention_of_bf16(const Context& c) { check_attention(c, AA_DTYPE_BF16); }
void attention_of_f16(const Context& c) { check_attention(c, AA_DTYPE_F16); }

// More slots, and more tokens, than 16 bits count.
void attention_of_many(const Context& c) {
  OpRun op(c, "attention", {.absolute = 2e-5, .relative = 1e-5});
  aa_attention_params params{};
  params.scale = 0.5f;
  constexpr int64_t many = 65537;
  const Attention shapes[] = {
      {2, 1, 4, many, params, {0}, {many - 1}},                // one token and a long context
      {1, 1, 4, 2, params, Values(many, 0), Values(many, 1)},  // a long prompt
  };
  for (const Attention& a : shapes) {
    const auto tokens = static_cast<int64_t>(a.sequence.size());
    const Shape q_shape{tokens, a.heads, a.size};
    const Shape cache_shape{1, a.key_heads, a.slots, a.size};
    OpTensor q(c, AA_DTYPE_F32, q_shape, numbers(count_of(q_shape), 8));
    OpTensor k(c, AA_DTYPE_F32, cache_shape, numbers(count_of(cache_shape), 9));
    OpTensor v(c, AA_DTYPE_F32, cache_shape, numbers(count_of(cache_shape), 10));
    OpTensor which(c, AA_DTYPE_I32, {tokens}, a.sequence);
    OpTensor where(c, AA_DTYPE_I32, {tokens}, a.positions);
    OpTensor out(c, AA_DTYPE_F32, q_shape);
    if (!op.run({out.view(), q.view(), k.view(), v.view(), which.view(), where.view(), absent, absent}, a.params)) {
      continue;
    }
    op.compare(out, attended(a, q.given(), k.given(), v.given()),
               std::to_string(tokens) + " tokens, " + std::to_string(a.slots) + " slots");
  }
  op.finish();
}

// ---- caches of 8 bits: rows of blocks of AA_BLOCK_Q8_0, or of floats ----

constexpr size_t block_values = 32;
constexpr size_t block_bytes = 34;

constexpr aa_cache_format cache_formats[] = {AA_CACHE_Q8_0, AA_CACHE_F8_E4M3};

std::string format_text(aa_cache_format format) { return format == AA_CACHE_Q8_0 ? "blocks" : "e4m3"; }

int64_t cached_row_bytes(aa_cache_format format, size_t size) {
  return static_cast<int64_t>(format == AA_CACHE_Q8_0 ? size / block_values * block_bytes : size);
}

double e4m3_value(double byte) {
  const auto bits = static_cast<uint8_t>(static_cast<int>(byte));
  return load(&bits, AA_DTYPE_F8_E4M3);
}

double e4m3_byte(double value) {
  uint8_t bits = 0;
  store(&bits, AA_DTYPE_F8_E4M3, value);
  return bits;
}

Values decoded(aa_cache_format cache_format, const Values& bytes) {
  if (cache_format == AA_CACHE_F8_E4M3) {
    Values values;
    for (const double byte : bytes) values.push_back(e4m3_value(byte));
    return values;
  }
  const BlockFormat& format = *find_block_format(AA_BLOCK_Q8_0);
  std::vector<std::byte> blocks;
  for (const double byte : bytes) blocks.push_back(static_cast<std::byte>(static_cast<int>(byte)));
  std::vector<float> values(blocks.size() / block_bytes * block_values);
  decode_blocks(format, blocks, values);
  return {values.begin(), values.end()};
}

// `rows` rows of values of the size of 1, or in hidden rows NaN. Of blocks: random bytes under scales of a hundredth.
Values random_rows(aa_cache_format format, size_t rows, size_t size, unsigned seed,
                   const std::function<bool(size_t)>& hidden) {
  Values bytes;
  if (format == AA_CACHE_F8_E4M3) {
    const Values values = numbers(rows * size, seed);
    for (size_t i = 0; i < values.size(); ++i) {
      bytes.push_back(hidden(i / size) ? 0x7f : e4m3_byte(values[i]));
    }
    return bytes;
  }
  const Values random = numbers(rows * size, seed, 127);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < size; ++i) {
      if (i % block_values == 0) {
        bytes.push_back(hidden(row) ? 0x00 : 0x1f + static_cast<double>(row % 5));
        bytes.push_back(hidden(row) ? 0x7e : 0x20 + static_cast<double>(row % 3));  // 0.0074 to 0.03
      }
      bytes.push_back(static_cast<double>(static_cast<uint8_t>(static_cast<int8_t>(random[row * size + i]))));
    }
  }
  return bytes;
}

void quantized_cache_write(const Context& c) {
  // A block's values are within half a unit of 1/127 of the largest, but for the roundings of the scale and the quotient. Of
  // floats the bytes are defined.
  OpRun op(c, "quantized_cache_write",
           {.absolute = 0x1p-24, .factor = 0.52 / 127, .scale_text = "largest of the block"});
  constexpr size_t heads = 2;
  constexpr size_t slots = 6;
  for (const aa_cache_format format : cache_formats)
    for (const size_t size : {size_t{32}, size_t{96}}) {
      for (const int32_t dtype : float_dtypes) {
        const int64_t row_bytes = cached_row_bytes(format, size);
        const auto d = static_cast<int64_t>(size);
        const Shape cache_shape{3, heads, slots, row_bytes};
        const Values sequence = {0, 2, 2, 0, 2};
        const Values positions = {5, 0, 3, 1, 3};  // the last token takes the slot of the third
        const Values before = random_rows(format, 3 * heads * slots, size, 4, [](size_t) { return false; });
        OpTensor k_cache(c, AA_DTYPE_U8, cache_shape, before, of_blocks);
        OpTensor v_cache(c, AA_DTYPE_U8, cache_shape, before, {1, 6, 2, "padded"});
        Values given = numbers(5 * heads * size, 6);
        std::fill_n(given.begin(), block_values, 0.0);
        OpTensor k(c, dtype, {5, heads, d}, given, padded);
        OpTensor v(c, dtype, {5, heads, d}, numbers(5 * heads * size, 7, 600), size == 32 ? spread : dense);
        OpTensor which(c, AA_DTYPE_I32, {5}, sequence);
        OpTensor where(c, AA_DTYPE_I32, {5}, positions);
        aa_cache_params params{};
        params.format = format;
        if (!op.run({k_cache.view(), v_cache.view(), k.view(), v.view(), which.view(), where.view()}, params)) continue;
        for (const auto& [cache, x] : {std::pair{&k_cache, &k}, {&v_cache, &v}}) {
          Values expected = decoded(format, before);
          Values scale(expected.size(), 0.0);
          for (size_t t = 0; t < 5; ++t) {
            for (size_t i = 0; i < heads * size; ++i) {
              const size_t row =
                  (static_cast<size_t>(sequence[t]) * heads + i / size) * slots + static_cast<size_t>(positions[t]);
              const size_t at = row * size + i % size;
              expected[at] = x->given()[t * heads * size + i];
              if (format == AA_CACHE_F8_E4M3) {
                expected[at] = rounded(std::clamp(expected[at], -448.0, 448.0), AA_DTYPE_F8_E4M3);
                continue;
              }
              double largest = 0;
              const size_t first = t * heads * size + i / block_values * block_values;
              for (size_t j = 0; j < block_values; ++j) largest = std::max(largest, std::fabs(x->given()[first + j]));
              scale[at] = largest;
            }
          }
          op.compare_values(AA_DTYPE_F32, decoded(format, cache->found()), expected,
                            format_text(format) + " from " + dtype_text(dtype), scale);
        }
      }
    }
  op.finish();
}

void quantized_attention(const Context& c) {
  OpRun op(c, "quantized_attention", {.absolute = 4e-5, .relative = 1e-5});
  const Attention shapes[] = {
      {4, 2, 32, 9, {0, 0.18f, 0, 0}, {1}, {8}},                                       // one new token
      {4, 1, 64, 130, {0, 0.125f, 0, 0}, {0, 1, 0}, {129, 64, 3}},                     // a batch of them
      {2, 2, 96, 40, {0, 0.1f, 0, 0}, {0, 0, 0, 0, 0, 1, 1}, {0, 1, 2, 3, 4, 0, 1}},   // two prompts
      {2, 1, 128, 70, {0, 0.09f, 33, 5}, {0, 0, 1, 1}, {32, 33, 69, 0}},               // a window and a soft cap
      {2, 1, 32, 50, {0, 0.2f, 0, 0}, {0, 1, 1}, {49, 7, 8}, {0.25, 0.125}, {1, -1}},  // ALiBi and sinks
  };
  for (const aa_cache_format format : cache_formats)
    for (const int32_t dtype : float_dtypes) {
      for (const Attention& a : shapes) {
        const auto tokens = static_cast<int64_t>(a.sequence.size());
        const auto size = static_cast<size_t>(a.size);
        const Shape q_shape{tokens, a.heads, a.size};
        const Shape cache_shape{2, a.key_heads, a.slots, cached_row_bytes(format, size)};
        const auto hidden = [&](size_t row) {
          const auto slot = static_cast<int64_t>(row) % a.slots;
          const auto sequence = static_cast<double>(static_cast<int64_t>(row) / (a.slots * a.key_heads));
          for (size_t t = 0; t < a.sequence.size(); ++t) {
            const auto position = static_cast<int64_t>(a.positions[t]);
            if (a.sequence[t] == sequence && slot <= position &&
                (a.params.window == 0 || slot > position - a.params.window)) {
              return false;
            }
          }
          return true;
        };
        const auto rows = static_cast<size_t>(2 * a.key_heads * a.slots);
        OpTensor q(c, dtype, q_shape, numbers(count_of(q_shape), 8), a.size == 96 ? spread : dense);
        OpTensor k(c, AA_DTYPE_U8, cache_shape, random_rows(format, rows, size, 9, hidden), {1, 6, 2, "padded"});
        OpTensor v(c, AA_DTYPE_U8, cache_shape, random_rows(format, rows, size, 10, hidden), of_blocks);
        OpTensor which(c, AA_DTYPE_I32, {tokens}, a.sequence);
        OpTensor where(c, AA_DTYPE_I32, {tokens}, a.positions);
        OpTensor out(c, AA_DTYPE_F32, q_shape);
        aa_quantized_attention_params params{0, a.params.scale, a.params.window, a.params.softcap, format};
        OfHeads slopes(c, a.slopes), sinks(c, a.sinks);
        if (!op.run({out.view(), q.view(), k.view(), v.view(), which.view(), where.view(), slopes.view(), sinks.view()},
                    params)) {
          continue;
        }
        op.compare(out, attended(a, q.given(), decoded(format, k.given()), decoded(format, v.given())),
                   std::to_string(a.heads) + " heads of " + std::to_string(a.size) + ", cache of " +
                       std::to_string(a.slots) + " slots of " + format_text(format));
      }
    }
  op.finish();
}

constexpr Case cases[] = {
    {"op.quantized_cache_write", "nearest_values", quantized_cache_write},
    {"op.quantized_attention", "sees_what_it_may", quantized_attention},
    {"op.rope_table", "of_positions", rope_table},
    {"op.rope", "rotates", rope},
    {"op.cache_write", "in_order", cache_write},
    {"op.attention", "sees_what_it_may", attention},
    {"op.attention", "of_bf16", attention_of_bf16},
    {"op.attention", "of_f16", attention_of_f16},
    {"op.attention", "of_many_slots_and_tokens", attention_of_many},
};

}  // namespace
}  // namespace attention_group

std::span<const Case> attention_cases() { return attention_group::cases; }

}  // namespace anyaccel::conformance
