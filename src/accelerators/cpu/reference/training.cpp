// References of the ops of training: matmul, softmax_masked, the gradients of softmax, of the norms and of activations,
// moments, layer_norm_inverse, dropout, apply_mask, column_sums, scaled_add, multiply, cross_entropy, embedding_backward and
// gated_activation_backward.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "accelerators/cpu/kernels/checks.h"
#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"
#include "anyaccel/philox.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activated(double x, int kind) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return x * sigmoid(x);
    case AA_ACTIVATION_GELU: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case AA_ACTIVATION_GELU_TANH: return x * sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
    case AA_ACTIVATION_RELU: return x > 0 ? x : x <= 0 ? 0 : x;
    case AA_ACTIVATION_SIGMOID: return sigmoid(x);
    default: return std::tanh(x);
  }
}

// The derivative of an activation.
double slope(double x, int kind) {
  switch (kind) {
    case AA_ACTIVATION_SILU: return sigmoid(x) * (1 + x * sigmoid(-x));
    case AA_ACTIVATION_GELU:
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case AA_ACTIVATION_GELU_TANH: {
      // x sigmoid(2u) is differentiated.
      const double c = 2 * std::sqrt(2 / std::numbers::pi);
      const double twice = c * (x + 0.044715 * x * x * x);
      return sigmoid(twice) + x * sigmoid(twice) * sigmoid(-twice) * c * (1 + 3 * 0.044715 * x * x);
    }
    case AA_ACTIVATION_RELU: return x > 0 ? 1 : x <= 0 ? 0 : x;
    case AA_ACTIVATION_SIGMOID: return sigmoid(x) * sigmoid(-x);
    default: return 1 - std::tanh(x) * std::tanh(x);
  }
}

}  // namespace

void matmul_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), a(call.tensors[1]), b(call.tensors[2]);
  const int d = call.tensors[0].ndim;
  const int64_t m = out.dim(d - 2), n = out.dim(d - 1), k = a.dim(d - 1);
  const bool accumulate = params_of<aa_accumulate_params>(call).accumulate != 0;
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
    double sum = accumulate ? out.get(out.flat(i)) : 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += a.get(a.flat((batch * m + row) * k + j)) * b.get(b.flat((batch * k + j) * n + column));
    }
    out.set(out.flat(i), sum);
  }
}

void softmax_masked_reference(const aa_op_call& call) {
  const double scale = params_of<aa_softmax_params>(call).scale;
  const Elements out(call.tensors[0]), x(call.tensors[1]), mask(call.tensors[2]);
  const int64_t v = x.row_length();
  const auto score = [&](int64_t i) {
    return x.get(x.flat(i)) * scale + (mask.present() ? mask.get(mask.flat(i)) : 0);
  };
  for (int64_t row = 0; row < x.rows(); ++row) {
    double largest = -std::numeric_limits<double>::infinity();
    bool numbers = true;
    for (int64_t i = row * v; i < (row + 1) * v; ++i) {
      largest = std::max(largest, score(i));
      numbers = numbers && !std::isnan(score(i));
    }
    const bool nothing = numbers && largest == -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (int64_t i = row * v; i < (row + 1) * v; ++i) sum += nothing ? 1 : std::exp(score(i) - largest);
    for (int64_t i = row * v; i < (row + 1) * v; ++i) {
      out.set(out.flat(i), nothing ? 0 : std::exp(score(i) - largest) / sum);
    }
  }
}

void softmax_backward_reference(const aa_op_call& call) {
  const double scale = params_of<aa_softmax_params>(call).scale;
  const Elements dx(call.tensors[0]), y(call.tensors[1]), dy(call.tensors[2]);
  const int64_t v = y.row_length();
  for (int64_t row = 0; row < y.rows(); ++row) {
    double sum = 0;
    for (int64_t i = row * v; i < (row + 1) * v; ++i) sum += y.get(y.flat(i)) * dy.get(dy.flat(i));
    for (int64_t i = row * v; i < (row + 1) * v; ++i) {
      dx.set(dx.flat(i), scale * y.get(y.flat(i)) * (dy.get(dy.flat(i)) - sum));
    }
  }
}

void moments_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_moments_params>(call);
  const Elements mean(call.tensors[0]), variance(call.tensors[1]), x(call.tensors[2]);
  const int64_t h = x.row_length();
  for (int64_t row = 0; row < x.rows(); ++row) {
    double middle = 0, squares = 0;
    for (int64_t i = 0; i < h && params.centred; ++i) middle += x.get(x.flat(row * h + i)) / static_cast<double>(h);
    for (int64_t i = 0; i < h; ++i) squares += std::pow(x.get(x.flat(row * h + i)) - middle, 2);
    mean.set(mean.flat(row), middle);
    variance.set(variance.flat(row), squares / static_cast<double>(h) + static_cast<double>(params.eps));
  }
}

void norm_backward_reference(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const Elements dx(t[0]), dweight(t[1]), dbias(t[2]), dy(t[3]), x(t[4]), weight(t[5]), mean(t[6]), variance(t[7]);
  const bool accumulate = params_of<aa_accumulate_params>(call).accumulate != 0;
  const int64_t h = x.row_length(), rows = x.rows();
  const auto factor = [&](int64_t row) { return 1 / std::sqrt(variance.get(variance.flat(row))); };
  const auto normed = [&](int64_t row, int64_t i) {
    return (x.get(x.flat(row * h + i)) - (mean.present() ? mean.get(mean.flat(row)) : 0)) * factor(row);
  };
  const auto upstream = [&](int64_t row, int64_t i) { return dy.get(dy.flat(row * h + i)); };
  const auto weighted = [&](int64_t row, int64_t i) {
    return upstream(row, i) * (weight.present() ? weight.get(weight.at(i)) : 1);
  };
  for (int64_t i = 0; i < h; ++i) {
    double weights = 0, biases = 0;
    if (accumulate && dweight.present()) weights = dweight.get(dweight.at(i));
    if (accumulate && dbias.present()) biases = dbias.get(dbias.at(i));
    for (int64_t row = 0; row < rows; ++row) {
      weights += upstream(row, i) * normed(row, i);
      biases += upstream(row, i);
    }
    if (dweight.present()) dweight.set(dweight.at(i), weights);
    if (dbias.present()) dbias.set(dbias.at(i), biases);
  }
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < h; ++i) {
      if (mean.present()) sum += weighted(row, i) / static_cast<double>(h);
      product += weighted(row, i) * normed(row, i) / static_cast<double>(h);
    }
    // dx may be dy: an element is read before it is written, and not again.
    for (int64_t i = 0; i < h; ++i) {
      dx.set(dx.flat(row * h + i), (weighted(row, i) - sum - normed(row, i) * product) * factor(row));
    }
  }
}

void layer_norm_inverse_reference(const aa_op_call& call) {
  const aa_tensor* t = call.tensors;
  const Elements x(t[0]), y(t[1]), weight(t[2]), bias(t[3]), mean(t[4]), variance(t[5]);
  const int64_t h = y.row_length();
  for (int64_t i = 0; i < y.count(); ++i) {
    const double normed = (y.get(y.flat(i)) - bias.get(bias.at(i % h))) / weight.get(weight.at(i % h));
    x.set(x.flat(i), normed * std::sqrt(variance.get(variance.flat(i / h))) + mean.get(mean.flat(i / h)));
  }
}

void activation_backward_reference(const aa_op_call& call) {
  const int kind = params_of<aa_activation_params>(call).kind;
  const Elements dx(call.tensors[0]), x(call.tensors[1]), dy(call.tensors[2]);
  for (int64_t i = 0; i < x.count(); ++i) {
    dx.set(dx.flat(i), dy.get(dy.flat(i)) * slope(x.get(x.flat(i)), kind));
  }
}

void dropout_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_dropout_params>(call);
  const Elements out(call.tensors[0]), mask(call.tensors[1]), x(call.tensors[2]);
  const double ratio = params.ratio;
  for (int64_t i = 0; i < x.count(); ++i) {
    const auto n = static_cast<uint64_t>(i);
    const bool kept = philox_unit(philox_words(params.seed, params.offset + n / 4)[n % 4]) >= params.ratio;
    const double value = x.get(x.flat(i));
    mask.set(mask.flat(i), int64_t{kept});
    out.set(out.flat(i), kept ? value / (1 - ratio) : 0.0);
  }
}

void apply_mask_reference(const aa_op_call& call) {
  const double scale = params_of<aa_softmax_params>(call).scale;
  const Elements out(call.tensors[0]), x(call.tensors[1]), mask(call.tensors[2]);
  for (int64_t i = 0; i < x.count(); ++i) {
    out.set(out.flat(i), mask.get_integer(mask.flat(i)) != 0 ? x.get(x.flat(i)) * scale : 0.0);
  }
}

void column_sums_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), x(call.tensors[1]);
  const bool accumulate = params_of<aa_accumulate_params>(call).accumulate != 0;
  const int64_t h = out.dim(0);
  for (int64_t i = 0; i < h; ++i) {
    double sum = accumulate ? out.get(out.at(i)) : 0;
    for (int64_t row = 0; row < x.rows(); ++row) sum += x.get(x.flat(row * h + i));
    out.set(out.at(i), sum);
  }
}

void scaled_add_reference(const aa_op_call& call) {
  const auto& params = params_of<aa_scaled_add_params>(call);
  const Elements out(call.tensors[0]), a(call.tensors[1]), b(call.tensors[2]);
  for (int64_t i = 0; i < a.count(); ++i) {
    const double right = b.present() ? static_cast<double>(params.beta) * b.get(b.flat(i)) : 0;
    out.set(out.flat(i), static_cast<double>(params.alpha) * a.get(a.flat(i)) + right);
  }
}

void multiply_reference(const aa_op_call& call) {
  const Elements out(call.tensors[0]), a(call.tensors[1]), b(call.tensors[2]);
  for (int64_t i = 0; i < a.count(); ++i) out.set(out.flat(i), a.get(a.flat(i)) * b.get(b.flat(i)));
}

void cross_entropy_reference(const aa_op_call& call) {
  const double scale = params_of<aa_softmax_params>(call).scale;
  const Elements loss(call.tensors[0]), dx(call.tensors[1]), x(call.tensors[2]), targets(call.tensors[3]);
  const int64_t v = x.row_length();
  check_targets("cross_entropy", call.tensors[3], v);
  for (int64_t row = 0; row < x.rows(); ++row) {
    const int64_t target = targets.get_integer(targets.at(row));
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < v; ++i) largest = std::max(largest, x.get(x.at(row, i)));
    double sum = 0;
    for (int64_t i = 0; i < v; ++i) sum += std::exp(x.get(x.at(row, i)) - largest);
    loss.set(loss.at(row), target < 0 ? 0.0 : std::log(sum) + largest - x.get(x.at(row, target)));
    for (int64_t i = 0; i < v && dx.present(); ++i) {
      const double probability = std::exp(x.get(x.at(row, i)) - largest) / sum;
      dx.set(dx.at(row, i), target < 0 ? 0.0 : scale * (probability - (i == target ? 1 : 0)));
    }
  }
}

void embedding_backward_reference(const aa_op_call& call) {
  const Elements dtable(call.tensors[0]), dy(call.tensors[1]), ids(call.tensors[2]);
  check_indices("embedding_backward", "ids", call.tensors[2], dtable.dim(0), "rows of the table");
  for (int64_t t = 0; t < dy.dim(0); ++t) {
    const int64_t id = ids.get_integer(ids.at(t));
    for (int64_t i = 0; i < dy.dim(1); ++i) {
      dtable.set(dtable.at(id, i), dtable.get(dtable.at(id, i)) + dy.get(dy.at(t, i)));
    }
  }
}

void gated_activation_backward_reference(const aa_op_call& call) {
  const int kind = params_of<aa_activation_params>(call).kind;
  const aa_tensor* t = call.tensors;
  const Elements dgate(t[0]), dup(t[1]), out(t[2]), gate(t[3]), up(t[4]), dy(t[5]);
  for (int64_t i = 0; i < gate.count(); ++i) {
    const double g = gate.get(gate.flat(i)), u = up.get(up.flat(i)), d = dy.get(dy.flat(i));
    dgate.set(dgate.flat(i), d * u * slope(g, kind));
    dup.set(dup.flat(i), d * activated(g, kind));
    if (out.present()) out.set(out.flat(i), activated(g, kind) * u);
  }
}

}  // namespace anyaccel::cpu
