// The plain formula of a matrix product, for the cases of ops that contain one.
#pragma once

#include <algorithm>
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
  Sum sum{Values(x.size() / inputs * outputs), Values(x.size() / inputs * outputs)};
  size_t at = 0;
  for (size_t row = 0; row < x.size(); row += inputs) {
    size_t n = 0;
    // Four outputs at a time: the additions of one wait for each other.
    for (; n + 4 <= outputs; n += 4, at += 4) {
      const double* const a = &x[row];
      const double* const w0 = &w[n * inputs];
      const double *const w1 = w0 + inputs, *const w2 = w1 + inputs, *const w3 = w2 + inputs;
      double v0 = 0, v1 = 0, v2 = 0, v3 = 0, m0 = 0, m1 = 0, m2 = 0, m3 = 0;
      for (size_t k = 0; k < inputs; ++k) {
        const double t0 = a[k] * w0[k], t1 = a[k] * w1[k], t2 = a[k] * w2[k], t3 = a[k] * w3[k];
        v0 += t0, v1 += t1, v2 += t2, v3 += t3;
        m0 += std::fabs(t0), m1 += std::fabs(t1), m2 += std::fabs(t2), m3 += std::fabs(t3);
      }
      const double values[] = {v0, v1, v2, v3}, magnitudes[] = {m0, m1, m2, m3};
      std::copy_n(values, 4, &sum.value[at]);
      std::copy_n(magnitudes, 4, &sum.magnitude[at]);
    }
    for (; n < outputs; ++n, ++at) {
      for (size_t k = 0; k < inputs; ++k) {
        const double term = x[row + k] * w[n * inputs + k];
        sum.value[at] += term;
        sum.magnitude[at] += std::fabs(term);
      }
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
