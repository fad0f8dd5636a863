// Runs the step of Adam with a driver's own op (anyaccel/abi/optimizer_ops.h).
#pragma once

#include <span>

#include "anyaccel/accelerator.h"
#include "anyaccel/ops/cpu_adam.h"
#include "ops/host/optimizers.h"

namespace anyaccel::ops {

class DriverAdam {
 public:
  // `accelerator` outlives the object.
  explicit DriverAdam(Accelerator& accelerator);

  // Runs the step on the current stream and returns true; or returns false with nothing done, if the accelerator lacks
  // the op, does not take one of the parameters, or has something to do that the op does not: scaled or clipped
  // gradients, copies, moments whose bias is not corrected. `noop` may be empty; the call waits for it.
  bool step(const OptimizerSpec& spec, std::span<const ParameterTensors> parameters, int64_t step, bool adamw,
            const AdamOptions& options, const Tensor& noop) const;

 private:
  Accelerator& accelerator_;
  const int32_t op_;  // -1: there is none
};

}  // namespace anyaccel::ops
