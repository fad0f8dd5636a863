// Formulas of the ops of training, which the cases of ordinary values, of special ones and of sizes share. Arguments are rows of
// `width` numbers one after another; an argument that may be absent is empty then.
#pragma once

#include "conformance/op_run.h"

namespace anyaccel::conformance {

double activated(int32_t kind, double x);
double slope(int32_t kind, double x);  // the derivative of activated()

// Softmax of x * scale + mask.
Values masked_softmax(const Values& x, const Values& mask, size_t width, double scale);
Values softmax_gradient(const Values& y, const Values& dy, size_t width, double scale);

// Without a mean, the gradients of rms_norm. dweight and dbias are sums over the rows; magnitudes are the sums of the
// magnitudes of what they add.
struct NormGradients {
  Values dx, dweight, dbias;
  Values dweight_magnitude, dbias_magnitude;
};
NormGradients norm_gradients(const Values& dy, const Values& x, const Values& weight, const Values& mean,
                             const Values& variance, size_t width);

Values inverse_layer_norm(const Values& y, const Values& weight, const Values& bias, const Values& mean,
                          const Values& variance);

struct Loss {
  Values loss, dx;
};
Loss cross_entropy_of(const Values& x, const Values& targets, size_t width, double scale);

// 1 for each of the first `count` elements that dropout keeps.
Values dropout_mask(const aa_dropout_params& params, size_t count);
// mask ? x * scale : 0
Values masked(const Values& x, const Values& mask, double scale);

// dtable with the rows of dy added at their ids.
Values with_rows_added(Values dtable, const Values& dy, const Values& ids, size_t width);

struct GatedGradients {
  Values dgate, dup, out;
};
GatedGradients gated_gradients(int32_t kind, const Values& gate, const Values& up, const Values& dy);

}  // namespace anyaccel::conformance
