// Ops that the host provides for an accelerator whose driver lacks them: the second library in the lookup order, after the
// driver's own "ops" extension and before the CPU with copies there and back.
#pragma once

#include <memory>

#include "anyaccel/abi/ops.h"

namespace anyaccel {

class DriverAccelerator;

class HostedOps {
 public:
  virtual ~HostedOps() = default;
  // A number for supports() and enqueue(); -1 for an op that is not there.
  virtual int32_t find(const char* name) = 0;
  // As in aa_ops_table. The number in `call` is ignored.
  virtual bool supports(int32_t op, const aa_op_call& call, int device) = 0;
  // Enqueues on the calling thread's current stream of the device. Throws what launching throws.
  virtual void enqueue(int32_t op, const aa_op_call& call, int device) = 0;
};

// Null when the accelerator's driver compiles no kernels. Defined with the built-ins.
std::unique_ptr<HostedOps> make_hosted_ops(DriverAccelerator& accelerator);

}  // namespace anyaccel
