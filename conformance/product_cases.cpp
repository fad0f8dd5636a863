// Cases of matrix products: linear, linear_multi, gated_linear, and of quantized weights: quantized_linear,
// quantized_embedding and its form for a part of the table.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

#include "base/block_format.h"
#include "conformance/product_reference.h"

namespace anyaccel::conformance {
namespace product_group {
namespace {

// A sum of K products in F32 in any order is off by at most about K 2^-24 times the sum of the products' magnitudes; the
// largest K here is 260.
constexpr Limit product_limit{.factor = 270 * 0x1p-24, .scale_text = "sum of |x w|, |bias| and |residual|"};

Sum product(const OpTensor& x, const OpTensor& w) { return product(x.given(), w); }

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes sizes[] = {{1, 1, 1}, {1, 17, 70}, {1, 64, 256}, {3, 17, 70}, {5, 65, 33}, {16, 32, 64}, {40, 48, 260}};

std::string text(const Sizes& s, int32_t x, int32_t w) {
  return "M " + std::to_string(s.m) + ", N " + std::to_string(s.n) + ", K " + std::to_string(s.k) + ", x " +
         dtype_text(x) + ", w " + dtype_text(w);
}

Values small(size_t count, unsigned seed) { return numbers(count, seed, 1); }

void linear(const Context& c) {
  OpRun op(c, "linear", product_limit);
  for (const int32_t x_dtype : float_dtypes) {
    for (const int32_t w_dtype : float_dtypes) {
      unsigned round = 0;
      for (const Sizes& s : sizes) {
        const auto mn = static_cast<size_t>(s.m * s.n);
        ++round;
        const Layout& x_layout = round % 2 ? dense : padded;
        const Layout& w_layout = round % 3 ? dense : padded;
        const int32_t out_dtype = round % 3 == 1 ? w_dtype : x_dtype;
        OpTensor x(c, x_dtype, {s.m, s.k}, small(static_cast<size_t>(s.m * s.k), 1), x_layout);
        OpTensor w(c, w_dtype, {s.n, s.k}, small(static_cast<size_t>(s.n * s.k), 2), w_layout);
        OpTensor bias(c, w_dtype, {s.n}, small(static_cast<size_t>(s.n), 3));
        OpTensor residual(c, out_dtype, {s.m, s.n}, small(mn, 4), x_layout);
        Sum sum = product(x, w);
        OpTensor plain(c, out_dtype, {s.m, s.n}, {}, w_layout);
        if (op.run({plain.view(), x.view(), w.view(), absent, absent})) {
          op.compare(plain, sum.value, text(s, x_dtype, w_dtype), sum.magnitude);
        }
        add_to(sum, bias.given());
        OpTensor biased(c, out_dtype, {s.m, s.n});
        if (op.run({biased.view(), x.view(), w.view(), bias.view(), absent})) {
          op.compare(biased, sum.value, text(s, x_dtype, w_dtype) + ", bias", sum.magnitude);
        }
        add_to(sum, residual.given());
        OpTensor apart(c, out_dtype, {s.m, s.n}, {}, x_layout);
        if (op.run({apart.view(), x.view(), w.view(), bias.view(), residual.view()})) {
          op.compare(apart, sum.value, text(s, x_dtype, w_dtype) + ", bias, residual", sum.magnitude);
        }
        if (op.run({residual.view(), x.view(), w.view(), bias.view(), residual.view()})) {  // residual is the output
          op.compare(residual, sum.value, text(s, x_dtype, w_dtype) + ", bias, residual in place", sum.magnitude);
        }
        op.unchanged(x, "x");
        op.unchanged(w, "w");
      }
    }
  }
  // A transposed weight: the dimension that is summed over has the larger stride. And nothing to sum over.
  OpTensor x(c, AA_DTYPE_F32, {3, 20}, small(60, 5));
  OpTensor w(c, AA_DTYPE_F32, {9, 20}, small(180, 6));
  Values turned(180);
  for (size_t n = 0; n < 9; ++n) {
    for (size_t k = 0; k < 20; ++k) turned[k * 9 + n] = w.given()[n * 20 + k];
  }
  OpTensor stored(c, AA_DTYPE_F32, {20, 9}, turned);
  aa_tensor view = stored.view();
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  OpTensor out(c, AA_DTYPE_F32, {3, 9});
  const Sum sum = product(x, w);
  if (op.run({out.view(), x.view(), view, absent, absent})) op.compare(out, sum.value, "w transposed", sum.magnitude);
  OpTensor empty(c, AA_DTYPE_F32, {0, 9});
  OpTensor no_rows(c, AA_DTYPE_F32, {0, 20});
  if (op.run({empty.view(), no_rows.view(), w.view(), absent, absent})) op.compare(empty, {}, "no rows");
  op.finish();
}

void linear_multi(const Context& c) {
  OpRun op(c, "linear_multi", product_limit);
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t m : {1, 4}) {
      for (size_t count = 1; count <= 4; ++count) {
        constexpr int64_t k = 96;
        constexpr int64_t widths[] = {64, 16, 17, 1};
        const auto biased = [&](size_t i) { return (i % 2 == 0) == (m == 1); };
        const int32_t x_dtype = m == 1 ? AA_DTYPE_F32 : dtype;
        OpTensor x(c, x_dtype, {m, k}, small(static_cast<size_t>(m * k), 7), padded);
        std::vector<std::unique_ptr<OpTensor>> out, w, bias;
        std::vector<aa_tensor> tensors{x.view()};
        for (size_t i = 0; i < count; ++i) {
          const int64_t n = widths[i];
          const auto seed = static_cast<unsigned>(10 + i);
          out.push_back(std::make_unique<OpTensor>(c, x_dtype, Shape{m, n}));
          w.push_back(std::make_unique<OpTensor>(c, dtype, Shape{n, k}, small(static_cast<size_t>(n * k), seed)));
          bias.push_back(std::make_unique<OpTensor>(c, dtype, Shape{n}, small(static_cast<size_t>(n), seed + 10)));
          tensors.push_back(out[i]->view());
          tensors.push_back(w[i]->view());
          tensors.push_back(biased(i) ? bias[i]->view() : absent);
        }
        if (!op.run(tensors, nullptr, 0, "", true)) continue;
        for (size_t i = 0; i < count; ++i) {
          Sum sum = product(x, *w[i]);
          if (biased(i)) add_to(sum, bias[i]->given());
          op.compare(*out[i], sum.value, "weight " + std::to_string(i + 1) + " of " + std::to_string(count),
                     sum.magnitude);
        }
      }
    }
  }
  op.finish();
}

// Of tensors that are BF16 all, with products that may be rounded to it; else of all others.
void check_gated_linear(const Context& c, bool bf16) {
  OpRun op(c, "gated_linear",
           {.relative = 1e-5,
            .factor = bf16 ? 0x1p-9 : 270 * 0x1p-24,
            .scale_text = "2.2 (sum of |x w_gate|) (sum of |x w_up|)"});
  for (const auto& [dtype, x_dtype] : {std::pair{AA_DTYPE_F32, AA_DTYPE_F32},
                                       {AA_DTYPE_BF16, AA_DTYPE_F32},
                                       {AA_DTYPE_F16, AA_DTYPE_F32},
                                       {AA_DTYPE_F16, AA_DTYPE_F16},
                                       {AA_DTYPE_BF16, AA_DTYPE_BF16}}) {
    if (bf16 != (x_dtype == AA_DTYPE_BF16)) continue;
    for (const Sizes& s : sizes) {
      for (const bool biased : {false, true}) {
        OpTensor x(c, x_dtype, {s.m, s.k}, small(static_cast<size_t>(s.m * s.k), 8));
        OpTensor gate(c, dtype, {s.n, s.k}, small(static_cast<size_t>(s.n * s.k), 9));
        OpTensor up(c, dtype, {s.n, s.k}, small(static_cast<size_t>(s.n * s.k), 10), padded);
        OpTensor gate_bias(c, dtype, {s.n}, small(static_cast<size_t>(s.n), 11));
        OpTensor up_bias(c, dtype, {s.n}, small(static_cast<size_t>(s.n), 12));
        OpTensor out(c, x_dtype, {s.m, s.n}, {}, padded);
        aa_activation_params params{};
        params.kind = AA_ACTIVATION_SILU;
        if (!op.run({out.view(), x.view(), gate.view(), up.view(), biased ? gate_bias.view() : absent,
                     biased ? up_bias.view() : absent},
                    params)) {
          continue;
        }
        Sum left = product(x, gate);
        Sum right = product(x, up);
        if (biased) {
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
        op.compare(out, expected, text(s, x_dtype, dtype) + (biased ? ", biases" : ""), scale);
      }
    }
  }
  op.finish();
}

void gated_linear(const Context& c) { check_gated_linear(c, false); }
void gated_linear_of_bf16(const Context& c) { check_gated_linear(c, true); }

// Rows of blocks of random bytes whose values are finite and below 64.
struct Blocks {
  Values bytes;
  Values values;
};

Blocks random_blocks(const BlockFormat& format, size_t count, unsigned seed) {
  Blocks blocks;
  std::mt19937 random(seed);
  std::vector<std::byte> block(format.bytes);
  std::vector<float> values(format.values);
  for (size_t i = 0; i < count; ++i) {
    do {
      for (std::byte& byte : block) byte = static_cast<std::byte>(random());
      decode_blocks(format, block, values);
    } while (!std::all_of(values.begin(), values.end(), [](float v) { return std::fabs(v) < 64; }));
    for (const std::byte byte : block) blocks.bytes.push_back(std::to_integer<int>(byte));
    blocks.values.insert(blocks.values.end(), values.begin(), values.end());
  }
  return blocks;
}

// A sum of 512 products; a device may flush products that are no normal numbers.
constexpr Limit quantized_limit{.absolute = 0x1p-110, .factor = 530 * 0x1p-24, .scale_text = product_limit.scale_text};

void quantized_linear(const Context& c) {
  OpRun op(c, "quantized_linear", quantized_limit);
  for (const BlockFormat& format : block_formats()) {
    const int64_t k = 2 * format.values;
    for (const int64_t m : {1, 3, 17}) {
      constexpr int64_t n = 19;
      const Blocks blocks = random_blocks(format, static_cast<size_t>(2 * n), static_cast<unsigned>(format.number));
      const int32_t dtype = m == 3 ? AA_DTYPE_BF16 : AA_DTYPE_F32;
      OpTensor x(c, dtype, {m, k}, small(static_cast<size_t>(m * k), 1), padded);
      OpTensor w(c, AA_DTYPE_U8, {n, 2 * static_cast<int64_t>(format.bytes)}, blocks.bytes,
                 m == 3 ? padded : of_blocks);
      OpTensor bias(c, AA_DTYPE_F32, {n}, small(static_cast<size_t>(n), 3));
      OpTensor residual(c, dtype, {m, n}, small(static_cast<size_t>(m * n), 4));
      OpTensor plain(c, dtype, {m, n});
      OpTensor apart(c, dtype, {m, n});
      Sum sum = conformance::product(x.given(), blocks.values, static_cast<size_t>(k));
      aa_quantized_params params{};
      params.format = static_cast<int32_t>(format.number);
      params.rounding = AA_QUANTIZED_EXACT;
      const std::string what = std::string(format.name) + ", M " + std::to_string(m);
      if (op.run({plain.view(), x.view(), w.view(), absent, absent}, params)) {
        op.compare(plain, sum.value, what, sum.magnitude);
      }
      add_to(sum, bias.given());
      add_to(sum, residual.given());
      if (op.run({apart.view(), x.view(), w.view(), bias.view(), residual.view()}, params)) {
        op.compare(apart, sum.value, what + ", bias, residual", sum.magnitude);
      }
      if (op.run({residual.view(), x.view(), w.view(), bias.view(), residual.view()}, params)) {
        op.compare(residual, sum.value, what + ", bias, residual in place", sum.magnitude);
      }
      op.unchanged(x, "x");
      op.unchanged(w, "w");
    }
  }
  op.finish();
}

void quantized_embedding(const Context& c) {
  OpRun op(c, "quantized_embedding", {.absolute = 0x1p-110});
  for (const BlockFormat& format : block_formats()) {
    const auto k = static_cast<int64_t>(format.values);
    constexpr int64_t rows = 5;
    const Blocks blocks = random_blocks(format, static_cast<size_t>(rows), static_cast<unsigned>(100 + format.number));
    OpTensor table(c, AA_DTYPE_U8, {rows, static_cast<int64_t>(format.bytes)}, blocks.bytes, padded);
    OpTensor ids(c, AA_DTYPE_I32, {4}, {4, 0, 2, 2});
    OpTensor out(c, AA_DTYPE_F32, {4, k}, {}, padded);
    aa_quantized_params params{};
    params.format = static_cast<int32_t>(format.number);
    if (!op.run({out.view(), table.view(), ids.view()}, params)) continue;
    Values expected;
    for (const double id : ids.given()) {
      const auto first = blocks.values.begin() + static_cast<ptrdiff_t>(id) * k;
      expected.insert(expected.end(), first, first + k);
    }
    op.compare(out, expected, std::string(format.name));
  }
  op.finish();
}

// The table has the rows 3 to 7 of a larger one.
void quantized_embedding_shard(const Context& c) {
  OpRun op(c, "quantized_embedding_shard", {.absolute = 0x1p-110});
  for (const BlockFormat& format : block_formats()) {
    const auto k = static_cast<int64_t>(format.values);
    constexpr int64_t rows = 5, first = 3;
    const Blocks blocks = random_blocks(format, static_cast<size_t>(rows), static_cast<unsigned>(200 + format.number));
    OpTensor table(c, AA_DTYPE_U8, {rows, static_cast<int64_t>(format.bytes)}, blocks.bytes, padded);
    OpTensor ids(c, AA_DTYPE_I64, {6}, {7, 2, 3, 8, -1, 2000000000});
    OpTensor out(c, AA_DTYPE_F32, {6, k}, {}, padded);
    aa_quantized_shard_params params{};
    params.format = static_cast<int32_t>(format.number);
    params.first = first;
    if (!op.run({out.view(), table.view(), ids.view()}, params)) continue;
    Values expected;
    for (const double id : ids.given()) {
      const bool here = id >= first && id < first + rows;
      for (int64_t i = 0; i < k; ++i) {
        expected.push_back(here ? blocks.values[static_cast<size_t>((static_cast<int64_t>(id) - first) * k + i)] : 0);
      }
    }
    op.compare(out, expected, std::string(format.name));
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.quantized_linear", "every_format", quantized_linear},
    {"op.quantized_embedding_shard", "gives_zeros_elsewhere", quantized_embedding_shard},
    {"op.quantized_embedding", "every_format", quantized_embedding},
    {"op.linear", "products", linear},
    {"op.linear_multi", "one_to_four_weights", linear_multi},
    {"op.gated_linear", "products", gated_linear},
    {"op.gated_linear", "products_of_bf16", gated_linear_of_bf16},
};

}  // namespace
}  // namespace product_group

std::span<const Case> product_cases() { return product_group::cases; }

}  // namespace anyaccel::conformance
