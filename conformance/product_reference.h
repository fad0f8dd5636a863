// The plain formula of a matrix product, for the cases of ops that contain one.
#pragma once

#include <cmath>

#include "conformance/op_run.h"

namespace anyaccel::conformance {

// Results and, for rounding limits, the sums of the magnitudes of the terms.
struct Sum {
  Values value;
  Values magnitude;
};

// x [M,K], row-major, times transposed w [N,K]; `inputs` is K.
inline Sum product(const Values& x, const Values& w, size_t inputs) {
  const size_t outputs = w.size() / inputs;
  Sum sum;
  for (size_t row = 0; row < x.size(); row += inputs) {
    for (size_t n = 0; n < outputs; ++n) {
      double value = 0;
      double magnitude = 0;
      for (size_t k = 0; k < inputs; ++k) {
        const double term = x[row + k] * w[n * inputs + k];
        value += term;
        magnitude += std::fabs(term);
      }
      sum.value.push_back(value);
      sum.magnitude.push_back(magnitude);
    }
  }
  return sum;
}

inline Sum product(const Values& x, const OpTensor& w) {
  return product(x, w.given(), static_cast<size_t>(w.shape()[1]));
}

inline void add_to(Sum& sum, const Values& values) {  // repeated for every row
  for (size_t i = 0; i < sum.value.size(); ++i) {
    sum.value[i] += values[i % values.size()];
    sum.magnitude[i] += std::fabs(values[i % values.size()]);
  }
}

}  // namespace anyaccel::conformance
