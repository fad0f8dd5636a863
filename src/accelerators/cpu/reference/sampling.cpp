// References of argmax and sample.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"
#include "anyaccel/philox.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

int64_t argmax_of_row(const Elements& x, int64_t row) {
  int64_t best = 0;
  for (int64_t i = 0; i < x.dim(1); ++i) {
    const double value = x.get(x.at(row, i)), champion = x.get(x.at(row, best));
    if (std::isnan(champion)) break;
    if (std::isnan(value) || value > champion) best = i;
  }
  return best;
}

int64_t sample_of_row(const Elements& x, int64_t row, const aa_sample_params& params, float u) {
  const int64_t best = argmax_of_row(x, row);
  const double largest = x.get(x.at(row, best));
  if (!std::isfinite(largest)) return -1;
  if (params.temperature == 0) return best;

  std::vector<int64_t> order(static_cast<size_t>(x.dim(1)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return x.get(x.at(row, a)) > x.get(x.at(row, b)); });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));

  std::vector<double> weight;
  for (int64_t i : order) weight.push_back(std::exp((x.get(x.at(row, i)) - largest) / params.temperature));
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (params.top_p < 1) {
    size_t kept = 0;
    double sum = 0;
    while (kept < weight.size() && sum < params.top_p * total) sum += weight[kept++];
    order.resize(kept);
    total = sum;
  }
  if (params.min_p > 0) {
    while (order.size() > 1 && weight[order.size() - 1] < static_cast<double>(params.min_p)) order.pop_back();
    total = std::accumulate(weight.begin(), weight.begin() + static_cast<ptrdiff_t>(order.size()), 0.0);
  }
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    sum += weight[i];
    if (sum > u * total) return order[i];
  }
  return order.back();
}

}  // namespace

void argmax_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), x(call.tensors[1]);
  for (int64_t row = 0; row < x.dim(0); ++row) out.set(out.at(row), argmax_of_row(x, row));
}

void sample_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_sample_params>(call);
  const Elements out(call.tensors[0]), logits(call.tensors[1]), rng(call.tensors[2]), seen(call.tensors[3]);
  const uint64_t seed = static_cast<uint64_t>(rng.get_integer(rng.at(0)));
  const uint64_t offset = static_cast<uint64_t>(rng.get_integer(rng.at(1)));
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    const uint64_t n = static_cast<uint64_t>(row);
    const float u = philox_unit(philox_words(seed, offset + n / 4)[n % 4]);
    const int64_t token = sample_of_row(logits, row, params, u);
    out.set(out.at(row), token);
    if (seen.present() && token >= 0) seen.set(seen.at(row, token), int64_t{1});
  }
}

}  // namespace anyaccel::cpu
