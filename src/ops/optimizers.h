// What the faces of the optimizers share: tensors are checked, reached and described to the loaded code.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/accelerator.h"
#include "anyaccel/op_builder.h"
#include "anyaccel/ops/optimizer_options.h"
#include "kernels/host/optimizers.h"

namespace anyaccel::ops {

// One parameter of a call, as the caller gave it.
struct ParameterTensors {
  const Tensor* param;
  const Tensor* grad;
  std::array<const Tensor*, 2> states;  // null: the optimizer has fewer
  const Tensor* copy;                   // may be empty
};

struct OptimizerSpec {
  const char* op;                          // "adam_update"
  std::array<const char*, 2> state_names;  // null where there is no state
  // Tensors must be where the host reaches them; else they are copied there and back.
  bool host_only;
};

// Checks everything, waits for the accelerator's work on the tensors, and calls `body` with one aa_parameter each. Arrays
// that are not contiguous, or not reachable, are copied there and back.
void run_optimizer(Accelerator& accelerator, const OptimizerSpec& spec, std::span<const ParameterTensors> parameters,
                   const std::function<void(std::span<const aa_parameter>)>& body);

// The factor for the gradients of a call, and their norm if they are clipped.
struct GradientScale {
  float factor = 1;
  double norm = 0;
  bool skip = false;  // the norm is not finite
};
GradientScale gradient_scale(const GradientOptions& options, aa_grad_square_sums* sums,
                             std::span<const aa_parameter> parameters);

// Sums of squares of all segments of the parameters.
int64_t segment_count(std::span<const aa_parameter> parameters);

// InvalidArgument that names op and option.
void check_step(const char* op, int64_t step);
void check_beta(const char* op, const char* name, double value);          // in [0, 1)
void check_not_negative(const char* op, const char* name, double value);  // and finite
void check_gradient_options(const char* op, const GradientOptions& options);
[[noreturn]] void throw_unknown_optimizer(const char* op, int id, const char* create);

// The lists of multi_tensor_*: `names` of the required ones, and "copies", which may be missing.
void check_tensor_lists(const char* op, int64_t chunk_size, std::span<const std::vector<Tensor>> lists,
                        std::span<const char* const> names);
// Whether the flag says to do nothing.
bool noop_asked(const char* op, const Tensor& noop_flag);

}  // namespace anyaccel::ops
