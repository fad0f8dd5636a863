// References of the normalisations: rms_norm, layer_norm and softmax.
#include <algorithm>
#include <cmath>
#include <limits>

#include "accelerators/cpu/ops.h"
#include "accelerators/cpu/reference/element_access.h"
#include "runtime/ops/op_params.h"

namespace anyaccel::cpu {
namespace {

// Adds x to the residual row by row, if there is one, and returns the tensor that the norm is of.
const aa_tensor& normalised_input(const aa_tensor& x, const aa_tensor& residual) {
  const Elements in(x), sum(residual);
  if (!sum.present()) return x;
  for (int64_t i = 0; i < in.count(); ++i) sum.set(sum.flat(i), in.get(in.flat(i)) + sum.get(sum.flat(i)));
  return residual;
}

}  // namespace

void rms_norm_reference(const aa_op_call& call) {
  const float eps = params_of<aa_norm_params>(call).eps;
  const Elements out(call.tensors[0]), weight(call.tensors[2]);
  const Elements v(normalised_input(call.tensors[1], call.tensors[3]));
  const int64_t h = v.row_length();
  for (int64_t row = 0; row < v.rows(); ++row) {
    double sum = 0;
    for (int64_t i = 0; i < h; ++i) sum += v.get(v.flat(row * h + i)) * v.get(v.flat(row * h + i));
    const double factor = 1 / std::sqrt(sum / static_cast<double>(h) + eps);
    for (int64_t i = 0; i < h; ++i) {
      const double scale = weight.present() ? weight.get(weight.at(i)) : 1.0;
      out.set(out.flat(row * h + i), v.get(v.flat(row * h + i)) * factor * scale);
    }
  }
}

void layer_norm_reference(const aa_op_call& call) {
  const float eps = params_of<aa_norm_params>(call).eps;
  const Elements out(call.tensors[0]), weight(call.tensors[2]), bias(call.tensors[3]);
  const Elements v(normalised_input(call.tensors[1], call.tensors[4]));
  const int64_t h = v.row_length();
  for (int64_t row = 0; row < v.rows(); ++row) {
    double sum = 0;
    for (int64_t i = 0; i < h; ++i) sum += v.get(v.flat(row * h + i));
    const double mean = sum / static_cast<double>(h);
    double squares = 0;
    for (int64_t i = 0; i < h; ++i) {
      const double d = v.get(v.flat(row * h + i)) - mean;
      squares += d * d;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(h) + eps);
    for (int64_t i = 0; i < h; ++i) {
      const double scale = weight.present() ? weight.get(weight.at(i)) : 1.0;
      const double shift = bias.present() ? bias.get(bias.at(i)) : 0.0;
      out.set(out.flat(row * h + i), (v.get(v.flat(row * h + i)) - mean) * factor * scale + shift);
    }
  }
}

void softmax_reference(const aa_op_call& call) {
  const float scale = params_of<aa_softmax_params>(call).scale;
  const Elements out(call.tensors[0]), x(call.tensors[1]);
  const int64_t v = x.row_length();
  for (int64_t row = 0; row < x.rows(); ++row) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < v; ++i) largest = std::max(largest, x.get(x.flat(row * v + i)) * scale);
    double sum = 0;
    for (int64_t i = 0; i < v; ++i) sum += std::exp(x.get(x.flat(row * v + i)) * scale - largest);
    for (int64_t i = 0; i < v; ++i) {
      out.set(out.flat(row * v + i), std::exp(x.get(x.flat(row * v + i)) * scale - largest) / sum);
    }
  }
}

}  // namespace anyaccel::cpu
