// Declares the steps of the fused optimizers as portable kernels: the functions that kernels/host/optimizers.h defines,
// for arrays on a device.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "anyaccel/driver_accelerator.h"
#include "kernels/host/optimizers.h"
#include "ops/portable/kernel_set.h"

namespace anyaccel::ops::portable {

// Every function enqueues on the calling thread's current stream of `device`, on which all arrays of the parameters
// lie.
class OptimizerKernels {
 public:
  explicit OptimizerKernels(DriverAccelerator& accelerator);

  // Run adam_step and lion_step. `noop` is an int32 on the device; if it is not 0, nothing is done. It may be null.
  void step(std::span<const aa_parameter> parameters, const aa_adam_args& args, const void* noop, int device);
  void step(std::span<const aa_parameter> parameters, const aa_lion_args& args, const void* noop, int device);

  // Runs grad_square_sums; returns a number for each segment. Blocks.
  std::vector<double> square_sums(std::span<const aa_parameter> parameters, int device);

  // Runs lamb_moments; returns the sums of the parameters' segments, then those of the updates'. Blocks.
  std::vector<double> lamb_moments(std::span<const aa_parameter> parameters, const aa_lamb_args& args, int device);
  void lamb_apply(std::span<const aa_parameter> parameters, const aa_lamb_args& args,
                  std::span<const float> coefficients, int device);

 private:
  // Returns the grid of a kernel whose items take `per_item` elements each.
  LaunchShape items_shape(int64_t count, int64_t per_item, int device);
  int64_t step_per_item(int device);
  int64_t lamb_per_item(int device);
  // Returns false for languages in which kernels can have only few arguments, which have no adam_step_many.
  bool has_step_many(int device);
  void step_many(std::span<const aa_parameter* const> parameters, const aa_adam_args& args, const void* noop,
                 int device);
  LaunchShape segments_shape(int64_t count, int device);

  DriverAccelerator& accelerator_;
  KernelSet steps_;
  KernelSet lamb_;
  std::once_flag step_many_known_;
  bool has_step_many_ = false;
};

}  // namespace anyaccel::ops::portable
