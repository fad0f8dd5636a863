// Implements training_reference.h.
#include "conformance/training_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "conformance/philox.h"

namespace anyaccel::conformance {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The largest of a row; -infinity of nothing, and where there are only NaNs.
double largest_of(const Values& row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double value : row) largest = std::max(largest, value);
  return largest;
}

}  // namespace

double activated(int32_t kind, double x) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x * sigmoid(x);
    case AA_ACTIVATION_GELU: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case AA_ACTIVATION_GELU_TANH: return x * sigmoid(std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x));
    case AA_ACTIVATION_RELU: return std::max(x, 0.0);  // x, if it is a NaN
    case AA_ACTIVATION_SIGMOID: return sigmoid(x);
    default: return std::tanh(x);
  }
}

double slope(int32_t kind, double x) {
  const double c = std::sqrt(8 / std::numbers::pi);
  switch (kind) {
    case AA_ACTIVATION_SILU: return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
    case AA_ACTIVATION_GELU:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case AA_ACTIVATION_GELU_TANH: {
      const double s = sigmoid(c * (x + 0.044715 * x * x * x));
      return s + x * s * (1 - s) * c * (1 + 0.134145 * x * x);
    }
    case AA_ACTIVATION_RELU: return std::isnan(x) ? x : x > 0 ? 1 : 0;
    case AA_ACTIVATION_SIGMOID: return sigmoid(x) * sigmoid(-x);
    default: return 1 - std::tanh(x) * std::tanh(x);
  }
}

Values masked_softmax(const Values& x, const Values& mask, size_t width, double scale) {
  Values results;
  for (size_t first = 0; first < x.size(); first += width) {
    Values scores;
    for (size_t j = first; j < first + width; ++j) scores.push_back(x[j] * scale + (mask.empty() ? 0 : mask[j]));
    const double largest = largest_of(scores);
    const bool nothing = std::ranges::all_of(scores, [](double score) { return std::isinf(score) && score < 0; });
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    for (const double score : scores) results.push_back(nothing ? 0 : std::exp(score - largest) / sum);
  }
  return results;
}

Values softmax_gradient(const Values& y, const Values& dy, size_t width, double scale) {
  Values results;
  for (size_t first = 0; first < y.size(); first += width) {
    double sum = 0;
    for (size_t j = first; j < first + width; ++j) sum += y[j] * dy[j];
    for (size_t j = first; j < first + width; ++j) results.push_back(scale * y[j] * (dy[j] - sum));
  }
  return results;
}

NormGradients norm_gradients(const Values& dy, const Values& x, const Values& weight, const Values& mean,
                             const Values& variance, size_t width) {
  NormGradients results{{}, Values(width), Values(width), Values(width), Values(width)};
  const auto count = static_cast<double>(width);
  Values normed(width), weighted(width);
  for (size_t row = 0; row < variance.size(); ++row) {
    const double factor = 1 / std::sqrt(variance[row]);
    double sum = 0, product = 0;
    for (size_t j = 0; j < width; ++j) {
      const double up = dy[row * width + j];
      normed[j] = (x[row * width + j] - (mean.empty() ? 0 : mean[row])) * factor;
      weighted[j] = weight.empty() ? up : up * weight[j];
      if (!mean.empty()) sum += weighted[j] / count;
      product += weighted[j] * normed[j] / count;
      results.dweight[j] += up * normed[j];
      results.dbias[j] += up;
      results.dweight_magnitude[j] += std::fabs(up * normed[j]);
      results.dbias_magnitude[j] += std::fabs(up);
    }
    for (size_t j = 0; j < width; ++j) results.dx.push_back((weighted[j] - sum - normed[j] * product) * factor);
  }
  return results;
}

Values inverse_layer_norm(const Values& y, const Values& weight, const Values& bias, const Values& mean,
                          const Values& variance) {
  const size_t width = weight.size();
  Values results;
  for (size_t i = 0; i < y.size(); ++i) {
    const double normed = (y[i] - bias[i % width]) / weight[i % width];
    results.push_back(normed * std::sqrt(variance[i / width]) + mean[i / width]);
  }
  return results;
}

Loss cross_entropy_of(const Values& x, const Values& targets, size_t width, double scale) {
  Loss results;
  for (size_t row = 0; row < targets.size(); ++row) {
    const Values scores(x.begin() + static_cast<ptrdiff_t>(row * width),
                        x.begin() + static_cast<ptrdiff_t>((row + 1) * width));
    const double target = targets[row], largest = largest_of(scores);
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    results.loss.push_back(target < 0 ? 0 : std::log(sum) + largest - scores[static_cast<size_t>(target)]);
    for (size_t j = 0; j < width; ++j) {
      const double probability = std::exp(scores[j] - largest) / sum;
      results.dx.push_back(target < 0 ? 0 : scale * (probability - (static_cast<double>(j) == target ? 1 : 0)));
    }
  }
  return results;
}

Values dropout_mask(const aa_dropout_params& params, size_t count) {
  Values kept;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t word = philox(params.seed, params.offset + i / 4)[i % 4];
    kept.push_back(static_cast<float>(word >> 8) * 0x1p-24f >= params.ratio ? 1 : 0);
  }
  return kept;
}

Values masked(const Values& x, const Values& mask, double scale) {
  Values results;
  for (size_t i = 0; i < x.size(); ++i) results.push_back(mask[i] != 0 ? x[i] * scale : 0);
  return results;
}

Values with_rows_added(Values dtable, const Values& dy, const Values& ids, size_t width) {
  for (size_t i = 0; i < dy.size(); ++i) dtable[static_cast<size_t>(ids[i / width]) * width + i % width] += dy[i];
  return dtable;
}

GatedGradients gated_gradients(int32_t kind, const Values& gate, const Values& up, const Values& dy) {
  GatedGradients results;
  for (size_t i = 0; i < gate.size(); ++i) {
    results.dgate.push_back(dy[i] * up[i] * slope(kind, gate[i]));
    results.dup.push_back(dy[i] * activated(kind, gate[i]));
    results.out.push_back(activated(kind, gate[i]) * up[i]);
  }
  return results;
}

}  // namespace anyaccel::conformance
