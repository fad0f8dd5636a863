// Turns the runs of a benchmark into its figure: medians, and ratios to ceilings.
#include <algorithm>
#include <iterator>

#include "cli/bench/bench.h"

namespace anyaccel::cli::bench {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

void summarize(Result& result, const std::vector<double>& values, bool smaller_is_better) {
  const auto [least, most] = std::ranges::minmax(values);
  result.value = median(values);
  result.runs = static_cast<int>(values.size());
  result.spread = result.value != 0 ? (most - least) / result.value : 0;
  if (result.ceiling > 0 && result.value > 0) {
    result.ratio = smaller_is_better ? result.ceiling / result.value : result.value / result.ceiling;
  }
}

void summarize_turns(Result& result, const std::vector<double>& values, const std::vector<double>& ceilings,
                     bool smaller_is_better) {
  const size_t next = ceilings.size() > values.size() ? 1 : 0;
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) {
    const double before = ceilings[i], after = ceilings[i + next];
    if (before <= 0 || after <= 0 || (smaller_is_better && values[i] <= 0)) continue;
    const double around = (before + after) / 2;
    ratios.push_back(smaller_is_better ? around / values[i] : values[i] / around);
  }
  summarize(result, values, smaller_is_better);
  if (ratios.empty()) return;
  std::vector<double> measured;
  std::ranges::copy_if(ceilings, std::back_inserter(measured), [](double ceiling) { return ceiling > 0; });
  result.ceiling = median(measured);
  result.ratio = median(ratios);
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}
std::vector<double> over(double dividend, std::vector<double> values) {
  for (double& value : values) value = value > 0 ? dividend / value : 0;
  return values;
}

}  // namespace anyaccel::cli::bench
