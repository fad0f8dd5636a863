// Cases of choosing tokens: argmax, repetition_penalty, frequency_penalty, sample.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "conformance/op_run.h"
#include "conformance/philox.h"

namespace anyaccel::conformance {
namespace sampling_group {
namespace {

void argmax(const Context& c) {
  OpRun op(c, "argmax");
  for (const int32_t dtype : float_dtypes) {
    for (const int32_t index : {AA_DTYPE_I32, AA_DTYPE_I64}) {
      for (const int64_t width : {1, 2, 300, 4099}) {
        const auto w = static_cast<size_t>(width);
        constexpr size_t rows = 5;
        Values values = numbers(rows * w, 1);
        Values expected = {static_cast<double>(w / 3), static_cast<double>(w - 1), 0, static_cast<double>(w / 2), 0};
        values[w / 3] = values[w - 1] = 9;     // equal maxima
        values[w + w - 1] = 9;                 // the last one
        values[2 * w] = 9;                     // the first one
        values[3 * w + w / 2] = std::nan("");  // a NaN above an infinity
        if (w > 2) values[3 * w] = std::numeric_limits<double>::infinity();
        for (size_t j = 0; j < w; ++j) values[4 * w + j] = -std::numeric_limits<double>::infinity();
        OpTensor x(c, dtype, {rows, width}, values, index == AA_DTYPE_I32 ? dense : padded);
        OpTensor out(c, index, {rows}, {}, index == AA_DTYPE_I32 ? dense : spread);
        if (!op.run({out.view(), x.view()})) continue;
        op.compare(out, expected, std::to_string(width) + " wide, of " + dtype_text(dtype));
      }
    }
  }
  op.finish();
}

void repetition_penalty(const Context& c) {
  OpRun op(c, "repetition_penalty", {.relative = 0x1p-23});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : {dense, padded}) {
      Values marks(3 * 131);
      for (size_t i = 0; i < marks.size(); i += 3) marks[i] = 1;
      OpTensor logits(c, dtype, {3, 131}, numbers(3 * 131, 2, 10), layout);
      OpTensor seen(c, AA_DTYPE_U8, {3, 131}, marks, layout);
      aa_repetition_params params{};
      params.penalty = 1.3f;
      if (!op.run({logits.view(), seen.view()}, params)) continue;
      Values expected = logits.given();
      for (size_t i = 0; i < expected.size(); ++i) {
        if (marks[i] != 0) expected[i] = expected[i] > 0 ? expected[i] / params.penalty : expected[i] * params.penalty;
      }
      op.compare(logits, expected, layout.name);
      op.unchanged(seen, "seen");
    }
  }
  op.finish();
}

void frequency_penalty(const Context& c) {
  OpRun op(c, "frequency_penalty", {.absolute = 1e-6, .relative = 0x1p-22});
  for (const int32_t dtype : float_dtypes) {
    for (const Layout& layout : {dense, padded}) {
      for (const bool with_ids : {false, true}) {
        constexpr size_t rows = 3, width = 131;
        Values counts(rows * width);
        for (size_t i = 0; i < counts.size(); i += 3) counts[i] = static_cast<double>(i % 5);
        const Values ids = {3, 4, -1};  // a token counted before, one not counted, and no token
        OpTensor logits(c, dtype, {rows, width}, numbers(rows * width, 2, 10), layout);
        OpTensor counted(c, AA_DTYPE_I32, {rows, width}, counts, layout);
        OpTensor newest(c, AA_DTYPE_I64, {rows}, ids, spread);
        aa_frequency_params params{};
        params.presence = 0.5f;
        params.frequency = -0.25f;
        if (!op.run({logits.view(), counted.view(), with_ids ? newest.view() : absent}, params)) continue;
        for (size_t r = 0; r < 2 && with_ids; ++r) counts[r * width + static_cast<size_t>(ids[r])] += 1;
        Values expected = logits.given();
        for (size_t i = 0; i < expected.size(); ++i) {
          if (counts[i] > 0) expected[i] -= 0.5 - 0.25 * counts[i];
        }
        op.compare(logits, expected, layout.name);
        op.compare(counted, counts, "counts");
        op.unchanged(newest, "ids");
      }
    }
  }
  op.finish();
}

// The tokens that a row may give: one, or its neighbours too where u falls within `margin` of a boundary, which the
// rounding of F32 may move.
std::vector<double> choices(const double* logits, size_t width, const aa_sample_params& p, double u) {
  constexpr double margin = 1e-5;
  std::vector<size_t> order(width);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (p.temperature == 0) return {static_cast<double>(order[0])};
  if (p.top_k > 0) order.resize(std::min(width, static_cast<size_t>(p.top_k)));
  Values weight;
  for (const size_t i : order) weight.push_back(std::exp((logits[i] - logits[order[0]]) / p.temperature));
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  const auto at_least_min_p = static_cast<size_t>(
      std::count_if(weight.begin(), weight.end(), [&](double w) { return w >= static_cast<double>(p.min_p); }));
  std::vector<double> tokens;
  // The cut of top_p may fall on either side of a sum that is nearly top_p.
  for (const double top_p : {p.top_p - margin, static_cast<double>(p.top_p), p.top_p + margin}) {
    size_t kept = 0;
    double total = 0;
    while (kept < weight.size() && (kept == 0 || p.top_p == 1 || total < top_p * all)) total += weight[kept++];
    while (kept > at_least_min_p && kept > 1) total -= weight[--kept];
    for (const double at : {u - margin, u, u + margin}) {
      double sum = 0;
      size_t i = 0;
      while (i + 1 < kept && (sum += weight[i]) <= at * total) ++i;
      tokens.push_back(static_cast<double>(order[i]));
    }
  }
  return tokens;
}

void sample(const Context& c) {
  OpRun op(c, "sample");
  int64_t rows_checked = 0;
  const auto params = [](float temperature, int32_t top_k, float top_p, float min_p = 0) {
    aa_sample_params p{};
    p.min_p = min_p;
    p.temperature = temperature;
    p.top_k = top_k;
    p.top_p = top_p;
    return p;
  };
  for (const int32_t dtype : {AA_DTYPE_F32, AA_DTYPE_BF16}) {
    for (const int64_t width : {1, 40, 3001, 151936}) {
      // The last is the vocabulary of a model: a few rows of it take as long as all others.
      const bool large = width > 100000;
      if (large && dtype != AA_DTYPE_F32) continue;
      for (const aa_sample_params& p :
           {params(1, 0, 1), params(0.7f, 0, 1), params(1.3f, 20, 1), params(1, 0, 0.8f), params(0.9f, 50, 0.95f),
            params(0, 0, 1), params(1, 1, 0.5f), params(1, 0, 1, 0.1f), params(0.8f, 30, 0.9f, 0.05f)}) {
        if (large && p.top_k != 0 && p.top_k != 50) continue;
        const size_t rows = large ? 2 : 9;
        const auto w = static_cast<size_t>(width);
        // Both have more than 32 bits.
        const uint64_t seed = (uint64_t{5} << 33) + 77;
        const uint64_t offset = (uint64_t{3} << 32) + 1000 + w;
        const auto height = static_cast<int64_t>(rows);
        OpTensor logits(c, dtype, {height, width}, numbers(rows * w, 3, 6));
        OpTensor rng(c, AA_DTYPE_I64, {2}, {static_cast<double>(seed), static_cast<double>(offset)});
        OpTensor seen(c, AA_DTYPE_U8, {height, width});
        OpTensor out(c, p.top_k == 50 ? AA_DTYPE_I64 : AA_DTYPE_I32, {height});
        const bool marks = p.top_k != 20 && (p.temperature > 0 || dtype == AA_DTYPE_F32);
        if (!op.run({out.view(), logits.view(), rng.view(), marks ? seen.view() : absent}, p)) continue;
        const Values found = out.found();
        Values expected_seen(rows * w);
        for (size_t r = 0; r < rows; ++r) {
          const double u = (philox(seed, offset + r / 4)[r % 4] >> 8) * 0x1p-24;
          const auto allowed = choices(logits.given().data() + r * w, w, p, u);
          c.expect(std::find(allowed.begin(), allowed.end(), found[r]) != allowed.end(),
                   "\"sample\" of a row of " + std::to_string(width) + " with temperature " +
                       std::to_string(p.temperature) + ", top_k " + std::to_string(p.top_k) + ", top_p " +
                       std::to_string(p.top_p) + " gave token " + std::to_string(found[r]) + " and must give " +
                       std::to_string(allowed[allowed.size() / 2]));
          if (marks) expected_seen[r * w + static_cast<size_t>(found[r])] = 1;
          ++rows_checked;
        }
        op.compare(seen, expected_seen, "seen");
        op.unchanged(rng, "rng");
      }
    }
  }
  op.finish();
  c.note = std::to_string(rows_checked) +
           " tokens are those of the definition, within 1e-5 of a boundary its neighbour; " + c.note;
}

// Rows in which no token can be chosen, because the largest value is a NaN or infinite. In the last two a token can be
// chosen.
void sample_without_a_token(const Context& c) {
  OpRun op(c, "sample");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int32_t dtype : float_dtypes) {
    for (const int64_t width : {40, 4099}) {
      for (const float temperature : {0.0f, 0.8f}) {
        const auto w = static_cast<size_t>(width);
        constexpr size_t rows = 5;
        Values values = numbers(rows * w, 4);
        values[w / 2] = std::nan("");
        values[2 * w - 1] = infinity;
        for (size_t i = 0; i < w; ++i) values[2 * w + i] = values[3 * w + i] = -infinity;
        values[3 * w + 5] = 1;
        values[4 * w] = -infinity;
        values[4 * w + 9] = 100;
        OpTensor logits(c, dtype, {rows, width}, values);
        OpTensor rng(c, AA_DTYPE_I64, {2}, {7, 0});
        OpTensor seen(c, AA_DTYPE_U8, {rows, width});
        OpTensor out(c, AA_DTYPE_I32, {rows});
        aa_sample_params params{};
        params.temperature = temperature;
        params.top_p = 1;
        if (!op.run({out.view(), logits.view(), rng.view(), seen.view()}, params)) continue;
        const std::string what = std::to_string(width) + " wide, temperature " + std::to_string(temperature);
        op.compare(out, {-1, -1, -1, 5, 9}, what);
        Values marks(rows * w);
        marks[3 * w + 5] = marks[4 * w + 9] = 1;
        op.compare(seen, marks, what + ", seen");
      }
    }
  }
  op.finish();
}

constexpr Case cases[] = {
    {"op.argmax", "takes_the_lowest_index", argmax},
    {"op.repetition_penalty", "where_seen", repetition_penalty},
    {"op.frequency_penalty", "of_counts", frequency_penalty},
    {"op.sample", "by_definition", sample},
    {"op.sample", "no_token_without_a_finite_maximum", sample_without_a_token},
};

}  // namespace
}  // namespace sampling_group

std::span<const Case> sampling_cases() { return sampling_group::cases; }

}  // namespace anyaccel::conformance
