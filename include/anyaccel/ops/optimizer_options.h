// Options that the optimizers of anyaccel/ops have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "anyaccel/tensor.h"

namespace anyaccel::ops {

// The gradients of a step, before anything else is done with them.
struct GradientOptions {
  // Factor for every gradient, for example 1 / loss scale.
  double scale = 1;
  // If it is above 0 and the norm of all scaled gradients of the call together (L2, summed in double) exceeds it, they
  // are multiplied by max_norm / (norm + 1e-6). When the norm is not finite, the call changes nothing.
  double max_norm = 0;
};

// Rules for the tensors of every optimizer; a call that breaks one throws InvalidArgument, which names the tensor:
//   - dtypes: a parameter is float32, bfloat16 or float16; its states are all float32 or all of the parameter's dtype;
//     its gradient is float32 or of the parameter's dtype, and for a float32 parameter any of the three. Arithmetic is
//     float32 everywhere, and results are rounded to nearest even.
//   - shapes equal the parameter's; any strides (tensors that are not contiguous are copied there and back).
//   - `copy`, where it is given, receives the new parameters as well, in its own dtype.
//   - no tensor that is written (all but the gradients) shares memory with another tensor of the call.
// Results are bit-identical for every number of threads, every instruction set and every way to divide a list into
// calls (except NaNs, which stay NaNs). Denormal numbers count as zero.

}  // namespace anyaccel::ops
