// Ops of the host's portable kernels, for an accelerator whose driver lacks them: the second library in the lookup order, after
// the driver's own "ops" extension and before the CPU with copies there and back. The runtime does not know how they are made.
#pragma once

#include <memory>

#include "anyaccel/abi/ops.h"
#include "runtime/ops/op_list.h"

namespace anyaccel {

class DriverAccelerator;

class PortableOps {
 public:
  virtual ~PortableOps() = default;
  virtual bool has(Op op) const = 0;
  // As in aa_ops_table. The number in `call` is ignored.
  virtual bool supports(Op op, const aa_op_call& call, int device) = 0;
  // Enqueues on the calling thread's current stream of the device. Throws what launching throws.
  virtual void enqueue(Op op, const aa_op_call& call, int device) = 0;
};

// Null when the accelerator's driver compiles no kernels. Defined with the built-ins.
std::unique_ptr<PortableOps> make_portable_ops(DriverAccelerator& accelerator);

}  // namespace anyaccel
