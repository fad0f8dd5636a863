// Cases of matrix products: linear, linear_multi, gated_linear.
#include <cmath>
#include <memory>

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
        OpTensor x(c, AA_DTYPE_F32, {m, k}, small(static_cast<size_t>(m * k), 7), padded);
        std::vector<std::unique_ptr<OpTensor>> out, w, bias;
        std::vector<aa_tensor> tensors{x.view()};
        for (size_t i = 0; i < count; ++i) {
          const int64_t n = widths[i];
          const auto seed = static_cast<unsigned>(10 + i);
          out.push_back(std::make_unique<OpTensor>(c, AA_DTYPE_F32, Shape{m, n}));
          w.push_back(std::make_unique<OpTensor>(c, dtype, Shape{n, k}, small(static_cast<size_t>(n * k), seed)));
          bias.push_back(std::make_unique<OpTensor>(c, dtype, Shape{n}, small(static_cast<size_t>(n), seed + 10)));
          tensors.push_back(out[i]->view());
          tensors.push_back(w[i]->view());
          tensors.push_back(i % 2 == 0 ? bias[i]->view() : absent);
        }
        if (!op.run(tensors, nullptr, 0, "", true)) continue;
        for (size_t i = 0; i < count; ++i) {
          Sum sum = product(x, *w[i]);
          if (i % 2 == 0) add_to(sum, bias[i]->given());
          op.compare(*out[i], sum.value, "weight " + std::to_string(i + 1) + " of " + std::to_string(count),
                     sum.magnitude);
        }
      }
    }
  }
  op.finish();
}

void gated_linear(const Context& c) {
  OpRun op(c, "gated_linear",
           {.relative = 1e-5, .factor = 270 * 0x1p-24, .scale_text = "2.2 (sum of |x w_gate|) (sum of |x w_up|)"});
  for (const int32_t dtype : float_dtypes) {
    for (const Sizes& s : sizes) {
      for (const bool biased : {false, true}) {
        OpTensor x(c, AA_DTYPE_F32, {s.m, s.k}, small(static_cast<size_t>(s.m * s.k), 8));
        OpTensor gate(c, dtype, {s.n, s.k}, small(static_cast<size_t>(s.n * s.k), 9));
        OpTensor up(c, dtype, {s.n, s.k}, small(static_cast<size_t>(s.n * s.k), 10), padded);
        OpTensor gate_bias(c, dtype, {s.n}, small(static_cast<size_t>(s.n), 11));
        OpTensor up_bias(c, dtype, {s.n}, small(static_cast<size_t>(s.n), 12));
        OpTensor out(c, AA_DTYPE_F32, {s.m, s.n}, {}, padded);
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
        op.compare(out, expected, text(s, AA_DTYPE_F32, dtype) + (biased ? ", biases" : ""), scale);
      }
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.linear", "products", linear},
    {"op.linear_multi", "one_to_four_weights", linear_multi},
    {"op.gated_linear", "products", gated_linear},
};

}  // namespace
}  // namespace product_group

std::span<const Case> product_cases() { return product_group::cases; }

}  // namespace anyaccel::conformance
